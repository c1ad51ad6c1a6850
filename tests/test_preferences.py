"Pairs of moves and rewards that know games, against slow definitions of their own."

import json
import random
from collections import defaultdict
from itertools import islice
from math import prod

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from gamerl import move_judges
from gamerl.cli import main
from gamerl.environment import score_of
from gamerl.exact import information_states, nash_conv, realisation_weights
from gamerl.game_rewards import legality, move_regret, outcome_reward
from gamerl.move_judges import (
    Minimax,
    action_values,
    cfr_judge,
    make_judge,
    regrets_of,
    search_judge,
    search_value,
)
from gamerl.preferences import game_prompts, judged_positions, preferences, write_rows
from gamerl.prompts import observe, parse_reply
from gamerl.solvers import solve
from gamerl.states import apply_turn, turn_seats
from gamerl.tasks import Task, load_game, opening_state

HEX = "hex(board_size=3)"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    "Games are solved for these tests alone."
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def some_position(game: str, seed: int, left: int = 99):
    "A position of random play, with at most so many legal moves left."
    rng = random.Random(seed)
    while True:
        state = load_game(game).new_initial_state()
        while not state.is_terminal():
            if state.is_player_node() and len(state.legal_actions()) <= left:
                return state
            state.apply_action(rng.choice(state.legal_actions()))


# Judges


def plain_value(state, player: int) -> float:
    "What a player gets if all play their best and chance does what it does."
    if state.is_terminal():
        return state.player_return(player)
    if state.is_chance_node():
        return sum(p * plain_value(state.child(a), player) for a, p in state.chance_outcomes())
    values = [plain_value(state.child(a), player) for a in state.legal_actions()]
    return max(values) if state.current_player() == player else min(values)


@pytest.mark.parametrize("game", ["tic_tac_toe", HEX])
@pytest.mark.parametrize("seed", range(4))
def test_minimax_is_plain_recursion(game, seed):
    state = some_position(game, seed, left=6 + seed % 2)
    values = {a: plain_value(state.child(a), state.current_player()) for a in state.legal_actions()}
    assert Minimax()(state) == values


def test_minimax_keeps_what_it_knows_apart():
    "One judge for many positions of both seats says what a fresh one says."
    judge, states = Minimax(), [some_position("tic_tac_toe", seed, left=8) for seed in range(30)]
    assert {state.current_player() for state in states} == {1}
    states += [some_position("tic_tac_toe", seed, left=5) for seed in range(30)]
    assert {state.current_player() for state in states} == {0, 1}
    for state in states:
        assert judge(state) == Minimax()(state)


@pytest.mark.parametrize("seed", range(3))
def test_a_search_proves_what_minimax_knows(seed):
    state = some_position("tic_tac_toe", seed, left=5)
    assert search_judge(20_000, 1, random.Random(seed))(state) == Minimax()(state)


def test_a_search_is_right_about_both_seats():
    "In hex the winner is certain near the end, whoever moves."
    for seed in range(10):
        state = some_position(HEX, seed, left=4 + seed % 2)
        assert search_judge(4000, 1, random.Random(0))(state) == Minimax()(state)


def test_what_one_seat_wins_the_other_loses():
    "An open position that no search can prove: x, with 2, 7 and 12, is nearly across the board."
    state = opening_state("hex(board_size=5)", (2, 0, 7, 5, 12))
    values = [search_value(state, player, 60, 1, random.Random(0)) for player in (0, 1)]
    assert values[0] == -values[1] and 0.3 < values[0] < 1


def test_a_search_weighs_throws_of_the_dice():
    "Pig, to six points: rolling a 1 loses the turn, and a roll of 2 or more may win."
    state = load_game("pig(players=2,winscore=4,diceoutcomes=3,horizon=8)").new_initial_state()
    for action in (0, 2):  # roll, and a 3: one more point wins
        state.apply_action(action)
    found = search_judge(6000, 1, random.Random(0))(state)
    exact = {a: plain_value(state.child(a), 0) for a in state.legal_actions()}
    assert state.child(0).is_chance_node()
    assert max(found, key=found.get) == max(exact, key=exact.get)
    assert found == pytest.approx(exact, abs=0.25)


def slow_action_values(game: str, table) -> dict[str, np.ndarray]:
    "The definition: all histories of an information state, weighed by what chance and the others did."
    rows = {s.key: dict(zip(s.observation.legal, table[s.key])) for s in information_states(game)}
    paid, reached = defaultdict(lambda: defaultdict(float)), defaultdict(float)

    def worth(state, reach):
        if state.is_terminal():
            return np.array(state.returns())
        chance, player = state.is_chance_node(), state.current_player()
        odds = dict(state.chance_outcomes()) if chance else rows[state.information_state_string()]
        found = {}
        for action, p in odds.items():
            after = list(reach)
            after[player] *= p  # chance is -1, the last place
            found[action] = worth(state.child(action), after)
        if not chance:
            key, others = state.information_state_string(), prod(reach[:player] + reach[player + 1 :])
            reached[key] += others
            for action, value in found.items():
                paid[key][action] += others * value[player]
        return sum(p * found[action] for action, p in odds.items())

    players = load_game(game).num_players()
    worth(load_game(game).new_initial_state(), [1.0] * (players + 1))
    return {key: np.array([paid[key][a] for a in sorted(paid[key])]) / reached[key] for key in paid}


def random_table(game: str, seed: int):
    "Some policy that plays every move."
    rng = np.random.default_rng(seed)
    return {s.key: rng.dirichlet(np.ones(len(s.observation.legal))) for s in information_states(game)}


@pytest.mark.parametrize(
    ("game", "seed"), [("kuhn_poker", 0), ("kuhn_poker", 1), ("kuhn_poker(players=3)", 2), ("leduc_poker", 3)]
)
def test_action_values_are_those_of_the_definition(game, seed):
    table = random_table(game, seed)
    fast, slow = action_values(game, table), slow_action_values(game, table)
    assert fast.keys() == slow.keys()
    for key, row in slow.items():
        assert fast[key] == pytest.approx(row, abs=1e-9)


def test_no_single_change_gains_more_than_the_best_response():
    "NashConv is what both seats could gain in all; one better move is part of that."
    game, table = "kuhn_poker", random_table("kuhn_poker", 5)
    values, own = action_values(game, table), realisation_weights(game, table)
    reached = slow_reach(game, table)
    gains = [
        own[s.parent] * reached[s.key] * (values[s.key].max() - table[s.key] @ values[s.key])
        for s in information_states(game)
    ]
    assert 0.05 < max(gains) <= nash_conv(game, table)


def slow_reach(game: str, table) -> dict[str, float]:
    "How likely chance and the others let a player arrive."
    rows = {s.key: dict(zip(s.observation.legal, table[s.key])) for s in information_states(game)}
    found = defaultdict(float)

    def visit(state, reach):
        if state.is_terminal():
            return
        player = state.current_player()
        odds = dict(state.chance_outcomes()) if player < 0 else rows[state.information_state_string()]
        if player >= 0:
            found[state.information_state_string()] += prod(reach[:player] + reach[player + 1 :])
        for action, p in odds.items():
            after = list(reach)
            after[player] *= p
            visit(state.child(action), after)

    visit(load_game(game).new_initial_state(), [1.0] * (load_game(game).num_players() + 1))
    return found


def test_an_equilibrium_plays_only_its_best_moves():
    game = "kuhn_poker"
    judge, strategy = cfr_judge(game, 3000), dict(solve(game, 3000))
    for state in information_states(game):
        here = [s for s in all_states(game) if s.information_state_string() == state.key][0]
        values = judge(here)
        for action, p in strategy[state.key]:
            assert not values or p < 0.05 or values[action] > max(values.values()) - 0.05


def all_states(game: str):
    "Every position of a small game at which a player decides."
    waiting = [load_game(game).new_initial_state()]
    while waiting:
        state = waiting.pop()
        if state.is_terminal():
            continue
        if state.is_player_node():
            yield state
        waiting += [state.child(action) for action in state.legal_actions()]


def test_no_opinion_where_nobody_lets_a_player_arrive(monkeypatch):
    "If player 0 always bets, player 1 never sees it pass."
    states = information_states("kuhn_poker")
    always = {s.key: [(0, 0.0), (1, 1.0)] if s.player == 0 else [(0, 0.5), (1, 0.5)] for s in states}
    monkeypatch.setattr(move_judges, "solve", lambda game, iterations: always)
    judge = cfr_judge("kuhn_poker", 1)
    assert judge(opening_state("kuhn_poker", (0, 1, 0))) == {}
    assert judge(opening_state("kuhn_poker", (0, 1, 1)))[0] == -1
    words = [position.words for position in judged_positions("kuhn_poker", "cfr:1")]
    assert (
        len(words) == len(set(words)) == 3 + 3 + 3
    )  # three cards: first move, after a bet, after pass and bet


# Regrets


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9))
@settings(max_examples=50, deadline=None)
def test_regrets_turn_values_round(values):
    regrets = regrets_of(dict(enumerate(values)), load_game("tic_tac_toe"))
    assert min(regrets.values()) == 0 and max(regrets.values()) <= 1
    for a, b in zip(range(len(values)), range(1, len(values))):
        assert (regrets[a] - regrets[b]) * (values[b] - values[a]) >= 0


def test_regret_is_a_share_of_what_the_game_can_pay():
    "Leduc poker pays from -13 to 13, so 13 coins are half of it."
    assert regrets_of({0: -6.5, 1: 6.5}, load_game("leduc_poker")) == {0: 0.5, 1: 0}


# Positions and pairs


@pytest.mark.parametrize(
    ("game", "judge"), [(HEX, "minimax"), ("leduc_poker", "cfr:20"), (HEX, "mcts:100x2")]
)
def test_a_position_can_be_played_on(game, judge):
    for position in islice(judged_positions(game, judge, seed=3), 60):
        state = opening_state(position.task.game, position.task.opening)
        assert state.current_player() == position.task.player
        assert observe(state, position.task.player).messages == position.observation.messages
        assert list(position.regrets) == state.legal_actions() == list(position.observation.legal)


def test_the_same_seed_gives_the_same_pairs():
    def made(seed):
        pairs, looked = preferences("hex(board_size=4)", "mcts:200", 40, 0.2, "greedy:0.5", seed, 0.2)
        return [pair.to_json() for pair in pairs], [position.to_json() for position in looked]

    state = random.getstate()
    assert made(1) == made(1) and random.getstate() == state
    assert made(1) != made(2)


def test_pairs_keep_their_promises():
    pairs, looked = preferences("tic_tac_toe", "minimax", 400, min_margin=0.4)
    assert len(pairs) == 400 and len({position.words for position in looked}) == len(looked)
    seats = [pair.position.task.player for pair in pairs]
    assert 100 < sum(seats) < 300
    for pair in pairs:
        regrets = pair.position.regrets
        assert regrets[int(pair.chosen)] == 0
        assert regrets[int(pair.rejected)] == pair.margin > 0.4
        assert plain_regret(pair) == pair.margin


def plain_regret(pair) -> float:
    "How much the rejected move loses by a walk through all that can follow; the game pays from -1 to 1."
    task = pair.position.task
    state = opening_state(task.game, task.opening)
    if len(state.legal_actions()) > 6:
        return pair.margin  # too many ways to go on for a plain walk
    chosen, rejected = (plain_value(state.child(int(a)), task.player) for a in (pair.chosen, pair.rejected))
    return (chosen - rejected) / 2


def test_a_margin_is_never_met_but_passed():
    "Tic-tac-toe has regrets of 0.5 and 1; what is asked for lies above the bound."
    pairs, _ = preferences("tic_tac_toe", "minimax", 200, min_margin=0.5)
    assert {pair.margin for pair in pairs} == {1}


def test_illegal_replies_are_as_many_as_asked_for():
    pairs, _ = preferences(HEX, "minimax", 600, min_margin=0.2, illegal_share=0.25)
    read = [parse_reply(pair.rejected, pair.position.observation.legal).action for pair in pairs]
    wrong = [pair for pair, action in zip(pairs, read) if action is None]
    assert 0.18 < len(wrong) / len(pairs) < 0.32
    assert all(pair.margin == 1 and int(pair.chosen) in pair.position.regrets for pair in wrong)
    assert any(pair.position.regrets[int(pair.chosen)] > 0 for pair in wrong)
    assert any(pair.rejected.isdigit() for pair in wrong) and not all(
        pair.rejected.isdigit() for pair in wrong
    )


def test_greedy_games_take_the_best_moves():
    judge = Minimax()
    for position in islice(judged_positions("tic_tac_toe", "minimax", "greedy:0"), 60):
        state = load_game("tic_tac_toe").new_initial_state()
        for action in position.task.opening:
            values = judge(state)
            assert values[action] == max(values.values())
            state.apply_action(action)


def test_rows_are_what_data_sets_read(tmp_path):
    pairs, looked = preferences("kuhn_poker", "cfr:100", 99, min_margin=0.01)
    assert len(pairs) < 12  # the game has no more
    write_rows([pair.to_json() for pair in pairs], tmp_path / "new" / "pairs.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "new" / "pairs.jsonl").read_text().splitlines()]
    read = Dataset.from_list(rows)
    assert read[0] == rows[0] == pairs[0].to_json()
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert Task.from_json(json.loads(rows[0]["task"])) == pairs[0].position.task
    assert set(looked[0].to_json()) == set(rows[0]) - {"chosen", "rejected", "margin"}


# Rewards


def columns_of(task: Task, count: int) -> dict[str, list]:
    "The columns of some replies to one position."
    return {"task": [json.dumps(task.to_json())] * count}


def random_score(state, player: int) -> float:
    "The exact mean score when all play at random."
    if state.is_terminal():
        return score_of(state.get_game(), state.returns(), player)
    if state.is_chance_node():
        return sum(p * random_score(state.child(a), player) for a, p in state.chance_outcomes())
    choices = [state.legal_actions(seat) for seat in turn_seats(state)]
    if len(choices) == 1:
        return float(np.mean([random_score(state.child(a), player) for a in choices[0]]))
    ends = []
    for joint in ((a, b) for a in choices[0] for b in choices[1]):
        end = state.clone()
        apply_turn(end, joint)
        ends.append(random_score(end, player))
    return float(np.mean(ends))


@pytest.mark.parametrize(
    ("game", "opening", "seat"),
    [("tic_tac_toe", (0, 1, 3), 1), ("leduc_poker", (0, 3, 1), 1), ("kuhn_poker", (2, 1), 0)],
)
def test_outcome_is_the_mean_of_random_games(game, opening, seat):
    task, state = Task(game, seat=seat, opening=opening), opening_state(game, opening)
    replies = [str(action) for action in state.legal_actions()]
    found = outcome_reward(playouts=400)([""] * len(replies), replies, **columns_of(task, len(replies)))
    exact = [random_score(state.child(int(reply)), seat) for reply in replies]
    assert found == pytest.approx(exact, abs=0.09)  # 3.5 standard errors at most


def test_outcome_where_all_move_at_once():
    "Goofspiel with three cards: the first bid of player 1, whose opponent bids at random."
    game = "goofspiel(num_cards=3,points_order=descending)"
    task, state = Task(game, seat=1), opening_state(game)
    ends = []
    for other in state.legal_actions(0):
        end = state.clone()
        end.apply_actions([other, 2])
        ends.append(random_score(end, 1))
    (found,) = outcome_reward(playouts=400)([""], ["2"], **columns_of(task, 1))
    assert found == pytest.approx(np.mean(ends), abs=0.09)


def test_outcome_is_the_same_whatever_else_is_asked():
    task = Task("hex(board_size=4)", seat=0, opening=(0, 1))
    alone = outcome_reward()([""], ["6"], **columns_of(task, 1))
    assert outcome_reward()([""] * 3, ["9", "x", "6"], **columns_of(task, 3))[2:] == alone
    other = Task("hex(board_size=4)", seed=1, seat=0, opening=(0, 1))
    assert outcome_reward(playouts=50)([""], ["6"], **columns_of(other, 1)) != outcome_reward(playouts=50)(
        [""], ["6"], **columns_of(task, 1)
    )


def test_outcome_seats_the_right_players():
    "In hex on nine squares the middle wins for who plays on well, whoever sits there."
    for task, reply in ((Task(HEX, seat=0), "4"), (Task(HEX, seat=1, opening=(0,)), "4")):
        assert outcome_reward("random", "minimax", 20)([""], [reply], **columns_of(task, 1)) == [1]
        assert outcome_reward("minimax", "random", 20)([""], [reply], **columns_of(task, 1))[0] < 0.9


def test_rewards_agree_about_what_a_move_is():
    position = next(judged_positions("tic_tac_toe", "minimax"))
    replies = ["4", "square 4", "44", "4 4", "", "<think>3</think>5", [{"role": "assistant", "content": "8"}]]
    row = position.to_json()
    columns = {name: [row[name]] * len(replies) for name in ("task", "legal", "regrets", "game", "judge")}
    legal = legality(replies, replies, **columns)
    assert legal == [1, 1, 0, 1, 0, 1, 1]
    regrets = move_regret(replies, replies, **columns)
    assert [r == -1 for r in regrets] == [value == 0 for value in legal]
    assert [r > 0 for r in outcome_reward(playouts=20)(replies, replies, **columns)] == [
        v == 1 for v in legal
    ]


# Mistakes


MISTAKES = [
    (("kuhn_poker", "mcts:100", 5), "judge: 'mcts:100' cannot judge kuhn_poker: it hides something"),
    (("hex", "mimimax", 5), "judge: 'mimimax' is not allowed; it must be minimax, mcts:<simulations>"),
    (("hex", "mcts:0", 5), "judge: 'mcts:0' is not allowed"),
    (("hex", "minimax:3", 5), "judge: 'minimax:3' is not allowed"),
    (("hexx", "minimax", 5), "'hexx'"),
    (("goofspiel", "cfr:10", 5), "judge: 'cfr:10' cannot judge goofspiel: its moves are simultaneous"),
    (("backgammon", "minimax", 5), "judge: 'minimax' cannot judge backgammon: it throws dice"),
    (
        ("chess", "minimax", 5),
        "minimax finds games of more than 200 moves in chess(); use a search, such as mcts:",
    ),
    (
        ("go(board_size=19)", "minimax", 5),
        "more than 200 moves in go(board_size=19); use a search, such as mcts:",
    ),
    (("tic_tac_toe", "minimax", 0), "count: 0 is not allowed; it must be at least 1"),
    (("tic_tac_toe", "minimax", 5, -0.1), "min_margin: -0.1 is not allowed; it must be from 0 to below 1"),
    (("tic_tac_toe", "minimax", 5, float("nan")), "min_margin: nan is not allowed"),
    (("tic_tac_toe", "minimax", 5, 0.1, "best"), "positions: 'best' is not allowed; it must be random or"),
    (("tic_tac_toe", "minimax", 5, 0.1, "random", 0, 1.0), "illegal_share: 1.0 is not allowed"),
    (("kuhn_poker", "cfr:100", 5, 0.9), "min_margin: 0.9 is not allowed; no move in kuhn_poker loses that"),
]


@pytest.mark.parametrize(("words", "complaint"), MISTAKES)
def test_a_mistake_is_one_line(words, complaint):
    with pytest.raises(ValueError) as failed:
        preferences(*words)
    assert complaint in str(failed.value) and "\n" not in str(failed.value)


def test_minimax_gives_up_in_one_line(monkeypatch):
    judge = make_judge("minimax", "connect_four", random.Random(0))
    judge.most = 1000
    with pytest.raises(
        ValueError, match="finds more than 1,000 positions in connect_four.*use a search, such as mcts:1000$"
    ):
        judge(load_game("connect_four").new_initial_state())


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: legality([""], ["4"]), "legality: the column 'task' is missing"),
        (
            lambda: legality([""], ["4"], task=["{"]),
            "task: '{' is not allowed; it must be the JSON of a task",
        ),
        (lambda: move_regret([""], ["4"], **columns_of(Task("tic_tac_toe"), 1)), "'legal' or 'regrets'"),
        (lambda: outcome_reward(playouts=0), "playouts: 0 is not allowed"),
        (lambda: outcome_reward(policy="self"), "policy: 'self' is not allowed"),
        (lambda: outcome_reward("mtcs"), "opponent: 'mtcs' is not known"),
    ],
)
def test_a_mistake_about_rewards_is_one_line(call, complaint):
    with pytest.raises(ValueError) as failed:
        call()
    assert complaint in str(failed.value) and "\n" not in str(failed.value)


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["preferences", "--game", "tic_tac_toe", "--judge", "minimax", "--min_margin", "0.4"]
    assert main([*words, "--count", "20", "--prompts", "positions.jsonl", "--output", "a/pairs.jsonl"]) == 0
    told = capsys.readouterr()
    assert told.err == "" and told.out.startswith("a/pairs.jsonl: 20 pairs\npositions.jsonl: ")
    pairs, _ = preferences("tic_tac_toe", "minimax", 20, 0.4)
    expected = {
        "a/pairs.jsonl": [pair.to_json() for pair in pairs],
        "positions.jsonl": game_prompts("tic_tac_toe", 20),
    }
    for path, rows in expected.items():
        assert [json.loads(line) for line in (tmp_path / path).read_text().splitlines()] == rows
    assert main([*words[:2], "tic_tac_toe,hex", *words[3:]]) == 2
    assert "--game: 'tic_tac_toe,hex' is not allowed; it must be one game" in capsys.readouterr().err
