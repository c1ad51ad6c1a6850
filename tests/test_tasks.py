"""Properties of tasks: IDs, JSON, randomness, openings."""

import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gamerl import states, tasks
from gamerl.cli import main
from gamerl.config import load_config
from gamerl.tasks import (
    CATALOGUE,
    CONFIGS_PER_GAME,
    Task,
    catalogue_game,
    decode_task_id,
    encode_task_id,
    game_string,
    load_game,
    opening_state,
)

TASK_IDS = st.integers(0, 10**15)
SEEDS = st.integers(0, 2**63 - 1)
GAMES = st.sampled_from(
    ["kuhn_poker", "leduc_poker", "hex(board_size=3)", "goofspiel(num_cards=4)", "hearts"]
)


def random_actions(game: str, seed: int, moves: int) -> list[int]:
    "The actions of random play, chance included, seats in order where all move at once."
    rng, state, actions = random.Random(seed), load_game(game).new_initial_state(), []
    while not state.is_terminal() and len(actions) < moves:
        together = state.is_simultaneous_node()
        seats = range(state.num_players()) if together else [state.current_player()]
        chosen = [rng.choice(state.legal_actions(seat)) for seat in seats]
        actions += chosen
        if together:
            state.apply_actions(chosen)
        else:
            state.apply_action(chosen[0])
    return actions


@given(TASK_IDS)
def test_ids_survive_the_round_trip(task_id):
    decoded = decode_task_id(task_id)
    assert decoded.index * CONFIGS_PER_GAME + decoded.config == task_id
    assert encode_task_id(decoded.index, decoded.config) == task_id
    entry = CATALOGUE[decoded.index % 22]
    assert (decoded.game, decoded.params) == (
        entry.name,
        entry.variants[decoded.config % len(entry.variants)],
    )


@given(st.sampled_from(CATALOGUE), st.integers(0, CONFIGS_PER_GAME - 1))
def test_encoding_by_name_and_by_index_agree(entry, config):
    task_id = encode_task_id(entry.name, config)
    assert task_id == encode_task_id(entry.index, config)
    assert decode_task_id(task_id).game == entry.name
    assert catalogue_game(entry.name) is entry


def test_a_decoded_task_does_not_expose_the_catalogue():
    decode_task_id(0).params["num_cards"] = 99
    assert decode_task_id(0).params["num_cards"] == 8


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_openspiel_plays_every_variant(entry):
    for params in entry.variants:
        spec = game_string(entry.name, params)
        assert load_game(spec).get_type().short_name == entry.name
        assert str(load_game(spec)).removesuffix("()") == spec.removesuffix("()")


@given(GAMES, SEEDS, st.sampled_from(["random", "mcts:10", "self"]), st.integers(0, 20))
@settings(max_examples=50)
def test_json_keeps_everything(game, seed, opponent, moves):
    task = Task(game, seed, seed % 2, opponent, tuple(random_actions(game, seed, moves)))
    again = Task.from_json(json.loads(json.dumps(task.to_json())))
    assert again == task and hash(again) == hash(task)


@given(TASK_IDS, SEEDS)
@settings(max_examples=50)
def test_the_seat_follows_the_seed(task_id, seed):
    task = Task.from_id(task_id, seed)
    assert task.player == seed % load_game(task.game).num_players()
    assert task.task_id == task_id and task.game == decode_task_id(task_id).spec


@given(GAMES, SEEDS)
def test_luck_depends_on_game_seed_and_purpose_only(game, seed):
    task, other = Task(game, seed), Task(game, seed, seat=1, opponent="mcts:10")
    before = random.getstate()
    first = task.rng("chance").getrandbits(64)
    assert random.getstate() == before
    assert task.rng("chance").getrandbits(64) == first == other.rng("chance").getrandbits(64)
    assert task.rng("seat0").getrandbits(64) != first != Task(game, seed + 1).rng("chance").getrandbits(64)


def test_luck_is_the_same_in_another_process():
    code = "from gamerl.tasks import Task; print(Task('kuhn_poker', 7).rng('chance').getrandbits(64))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": salt},
        ).stdout
        for salt in ("0", "1")
    }
    assert printed == {f"{Task('kuhn_poker', 7).rng('chance').getrandbits(64)}\n"}


@given(GAMES, SEEDS, st.integers(0, 30))
@settings(max_examples=50)
def test_openings_are_replayed_action_by_action(game, seed, moves):
    actions = random_actions(game, seed, moves)
    assert opening_state(game, tuple(actions)).history() == actions


@given(GAMES, SEEDS, st.integers(0, 8))
@settings(max_examples=50)
def test_an_illegal_opening_is_refused(game, seed, moves):
    actions = random_actions(game, seed, moves)
    with pytest.raises(ValueError, match="is not legal in"):
        Task(game, opening=(*actions, 10**6))


@pytest.mark.parametrize("bad", [-5, 1.0, "3", None, True, [0]])
def test_bad_task_ids_are_refused_in_one_line(bad):
    with pytest.raises(ValueError, match="^task_id: .* must be an integer") as error:
        decode_task_id(bad)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "hexx",
        "hex(",
        "hex(size=3)",
        "hex(board_size=-1)",
        "hex(board_size=3.5)",
        "kuhn_poker(players=1)",
        7,
    ],
)
def test_bad_games_are_refused_in_one_line(bad):
    with pytest.raises(ValueError, match="^game: ") as error:
        Task(bad)
    assert "\n" not in str(error.value)


# parameters that OpenSpiel takes and cannot play

IMPOSSIBLE = {
    "connect_four(rows=0)": "OpenSpiel crashes on it (SIG",
    "connect_four(columns=0)": "player 0 has nothing to choose from",
    "universal_poker(numPlayers=1)": "OpenSpiel crashes on it (SIG",
    "universal_poker(numRanks=0)": "OpenSpiel crashes on it (SIG",
    "universal_poker(numBoardCards=x)": "OpenSpiel crashes on it (SIG",
    "misere(game=connect_four(rows=0))": "OpenSpiel crashes on it (SIG",
    "hex(board_size=0)": "cannot be played",
    "hex(board_size=1)": "player 1 has nothing to choose from",
    "clobber(rows=1,columns=1)": "player 0 has nothing to choose from",
    "goofspiel(num_cards=0)": "chance has nothing to choose from",
    "pig(diceoutcomes=0)": "chance has nothing to choose from",
    "trade_comm(num_items=0)": "chance has nothing to choose from",
    "liars_dice(numdice=0)": "cannot be played",
    "2048(max_tile=2)": "there is nothing to win",
    "checkers(rows=7)": "cannot be played",
    "quoridor(board_size=50)": "cannot be played",
    "dots_and_boxes(num_cols=60000)": "moves to choose from, more than 100000",
    "blotto(coins=1000,fields=20)": "its first position takes more than 3 seconds",
    "yacht(dice_sides=50)": "bad_alloc",
    "capture_the_flag(grid=x)": "Invalid char",
    "bridge(dealer=9)": "it must be a seat, from 0 to 3",
    "leduc_poker(starting_player=2)": "it must be a seat, from 0 to 1",
    "nfg_game()": "it needs filename",
    "nfg_game": "it needs filename",
}


@pytest.mark.parametrize("game", IMPOSSIBLE)
def test_impossible_parameters_are_refused_in_one_line(game):
    with pytest.raises(ValueError, match="^game: .* is not allowed") as error:
        Task(game)
    assert IMPOSSIBLE[game] in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "game",
    [
        "gin_rummy(gin_bonus=0,undercut_bonus=0)",
        "leduc_poker(players=3,starting_player=2)",
        "liars_dice(dice_sides=4)",
        "connect_four(rows=5)",
        "kuhn_poker(players=4)",
        "universal_poker(numSuits=2)",
        "misere(game=tic_tac_toe())",
        "turn_based_simultaneous_game(game=goofspiel(num_cards=3))",
        "repeated_game(stage_game=matrix_pd(),num_repetitions=3)",
    ],
)
def test_sensible_parameters_are_not_refused(game):
    assert Task(game).game == game


def test_a_game_is_tried_once_and_what_the_catalogue_plays_never(monkeypatch):
    asked, run = [], subprocess.run
    monkeypatch.setattr(states.subprocess, "run", lambda *a, **words: asked.append(a) or run(*a, **words))
    for cached in (states.tried, tasks.load_game):
        cached.cache_clear()
    for entry in CATALOGUE:
        for params in entry.variants:
            load_game(game_string(entry.name, params))
    for familiar in ("hex(board_size=3)", "goofspiel(num_cards=4,points_order=descending)", "kuhn_poker"):
        load_game(familiar)
    assert asked == []
    for _ in range(3):
        with pytest.raises(ValueError, match="crashes"):
            load_game("connect_four(rows=0)")
        load_game("connect_four(rows=5)")
    assert len(asked) == 2


def test_games_are_tried_from_threads():
    games = [
        "connect_four(rows=4)",
        "connect_four(rows=0,columns=5)",
        "pig(diceoutcomes=3)",
        "hex(num_rows=0)",
    ]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(states.tried, games))
    assert [why is None for why in found] == [True, False, True, False]


def test_a_trial_finds_its_modules_where_this_process_does(monkeypatch, tmp_path):
    (tmp_path / "random.py").write_text("raise SystemExit('this is not the library')")
    monkeypatch.chdir(tmp_path)
    assert states.tried("connect_four(columns=5)") is None


def test_a_game_that_a_python_program_registered_is_taken_as_it_is():
    code = "import open_spiel.python.games; from gamerl.tasks import load_game; "
    code += "print(load_game('python_iterated_prisoners_dilemma(max_game_length=5)').max_game_length())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split()[-1:] == ["5"], done.stderr


def test_a_run_and_the_command_line_refuse_what_crashes(capsys):
    with pytest.raises(ValueError, match=r"env.games: 'connect_four\(rows=0\)' is not allowed; OpenSpiel"):
        load_config(None, overrides={"env.games": "connect_four(rows=0)"})
    assert main(["preferences", "--game", "connect_four(rows=0)", "--judge", "minimax"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("gamerl: error: ") and "is not allowed; OpenSpiel crashes" in err
    assert err.count("\n") == 1
