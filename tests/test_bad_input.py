"What a user can do wrong, and what a machine can do to a user: one line, the right exit code, nothing lost."

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from commands import Command, Done, fresh, metrics_of

from gamerl.checkpoints import find_checkpoint, latest, list_checkpoints, verify

ID_FIVE = {"curriculum": {"stages": [{"name": "a", "task_ids": [-5], "opponent": "random"}]}}
MTCS = {"curriculum": {"stages": [{"name": "a", "task_ids": [5], "opponent": "mtcs"}]}}
CASES = {
    "missing config": (
        None,
        ["train", "--config", "absent.json"],
        "absent.json: cannot be read: No such file",
    ),
    "missing folder": (None, ["train", "--config", "absent/"], "absent: cannot be read: No such file"),
    "broken JSON": (
        '{"ppo": {"gamma": 1,}}',
        ["train", "--config", "bad.json"],
        "bad.json: broken JSON at line 1",
    ),
    "empty file": ("", ["train", "--config", "bad.json"], "bad.json: broken JSON at line 1"),
    "no object": ("[1, 2]", ["train", "--config", "bad.json"], "bad.json: must hold a JSON object"),
    "learning rate in a file": (
        '{"ppo": {"learning_rate": -1}}',
        ["train", "--config", "bad.json"],
        "ppo.learning_rate: -1 is not allowed; it must be greater than 0",
    ),
    "learning rate as a flag": (
        None,
        ["train", "--learning_rate", "-1"],
        "ppo.learning_rate: -1 is not allowed",
    ),
    "NaN": (None, ["train", "--learning_rate", "nan"], "ppo.learning_rate: "),
    "task ID in a file": (json.dumps(ID_FIVE), ["train", "--config", "bad.json"], "-5 is not allowed"),
    "task ID as a flag": (None, ["train", "--env.games", "-5"], "env.games: -5 is not allowed"),
    "opponent in a file": (
        json.dumps(MTCS),
        ["train", "--config", "bad.json"],
        "opponent: 'mtcs' is not known",
    ),
    "opponent as a flag": (None, ["train", "--curriculum.stages.0.opponent", "mtcs"], "'mtcs' is not known"),
    "resume from nothing": (None, ["train", "--resume_from", "absent"], "absent: is no folder"),
}


def complaint_of(done: Done) -> str:
    "The one line of a command that refuses."
    assert (done.code, done.out) == (2, ""), done
    assert done.err.startswith("gamerl: error: ") and done.err.count("\n") == 1, done.err
    return done.err


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_code_2(tmp_path, case):
    content, words, expected = CASES[case]
    if content is not None:
        (tmp_path / "bad.json").write_text(content)
    assert expected in complaint_of(fresh(*words, cwd=tmp_path))
    assert os.listdir(tmp_path) == (["bad.json"] if content is not None else [])


@pytest.fixture
def run(finished, tmp_path) -> Path:
    "A copy of a finished run."
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


@pytest.mark.parametrize("opponent", ["mtcs", "mcts:0", "mcts:10x", "ismcts:-3", ""])
def test_opponent_of_a_match(run, opponent):
    words = ["evaluate", "--checkpoint", run, "--opponent", opponent]
    assert "allowed" in complaint_of(fresh(*words))


def test_task_of_a_match(run):
    words = ["evaluate", "--checkpoint", run, "--games=-5"]
    assert "-5" in complaint_of(fresh(*words))


FILES = [
    "model/adapter_model.safetensors",
    "model/adapter_config.json",
    "value_head.safetensors",
    "state.pt",
    "state.json",
    "config.json",
    "manifest.json",
]


def test_every_file_of_a_checkpoint_is_listed(run):
    "The next test truncates them all."
    files = {p.relative_to(run / "final").as_posix() for p in (run / "final").rglob("*") if p.is_file()}
    assert set(FILES) < files


@pytest.mark.parametrize("name", FILES)
def test_truncated_checkpoint(run, name):
    "The damaged file is named, and so is the checkpoint that is still good."
    damaged, good = run / "checkpoint-6", run / "checkpoint-3"
    os.truncate(damaged / name, (damaged / name).stat().st_size - 1 if name != "manifest.json" else 9)
    words = ("train", "--resume_from") if name == "state.pt" else ("evaluate", "--checkpoint")
    said = complaint_of(fresh(*words, damaged))
    assert str(damaged / name) in said and "is damaged" in said and "checkpoint-3" in said
    assert verify(good) == good


def test_full_disk(run, tmp_path):
    "No file may grow beyond 300 kB, less than an adapter: what there was stays, and can be continued."
    shutil.rmtree(run / "final")
    words = ["train", "--resume_from", run, "--output_dir", run, "--num_train_steps", 9]
    full = Command(*words, files=tmp_path, file_limit=300_000).wait()
    assert full.code == 2 and full.err.startswith("gamerl: error: ") and full.err.count("\n") == 1, full.err
    assert f"{run / 'checkpoint-9'}: not saved: " in full.err
    assert f"the last good checkpoint is {run / 'checkpoint-6'}" in full.err
    assert [path.name for path in list_checkpoints(run)] == ["checkpoint-3", "checkpoint-6"]
    assert not [name for name in os.listdir(run) if name.startswith(".")]
    assert find_checkpoint(run) == run / "checkpoint-6"
    freed = Command(*words, files=tmp_path).wait()
    assert freed.code == 0, freed.err
    assert [line["step"] for line in metrics_of(run)] == list(range(1, 10))


def test_no_room_for_metrics(run, tmp_path):
    "The disk is full when a line of metrics is written: one line, and everything can be used afterwards."
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace("\n", " " * 2000 + "\n"))
    before = (run / "metrics.jsonl").read_text()
    words = ["train", "--resume_from", run / "checkpoint-6", "--output_dir", run, "--num_train_steps", 9]
    full = Command(*words, files=tmp_path, file_limit=10_000).wait()
    assert full.code == 2 and full.err.startswith("gamerl: error: ") and full.err.count("\n") == 1, full.err
    assert (run / "metrics.jsonl").read_text() == before
    assert [verify(path).name for path in list_checkpoints(run)] == ["checkpoint-3", "checkpoint-6"]


def pressed_while_saving(command: Command, run: Path) -> bool:
    "Stop the process in the middle of a save, press Ctrl-C, let it go on."
    saving = [*run.glob(".saving-*")]
    if not saving:
        return False
    command.signal(signal.SIGSTOP)
    caught = saving[0].exists()
    if caught:
        command.signal(signal.SIGINT)
    command.signal(signal.SIGCONT)
    return caught


def test_ctrl_c_in_the_middle_of_a_save(small_run, tmp_path):
    "The save is finished first."
    run = tmp_path / "run"
    options = {"save_steps": 1, "save_total_limit": 2, "num_train_steps": 1000}
    command = Command(*small_run(run, **options), files=tmp_path)
    command.wait_until(lambda: pressed_while_saving(command, run))
    done = command.wait()
    assert done.code == 130 and done.err.startswith("gamerl: ") and done.err.count("\n") == 1, done
    assert not [name for name in os.listdir(run) if name.startswith(".")]
    steps = [line["step"] for line in metrics_of(run)]
    assert [verify(path).name for path in list_checkpoints(run)] == [
        f"checkpoint-{step}" for step in steps[-2:]
    ]
    assert latest(run).name == f"checkpoint-{steps[-1]}"
