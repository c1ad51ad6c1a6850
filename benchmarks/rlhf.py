"""RLHF from end to end: does a reward learned from a judge's preferences win games?

    python benchmarks/rlhf.py                   # -> data/rlhf.json, three seeds
    python benchmarks/rlhf.py --seeds 1 --count 100 --steps 2 --games 20   # does it run?

For each seed: pairs of moves that a solver prefers, a reward model that learns from them, PPO on positions
with that reward and with legality, and a match from both seats before and after, on the same deals. No game
is played while the model learns; it only writes replies to positions.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from statistics import fmean
from time import perf_counter

import torch

from gamerl.config import Config, load_config
from gamerl.evaluation import paired_gain
from gamerl.game_rewards import legality
from gamerl.matches import Match, find_floor, play_match
from gamerl.models import model_path
from gamerl.preferences import game_prompts, preferences
from gamerl.reward_model import RewardModel
from gamerl.reward_training import train_reward_model
from gamerl.rollouts import ModelPlayer
from gamerl.text_data import read_pairs
from gamerl.training import PPOTrainer

GAME = "liars_dice(numdice=1,dice_sides=5)"  # the largest of the kind that can be solved
JUDGE = "cfr:200"
MARGIN = 0.1  # regrets above a tenth of the game's range


def legality_weighed(prompts, completions, task, **columns):
    "A legal move is worth two points, about as much as the reward model's opinions differ."
    return [2 * value for value in legality(prompts, completions, task)]


def ppo_config(seed: int, steps: int, folder: str) -> Config:
    "PPO on texts for the tiny model."
    overrides = {
        "rlhf.log_texts": 0,
        "model.max_new_tokens": 4,
        "ppo.num_train_steps": steps,
        "run.seed": seed,
        "run.output_dir": f"{folder}/ppo",
    }
    return load_config(profile="rlhf-tiny", overrides=overrides)


def reward_of(pairs: list, seed: int, folder: str) -> tuple[RewardModel, dict]:
    "A reward model for these pairs, and what it got right on those that were held out."
    model = RewardModel.from_pretrained(model_path("tiny"))
    rows = read_pairs([pair.to_json() for pair in pairs])
    settings = {"num_epochs": 1.0, "learning_rate": 3e-3, "batch_size": 16, "held_out": 0.2, "seed": seed}
    report = train_reward_model(rows, model, f"{folder}/reward", **settings).to_json()
    told = ("accuracy", "accuracy_interval", "accuracy_before", "calibration_error", "held_out")
    return model, {name: report[name] for name in told}


def blind_accuracy(pairs: list) -> float:
    "How many pairs are right for somebody who has one order of all replies and looks at no position."
    worth = Counter()
    for pair in pairs:
        worth[pair.chosen] += 1
        worth[pair.rejected] -= 1
    met = Counter(reply for pair in pairs for reply in (pair.chosen, pair.rejected))
    order = {reply: worth[reply] / met[reply] for reply in met}
    return fmean(order[pair.chosen] > order[pair.rejected] for pair in pairs)


def match_of(trainer: PPOTrainer, games: int) -> Match:
    "A match against random; replies are drawn among the legal ones."
    return play_match(ModelPlayer(trainer.policy), GAME, "random", games, seed=1)


def measure(seed: int, count: int, steps: int, games: int, folder: str) -> dict:
    "The whole road with one seed."
    start = perf_counter()
    pairs, _ = preferences(GAME, JUDGE, count, MARGIN, seed=seed)
    paired = perf_counter()
    model, report = reward_of(pairs, seed, folder)
    learned = perf_counter()
    config = ppo_config(seed, steps, folder)
    trainer = PPOTrainer(config, reward_model=model, reward_functions=[legality_weighed])
    before = match_of(trainer, games)
    trainer.train(game_prompts(GAME, steps * config.ppo.batch_size, seed))
    after = match_of(trainer, games)
    gain, interval = paired_gain(before, after)
    return {
        "seed": seed,
        "pairs": len(pairs),
        "reward_model": report | {"blind_accuracy": blind_accuracy(pairs)},
        "before": {"wins": before.wins, "games": before.games, "interval": before.win_interval},
        "after": {"wins": after.wins, "games": after.games, "interval": after.win_interval},
        "gain": gain,
        "gain_interval": interval,
        "seconds": {
            "pairs": paired - start,
            "reward_model": learned - paired,
            "ppo": perf_counter() - learned,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of the whole road")
    parser.add_argument("--count", type=int, default=1500, help="pairs of moves")
    parser.add_argument("--steps", type=int, default=16, help="steps of PPO")
    parser.add_argument("--games", type=int, default=1000, help="games of each match")
    parser.add_argument("--output", type=Path, default=Path("data/rlhf.json"), help="where the results go")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(run := measure(seed, args.count, args.steps, args.games, folder))
        low, high = run["gain_interval"]
        rates = [run[when]["wins"] / run[when]["games"] for when in ("before", "after")]
        print(
            f"seed {seed}: won {rates[0]:.3f} before, {rates[1]:.3f} after; gain {run['gain']:.3f}",
            flush=True,
        )
        print(f"  ({low:.3f} to {high:.3f}), {sum(run['seconds'].values()):.0f} s", flush=True)
    floor = play_match(find_floor(GAME, "random"), GAME, "random", args.games, seed=1)
    print(f"a player who looks at nothing: {floor.win_rate:.3f}")
    told = {"game": GAME, "judge": JUDGE, "min_margin": MARGIN, "floor": floor.win_rate, "runs": runs}
    args.output.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
