"The other doors: Gymnasium, OpenEnv and TRL, each with its own real tools."

import math
import random
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import gymnasium
import httpx
import pyspiel
import pytest
import torch
import trl
import yaml
from datasets import Dataset
from gymnasium.utils.env_checker import check_env
from openenv.cli._validation import validate_multi_mode_deployment
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import gamerl.gym
from gamerl.cli import main
from gamerl.environment import GameEnv
from gamerl.gym import GymGame
from gamerl.host import Host, question_text
from gamerl.judge import Judge
from gamerl.models import model_path
from gamerl.openenv import GameAction, GameClient, GameEnvironment, app
from gamerl.prompts import Observation
from gamerl.remote import RemoteEnv
from gamerl.server import create_app, serving
from gamerl.tasks import CATALOGUE, CONFIGS_PER_GAME, Task, catalogue_game
from gamerl.trl_env import TextGame, own_deal
from gamerl.wire import read_legal
from gamerl.worlds import OpponentFailed

SPACE = Path(gamerl.gym.__file__).parent / "data" / "openenv"


@pytest.fixture(scope="module")
def address():
    "The environment of OpenEnv on a port."
    with serving(app) as url:
        yield url


# The same games through every door

SHORT = ["goofspiel", "liars_dice", "leduc_poker", "othello", "hex"]
SHORT += ["clobber", "hearts", "euchre", "dots_and_boxes", "phantom_ttt"]
FIFTY = [
    Task.from_id(catalogue_game(name).index * CONFIGS_PER_GAME + seed, seed, seat=seed // 3 % 2)
    for name in SHORT
    for seed in range(7, 12)
]


def choices(task: Task):
    "Moves drawn from the legal IDs, the same at every door."
    rng = random.Random(f"{task.game} {task.seed}")
    return lambda legal: rng.choice(sorted(legal))


def as_text(observation: Observation, said: list) -> str:
    "A question, with the rules if it is the first one."
    return question_text(observation, first=not said)


def through_env(env, task: Task) -> list:
    "What a `GameEnv` or a `RemoteEnv` says, and the score."
    choose, said, asked = choices(task), [], env.reset(task)
    while asked:
        said.append(as_text(asked, said))
        asked = env.step(str(choose(asked.legal))).observation
    return [*said, env.episode.score]


def through_http(web: httpx.Client, task: Task) -> list:
    "Plain calls; the legal moves are read from the text."
    choose, said = choices(task), []
    told = web.post("/reset", json={"task": task.to_json()}).json()["result"]
    while not told["done"]:
        said.append(told["observation"])
        reply = {"action": str(choose(read_legal(said[-1]))), "episode_id": told["episode_id"]}
        told = web.post("/step", json=reply).json()["result"]
    return [*said, told["reward"]]


def through_openenv(client: GameClient, task: Task) -> list:
    "The client of OpenEnv."
    choose, said = choices(task), []
    told = client.reset(seed=task.seed, task_id=task.task_id, seat=task.seat, opponent=task.opponent)
    while not told.done:
        asked = told.observation
        said.append(as_text(Observation(tuple(asked.messages), asked.legal, task.player), said))
        told = client.step(GameAction(reply=str(choose(asked.legal))))
    return [*said, told.reward]


def through_gym(task: Task) -> list:
    "Gymnasium."
    name, choose, said, over, reward = f"gamerl/{task.game.split('(')[0]}-v0", choices(task), [], False, 0.0
    env = gymnasium.make(name, game=task.game, seat=task.seat, opponent=task.opponent)
    _, info = env.reset(seed=task.seed)
    while not over:
        said.append(as_text(Observation(tuple(info["messages"]), info["legal"], task.player), said))
        _, reward, over, _, info = env.step(str(choose(info["legal"])))
    return [*said, reward]


def through_trl(task: Task) -> list:
    "The tool of TRL; the legal moves are read from the text."
    game, choose, said = TextGame(task.game, task.opponent, task.seat), choices(task), []
    text = game.reset(seed=task.seed)
    while read_legal(text):
        said.append(text)
        text = game.play(choose(read_legal(text)))
    return [*said, game.get_reward()]


def test_fifty_games_are_the_same_through_every_door(address):
    with (
        serving(create_app()) as url,
        httpx.Client(base_url=url, timeout=60) as web,
        GameClient(base_url=address).sync() as client,
    ):
        doors = {
            "remote": lambda task: through_env(RemoteEnv(url, timeout=60), task),
            "http": lambda task: through_http(web, task),
            "openenv": lambda task: through_openenv(client, task),
            "gym": through_gym,
            "trl": through_trl,
        }
        for task in FIFTY:
            here = through_env(GameEnv(), task)
            assert len(here) > 2
            for name, door in doors.items():
                assert door(task) == here, (name, task)


class Homesick(pyspiel.Bot):
    "An opponent that goes home when it is to move."

    def step(self, state):
        "Fail."
        raise OpponentFailed("it has gone home")


def test_an_opponent_that_fails(monkeypatch):
    "Before the first question (seat 1), or after it (seat 0): nobody has won, and every door says so."
    monkeypatch.setattr("gamerl.environment.make_opponent", lambda spec, *table: (Homesick(), spec))
    for seat in (0, 1):
        task = Task("leduc_poker", 4, seat)
        told = Host().reset(task=task.to_json())
        env = GymGame("leduc_poker", seat=seat)
        table, game = GameEnvironment(), TextGame("leduc_poker", seat=seat)
        room = table.reset(seed=4, game="leduc_poker", seat=seat)
        game.reset(seed=4)
        if seat == 0:
            room = table.step(GameAction(reply="1"))
            game.play(1)
            env.reset(seed=4)
        with pytest.raises(OpponentFailed, match="gone home"):
            env.reset(seed=4) if seat else env.step("1")
        with pytest.raises(OpponentFailed, match="gone home"):
            game.get_reward()
        assert (room.done, room.reward) == (True, 0.0) and "gone home" in room.text
        assert told["done"] == bool(seat) and told["reward"] == 0.0
    with serving(create_app()) as url:
        asked = {"task_id": 200000000, "seed": 1, "opponent": "random", "base_url": f"{url}/v1"}
        answer = httpx.post(f"{url}/evaluate", json=asked, timeout=60)
        remote = RemoteEnv(url)
        assert remote.reset(Task("leduc_poker", 4, 1)) is None and remote.episode.failed
    judged = answer.json()["result"]
    assert (answer.status_code, judged["score"], judged["success"]) == (200, 0.0, False)
    assert "gone home" in judged["error"]
    assert judged["extra"]["final_return"] is None and judged["extra"]["all_returns"] is None


@pytest.mark.parametrize(
    ("missing", "extra", "code"),
    [
        ("gymnasium", "doors", "import gamerl.gym"),
        ("openenv", "doors", "import gamerl.openenv"),
        ("fastapi", "doors", "import gamerl.openenv"),
        ("fastapi", "serve", "import gamerl.server"),
        ("starlette", "serve", "import gamerl.server"),
        ("uvicorn", "serve", "import gamerl.server"),
        ("anyio", "serve", "import gamerl.server"),
        ("openai", "endpoint", "from gamerl.endpoint import EndpointBot; EndpointBot('m', 'http://x', 0, 0)"),
        ("openai", "endpoint", "from gamerl.judge import Judge; Judge().evaluate(200000000)"),
        ("openai", "endpoint", "GameEnv().reset(Task('leduc_poker', opponent='endpoint:m@http://x/v1'))"),
    ],
)
def test_a_missing_extra_is_one_line(missing, extra, code):
    "An exception whose one line names the extra."
    before = f"import sys; sys.modules['{missing}'] = None"
    names = "from gamerl.environment import GameEnv; from gamerl.tasks import Task"
    program = f"{before}; {names}; {code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    needs = f"{missing} is not installed; this needs: pip install 'gamerl[{extra}]'"
    assert done.stderr.strip().splitlines()[-1] == f"ModuleNotFoundError: {needs}"
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_server_that_is_not_installed(missing, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing] or [missing]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "gamerl.server")
    assert main(["serve", "--port", "0"]) == 2
    needs = f"{missing} is not installed; this needs: pip install 'gamerl[serve]'"
    assert capsys.readouterr() == ("", f"gamerl: error: {needs}\n")


def test_a_server_without_openai_plays_and_judges_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with serving(create_app()) as url, httpx.Client(base_url=url, timeout=60) as web:
        asked = {"task_id": 200000000, "seed": 1, "opponent": "random"}
        answer = web.post("/evaluate", json=asked)
        assert web.post("/reset", json=asked).status_code == 200
    assert answer.status_code == 501
    needs = "openai is not installed; this needs: pip install 'gamerl[endpoint]'"
    assert answer.json() == {"status": "failed", "result": {"error": needs}, "detail": needs}


@pytest.mark.parametrize("word", ["self", "snapshot", "checkpoint:/nowhere", "random,self"])
def test_nobody_plays_against_himself_unawares(word):
    "Every door that has no learner behind it refuses the learner's words in the same line."
    said = f"opponent: {word!r} is not allowed here; use a bot such as 'random' or 'mcts'"
    doors = {
        "gym": lambda: gymnasium.make("gamerl/leduc_poker-v0", opponent=word, seat=0),
        "trl": lambda: TextGame("leduc_poker", opponent=word),
        "openenv": lambda: GameEnvironment().reset(seed=1, game="leduc_poker", opponent=word),
        "judge": lambda: Judge().evaluate(200000000, seed=1, opponent=word),
    }
    for door in doors.values():
        with pytest.raises(ValueError) as told:
            door()
        assert str(told.value) == said
    assert Host().reset(200000000, 1, word)["observation"] == said


# Gymnasium


def test_gymnasium_finds_the_games_by_itself():
    code = "import gymnasium; print(gymnasium.make('gamerl.gym:gamerl/leduc_poker-v0').reset(seed=7)[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "You play Leduc poker" in done.stdout, done.stderr


@pytest.mark.parametrize("game", ["leduc_poker", "hex", "goofspiel", "2048", "hearts"])
def test_gymnasium_has_no_complaints(game, recwarn):
    check_env(gymnasium.make(f"gamerl/{game}-v0").unwrapped, skip_render_check=True)
    assert not [warning for warning in recwarn if "gymnasium" in str(warning.filename)]


def test_every_game_of_the_catalogue_is_registered():
    names = {name for name in gymnasium.registry if name.startswith("gamerl/")}
    assert names == {f"gamerl/{entry.name}-v0" for entry in CATALOGUE}


@pytest.mark.parametrize("seat", [None, 0, 1])
def test_a_gymnasium_episode_is_the_task_s(seat):
    env, here, rng = gymnasium.make("gamerl/leduc_poker-v0", seat=seat), GameEnv(), random.Random(0)
    for seed in range(10):
        question = here.reset(Task("leduc_poker(players=2)", seed, seat))
        text, info = env.reset(seed=seed)
        while question:
            assert info["action_mask"].nonzero()[0].tolist() == list(question.legal)
            assert all(message["content"] in text for message in question.messages)
            reply = str(rng.choice(list(question.legal)))
            question = here.step(reply).observation
            text, reward, terminated, truncated, info = env.step(reply)
            assert (terminated, truncated) == (question is None, False)
        assert reward == here.episode.score and info["finished"] == here.episode


def test_a_game_in_gymnasium_can_be_cut_and_lost():
    env = gymnasium.make("gamerl/hex-v0", max_turns=2, retries=0)
    _, info = env.reset(seed=1)
    for _ in range(2):
        _, reward, terminated, truncated, info = env.step(str(list(info["legal"])[0]))
    assert (reward, terminated, truncated) == (0.0, False, True)
    env.reset(seed=1)
    _, reward, terminated, _, info = env.step("nonsense")
    assert (reward, terminated) == (0.0, True) and "nonsense" in info["error"] and info["finished"].forfeited


# OpenEnv


def test_openenv_games_are_the_task_s(address):
    tasks = [
        Task("leduc_poker", 3),
        Task("hex(board_size=3)", 4, opponent="mcts:10"),
        Task("hearts", 2, seat=1),
    ]
    with GameClient(base_url=address).sync() as client:
        for task in tasks:
            here, rng = GameEnv(), random.Random(0)
            question = here.reset(task)
            told = client.reset(seed=task.seed, game=task.game, seat=task.seat, opponent=task.opponent)
            while question:
                assert tuple(told.observation.messages) == question.messages
                assert told.observation.legal == question.legal and not told.done
                reply = str(rng.choice(list(question.legal)))
                question, told = here.step(reply).observation, client.step(GameAction(reply=reply))
            assert (
                told.done
                and told.reward == here.episode.score
                and "The game is over" in told.observation.text
            )
            state = client.state()
            assert (state.game, state.seed, state.player) == (task.game, task.seed, task.player)


def test_openenv_sessions_do_not_meet(address):
    with GameClient(base_url=address).sync() as first, GameClient(base_url=address).sync() as second:
        before = first.reset(seed=1, game="othello").observation
        second.reset(seed=2, game="chess")
        second.step(GameAction(reply="nonsense"))
        assert first.step(GameAction(reply="what?")).observation.messages[:2] == before.messages


def test_openenv_tells_what_is_wrong(address):
    with GameClient(base_url=address).sync() as client:
        told = client.reset(seed=1, game="leduc_poker")
        told = client.step(GameAction(reply="nonsense"))
        assert "names no legal move" in told.observation.error and not told.done
        with pytest.raises(RuntimeError, match="hexx"):
            client.reset(game="hexx")
        with pytest.raises(RuntimeError, match="names a game already"):
            client.reset(game="hex", task_id=600000000)
        with pytest.raises(RuntimeError, match="names a file"):
            client.reset(game="nfg_game(filename=/etc/hosts)")
    schema = httpx.get(f"{address}/schema").json()
    assert "reply" in schema["action"]["properties"] and "legal" in schema["observation"]["properties"]


def test_the_space_is_ready_to_be_pushed():
    "OpenEnv's own check; a lock file is made by who pushes."
    _, issues = validate_multi_mode_deployment(SPACE)
    assert [issue for issue in issues if "uv.lock" not in issue] == []
    manifest = yaml.safe_load((SPACE / "openenv.yaml").read_text())
    assert manifest["app"] == "server.app:app" and manifest["port"] == 8000
    assert tomllib.loads((SPACE / "pyproject.toml").read_text())["project"]["scripts"]["server"]
    code = "from server.app import app; print(app.title, {r.path for r in app.routes} >= {'/reset', '/ws'})"
    done = subprocess.run([sys.executable, "-B", "-c", code], cwd=SPACE, capture_output=True, text=True)
    assert "True" in done.stdout, done.stderr


# TRL


def tool_call(move: int) -> str:
    "A call of the tool as Qwen3 writes it."
    return f'<tool_call>\n{{"name": "play", "arguments": {{"move": {move}}}}}\n</tool_call><|im_end|>'


@pytest.fixture
def speaker(monkeypatch):
    "The tiny model and its tokenizer, with the words of Qwen3 for tools."
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    tokenizer = AutoTokenizer.from_pretrained(model_path("tiny"))
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    return AutoModelForCausalLM.from_pretrained(model_path("tiny")), tokenizer


def grpo_config(folder: Path, **options) -> GRPOConfig:
    "Settings for a few steps on the processor."
    fixed = dict(use_cpu=True, bf16=False, report_to=[], save_strategy="no", logging_steps=1, seed=0)
    return GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=4, learning_rate=1e-2, **fixed, **options
    )


def test_grpo_plays_a_game(tmp_path, monkeypatch, speaker):
    "One step of the real trainer; what the tiny model says is dictated, all else is real."
    (model, tokenizer), made, asked = speaker, [], []

    def generate(input_ids, **options):
        asked.append(tokenizer.batch_decode(input_ids, skip_special_tokens=True))
        moves = [(len(asked) + row) % 2 for row in range(len(input_ids))]  # fold or call
        said = [tokenizer(tool_call(move))["input_ids"] for move in moves]
        return torch.cat([input_ids, torch.tensor(said)], 1)

    def factory():
        made.append(TextGame("leduc_poker"))
        return made[-1]

    monkeypatch.setattr(model, "generate", generate)
    rows = [{"prompt": [{"role": "user", "content": "Play. "}], "seed": seed} for seed in (1, 2)]
    args = grpo_config(tmp_path, num_generations=2, max_steps=1, max_completion_length=2048)
    before = [weights.clone() for weights in model.parameters()]
    trainer = GRPOTrainer(
        model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        environment_factory=factory,
    )  # fmt: skip
    trainer.train()
    rewards = [game.get_reward() for game in made]
    log = trainer.state.log_history[0]
    assert len(made) == 4 and all(game._env.episode for game in made)
    assert log["rewards/TextGame/mean"] == pytest.approx(sum(rewards) / 4)
    assert "Legal moves" in asked[0][0] and "You play Leduc poker" in asked[0][0]
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters()))


class Watch(TrainerCallback):
    "Remembers the weights after each step."

    def __init__(self, model):
        self.model, self.seen = model, []
        self.on_step_end()

    def on_step_end(self, *state, **parts):
        "Copy them."
        self.seen.append(torch.cat([weights.detach().flatten() for weights in self.model.parameters()]))


def test_grpo_trains_on_what_the_model_says(tmp_path, speaker):
    """Three steps with the model's own sampling.

    Nobody taught it to call a tool, so its games are not finished and pay nothing. A second reward, the share
    of digits in what it says, is what it can learn from.
    """
    (model, tokenizer), made, paid = speaker, [], []

    def factory():
        made.append(TextGame("kuhn_poker"))
        return made[-1]

    def digits(completions, **columns):
        said = [completion[0]["content"] for completion in completions]
        paid.append([sum(letter.isdigit() for letter in text) / max(len(text), 1) for text in said])
        return paid[-1]

    rows = [{"prompt": [{"role": "user", "content": "Play. "}], "seed": seed} for seed in range(6)]
    watch = Watch(model)
    trainer = GRPOTrainer(
        model, reward_funcs=digits, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        args=grpo_config(tmp_path, num_generations=4, max_steps=3, max_completion_length=24),
        environment_factory=factory, callbacks=[watch],
    )  # fmt: skip
    trainer.train()
    steps = [line for line in trainer.state.log_history if "reward" in line]
    assert len(steps) == len(paid) == 3 and len(made) == 4
    for line, shares in zip(steps, paid):
        assert line["rewards/digits/mean"] == pytest.approx(sum(shares) / 4) and len(set(shares)) > 1
        assert all(math.isfinite(line[name]) for name in ("reward", "loss", "rewards/TextGame/mean"))
        assert line["grad_norm"] > 0
    assert all(torch.isfinite(weights).all() for weights in watch.seen)
    assert all(not torch.equal(old, new) for old, new in zip(watch.seen, watch.seen[1:]))


def test_a_row_may_name_its_game():
    game = partial(TextGame, game="leduc_poker")()
    assert "hex" in game.reset(game="hex(board_size=3)", prompt=[], seed=0)
    assert "Leduc" in game.reset()


def test_processes_do_not_repeat_each_other_s_deals(monkeypatch):
    "Rows without seeds: each rank has its own deals, the same ones whenever it is asked."
    asked, real = [], GameEnv.reset
    monkeypatch.setattr(GameEnv, "reset", lambda env, task: asked.append(task.seed) or real(env, task))
    dealt = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setattr("gamerl.trl_env._deals", iter(range(5)))
        asked.clear()
        for _ in range(5):
            TextGame("leduc_poker", seed=3).reset()
        dealt[rank] = list(asked)
    assert not set(dealt["0"]) & set(dealt["1"])
    assert dealt["1"] == [own_deal(3, 1, number) for number in range(5)] and len(set(dealt["1"])) == 5
