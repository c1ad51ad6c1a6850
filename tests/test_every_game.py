"""Every game that OpenSpiel registers is played through the environment; the few that cannot be are named."""

import json
import subprocess
import sys
from pathlib import Path

import pyspiel
import pytest

from gamerl.environment import Episode, GameEnv
from gamerl.tasks import CATALOGUE, Task, game_string, load_game

LOADABLE = sorted(kind.short_name for kind in pyspiel.registered_games() if kind.default_loadable)
REFUSED = {
    "bridge_uncontested_bidding": "throws dice of its own",
    "crossword": "moves without numbers",
    "mfg_crowd_modelling": "mean-field",
    "mfg_crowd_modelling_2d": "mean-field",
    "mfg_dynamic_routing": "mean-field",
    "mfg_garnet": "mean-field",
    "negotiation": "throws dice of its own",
    "stones_and_gems": "throws dice of its own",
    "tarok": "throws dice of its own",
}
VARIANTS = [game_string(entry.name, params) for entry in CATALOGUE for params in entry.variants]


def play(task: Task, turns: int | None) -> Episode:
    "One game of uniformly drawn replies."
    env, rng = GameEnv(max_turns=turns), task.rng("replies")
    observation = env.reset(task)
    while observation is not None:
        assert list(observation.legal) and all(m["content"] for m in observation.messages)
        observation = env.step(rng.choice(list(observation.legal))).observation
    return env.episode


def assert_whole(episode: Episode) -> None:
    "It came to an end, or was cut, with scores that are scores."
    assert episode.terminated != episode.truncated and episode.failed is None
    assert len(episode.scores) == load_game(episode.task.game).num_players()
    assert all(0 <= score <= 1 for score in episode.scores)


def test_those_that_are_refused_exist():
    assert set(REFUSED) <= set(LOADABLE)


@pytest.mark.parametrize("name", [name for name in LOADABLE if name not in REFUSED])
def test_every_registered_game_is_played(name):
    episode = play(Task(name, seed=1), turns=8)
    assert_whole(episode)
    assert play(Task(name, seed=1), turns=8) == episode


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_played_is_refused_in_a_line(name):
    with pytest.raises(ValueError, match=f"^game: {name}.*{REFUSED[name]}") as caught:
        GameEnv().reset(Task(name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("game", VARIANTS)
def test_every_variant_is_played_to_the_end_from_every_seat(game):
    for seat in range(load_game(game).num_players()):
        assert_whole(play(Task(game, seed=seat, seat=seat), turns=None))


@pytest.mark.parametrize("game", VARIANTS)
def test_every_variant_is_played_to_the_end_against_search(game):
    entry = next(e for e in CATALOGUE for p in e.variants if game_string(e.name, p) == game)
    for seat in range(load_game(game).num_players()):
        episode = play(Task(game, seed=seat, seat=seat, opponent="mcts:2"), turns=None)
        assert_whole(episode)
        assert episode.opponent_played == ("random" if entry.mcts is None else "mcts:2")


REPEATED = [
    Task(game, seed=11 + seat, seat=seat, opponent=opponent)
    for game in VARIANTS
    for opponent in ("random", "mcts:4")
    for seat in range(load_game(game).num_players())
]


def histories() -> list[str]:
    "What happens in whole games of every variant, from every seat, as text."
    return [json.dumps(play(task, turns=None).to_json()) for task in REPEATED]


def test_another_process_plays_the_same_games():
    words = "import test_every_game as t; print(*t.histories(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    there, here = done.stdout.splitlines()[-len(REPEATED) :], histories()
    assert [task for task, one, other in zip(REPEATED, there, here, strict=True) if one != other] == []
    assert all(json.loads(text)["terminated"] for text in here)
