"The other doors: Gymnasium, OpenEnv and TRL, each with its own real tools."

import random
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import gymnasium
import httpx
import pytest
import torch
import trl
import yaml
from datasets import Dataset
from gymnasium.utils.env_checker import check_env
from openenv.cli._validation import validate_multi_mode_deployment
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import gamerl.gym
from gamerl.environment import GameEnv
from gamerl.models import model_path
from gamerl.openenv import GameAction, GameClient, app
from gamerl.server import serving
from gamerl.tasks import CATALOGUE, Task
from gamerl.trl_env import TextGame

SPACE = Path(gamerl.gym.__file__).parent / "data" / "openenv"


# Gymnasium


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


@pytest.fixture(scope="module")
def address():
    "The environment on a port."
    with serving(app) as url:
        yield url


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


def test_grpo_trains_on_a_game(tmp_path, monkeypatch):
    "One step of the real trainer; what the tiny model says is dictated, all else is real."
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    tokenizer = AutoTokenizer.from_pretrained(model_path("tiny"))
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    model, made = AutoModelForCausalLM.from_pretrained(model_path("tiny")), []
    asked = []

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
    args = GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=2,
        max_steps=1,
        max_completion_length=2048,
        learning_rate=1e-2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
    )
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


def test_a_row_may_name_its_game():
    game = partial(TextGame, game="leduc_poker")()
    assert "hex" in game.reset(game="hex(board_size=3)", prompt=[], seed=0)
    assert "Leduc" in game.reset()
