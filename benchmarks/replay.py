"""Does it help to replay lost games from a position inside them? Hex 4x4, several seeds.

    python benchmarks/replay.py              # -> data/replay.json, half an hour on one core
    python benchmarks/replay.py --steps 2 --seeds 1 --episodes 8   # does it run?

Three runs for each seed: failures replayed from their start, from two decisions before their end, and from
the decision after which the critic's expectation fell most. All else is the profile `tiny` with one stage
that is never passed. What is compared is the success rate in *fresh* games after equal numbers of episodes:
those of the curriculum's window during training, and a match from both seats at the end.
"""

import argparse
import json
from pathlib import Path
from statistics import mean

import torch

from gamerl.config import load_config
from gamerl.matches import play_match, wilson
from gamerl.training import PPOTrainer

RULES = ("start", "before_end", "value_drop")


def learn(rule: str, seed: int, steps: int, opponent: str) -> tuple[PPOTrainer, list[float]]:
    "One run, and the success rate in fresh games after each of its steps."
    stage = {"name": "only", "opponent": opponent, "threshold": 1}
    overrides = {
        "env.games": "hex(board_size=4)",
        "curriculum.replay_from": rule,
        "ppo.num_train_steps": steps,
        "run.seed": seed,
        "run.num_threads": 1,
    }
    trainer = PPOTrainer(load_config({"curriculum": {"stages": [stage]}}, "tiny", overrides))
    return trainer, [trainer.step()[0]["window_success"] for _ in range(steps)]


def measure(rule: str, seed: int, steps: int, episodes: int, opponent: str) -> dict:
    "One run and its match."
    trainer, curve = learn(rule, seed, steps, opponent)
    match = play_match(trainer.source.player(), "hex(board_size=4)", opponent, episodes, seed=1)
    return {
        "rule": rule,
        "seed": seed,
        "episodes": trainer.source.curriculum.episodes,
        "curve": curve,
        "wins": match.wins,
        "games": match.games,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each rule")
    parser.add_argument("--steps", type=int, default=60, help="training steps of each run")
    parser.add_argument("--episodes", type=int, default=400, help="games of the match at the end")
    parser.add_argument("--opponent", default="random", help="who is played, in training and in the match")
    parser.add_argument("--output", type=Path, default=Path("data/replay.json"), help="where the results go")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for seed in range(args.seeds):
        for rule in RULES:
            runs.append(measure(rule, seed, args.steps, args.episodes, args.opponent))
            print(f"{rule}, seed {seed}: {runs[-1]['wins']} of {runs[-1]['games']} won", flush=True)
    for rule in RULES:
        found = [run for run in runs if run["rule"] == rule]
        wins, games = sum(run["wins"] for run in found), sum(run["games"] for run in found)
        low, high = wilson(wins, games)
        half = mean(x for run in found for x in run["curve"][args.steps // 2 :])
        print(f"{rule}: {wins / games:.3f} ({low:.3f} to {high:.3f}), window in the second half {half:.3f}")
    args.output.write_text(json.dumps({"opponent": args.opponent, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
