"""How much of the search's time the learner hides, and what OpenSpiel's C++ search gains over its Python one.

    python benchmarks/opponents.py          # -> data/opponents.json, a quarter of an hour on two cores
    python benchmarks/opponents.py --quick  # does it run? the numbers mean nothing

Overlap: 64 games against `mcts` are played three times over, the very same games each time. Once as in
training, search in threads beside the model. Once by a player that already knows all its answers, so that
only the search takes time. And once the model alone is asked the same questions in the same batches. What
counts is the first time divided by the larger of the others. With as many threads as cores and a model on
the same cores, no program can be faster than all the work spread evenly over the cores; that bound stands
beside the ratio. All this needs a machine that does nothing else: on a busy one look at the last column,
the processor time of playing together over that of both parts.

Languages: C++ and Python search with equal simulations and rollouts meet, each beginning half of the games;
time is processor time spent on moves.
"""

import os

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}  # before torch is there to read them

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import pyspiel
import torch
from open_spiel.python.algorithms import mcts

from gamerl.environment import draw_chance
from gamerl.matches import wilson
from gamerl.models import load_policy
from gamerl.prompts import Observation
from gamerl.rollouts import ModelPlayer, play_games
from gamerl.search import UCT_C, mcts_bot, seed_of
from gamerl.tasks import Task, load_game

OVERLAPS = (  # from a search that is quicker than the model to one that is much slower
    ("hex(board_size=4)", "mcts:50"),
    ("hex(board_size=4)", "mcts:200"),
    ("hex(board_size=4)", "mcts:1000"),
    ("leduc_poker", "mcts:200"),
)
MATCHES = (  # of the catalogue where turns alternate or sides of partners do: game, simulations, games
    ("liars_dice", 50, 200),
    ("leduc_poker", 50, 200),
    ("gin_rummy", 10, 10),
    ("othello", 20, 20),
    ("backgammon", 10, 20),
    ("hex(board_size=5)", 50, 200),
    ("clobber(rows=5,columns=5)", 50, 200),
    ("euchre", 50, 60),
    ("dots_and_boxes(num_rows=3,num_cols=3)", 50, 400),
    ("go(board_size=5)", 50, 40),
    ("chess", 10, 20),
    ("checkers", 10, 30),
    ("quoridor(board_size=7)", 10, 30),
    ("phantom_ttt", 50, 200),
    ("bridge", 10, 20),
    ("amazons(board_size=6)", 10, 40),
    ("oware", 10, 20),
)


COLUMNS = ("together", "search", "model", "ratio", "bound", "extra work")


# Overlap


class Recorder(ModelPlayer):
    "Keeps the batches that it was asked."

    def probs(self, observations: Sequence[Observation]) -> list[np.ndarray]:
        "Move probabilities at each observation."
        self.batches.append(observations)
        return super().probs(observations)


def timed(work: Callable[[], object]) -> np.ndarray:
    "Seconds on the wall, and seconds of all processors."
    started = perf_counter(), process_time()
    work()
    return np.subtract((perf_counter(), process_time()), started)


def overlap(game: str, word: str, games: int, rounds: int, threads: int) -> dict:
    "The times of one case; of each round, then their medians."
    player, found = Recorder(load_policy()), []
    for n in range(rounds + 1):
        tasks = [Task(game, seed=1000 * n + seed, opponent=word) for seed in range(games)]
        player.forget()
        player.batches = []
        both = timed(lambda: play_games(tasks, player, threads=threads))
        batches = player.batches
        search = timed(lambda: play_games(tasks, player, threads=threads))  # it remembers its answers
        player.forget()
        learner = timed(lambda: [player.answers(batch) for batch in batches])
        longer, work = max(search[0], learner[0]), search[1] + learner[1]
        row = both[0], search[0], learner[0], both[0] / longer, work / threads / longer, both[1] / work
        found.append(row)
    rounds_of = dict(zip(COLUMNS, zip(*found[1:])))  # the first round warms up
    return {"game": game, "opponent": word, "games": games} | {
        name: median(values) for name, values in rounds_of.items()
    }


# Languages


def python_bot(game: pyspiel.Game, simulations: int, rng: random.Random) -> pyspiel.Bot:
    "OpenSpiel's Python search, as the public environment has it."
    dice = np.random.RandomState(seed_of(rng))
    return mcts.MCTSBot(game, UCT_C, simulations, mcts.RandomRolloutEvaluator(1, dice), random_state=dice)


def meet(game: pyspiel.Game, simulations: int, first: int, seed: int) -> tuple[float, list[float], list[int]]:
    "One game: what C++ wins, the seconds that C++ and Python took, and their moves."
    rng, state = random.Random(seed), game.new_initial_state()
    bots = [mcts_bot(game, simulations, 1, rng), python_bot(game, simulations, rng)]
    seconds, moves = [0.0, 0.0], [0, 0]
    while not state.is_terminal():
        if state.is_chance_node():
            state.apply_action(draw_chance(state, rng))
            continue
        who, started = (state.current_player() + first) % 2, process_time()
        action = bots[who].step(state)
        seconds[who] += process_time() - started
        moves[who] += 1
        state.apply_action(action)
    return state.player_return(first), seconds, moves


def languages(name: str, simulations: int, games: int) -> dict:
    "A match of C++ against Python."
    game = load_game(name)
    results, seconds, moves = zip(*(meet(game, simulations, n % 2, n // 2) for n in range(games)))
    (fast, slow), (fast_moves, slow_moves) = np.sum(seconds, axis=0), np.sum(moves, axis=0)
    points = sum((result > 0) + 0.5 * (result == 0) for result in results)
    return {
        "game": name,
        "simulations": simulations,
        "games": games,
        "times_faster": float(slow / slow_moves / (fast / fast_moves)),
        "points": points / games,  # a draw is half a win
        "interval": wilson(points, games),
    }


# Tables


def overlap_lines(rows: Iterator[dict]) -> Iterator[dict]:
    "Print the first table as it grows."
    print("| game | opponent | together, s | search, s | model, s | ratio | bound | extra work |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        cells = [f"{row[name]:.2f}" for name in COLUMNS]
        print(f"| `{row['game']}` | `{row['opponent']}` | {' | '.join(cells)} |", flush=True)
        yield row


def language_lines(rows: Iterator[dict]) -> Iterator[dict]:
    "Print the second table as it grows."
    print("\n| game | simulations | games | C++ is faster | C++ scores |\n|---|---:|---:|---:|---:|")
    for row in rows:
        low, high = row["interval"]
        score = f"{100 * row['points']:.0f} % ({100 * low:.0f}–{100 * high:.0f})"
        cells = [row["simulations"], row["games"], f"{row['times_faster']:.0f} times", score]
        print(f"| `{row['game']}` | {' | '.join(map(str, cells))} |", flush=True)
        yield row


def main():
    root = Path(__file__).parents[1]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=root / "data" / "opponents.json", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of playing (%(default)s)")
    parser.add_argument("--games", type=int, default=64, help="at once (%(default)s)")
    parser.add_argument(
        "--match", type=int, default=400, help="most games of C++ against Python (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of search (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few games, one round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rounds, games, match = (1, 4, 2) if args.quick else (args.rounds, args.games, args.match)
    overlaps = overlap_lines(overlap(*case, games, rounds, args.threads) for case in OVERLAPS)
    told = {"threads": args.threads, "quick": args.quick, "overlap": list(overlaps)}
    matches = (languages(name, simulations, min(games, match)) for name, simulations, games in MATCHES)
    told["languages"] = list(language_lines(matches))
    args.output.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
