"Training from outside: the same run twice, torn apart, spread over two processes, and worth its time."

import json
import math
import signal
import time
from pathlib import Path

import pytest
import torch
from commands import Command, fresh, metrics_of
from launching import two_processes
from safetensors.torch import load_file

from gamerl.checkpoints import find_checkpoint, latest, list_checkpoints
from gamerl.cli import main
from gamerl.config import load_config
from gamerl.models import adapter_weights
from gamerl.tasks import opening_state
from gamerl.training import PPOTrainer, restore

torch.set_num_threads(1)


def timeless(metrics: list[dict]) -> list[dict]:
    "Metrics without the clock's."
    return [{name: x for name, x in line.items() if not name.startswith("time_")} for line in metrics]


def differences(one, other, path: str = "") -> list[str]:
    "Where two trees of dictionaries, lists, tensors and plain values are not the same bit for bit."
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and torch.equal(one, other)
        return [] if same else [path]
    if isinstance(one, dict) and isinstance(other, dict):
        wrong = [f"{path}.{name}" for name in one.keys() ^ other.keys()]
        return wrong + [
            d for n in one.keys() & other.keys() for d in differences(one[n], other[n], f"{path}.{n}")
        ]
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return [d for n, (a, b) in enumerate(zip(one, other)) for d in differences(a, b, f"{path}[{n}]")]
    return [] if type(one) is type(other) and one == other else [path]


def contents(checkpoint: Path) -> dict:
    "All that a checkpoint holds, but the time it took."
    state = torch.load(checkpoint / "state.pt", weights_only=True)
    del state["seconds"]
    return {
        "adapter": load_file(checkpoint / "model" / "adapter_model.safetensors"),
        "value_head": load_file(checkpoint / "value_head.safetensors"),
        "state": state,
    }


def assert_same_run(one: Path, other: Path) -> None:
    "Two runs ended with the same weights, states and metrics."
    assert differences(contents(one / "final"), contents(other / "final")) == []
    assert differences(timeless(metrics_of(one)), timeless(metrics_of(other))) == []


def test_a_quiet_run(finished):
    "Six lines of metrics, clean output, and all the machinery that the next tests rely on was used."
    folder, done = finished
    metrics = metrics_of(folder)
    assert done.err == "" and "Step 6 | Reward: " in done.out and "Advanced to stage 3/3" in done.out
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5, 6]
    assert metrics[2]["stage"] == 3 and metrics[2]["failures"] > 0
    assert metrics[3]["learning_rate_scale"] < 1
    assert (
        len({line["kl_coef"] for line in metrics}) > 3
        and len({line["learning_rate"] for line in metrics}) > 3
    )
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-3", "checkpoint-6"]


def test_killed_and_resumed_is_the_same_run(finished, small_run, tmp_path):
    "Curriculum, failures, mcts: killed after the third step, continued by a process that has never seen it."
    run = tmp_path / "run"
    command = Command(*small_run(run), files=tmp_path)
    command.wait_until((run / "checkpoint-3" / "manifest.json").exists)
    command.signal(signal.SIGKILL)
    assert command.wait().code == -signal.SIGKILL
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')
    done = fresh("train", "--resume_from", run / "checkpoint-3")
    assert done.code == 0 and done.err == "", done.err
    assert f"continuing from {run / 'checkpoint-3'}" in done.out
    assert_same_run(finished[0], run)


SELF_PLAY = {
    "profile": "selfplay-kuhn",
    "ppo": {
        "batch_size": 12,
        "lr_schedule": "constant",
        "entropy_coef_end": None,
        "exploration_end": None,
        "num_train_steps": 6,
        "snapshot_every": 1,
        "pool_size": 2,
        "snapshot_sampling": "win_rate",
    },
    "curriculum": {
        "stages": [
            {"name": "self", "opponent": "self", "threshold": 0},
            {"name": "past", "opponent": "snapshot", "threshold": 1},
        ],
        "window": 20,
    },
    "run": {"eval_steps": 2, "save_steps": 100},
}


def test_self_play_resumed_is_the_same_run(tmp_path):
    "Average, pool and the exact measure: a finished run of three steps is asked for three more."
    (tmp_path / "config.json").write_text(json.dumps(SELF_PLAY))
    words = ["train", "--config", tmp_path / "config.json", "--output_dir"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert Command(*words, whole, files=tmp_path).wait().code == 0
    assert Command(*words, parts, "--num_train_steps", 3, files=tmp_path).wait().code == 0
    assert len(metrics_of(parts)) == 3
    done = Command("train", "--resume", parts, "--num_train_steps", 6, files=tmp_path).wait()
    assert done.code == 0 and done.err == "", done.err
    assert_same_run(whole, parts)
    state = torch.load(parts / "final" / "state.pt", weights_only=True)
    assert state["average"]["steps"] == 6 and [s["step"] for s in state["pool"]] == [5, 6]
    assert state["pool"][0]["games"] > 0 and state["pool"][0]["score"] != 0.5
    last = metrics_of(parts)[-1]
    assert last["stage"] == 2 and {"nash_conv", "nash_conv_average", "nash_conv_mixture"} <= last.keys()
    for opponent in ("self", "snapshot", f"checkpoint:{whole}"):
        words = ["evaluate", "--checkpoint", parts, "--opponent", opponent, "--num_episodes", 6, "--json"]
        done = Command(*words, files=tmp_path).wait()
        assert done.code == 0 and done.err == "", done.err
        match = json.loads(done.out)["rows"][0]["player"]
        assert (match["games"], match["opponent"], match["played"]) == (6, opponent, opponent)


def test_a_run_against_another_run(finished, small_run, tmp_path):
    "Its games are the same whether the model of the other run was loaded before or not."
    words = {"num_train_steps": 2, "curriculum.window": 100, "games": "tic_tac_toe"}
    changes = words | {"curriculum.stages.0.opponent": f"checkpoint:{finished[0]}"}
    for name in ("one", "two"):
        done = Command(*small_run(tmp_path / name, **changes), files=tmp_path).wait()
        assert done.code == 0, done.err
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_a_run_without_snapshots_says_so(finished, tmp_path):
    done = Command("evaluate", "--checkpoint", finished[0], "--opponent", "snapshot", files=tmp_path).wait()
    assert done.code == 2 and "ppo.snapshot_every" in done.err and done.err.count("\n") == 1


def test_judged_in_4_bits(small_run, tmp_path):
    "The path of the large profiles: NF4, recomputed layers, tables before and after, matches as JSON."
    changes = {"use_4bit": "true", "gradient_checkpointing": "true", "games": "hex(board_size=2)"}
    changes |= {"num_train_steps": 1, "eval_episodes": 2}
    done = Command(*small_run(tmp_path / "run", **changes), files=tmp_path).wait()
    assert (done.code, done.err) == (0, ""), done
    names = ("before.json", "after.json", "run.png", "report.png", "config.json", "metrics.jsonl")
    assert all((tmp_path / "run" / name).stat().st_size for name in names)
    words = ["evaluate", "--checkpoint", tmp_path / "run", "--num_episodes", 2, "--json"]
    done = Command(*words, files=tmp_path).wait()
    assert (done.code, done.err) == (0, "") and isinstance(json.loads(done.out), dict)


def test_final_is_the_latest_of_a_run(finished):
    "A run's folder stands for where the run ended, also when no checkpoint was due there."
    folder, _ = finished
    assert json.loads((folder / "final" / "state.json").read_text()) == {"step": 6}
    assert json.loads((latest(folder) / "state.json").read_text()) == {"step": 6}


def test_ctrl_c_once(small_run, tmp_path):
    "The step is finished, a checkpoint is written, and the run can go on."
    run = tmp_path / "run"
    command = Command(*small_run(run, num_train_steps=1000, save_steps=1000), files=tmp_path)
    command.wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size)
    command.signal(signal.SIGINT)
    done = command.wait()
    step = metrics_of(run)[-1]["step"]
    assert done.code == 130 and done.err.startswith("gamerl: ") and done.err.count("\n") == 1
    assert find_checkpoint(run) == run / f"checkpoint-{step}"
    assert (
        Command("train", "--resume_from", run, "--num_train_steps", step + 1, files=tmp_path).wait().code == 0
    )
    assert [line["step"] for line in metrics_of(run)] == list(range(1, step + 2))


def test_ctrl_c_twice(small_run, tmp_path):
    "A step of thousands of games is not waited for."
    run = tmp_path / "run"
    command = Command(*small_run(run, batch_size=20_000), files=tmp_path)
    command.wait_until((run / "metrics.jsonl").exists)
    time.sleep(0.5)
    command.signal(signal.SIGINT)
    time.sleep(3)  # two signals within one long call of a library would count as one
    assert command.process.is_alive()
    command.signal(signal.SIGINT)
    done = command.wait()
    assert done.code == 130 and done.err == "gamerl: interrupted\n"
    assert metrics_of(run) == [] and list_checkpoints(run) == []


RANK = """
import sys
import torch
from gamerl.config import load_config
from gamerl.training import PPOTrainer, run

torch.set_num_threads(1)
trainer = PPOTrainer(load_config(sys.argv[1]))
names = [name for name, p in trainer.policy.named_parameters() if p.requires_grad]
gradients = []

def remember(optimizer, args, kwargs):
    gradients.append({n: p.grad.clone() for n, p in zip(names, trainer.policy.trainable())})

trainer.learner.optimizer.optimizer.register_step_pre_hook(remember)
run(trainer)
weights = {n: p.detach() for n, p in zip(names, trainer.policy.trainable())}
state = trainer.source.curriculum.state_dict()
torch.save([weights, gradients, state], f"{sys.argv[2]}-{trainer.accelerator.process_index}.pt")
"""


def alone(config) -> list:
    "The same as `RANK`, in this process."
    trainer, gradients = PPOTrainer(config), []
    names = [name for name, p in trainer.policy.named_parameters() if p.requires_grad]

    def remember(optimizer, args, kwargs):
        gradients.append({n: p.grad.clone() for n, p in zip(names, trainer.policy.trainable())})

    trainer.learner.optimizer.optimizer.register_step_pre_hook(remember)
    trainer.step()
    return [gradients, trainer.source.curriculum.state_dict()]


def relative_error(one: torch.Tensor, other: torch.Tensor) -> float:
    "Length of the difference in units of the length."
    return float((one - other).norm() / other.norm().clamp(min=1e-12))


def test_two_processes(tmp_path):
    "Each plays half of the games; together they make the step that one process makes of all."
    options = {
        "ppo.batch_size": 3,
        "ppo.num_train_steps": 2,
        "ppo.mini_batch_size": 1000,
        "ppo.ppo_epochs": 1,
        "ppo.max_grad_norm": 1e9,
        "ppo.kl_coef": 0.1,
        "run.device": "cpu",
        "run.output_dir": str(tmp_path / "run"),
        "env.games": "hex(board_size=3),tic_tac_toe",
    }
    config = load_config(profile="tiny", overrides=options)
    one, other = two_processes(tmp_path, RANK, config)
    assert differences(one, other) == []
    assert [line["episodes"] for line in metrics_of(tmp_path / "run")] == [6, 12]
    restored = PPOTrainer(config)
    restore(restored, tmp_path / "run")
    assert all(torch.equal(w, one[0][f"lm.{n}"]) for n, w in adapter_weights(restored.policy).items())
    together = load_config(config.model_dump(), overrides={"ppo.batch_size": 6})
    gradients, state = alone(together)
    assert len(gradients) == 1 and state["episodes"] == 6
    for name, gradient in gradients[0].items():
        assert relative_error(one[1][0][name], gradient) < 1e-4, name


def test_it_learns():
    "Hex on four cells against a random opponent: soon it wins clearly more often than at first."
    stage = {"name": "random", "opponent": "random", "threshold": 1}
    config = load_config(
        {"curriculum": {"stages": [stage], "failure_replay_prob": 0}},
        profile="tiny",
        overrides={"env.games": "hex(board_size=2)", "ppo.batch_size": 96, "ppo.num_train_steps": 12},
    )
    trainer = PPOTrainer(config)
    success = [trainer.step()[0]["success_rate"] for _ in range(config.ppo.num_train_steps)]
    before, after = sum(success[:2]) / 2, sum(success[-3:]) / 3
    spread = math.sqrt(before * (1 - before) / (2 * 96) + after * (1 - after) / (3 * 96))
    assert after - before > 4 * spread, success


@pytest.mark.parametrize("rule", ["before_end", "value_drop"])
def test_lost_games_are_taken_up_again_inside(rule):
    "What the buffer keeps are positions of lost games with the learner to move, and those are played."
    overrides = {
        "env.games": "hex(board_size=3)",
        "ppo.batch_size": 24,
        "curriculum.replay_from": rule,
        "curriculum.failure_replay_prob": 0.5,
    }
    trainer = PPOTrainer(load_config(profile="tiny", overrides=overrides))
    trainer.step()
    kept = list(trainer.source.curriculum.failures.scores)
    inside = [task for task in kept if task.opening]
    assert len(inside) > len(kept) / 2
    for task in inside:
        state = opening_state(task.game, task.opening)
        assert state.current_player() == task.player == task.seat
    games = trainer.source.play(trainer.source.player(), trainer.steps)
    replayed = [game for game in games if game.episode.task in kept]
    assert replayed
    for game in replayed:
        opening = game.episode.task.opening
        assert game.episode.actions[: len(opening)] == opening


@pytest.fixture(autouse=True)
def few_threads():
    "The trainer may ask for more."
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("tracker", ["wandb", "tensorboard"])
def test_a_tracker_that_is_not_installed_is_one_line(tmp_path, small_run, monkeypatch, capsys, tracker):
    "Accelerate would only warn, and the run would be tracked nowhere."
    monkeypatch.setattr(f"gamerl.builders.is_{tracker}_available", lambda: False)
    words = map(str, small_run(tmp_path / "run", report_to=tracker))
    assert main(list(words)) == 2
    said = capsys.readouterr().err.splitlines()
    needs = "this needs: pip install 'gamerl[trackers]'"
    assert said == [f"gamerl: error: run.report_to: {tracker!r} is not installed; {needs}"]
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_tensorboard_gets_the_metrics(tmp_path, small_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = Command(
        *small_run(tmp_path / "run", num_train_steps=2, report_to="tensorboard"), files=tmp_path
    ).wait()
    assert done.code == 0, done.err
    (events,) = (tmp_path / "run").rglob("events.out.tfevents.*.0")
    told = EventAccumulator(str(events.parent))
    told.Reload()
    assert [point.step for point in told.Scalars("success_rate")] == [1, 2]


def test_self_play_approaches_equilibrium(tmp_path):
    "In twenty steps of Kuhn poker the averaged policy loses a third of its NashConv: mean of three seeds."
    from gamerl.config import load_config
    from gamerl.runs import Exploitability
    from gamerl.training import PPOTrainer

    shares = []
    for seed in range(3):
        options = {"run.output_dir": str(tmp_path), "run.seed": seed, "ppo.batch_size": 128}
        trainer = PPOTrainer(load_config(profile="selfplay-kuhn", overrides=options))
        meter = Exploitability(trainer, "kuhn_poker")
        start = meter.measure()["nash_conv"]
        for _ in range(20):
            trainer.step()
        shares.append(meter.measure()["nash_conv_average"] / start)
    assert sum(shares) / 3 < 2 / 3
