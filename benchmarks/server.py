"""How much a game server takes: many clients for a minute, and the memory of many episodes.

    python benchmarks/server.py          # -> data/server.json, about five minutes
    python benchmarks/server.py --quick  # does it run? seconds; the numbers mean nothing

Load: `gamerl serve` in a process of its own, 64 episodes at once against random play, from 8 client processes
with 8 threads each, for a minute. Every episode is compared with its twin in this process: a single
difference ends the benchmark. Counted are episodes and replies per second, and the slowest answers.

Memory: 10,000 episodes from 8 threads; the resident memory of the server after every thousand. It has to stay
flat: the last nine thousand may add 5% to what the first thousand left.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import psutil

from gamerl.environment import GameEnv
from gamerl.remote import RemoteEnv
from gamerl.rollouts import UniformPlayer, play_games
from gamerl.tasks import Task

GAMES = ("leduc_poker", "hex(board_size=5)", "tic_tac_toe", "liars_dice", "goofspiel(num_cards=8)", "othello")
CLIENTS, EACH = 8, 8  # processes, and episodes at once in each
GROWTH = 1.05  # of the memory after the first thousand episodes
ROOT = Path(__file__).parents[1]


class Timed(RemoteEnv):
    "A `RemoteEnv` that notes how long each answer took."

    waited: list[float] = []

    def step(self, reply):
        "Answer, and look at the clock."
        start = time.perf_counter()
        step = super().step(reply)
        self.waited.append(time.perf_counter() - start)
        return step


def load(url: str, first: int, seconds: float) -> tuple[int, list[float]]:
    "Play rounds of episodes for a while and compare them; how many, and how long each answer took."
    end, played, player = time.monotonic() + seconds, 0, UniformPlayer()
    Timed.waited = []
    while time.monotonic() < end:
        tasks = [Task(GAMES[n % len(GAMES)], first + n) for n in range(played, played + EACH)]
        there = play_games(tasks, player, make_env=lambda: Timed(url), threads=EACH)
        here = play_games(tasks, player, make_env=GameEnv)
        if [game.episode for game in there] != [game.episode for game in here]:
            raise AssertionError(f"episodes {first + played} and on differ from their twins")
        played += EACH
    return played, Timed.waited


def under_load(url: str, seconds: float, clients: int = CLIENTS) -> dict:
    "What several client processes get done."
    with get_context("spawn").Pool(clients) as pool:
        found = pool.starmap(load, [(url, 10**6 * client, seconds) for client in range(clients)])
    waited = sorted(second for _, times in found for second in times)
    return {
        "seconds": seconds,
        "clients": clients,
        "episodes_at_once": EACH * clients,
        "episodes_per_second": sum(played for played, _ in found) / seconds,
        "replies_per_second": len(waited) / seconds,
        "milliseconds_median": 1000 * waited[len(waited) // 2],
        "milliseconds_99_percent": 1000 * waited[int(0.99 * len(waited))],
    }


def memory(url: str, process: psutil.Process, episodes: int) -> list[float]:
    "Megabytes of the server after every tenth of the episodes."

    def play(seed: int) -> None:
        env = RemoteEnv(url)
        question = env.reset(Task("leduc_poker", seed))
        while question:
            question = env.step(list(question.legal)[-1]).observation

    found, share = [], episodes // 10
    with ThreadPoolExecutor(8) as pool:
        for part in range(10):
            list(pool.map(play, range(part * share, (part + 1) * share)))
            found.append(process.memory_info().rss / 1e6)
    if found[-1] > GROWTH * found[0]:
        raise AssertionError(f"the server's memory grows: {found} MB")
    return found


def main() -> None:
    "Start a server, load it, write down what it took."
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="seconds; the numbers mean nothing")
    quick = parser.parse_args().quick
    code = "import sys; from gamerl.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "serve", "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[-1]
        result = {"load": under_load(url, 1, 2) if quick else under_load(url, 60)}
        result["memory"] = memory(url, psutil.Process(server.pid), 100 if quick else 10_000)
    finally:
        server.terminate()
        server.wait()
    print(json.dumps(result, indent=2))
    if not quick:
        (ROOT / "data" / "server.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
