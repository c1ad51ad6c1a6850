"The command line from outside: quick help, one line for every mistake, the right exit codes."

import json
import os
import subprocess
import sys
import time
from importlib import resources

import pytest

from gamerl.checkpoints import write_checkpoint

CALL = "import sys; from gamerl.cli import main; sys.exit(main())"


def gamerl(*words, cwd=None, code=CALL) -> subprocess.CompletedProcess:
    "Run the command in a process of its own."
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=cwd
    )


def test_help_is_quick():
    "The best of three, so that a busy machine does not count."

    def seconds():
        start = time.perf_counter()
        done = gamerl("--help")
        assert done.returncode == 0 and "train" in done.stdout and done.stderr == ""
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 1


def test_torch_is_not_imported_before_it_is_needed():
    code = """
import sys
from gamerl.cli import main
import gamerl.config, gamerl.checkpoints
for words in (["--help"], ["train", "--help"], ["info", "--options"]):
    try:
        main(words)
    except SystemExit:
        pass
assert not {"torch", "transformers", "peft"} & set(sys.modules)
"""
    done = gamerl(code=code)
    assert done.returncode == 0, done.stderr


def test_help_of_every_command_names_its_flags():
    flags = {
        "train": ["--profile", "--config", "--resume_from", "--resume"],
        "evaluate": ["--checkpoint", "--games", "--opponent", "--num_episodes", "--seed", "--json"],
        "serve": [
            "--host",
            "--port",
            "--token",
            "--max_episodes",
            "--max_age",
            "--max_body",
            "--max_simulations",
            "--endpoints",
        ],
        "preferences": [
            "--game",
            "--judge",
            "--count",
            "--min_margin",
            "--positions",
            "--illegal_share",
            "--seed",
            "--output",
            "--prompts",
        ],
        "reward": [
            "--data",
            "--output_dir",
            "--model_name",
            "--head",
            "--num_epochs",
            "--learning_rate",
            "--batch_size",
            "--lora_r",
            "--use_4bit",
            "--held_out",
            "--max_length",
            "--seed",
        ],
        "info": ["--options", "--json"],
    }
    for command, names in flags.items():
        done = gamerl(command, "--help")
        assert done.returncode == 0 and all(name in done.stdout for name in names)


def test_version():
    from gamerl import __version__

    assert gamerl("--version").stdout == f"gamerl {__version__}\n"


def test_no_words_show_the_help():
    assert gamerl().stdout == gamerl("--help").stdout


def test_info_as_json():
    shown = json.loads(gamerl("info", "--json").stdout)
    assert set(shown) == {"versions", "machine", "profiles"}
    assert "tiny" in shown["profiles"] and shown["versions"]["torch"][0].isdigit()


def test_info_lists_every_option():
    from gamerl.config import HOMES

    listed = json.loads(gamerl("info", "--options", "--json").stdout)["options"]
    assert set(listed) == {".".join(home) for home in HOMES.values()}


def test_packaged_data():
    profiles = resources.files("gamerl") / "data" / "profiles"
    assert (profiles / "tiny.json").is_file()


@pytest.fixture
def damaged(tmp_path):
    "A run whose only checkpoint lost the end of a file."
    folder = write_checkpoint(
        tmp_path / "run", "checkpoint-1", lambda f: (f / "state.pt").write_bytes(bytes(99))
    )
    os.truncate(folder / "state.pt", 50)
    return folder


MISTAKES = [
    (["trian"], "'trian' is no command; did you mean train?"),
    (["train", "--config", "absent.json"], "absent.json: cannot be read: No such file or directory"),
    (["train", "--config", "broken.json"], "broken.json: broken JSON at line 2, column 1"),
    (["train", "--profile", "huge"], "profile 'huge' is unknown; the profiles are"),
    (["train", "--profile"], "Missing value for argument '--profile'"),
    (
        ["train", "--ppo.learning_rate", "-1"],
        "ppo.learning_rate: -1 is not allowed; it must be greater than 0",
    ),
    (["train", "--ppo.learning-rate=fast"], "ppo.learning_rate: 'fast' is not allowed; it must be a number"),
    (["train", "--learnin_rate", "1"], "--learnin_rate: unknown option; did you mean --learning_rate?"),
    (["train", "--games", "-5"], "env.games: -5 is not allowed"),
    (["train", "--curriculum.stages.0.opponent", "mtcs"], "'mtcs' is not known; allowed are"),
    (["train", "--curriculum", "absent.json"], "absent.json: cannot be read"),
    (["train", "--resume_from", "nowhere"], "nowhere: is no folder"),
    (["train", "--resume", "nowhere"], "nowhere: is no folder"),
    (["train", "tiny"], "Unrecognized options: tiny"),
    (["evaluate"], "--checkpoint"),
    (["evaluate", "--checkpoint", "nowhere"], "nowhere: is no folder"),
    (["evaluate", "--checkpoint", ".", "--opponent", "mtcs"], "'mtcs' is not known; allowed are"),
    (["evaluate", "--checkpoint", ".", "--games", "hexx"], "OpenSpiel has no 'hexx'"),
    (["evaluate", "--checkpoint", ".", "--num_episodes", "0"], "--num_episodes: 0 is not allowed"),
    (["evaluate", "--checkpoint", ".", "--num-episodes", "many"], "--num_episodes"),
    (["evaluate", "--checkpoint", ".", "--oponent", "mcts"], "did you mean --opponent?"),
    (["preferences", "--judge", "minimax"], "--game"),
    (["reward"], "--data"),
    (["reward", "--data", "absent.jsonl"], "absent.jsonl: no such file"),
    (["reward", "--data", "absent.jsonl", "--batch_size", "0"], "--batch_size: 0 is not allowed"),
    (["reward", "--data", "absent.jsonl", "--learning_rate", "-1"], "--learning_rate: -1.0 is not allowed"),
    (["reward", "--data", "absent.jsonl", "--head", "deep"], "deep"),
    (["preferences", "--game", "hex", "--judge", "minmax"], "judge: 'minmax' is not allowed"),
    (["preferences", "--game", "hexx", "--judge", "minimax"], "OpenSpiel has no 'hexx'"),
]


@pytest.mark.parametrize(("words", "complaint"), MISTAKES)
def test_mistake_is_one_line_and_exit_code_2(tmp_path, words, complaint):
    (tmp_path / "broken.json").write_text('{"ppo": {"gamma": 1\n')
    done = gamerl(*words, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("gamerl: error: ") and done.stderr.count("\n") == 1
    assert complaint in done.stderr


@pytest.mark.parametrize("words", [["train", "--resume_from"], ["evaluate", "--checkpoint"]])
def test_damaged_checkpoint(damaged, words):
    done = gamerl(*words, damaged)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "state.pt: is damaged: 50 bytes long instead of 99" in done.stderr


STUB = (
    """
import sys, types
runs = types.ModuleType("gamerl.runs")
def train(config, resume_from=None):
    {body}
runs.train = train
sys.modules["gamerl.runs"] = runs
"""
    + CALL
)


def trained(*words, cwd=None) -> dict:
    "What the trainer is asked to do."
    said = "[config.model_dump(mode='json'), resume_from, os.environ['GOMP_SPINCOUNT']]"
    body = f"import json, os; print(json.dumps({said}))"
    done = gamerl(*words, cwd=cwd, code=STUB.format(body=body))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_train_starts_from_the_tiny_profile():
    config, resume_from, spin = trained("train")
    assert config["model"]["model_name"] == "tiny" and resume_from is None and spin == "0"


def test_overrides_reach_the_trainer():
    words = "train --profile selfplay-kuhn --ppo.learning-rate 2e-5 --seed 7 --gradient_checkpointing"
    words += " --games kuhn_poker,hex(board_size=3) --value_learning_rate=none --cliprange 0.1"
    config, *_ = trained(*words.split())
    assert config["ppo"]["learning_rate"] == 2e-5 and config["run"]["seed"] == 7
    assert config["model"]["gradient_checkpointing"] is True
    assert config["env"]["games"] == ["kuhn_poker", "hex(board_size=3)"]
    assert config["ppo"]["value_learning_rate"] is None and config["ppo"]["clip_range"] == 0.1


def test_a_config_file_stands_on_the_plain_defaults(tmp_path):
    (tmp_path / "mine.json").write_text('{"ppo": {"batch_size": 4}}')
    config, *_ = trained("train", "--config", "mine.json", cwd=tmp_path)
    assert config["ppo"]["batch_size"] == 4
    assert config["model"]["model_name"] == "Qwen/Qwen2.5-3B-Instruct"


def test_resuming_takes_the_configuration_of_the_checkpoint(tmp_path):
    from gamerl.config import load_config

    config = load_config(profile="small", overrides={"ppo.gamma": 0.5})
    write_checkpoint(
        tmp_path, "checkpoint-3", lambda folder: (folder / "config.json").write_text(config.to_json())
    )
    found, resume_from, _ = trained("train", "--resume", tmp_path, "--num_train_steps", "9")
    assert resume_from == str(tmp_path / "checkpoint-3")
    assert found["ppo"]["gamma"] == 0.5 and found["ppo"]["num_train_steps"] == 9


def test_evaluate_reaches_the_judge(tmp_path):
    stub = """
import sys, types
runs = types.ModuleType("gamerl.runs")
runs.evaluate_checkpoint = lambda *asked: print(__import__("json").dumps(asked))
sys.modules["gamerl.runs"] = runs
"""
    folder = write_checkpoint(
        tmp_path, "final", lambda folder: (folder / "config.json").write_text('{"profile": "tiny"}')
    )
    words = "--games tic_tac_toe,200000000 --opponent mcts:10 --num_episodes 20 --seed 3 --json".split()
    done = gamerl("evaluate", "--checkpoint", tmp_path, *words, code=stub + CALL)
    assert done.returncode == 0, done.stderr
    games = ["tic_tac_toe", "leduc_poker(players=2)"]
    assert json.loads(done.stdout) == [str(folder), games, "mcts:10", 20, 3, True, "last", None]


def test_ctrl_c_ends_with_130():
    done = gamerl("train", code=STUB.format(body="raise KeyboardInterrupt"))
    assert done.returncode == 130 and done.stderr == "gamerl: interrupted\n"


def test_full_disk_ends_with_2():
    done = gamerl(
        "train", code=STUB.format(body="import errno; raise OSError(errno.ENOSPC, 'No space left on device')")
    )
    assert done.returncode == 2 and done.stderr == "gamerl: error: No space left on device\n"


def test_a_bug_is_not_hidden():
    done = gamerl("train", code=STUB.format(body="{}['x']"))
    assert done.returncode == 1 and "KeyError" in done.stderr
