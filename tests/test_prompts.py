"""Properties of prompts: nothing leaked, nothing lost, and rules that are the ones really played."""

import itertools
import random
import re

import pyspiel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import positions

from gamerl.prompts import WORDINGS, Observation, Parsed, observe, parse_reply, reply_text
from gamerl.states import turn_seats
from gamerl.tasks import CATALOGUE, game_string, load_game, opening_state

SEEDS = st.integers(0, 2**63 - 1)
WORDED = [
    "kuhn_poker",
    "kuhn_poker(players=3)",
    "kuhn_poker(players=5)",
    "leduc_poker",
    "leduc_poker(players=3)",
    "leduc_poker(starting_player=1)",
    "leduc_poker(suit_isomorphism=True)",
    "liars_dice",
    "liars_dice(numdice=2)",
    "liars_dice(numdice=5)",
    "liars_dice(bidding_rule=reset-quantity,dice_sides=4,numdice=3)",
    "goofspiel(num_cards=5,points_order=random)",
    "goofspiel(num_cards=8,players=2,points_order=random)",
    "goofspiel(num_cards=4,players=3,points_order=ascending,returns_type=point_difference)",
    "goofspiel(imp_info=True,num_cards=5,points_order=descending)",
    "goofspiel(imp_info=True,num_cards=5,num_turns=3,players=3,points_order=random,returns_type=total_points)",
    "tic_tac_toe",
    "hex(board_size=3)",
    "hex(num_cols=4,num_rows=3)",
    "hex(board_size=3,string_rep=explicit)",
    "hex(board_size=11)",
    "clobber(columns=4,rows=3)",
    "clobber(columns=5,rows=5)",
    "clobber(columns=3,rows=12)",
]
HIDDEN = [
    "battleship",
    "dark_hex(board_size=3)",
    "hearts",
    "euchre",
    "bridge",
    "gin_rummy",
    "blackjack",
    "solitaire",
]
CATALOGUE_SPECS = [game_string(entry.name, params) for entry in CATALOGUE for params in entry.variants]


def position_text(observation: Observation) -> str:
    "What the second message says."
    return observation.messages[1]["content"]


def lines(observation: Observation) -> dict[str, str]:
    "The lines `name: value` of the position."
    return dict(re.findall(r"^(\D[^:\n]*): (.*)$", position_text(observation), flags=re.M))


# Every prompt


@pytest.mark.parametrize("game", WORDED + HIDDEN + CATALOGUE_SPECS)
def test_a_prompt_is_well_formed(game):
    for state in positions(game, seed=0, moves=12):
        for player in turn_seats(state):
            observation = observe(state, player)
            assert list(observation.legal) == state.legal_actions(player)
            assert observation.player == player
            assert [message["role"] for message in observation.messages] == ["system", "user"]
            system, user = (message["content"] for message in observation.messages)
            assert system.endswith("\nAnswer with the ID of one legal move and nothing else.")
            assert user.startswith("Legal moves:") and user == user.rstrip() and "\x1b" not in user
            assert all(name and "\n" not in name for name in observation.legal.values())
            assert observe(state, player) is observation


@given(st.sampled_from(WORDED), SEEDS)
@settings(max_examples=60, deadline=None)
def test_the_rules_never_change_within_a_game(game, seed):
    told = {}
    for state in positions(game, seed):
        for player in turn_seats(state):
            told.setdefault(player, observe(state, player).messages[0])
            assert observe(state, player).messages[0] is told[player]


@pytest.mark.parametrize("game", [game for game in WORDED if not game.startswith("goofspiel")])
def test_move_names_are_those_of_openspiel(game):
    for state in positions(game, seed=1):
        player = state.current_player()
        names = {action: state.action_to_string(player, action) for action in state.legal_actions()}
        assert observe(state, player).legal == names


@pytest.mark.parametrize("game", WORDED)
def test_every_worded_game_is_worded(game):
    state = next(positions(game, seed=0))
    assert game.split("(")[0] in WORDINGS
    assert "OpenSpiel" not in observe(state, turn_seats(state)[0]).messages[0]["content"]


@pytest.mark.parametrize(
    "game",
    [
        "hex(board_size=3,swap=True)",
        "leduc_poker(action_mapping=True)",
        "quoridor(players=3)",
        "connect_four",
        "pig",
    ],
)
def test_other_games_and_rare_variants_use_openspiels_words(game):
    assert "by OpenSpiel's rules" in observe(next(positions(game, seed=0)), 0).messages[0]["content"]


def test_nobody_is_asked_out_of_turn():
    for actions in [(), (2, 0), (2, 0, 1, 1)]:  # dealing, the first player to act, and the game over
        with pytest.raises(ValueError, match="^player: 1 has no move to make here$"):
            observe(opening_state("kuhn_poker", actions), 1)


# Nothing leaked: the prompt is a function of what the player knows


@given(st.sampled_from(WORDED + HIDDEN[:2]), st.lists(SEEDS, min_size=20, max_size=20))
@settings(max_examples=40, deadline=None)
def test_one_information_state_has_one_prompt(game, seeds):
    if not load_game(game).get_type().provides_information_state_string:
        return
    seen = {}
    for state in itertools.chain.from_iterable(positions(game, seed) for seed in seeds):
        for player in turn_seats(state):
            observation = observe(state, player)
            assert (
                seen.setdefault((player, state.information_state_string(player)), observation) is observation
            )


@pytest.mark.parametrize(
    "game", ["kuhn_poker", "kuhn_poker(players=3)", "leduc_poker", "leduc_poker(players=3)"]
)
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_other_players_cards_change_nothing(game, seed):
    rng, players = random.Random(seed), load_game(game).num_players()
    for state in positions(game, seed):
        player, history = state.current_player(), state.history()
        dealt = [item.action for item in state.full_history() if item.player == pyspiel.PlayerId.CHANCE]
        visible = {history[player], *dealt[players:]}
        deck = range((players + 1) * (2 if game.startswith("leduc") else 1))
        cards = rng.sample([card for card in deck if card not in visible], players - 1)
        cards.insert(player, history[player])
        assert observe(opening_state(game, (*cards, *history[players:])), player) is observe(state, player)


@pytest.mark.parametrize(
    "game", ["liars_dice", "liars_dice(numdice=5)", "liars_dice(dice_sides=4,numdice=3)"]
)
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_other_players_dice_and_the_order_of_dice_change_nothing(game, seed):
    rng, params = random.Random(seed), load_game(game).get_parameters()
    dice = params["numdice"]
    for state in positions(game, seed):
        player, history = state.current_player(), state.history()
        rolls = [[rng.randrange(params["dice_sides"]) for _ in range(dice)] for _ in range(2)]
        own = history[player * dice : (player + 1) * dice]
        rolls[player] = rng.sample(own, dice)
        other = opening_state(game, (*rolls[0], *rolls[1], *history[2 * dice :]))
        assert observe(other, player) is observe(state, player)


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_hidden_goofspiel_bids_change_nothing(seed):
    game, rng = "goofspiel(imp_info=True,num_cards=5,points_order=descending)", random.Random(seed)
    for state in positions(game, seed):
        mine, theirs = state.history()[0::2], state.history()[1::2]
        winners = [(a > b) - (a < b) for a, b in zip(mine, theirs)]
        free = [
            bids
            for bids in itertools.permutations(range(5), len(mine))
            if [(a > b) - (a < b) for a, b in zip(mine, bids)] == winners
        ]
        actions = itertools.chain.from_iterable(zip(mine, rng.choice(free)))
        other = opening_state(game, tuple(actions))
        assert observe(other, 0) is observe(state, 0)


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_a_choice_made_at_the_same_time_is_not_told(seed):
    game = "goofspiel(num_cards=5,points_order=random)"
    for state in positions(game, seed):
        before = observe(state, 1)
        for bid in state.legal_actions(0):  # the other one has decided, and is about to play it
            after = state.clone()
            after.apply_actions([bid, state.legal_actions(1)[0]])
            assert observe(state, 1) is before


@pytest.mark.parametrize("game", ["kuhn_poker", "leduc_poker", "gin_rummy", "hearts", "euchre"])
def test_resampling_what_is_hidden_changes_nothing(game):
    rng = random.Random(0)
    for seed in range(3):
        for state in positions(game, seed, moves=25):
            player = state.current_player()
            other = state.resample_from_infostate(player, rng.random)
            assert position_text(observe(other, player)) == position_text(observe(state, player))


# Nothing lost: what matters is told


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_liars_dice_remembers_every_bid(seed):
    for state in positions("liars_dice(numdice=3)", seed):
        player = state.current_player()
        dice, *bids = state.information_state_string(player).split()
        told = lines(observe(state, player))
        assert told["Your dice"].split() == list(dice)
        assert told["Bids"] == (" ".join(bids) or "none")
        assert told["Bid to beat"] == (bids[-1] if bids else "none")


@pytest.mark.parametrize(
    "game", ["leduc_poker", "leduc_poker(players=3)", "leduc_poker(players=4,starting_player=2)"]
)
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_leduc_tells_who_did_what(game, seed):
    players, words = load_game(game).num_players(), {"folded": 0, "called": 1, "raised": 2}
    for state in positions(game, seed):
        player, told = state.current_player(), lines(observe(state, state.current_player()))
        said = ", ".join(told[key] for key in ("Round 1", "Round 2") if told.get(key, "none") != "none")
        names = {"you": player, "they": 1 - player} | {f"player {seat}": seat for seat in range(players)}
        claimed = [(names[who], words[did]) for who, did in re.findall(r"(you|they|player \d+) (\w+)", said)]
        played = [(item.player, item.action) for item in state.full_history() if item.player >= 0]
        assert claimed == played


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_goofspiel_tells_hands_prizes_and_points(seed):
    cards = 6
    for state in positions(f"goofspiel(num_cards={cards},points_order=random)", seed):
        told, events = lines(observe(state, 1)), state.full_history()
        prizes = [item.action + 1 for item in events if item.player == pyspiel.PlayerId.CHANCE]
        bids = [[item.action + 1 for item in events if item.player == seat] for seat in (0, 1)]
        points = [0, 0]
        for prize, first, second in zip(prizes, *bids):
            if first != second:
                points[second > first] += prize

        def slots(gone):
            return " ".join("." if card in gone else str(card) for card in range(1, cards + 1))

        assert told["Prize"] == str(prizes[-1]) and told["Prizes to come"] == slots(prizes)
        assert told["Their cards"] == slots(bids[0]) and told["Your cards"] == slots(bids[1])
        assert told["Points"] == f"you {points[1]}, they {points[0]}"


@pytest.mark.parametrize("game", ["tic_tac_toe", "hex(board_size=4)", "hex(num_cols=5,num_rows=3)"])
@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_boards_show_every_stone_and_every_move(game, seed):
    for state in positions(game, seed):
        player, history = state.current_player(), state.history()
        first, who, *rows = position_text(observe(state, player)).splitlines()
        expected = [str(cell) for cell in range(load_game(game).num_distinct_actions())]
        for turn, cell in enumerate(history):
            expected[cell] = "xo"[turn % 2]
        assert " ".join(rows).split() == expected
        assert first == f"Legal moves: {' '.join(map(str, state.legal_actions()))}"
        assert who.startswith(f"You are {'xo'[player]}")


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_clobber_moves_lead_from_an_own_stone_to_a_neighbouring_one_of_the_other(seed):
    for state in positions("clobber(columns=5,rows=4)", seed):
        player, observation = state.current_player(), observe(state, state.current_player())
        *rows, letters = position_text(observation).splitlines()[-5:]
        board = {
            f"{col}{row.split()[0]}": cell for row in rows for col, cell in zip("abcde", row.split()[1:])
        }
        assert letters.split() == list("abcde") and len(board) == 20
        neighbours = {
            a + b
            for a in board
            for b in board
            if abs(ord(a[0]) - ord(b[0])) + abs(int(a[1]) - int(b[1])) == 1
        }
        own, other = "ox"[player], "xo"[player]
        expected = {move for move in neighbours if board[move[:2]] == own and board[move[2:]] == other}
        assert set(observation.legal.values()) == expected


@pytest.mark.parametrize(
    "game", ["tic_tac_toe", "hex(board_size=4)", "goofspiel(num_cards=5,points_order=random)"]
)
@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_the_state_keeps_its_distance_from_the_end(game, seed):
    for player in (0, 1):
        sizes = set()
        for state in positions(game, seed):
            if player in turn_seats(state):
                after = position_text(observe(state, player)).split("\n")
                start = next(
                    i for i, line in enumerate(after) if line.startswith(("You are", "Prizes to come"))
                )
                sizes.add(len(re.findall(r"\S+|\n", "\n".join(after[start:]))))
        assert len(sizes) <= 1


# The rules in the prompts are the rules that are played


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_hex_chains_are_as_the_rules_say(seed):
    size = 4
    *_, last = positions(f"hex(board_size={size})", seed)
    last.apply_action(random.Random(seed).choice(last.legal_actions()))
    while not last.is_terminal():
        last.apply_action(last.legal_actions()[0])
    stones = {cell: turn % 2 for turn, cell in enumerate(last.history())}
    touching = [(0, -1), (0, 1), (-1, 0), (1, 0), (-1, 1), (1, -1)]

    def connects(player):
        own = {divmod(cell, size) for cell, owner in stones.items() if owner == player}
        reached, todo = set(), [cell for cell in own if cell[player] == 0]
        while todo:
            row, col = todo.pop()
            if (row, col) not in reached:
                reached.add((row, col))
                todo += [(row + dr, col + dc) for dr, dc in touching if (row + dr, col + dc) in own]
        return any(cell[player] == size - 1 for cell in reached)

    assert [connects(0), connects(1)] == [last.returns()[0] > 0, last.returns()[1] > 0]


@pytest.mark.parametrize(
    "game", ["liars_dice(numdice=2)", "liars_dice(bidding_rule=reset-quantity,numdice=2)"]
)
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_liars_dice_bids_and_challenges_are_as_the_rules_say(game, seed):
    order = (lambda bid: bid) if "quantity" not in game else (lambda bid: bid[::-1])
    for state in positions(game, seed):
        legal = {action: name for action, name in observe(state, state.current_player()).legal.items()}
        bids = [tuple(map(int, name.split("-"))) for name in legal.values() if name != "Liar"]
        told = lines(observe(state, state.current_player()))["Bid to beat"]
        lowest = tuple(map(int, told.split("-"))) if told != "none" else (0, 0)
        everything = list(itertools.product(range(1, 5), range(1, 7)))
        assert sorted(bids) == [bid for bid in everything if order(bid) > order(lowest)]
        if told != "none":
            over, (quantity, face) = state.child(state.legal_actions()[-1]), lowest
            showing = sum(die + 1 in (face, 6) for die in state.history()[:4])
            assert (over.returns()[state.current_player()] < 0) == (showing >= quantity)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_folding_in_leduc_costs_what_the_prompt_says_was_paid(seed):
    for state in positions("leduc_poker", seed):
        player, observation = state.current_player(), observe(state, state.current_player())
        paid = int(re.search(r"you (\d+)", lines(observation)["Chips paid"])[1])
        if 0 in observation.legal:
            assert state.child(0).returns()[player] == -paid


# Replies


@given(st.sampled_from(WORDED + HIDDEN), SEEDS)
@settings(max_examples=60, deadline=None)
def test_every_legal_move_can_be_said(game, seed):
    for state in positions(game, seed, moves=10):
        for player in turn_seats(state):
            legal = observe(state, player).legal
            for action in legal:
                assert parse_reply(reply_text(action), legal) == Parsed(action)
                assert parse_reply(f"<think>maybe {min(legal)}?</think> {action}", legal) == Parsed(action)


@given(st.text(), st.dictionaries(st.integers(0, 200), st.text(min_size=1), max_size=5))
def test_any_text_gets_an_answer(reply, legal):
    parsed = parse_reply(reply, legal)
    assert (
        (parsed.action in legal) if parsed.why is None else (parsed.action is None and "\n" not in parsed.why)
    )


@given(st.integers(0, 999), st.sets(st.integers(0, 999), min_size=1))
def test_a_bare_number_is_that_move_or_none(number, ids):
    parsed = parse_reply(f" {number}\n", dict.fromkeys(ids, "move"))
    assert parsed.action == (number if number in ids else None)
