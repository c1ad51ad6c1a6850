"Runs that several tests look at."

from pathlib import Path

import pytest
from commands import Command, Done

SMALL_RUN = {
    "profile": "tiny",
    "games": "hex(board_size=3),tic_tac_toe",
    "num_train_steps": 6,
    "save_steps": 3,
    "batch_size": 6,
    "ppo.mini_batch_size": 16,
    "gradient_accumulation_steps": 2,
    "kl_coef": 0.1,
    "adaptive_kl": "true",
    "kl_horizon": 100,
    "adjust_lr": "true",
    "stop_kl": 0.0003,
    "ppo_epochs": 2,
    "curriculum.window": 2,
    "curriculum.stages.0.threshold": 0,
    "curriculum.stages.1.threshold": 0,
    "failure_replay_prob": 0.4,
    "rehearsal_prob": 0.2,
    "eval_episodes": 0,
    "num_threads": 1,
}


@pytest.fixture(scope="session")
def small_run():
    "The words of a training command that goes through all stages to mcts, with its KL and its brake."

    def words(folder: Path, **changes) -> list[str]:
        options = SMALL_RUN | {"output_dir": folder} | changes
        return ["train", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]

    return words


@pytest.fixture(scope="session")
def finished(tmp_path_factory, small_run) -> tuple[Path, Done]:
    "A run of six steps that nothing disturbed: its folder, and what the command said."
    folder = tmp_path_factory.mktemp("finished")
    done = Command(*small_run(folder / "run"), files=folder).wait()
    assert done.code == 0, done.err
    return folder / "run", done
