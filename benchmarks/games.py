"""Every game of the catalogue in every variant: how long its prompts are, and how fast it is played.

    python benchmarks/games.py                      # -> data/games.json, some minutes on one core
    python benchmarks/games.py --tokenizer FOLDER   # count the tokens of another tokenizer as well
    python benchmarks/games.py --others             # only the games beside the catalogue; keeps the rest
    python benchmarks/games.py --quick              # does it run? the numbers mean little

Games are played at random through `GameEnv`. Prompt tokens are those of the whole prompt, rules included, in
the model's chat template, and of the part behind the rules, which is all that is computed again at every
decision. Beside the time of an episode stands the time of the same episode in OpenSpiel alone: the same
actions, with legal moves, a state string and the names of the moves at every decision of the learner. The
share that is left is gamerl's own. Time is processor time. Beside the catalogue stand a few board games that
have no words of gamerl's own and are told in OpenSpiel's strings.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import json
import platform
import random
from pathlib import Path
from statistics import mean
from time import process_time

import pyspiel
from transformers import AutoTokenizer

from gamerl.environment import Episode, GameEnv
from gamerl.models import model_path
from gamerl.prompts import Observation, reply_text
from gamerl.sampling import Encoder
from gamerl.states import walk
from gamerl.tasks import CATALOGUE, Task, game_string, load_game

OTHERS = ("connect_four", "breakthrough", "havannah", "pentago", "lines_of_action")


def play(task: Task, most: int) -> tuple[Episode | None, list[Observation]]:
    "One game of uniformly drawn replies, cut after so many decisions; what was asked."
    env, rng, asked = GameEnv(max_turns=most), task.rng("replies"), []
    observation = env.reset(task)
    while observation is not None:
        asked.append(observation)
        observation = env.step(rng.choice(list(observation.legal))).observation
    return env.episode, asked


def view(state: pyspiel.State, player: int) -> str:
    "The string that OpenSpiel would show this player."
    kind = state.get_game().get_type()
    if kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION:
        return str(state)
    if kind.provides_information_state_string:
        return state.information_state_string(player)
    return state.observation_string(player)


def replay(episode: Episode) -> None:
    "The same game in OpenSpiel alone."
    state, player = load_game(episode.task.game).new_initial_state(), episode.task.player
    for _ in walk(state, episode.actions):
        if state.is_chance_node():
            state.chance_outcomes()
        elif state.is_simultaneous_node() or state.current_player() == player:
            legal = state.legal_actions(player)
            view(state, player)
            for action in legal:
                state.action_to_string(player, action)
        else:
            state.legal_actions()


def tokens(asked: list[Observation], encode: Encoder) -> dict[str, float]:
    "Mean and largest length of prompts, in tokens."
    questions = [encode(o.messages, tuple(map(reply_text, o.legal))) for o in asked]
    whole = [len(q.prefix) + len(q.suffix) for q in questions]
    return {"mean": mean(whole), "most": max(whole), "turn": mean(len(q.suffix) for q in questions)}


def measure(game: str, encoders: dict[str, Encoder], seconds: float, most: int) -> dict:
    "One variant."
    played, asked, ours, theirs, deadline = 0, [], 0.0, 0.0, process_time() + seconds
    while not played or process_time() < deadline:
        start = process_time()
        episode, questions = play(Task(game, seed=played), most)
        middle = process_time()
        replay(episode)
        ours, theirs = ours + middle - start, theirs + process_time() - middle
        played, asked = played + 1, asked + questions
    told = random.Random(0).sample(asked, min(len(asked), 200))
    return {
        "game": game,
        "players": load_game(game).num_players(),
        "episodes": played,
        "decisions": len(asked) / played,
        "decisions_per_second": len(asked) / ours,
        "own_share": max(0.0, 1 - theirs / ours),
        "openspiel_microseconds": 1e6 * theirs / len(asked),
        "tokens": {name: tokens(told, encode) for name, encode in encoders.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", action="append", default=[], help="another tokenizer: folder or name")
    parser.add_argument("--seconds", type=float, default=2.0, help="processor time for each variant")
    parser.add_argument("--most", type=int, default=200, help="decisions after which a game is cut")
    parser.add_argument("--others", action="store_true", help="only the games beside the catalogue")
    parser.add_argument("--quick", action="store_true", help="one game each, ten decisions")
    parser.add_argument("--output", type=Path, default=Path("data/games.json"), help="where the results go")
    args = parser.parse_args()
    seconds, most = (0.0, 10) if args.quick else (args.seconds, args.most)
    names = {"tiny": model_path("tiny")} | {Path(name).name: name for name in args.tokenizer}
    encoders = {n: Encoder(AutoTokenizer.from_pretrained(p), 1 << 20) for n, p in names.items()}
    kept = args.others and args.output.exists()
    measured = json.loads(args.output.read_text()) if kept else {"games": []}
    for entry in () if args.others else CATALOGUE:
        for params in entry.variants:
            row = measure(game_string(entry.name, params), encoders, seconds, most)
            measured["games"].append({"index": entry.index} | row)
            report(row)
    measured["others"] = [measure(name, encoders, seconds, most) for name in OTHERS]
    for row in measured["others"]:
        report(row)
    cpu = {"cpu": platform.processor() or platform.machine()}
    args.output.write_text(json.dumps(measured | cpu, indent=1) + "\n")


def report(row: dict) -> None:
    "One variant in a line."
    length = f"{row['tokens']['tiny']['mean']:.0f} tokens (at most {row['tokens']['tiny']['most']})"
    pace = f"{row['decisions_per_second']:.0f} decisions/s, own share {row['own_share']:.2f}"
    print(f"{row['game']}: {length}, {pace}", flush=True)


if __name__ == "__main__":
    main()
