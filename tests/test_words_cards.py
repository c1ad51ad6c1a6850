"""Card games in words: all that a player has seen, nothing that it has not, and rules that are true."""

import random
import re

import pyspiel
import pytest

from gamerl.prompts import WORDINGS, Parsed, observe, parse_reply
from gamerl.tasks import CATALOGUE, game_string, load_game, opening_state

NAMES = ("gin_rummy", "blackjack", "hearts", "euchre", "bridge")
ENTRIES = [entry for entry in CATALOGUE if entry.name in NAMES]
SPECS = {entry.name: [game_string(entry.name, params) for params in entry.variants] for entry in ENTRIES}
ALL = [spec for name in NAMES for spec in SPECS[name]]
DECK = {"gin_rummy": 52, "hearts": 52, "euchre": 24, "bridge": 52, "blackjack": 52}
KNOCK, SUITS = 55, "♣♦♥♠"


def kind(spec: str) -> str:
    "The name of the game."
    return spec.split("(")[0]


def start(spec: str) -> pyspiel.State:
    "The beginning."
    return load_game(spec).new_initial_state()


def move(state: pyspiel.State, rng: random.Random) -> int:
    "A random move; in gin rummy hands that soon knock; in bridge low calls and long suits, solved fast."
    legal, name = state.legal_actions(), kind(str(state.get_game()))
    if name == "bridge":
        return rng.choice(legal[:6]) if not state.is_chance_node() else legal[:5][-(rng.random() < 0.05)]
    if name == "gin_rummy" and state.is_chance_node() and rng.random() < 0.5:
        return rng.choice(legal[:3])
    return KNOCK if name == "gin_rummy" and KNOCK in legal and rng.random() < 0.8 else rng.choice(legal)


def play(spec: str, seed: int):
    "The positions of a game at which somebody decides, and the end."
    rng, state = random.Random(seed), start(spec)
    while not state.is_terminal():
        if not state.is_chance_node():
            yield state.clone()
        state.apply_action(move(state, rng))
    yield state


def decisions(spec: str, seed: int):
    "The positions of a game at which somebody decides; the end of a bridge game would take seconds."
    for state in play(spec, seed):
        if state.is_terminal():
            return
        yield state
        if kind(spec) == "bridge" and state.history()[-2:] == [52, 52]:
            return


def told(state: pyspiel.State) -> dict[str, str]:
    "The lines `name: value` of the prompt for whoever is to move."
    return dict(re.findall(r"^(\D[^:\n]*|Trick \d+): (.*)$", text(state), flags=re.M))


def text(state: pyspiel.State) -> str:
    "The second message for whoever is to move."
    return observe(state, state.current_player()).messages[1]["content"]


def number(card: str, name: str) -> int:
    "OpenSpiel's number of a card."
    rank, suit = card[:-1], card[-1]
    if name in ("gin_rummy", "blackjack"):
        return "♠♣♦♥".index(suit) * 13 + "A 2 3 4 5 6 7 8 9 10 J Q K".split().index(rank)
    ranks = "2 3 4 5 6 7 8 9 10 J Q K A".split()[7 if name == "euchre" else 0 :]
    return ranks.index(rank) * 4 + SUITS.index(suit)


def cards(line: str, name: str) -> list[int]:
    "The cards of a line, as numbers."
    return [number(card, name) for card in re.findall(rf"(?:10|[2-9AJQK])[{SUITS}]", line)]


def seats(player: int, across: str = "partner") -> dict[str, int]:
    "Seat by what it is called."
    return {name: (player + turn) % 4 for turn, name in enumerate(["you", "left", across, "right"])}


def seen(state: pyspiel.State, player: int) -> tuple:
    "What the player has seen, from OpenSpiel's full history and the rules of the game alone."
    name, events = kind(str(state.get_game())), [(item.player, item.action) for item in state.full_history()]
    actions = [action for _, action in events]
    if name == "blackjack":
        ranks = [action % 13 for action in actions[:2] + actions[5::2]]
        return sorted(ranks), actions[3] % 13
    if name == "bridge":
        return sorted(actions[player:52:4]), events[52:]
    if name == "hearts":
        passing = [event for event in events[53:65] if actions[0]]
        given = [[card for seat, card in passing if seat == giver] for giver in range(4)]
        received = given[(player - actions[0]) % 4] if len(passing) == 12 else []
        own = sorted(actions[1:53][player::4])
        return actions[0], own, sorted(given[player]), sorted(received), events[53 + len(passing) :]
    if name == "euchre":
        dealer, open_moves, calls = actions[0], [], 0
        for seat, action in events[22:]:
            discard = calls == 1 and action < 24 and not any(said in (29, 30) for _, said in open_moves)
            calls += 25 <= action <= 28
            open_moves.append((seat, "?" if discard and player != dealer else action))
        return dealer, sorted(actions[1:21][(player - dealer) % 4 :: 4]), actions[21], open_moves
    size = state.get_game().get_parameters()["hand_size"]
    open_moves = []
    for (seat, action), (before, _) in zip(events[2 * size + 1 :], events[2 * size :]):
        chance = seat == pyspiel.PlayerId.CHANCE
        open_moves.append((seat, "?" if chance and before != player else action))
    return sorted(actions[player * size : (player + 1) * size]), actions[2 * size], open_moves


def swapped(state: pyspiel.State, one: int, other: int) -> pyspiel.State | None:
    "The same moves with two cards exchanged; None where that is not legal."
    first = 1 if kind(str(state.get_game())) in ("hearts", "euchre") else 0  # pass direction, or dealer
    exchange = {one: other, other: one}
    again = start(str(state.get_game()))
    for place, action in enumerate(state.history()):
        action = exchange.get(action, action) if place >= first else action
        if action not in again.legal_actions():
            return None
        again.apply_action(action)
    return again


# Hidden information


@pytest.mark.parametrize("spec", [spec for spec in ALL if kind(spec) != "blackjack"])
def test_what_was_seen_and_the_prompt_say_the_same(spec):
    "Two cards change places, everywhere in the history: the prompt changes if and only if it was seen."
    rng, equal, different = random.Random(spec), 0, 0
    for seed in range(3):
        states = list(decisions(spec, seed))
        for state in rng.sample(states, min(5, len(states))):
            player = state.current_player()
            for _ in range(20 if kind(spec) in ("hearts", "euchre") else 8):
                other = swapped(state, *rng.sample(range(DECK[kind(spec)]), 2))
                if other is None or other.is_terminal() or other.current_player() != player:
                    continue
                if seen(other, player) == seen(state, player):
                    equal += 1
                    assert observe(other, player) is observe(state, player)
                elif observe(other, player).legal == observe(state, player).legal:
                    different += 1
                    assert text(other) != text(state)
    assert equal > 5 and different > 5


def test_a_blackjack_prompt_tells_ranks_and_nothing_hidden():
    by_prompt, by_seen = {}, {}
    for seed in range(3000):
        for state in decisions("blackjack", seed):
            key = repr(seen(state, 0))
            assert by_prompt.setdefault(text(state), key) == key
            assert by_seen.setdefault(key, text(state)) == text(state)
    assert len(by_seen) < 3000


@pytest.mark.parametrize("spec", [spec for spec in ALL if kind(spec) != "blackjack"])
def test_resampling_what_is_hidden_changes_nothing(spec):
    rng, changed = random.Random(0), 0
    for seed in range(2):
        for state in decisions(spec, seed):
            if rng.random() < (0.9 if kind(spec) == "bridge" else 0.5):
                continue
            player = state.current_player()
            other = state.resample_from_infostate(player, rng.random)
            if seen(other, player) == seen(state, player):  # in euchre it may deal the dealer another discard
                changed += str(other) != str(state)
                assert observe(other, player) is observe(state, player)
    assert changed


@pytest.mark.parametrize("spec", [spec for spec in ALL if kind(spec) in ("hearts", "euchre", "bridge")])
def test_one_information_state_of_openspiel_has_one_prompt(spec):
    rng, found = random.Random(1), 0
    for seed in range(3):
        for state in decisions(spec, seed):
            player = state.current_player()
            other = swapped(state, *rng.sample(range(DECK[kind(spec)]), 2))
            if other and not other.is_terminal() and other.current_player() == player:
                known = [item.information_state_string(player) for item in (state, other)]
                dealer_forgets = kind(spec) == "euchre" and player == state.history()[0]
                if known[0] == known[1] and not dealer_forgets and seen(state, player) == seen(other, player):
                    found += 1
                    assert text(state) == text(other)
    assert found


def test_cards_chosen_for_passing_are_told_to_nobody_before_all_have_chosen():
    deal = random.Random(5).sample(range(52), 52)
    hands = [deal[seat::4] for seat in range(4)]
    texts = set()
    for choice in ((0, 1, 2), (10, 11, 12), (2, 5, 7)):
        state = opening_state("hearts", (1, *deal, *(hands[0][n] for n in choice)))
        texts.add(text(state))
        assert "Received" not in text(state)
    assert len(texts) == 1


def test_only_the_dealer_remembers_the_discard():
    deal = random.Random(4).sample(range(24), 21)
    trump = 25 + deal[20] % 4
    texts = {seat: set() for seat in range(4)}
    for discard in deal[0:20:4]:  # one of the hand of seat 0, the dealer
        state = opening_state("euchre", (0, *deal, trump, discard, 30))
        while not state.is_terminal() and len(state.history()) <= 28:
            texts[state.current_player()].add(text(state))
            if state.current_player() == 0:
                assert f"You discarded: {told(state)['You discarded']}" in text(state)
                assert cards(told(state)["You discarded"], "euchre") == [discard]
            state.apply_action(state.legal_actions()[0])
    assert [len(texts[seat]) for seat in (1, 2, 3)] == [1, 1, 1] and len(texts[0]) == 5


def test_a_card_from_the_stock_is_seen_by_the_one_who_draws_it():
    opening = (*range(7), *range(13, 20), 30, 54, 54, 53)
    for drawn, discard in ((40, 0), (41, 0)):
        after = opening_state("gin_rummy(hand_size=7,knock_card=8)", (*opening, drawn, discard))
        before = opening_state("gin_rummy(hand_size=7,knock_card=8)", (*opening, drawn))
        assert cards(told(before)["Turns"].split(",")[-1], "gin_rummy") == [drawn]
        assert told(after)["Turns"] == "they pass, you pass, they +? -A♠"


# Facts


def hand(state: pyspiel.State, player: int) -> list[int]:
    "The cards that the player holds, from OpenSpiel's drawing for that player."
    name = kind(str(state.get_game()))
    if name == "gin_rummy":
        return sorted(state.hands()[player])
    known = state.information_state_string(player)
    if name == "bridge":
        rows = re.findall(rf"^([{SUITS}])((?: (?:10|[2-9AJQK]))*)$", known, flags=re.M)[:4]
        return sorted(number(rank + suit, name) for suit, ranks in rows for rank in ranks.split())
    rows = re.findall(r"^([SHDC]) ([2-9TJQKA]+)$", known, flags=re.M)[:4]
    names = [rank.replace("T", "10") + SUITS["CDHS".index(suit)] for suit, ranks in rows for rank in ranks]
    return sorted(number(card, name) for card in names)


@pytest.mark.parametrize("spec", [spec for spec in ALL if kind(spec) != "blackjack"])
def test_the_own_cards_are_told(spec):
    for seed in range(2):
        for state in decisions(spec, seed):
            mine = cards(told(state)["Your cards"], kind(spec))
            assert sorted(mine) == hand(state, state.current_player()) and len(mine) == len(set(mine))


@pytest.mark.parametrize("spec", SPECS["hearts"] + SPECS["euchre"])
def test_tricks_are_told_as_they_were_played(spec):
    name = kind(spec)
    for seed in range(6):
        for state in decisions(spec, seed):
            if "This trick" not in told(state):
                continue
            names = seats(state.current_player(), "across" if name == "hearts" else "partner")
            claimed, winners = [], []
            for line in [
                value for key, value in told(state).items() if key.startswith(("Trick ", "This trick"))
            ]:
                claimed += [
                    (names[who], number(card, name))
                    for who, card in re.findall(rf"(\w+) (\w+[{SUITS}])", line)
                ]
                winners += [names[who] for who in re.findall(r"; to (\w+)$", line)]
            events = [(item.player, item.action) for item in state.full_history() if item.player >= 0]
            first = len(events) - len(claimed)
            assert claimed == events[first:]
            assert not claimed or not first or events[first - 1][1] in (29, 30) or first == 12
            size = (
                len({seat for seat, _ in claimed[: len(claimed) // max(1, len(winners))]}) if winners else 4
            )
            leaders = [seat for seat, _ in claimed[::size]][1:] if winners else []
            assert winners[: len(leaders)] == leaders
            if told(state)["This trick"] == "none" and winners:
                assert winners[-1] == state.current_player()


@pytest.mark.parametrize("spec", SPECS["hearts"])
def test_hearts_tells_passed_cards_and_points(spec):
    for seed in range(6):
        for state in decisions(spec, seed):
            if "Points" not in told(state):
                continue
            player, lines = state.current_player(), told(state)
            names, events = seats(player, "across"), state.full_history()
            points = re.findall(r"(\w+) (-?\d+)", lines["Points"])
            assert {names[who]: int(n) for who, n in points} == {
                seat: state.points(seat) for seat in range(4)
            }
            way = state.history()[0]
            if not way:
                assert "Nothing was passed." in text(state)
                continue
            passed = {
                seat: sorted(item.action for item in events[53:65] if item.player == seat)
                for seat in range(4)
            }
            assert (
                sorted(cards(lines[f"You passed {['left', 'across', 'right'][way - 1]}"], "hearts"))
                == passed[player]
            )
            giver, line = re.search(r"^Received from (\w+): (.*)$", text(state), flags=re.M).groups()
            assert (names[giver] + way) % 4 == player
            assert sorted(cards(line, "hearts")) == passed[names[giver]]


@pytest.mark.parametrize("spec", SPECS["euchre"])
def test_euchre_tells_the_talk_and_the_trump(spec):
    words = "pass clubs diamonds hearts spades alone together".split()
    for seed in range(25):
        for state in decisions(spec, seed):
            names, lines = seats(state.current_player()), told(state)
            said = [
                (names[who], 24 + words.index(word))
                for who, word in re.findall(r"(\w+) (\w+)", lines["Said"])
            ]
            history = [(item.player, item.action) for item in state.full_history()[22:]]
            assert said == [event for event in history if event[1] >= 24]
            assert names[lines["Dealer"]] == state.dealer()
            assert cards(lines["Upcard"], "euchre") == [state.upcard()]
            assert ("Trump" in lines) == (state.declarer() >= 0)
            if "Trump" in lines:
                trump, maker, out = re.fullmatch(
                    r"(.), made by (\w+); sitting out: (.*)", lines["Trump"]
                ).groups()
                assert (SUITS.index(trump), names[maker]) == (int(state.trump_suit()), state.declarer())
                sitting = {names[who] for who in out.split(", ") if who != "none"}
                assert sitting == {seat for seat in range(4) if not state.active_players()[seat]}
                assert lines["Tricks"] == tricks_taken(state)


def tricks_taken(state: pyspiel.State) -> str:
    "Tricks of both sides so far, from OpenSpiel's own tricks."
    size, player = sum(state.active_players()), state.current_player()
    full = [trick.winner() for trick in state.tricks() if len(trick.cards()) == size]
    ours = sum((winner - player) % 2 == 0 for winner in full)
    return f"you and partner {ours}, left and right {len(full) - ours}"


@pytest.mark.parametrize("spec", SPECS["gin_rummy"])
def test_gin_rummy_tells_the_table(spec):
    phases, limit = set(), load_game(spec).get_parameters()["knock_card"]
    for seed in range(6):
        for state in decisions(spec, seed):
            player, lines, legal = state.current_player(), told(state), state.legal_actions()
            upcard = [] if state.upcard() is None else [state.upcard()]
            assert cards(lines["Upcard"], "gin_rummy") == upcard
            assert lines["Stock"] == f"{state.stock_size()} cards"
            assert cards(lines["They surely hold"], "gin_rummy") == sorted(state.known_cards()[1 - player])
            deadwood, phase = int(lines["Your deadwood"].split()[0]), state.current_phase().name
            assert deadwood == state.deadwood()[player]
            if phase == "DISCARD":
                assert (KNOCK in legal) == (deadwood <= limit)
            assert ("Their melds" in lines) == any(state.knocked())
            if any(state.knocked()):
                melds = [
                    sum(laid != "none" for laid in lines[key].split(", "))
                    for key in ("Their melds", "Your melds")
                ]
                assert melds == [len(state.layed_melds()[seat]) for seat in (1 - player, player)]
                assert cards(lines["Cards added"], "gin_rummy") == sorted(state.layoffs())
            phases.add(lines["To do"])
            minus = cards(" ".join(re.findall(r"-(\w+.)", lines["Turns"])), "gin_rummy")
            assert set(state.discard_pile()) <= {*minus, *cards(lines["First upcard"], "gin_rummy")}
    assert {"gain a card", "discard a card", "finish your knock", "lay your melds"} <= phases


def test_bridge_tells_the_last_bid():
    for spec in SPECS["bridge"]:
        for seed in range(10):
            for state in decisions(spec, seed):
                calls, names = state.history()[52:], list(seats(0))
                bids = [call for call in calls if call > 54]
                if not bids:
                    assert told(state)["Last bid"] == "none"
                    continue
                since = calls[calls.index(bids[-1]) + 1 :]
                stakes = "redoubled" if 54 in since else "doubled" if 53 in since else "undoubled"
                bid = state.action_to_string(0, bids[-1])
                who = names[(calls.index(bids[-1]) - state.current_player()) % 4]
                assert told(state)["Last bid"] == f"{bid} by {who}, {stakes}"
                assert len(told(state)["Calls"].split(", ")) == len(calls)


def test_blackjack_totals():
    for seed in range(500):
        for state in decisions("blackjack", seed):
            assert int(told(state)["Your total"].split(",")[0]) == state.get_best_player_total(0)


# Rules


@pytest.mark.parametrize("spec", ALL)
def test_rules_are_our_own_and_name_every_parameter(spec):
    system = observe(next(play(spec, 0)), next(play(spec, 0)).current_player()).messages[0]["content"]
    params = load_game(spec).get_parameters()
    assert kind(spec) in WORDINGS and "OpenSpiel" not in system
    assert ("J♦" in system) == params.get("jd_bonus", False)
    assert ("no trick" in system) == params.get("avoid_all_tricks_bonus", False)
    assert ("passes 3 cards" in system) == (kind(spec) == "hearts" and params["pass_cards"])
    assert ("must name one" in system) == (kind(spec) == "euchre" and params["stick_the_dealer"])
    assert ("a defender may" in system) == params.get("allow_lone_defender", False)
    if kind(spec) == "gin_rummy":
        assert (
            f"holds {params['hand_size']} cards" in system and f"of {params['knock_card']} or less" in system
        )


@pytest.mark.parametrize(
    ("spec", "own", "other"),
    [
        (SPECS["bridge"][n], *pair)
        for n, pair in enumerate(
            [
                ("not vulnerable", "not vulnerable"),
                ("vulnerable", "not vulnerable"),
                ("vulnerable", "vulnerable"),
            ]
        )
    ],
)
def test_bridge_says_who_is_vulnerable(spec, own, other):
    state = next(play(spec, 0))
    assert f"Your side is {own}, the others are {other}." in observe(state, 0).messages[0]["content"]
    state.apply_action(52)
    assert f"Your side is {other}, the others are {own}." in observe(state, 1).messages[0]["content"]


@pytest.mark.parametrize("spec", SPECS["hearts"])
def test_hearts_is_played_and_scored_as_the_rules_say(spec):
    params = load_game(spec).get_parameters()
    for seed in range(25):
        *states, end = play(spec, seed)
        dealt = [state for state in states if len(state.history()) >= 53 + 12 * bool(end.history()[0])]
        played = [
            (state.current_player(), after.history()[len(state.history())])
            for state, after in zip(dealt, [*dealt[1:], end])
        ]
        assert played[0][1] == 0 and len(played) == 52
        broken, points, taken, leader = False, [0] * 4, [0] * 4, played[0][0]
        for turn, (state, (seat, card)) in enumerate(zip(dealt, played)):
            own, legal = set(hand(state, seat)), set(state.legal_actions())
            led = played[turn - turn % 4][1] % 4
            following = {mine for mine in own if mine % 4 == led}
            costly = {mine for mine in own if mine % 4 == 2 or mine == 43}
            assert seat == (leader + turn) % 4
            if turn == 0:
                assert legal == {0}
            elif turn % 4:
                assert legal == (following or (own - costly if turn < 4 else own) or own)
            else:
                assert legal == ({mine for mine in own if broken or mine % 4 != 2} or own)
            broken |= card % 4 == 2 or card == 43
            if turn % 4 == 3:
                trick = played[turn - 3 : turn + 1]
                leader = max((mine, who) for who, mine in trick if mine % 4 == led)[1]
                taken[leader] += 1
                points[leader] += sum(
                    (c % 4 == 2) + 13 * (c == 43) - 10 * (c == 37) * params["jd_bonus"] for _, c in trick
                )
        plain = [p + 10 * params["jd_bonus"] * (p < 0 or p + 10 == 26) for p in points]
        if 26 not in plain and max(plain) < 26:
            bonus = [5 * params["avoid_all_tricks_bonus"] * (n == 0) for n in taken]
            assert end.returns() == [26 - p + b for p, b in zip(points, bonus)]


@pytest.mark.parametrize("jack", [False, True])
@pytest.mark.parametrize("none", [False, True])
def test_taking_all_points_in_hearts(jack, none):
    spec = f"hearts(avoid_all_tricks_bonus={none},jd_bonus={jack},pass_cards=False)"
    state = opening_state(spec, (0, *(rank * 4 + suit for rank in range(13) for suit in range(4))))
    while not state.is_terminal():  # seat 0 holds all clubs and so takes every trick
        state.apply_action(state.legal_actions()[-1])
    assert state.returns() == [26 + 10 * jack, 0, 0, 0]
    bonus = "with nothing off for no trick" in WORDINGS["hearts"].rules(load_game(spec), 0)
    assert bonus == none


@pytest.mark.parametrize("spec", SPECS["euchre"])
def test_euchre_is_played_and_scored_as_the_rules_say(spec):
    params, ends = load_game(spec).get_parameters(), set()
    for seed in range(60):
        *states, end = play(spec, seed)
        if end.declarer() < 0:
            assert not params["stick_the_dealer"] and end.returns() == [0] * 4
            assert end.history()[22:] == [24] * 8
            continue
        trump, maker = int(end.trump_suit()), end.declarer()
        order = [jack for jack in (8 + trump, 11 - trump)]
        order += [rank * 4 + trump for rank in (5, 4, 3, 1, 0)]

        def suit(card):
            return trump if card in order else card % 4

        table, won, leader = [], [0, 0], None
        for state, after in zip(states, [*states[1:], end]):
            seat, card = state.current_player(), after.history()[len(state.history())]
            if state.current_phase().name != "PLAY":
                if state.current_phase().name == "DISCARD":
                    assert seat == state.dealer()
                    assert set(state.legal_actions()) == set(hand(state, seat)) - {state.upcard()}
                continue
            active = [s for s in range(4) if state.active_players()[s]]
            if leader is None:
                leader = next(s % 4 for s in range(state.dealer() + 1, state.dealer() + 5) if s % 4 in active)
            own = set(hand(state, seat))
            following = {mine for mine in own if table and suit(mine) == suit(table[0][1])}
            assert set(state.legal_actions()) == (following or own) and (table or seat == leader)
            table.append((seat, card))
            if len(table) == len(active):
                trumps = [(order.index(c), s) for s, c in table if c in order]
                same = [(c, s) for s, c in table if suit(c) == suit(table[0][1])]
                leader = min(trumps)[1] if trumps else max(same)[1]
                won[(leader - maker) % 2] += 1
                table = []
        lone = end.lone_defender() >= 0
        score = (
            (1 if won[0] < 5 else 4 if end.declarer_go_alone() else 2) if won[0] > 2 else -4 if lone else -2
        )
        ends.add(score)
        assert end.returns() == [score if (seat - maker) % 2 == 0 else -score for seat in range(4)]
    assert {1, -2} <= ends


@pytest.mark.parametrize("spec", SPECS["gin_rummy"])
def test_gin_rummy_ends_as_the_rules_say(spec):
    knocks = 0
    for seed in range(12):
        *states, end = play(spec, seed)
        if not any(end.knocked()):
            history = end.history()
            assert end.returns() == [0, 0]
            assert (
                states[-1].current_phase().name == "WALL"
                or history.count(52) > 40
                or history[-1] in history[:-1]
            )
            if states[-1].current_phase().name == "WALL":
                assert end.stock_size() == 2
            continue
        knocks += 1
        knocker = end.knocked().index(True)
        left = [sum(min(card % 13 + 1, 10) for card in end.hands()[seat]) for seat in (knocker, 1 - knocker)]
        won = left[1] - left[0] + 25 * (left[0] == 0)
        won -= 25 * (won < 0)
        assert end.returns()[knocker] == won == -end.returns()[1 - knocker]
        if left[0] == 0:
            assert not end.layoffs()
    assert knocks


def test_gin_rummy_discarding_the_upcard_twice_in_a_row_ends_it():
    state = opening_state(
        "gin_rummy(hand_size=7,knock_card=8)", (*range(7), *range(13, 20), 30, 52, 30, 52, 30)
    )
    assert state.is_terminal() and state.returns() == [0, 0]
    state = opening_state(
        "gin_rummy(hand_size=7,knock_card=8)", (*range(7), *range(13, 20), 30, 52, 30, 52, 13)
    )
    assert not state.is_terminal()


def test_gin_rummy_the_50th_upcard_taken_ends_it():
    state, rng = (
        opening_state("gin_rummy(hand_size=9,knock_card=8)", (*range(0, 52, 3), 1)),
        random.Random(0),
    )
    taken = 0
    while not state.is_terminal():
        legal = [action for action in state.legal_actions() if action != KNOCK]
        fresh = [action for action in legal if action != state.prev_upcard()]
        action = 52 if 52 in legal else rng.choice(fresh)
        taken += action == 52 and state.current_phase().name == "DRAW"
        state.apply_action(action)
    assert taken == 50 and state.returns() == [0, 0]


def test_blackjack_ends_as_the_rules_say():
    def total(hand):
        ranks = [card % 13 for card in hand]
        hard = sum(min(rank + 1, 10) for rank in ranks)
        return hard + 10 if 0 in ranks and hard <= 11 else hard

    results = set()
    for seed in range(600):
        *_, end = play("blackjack", seed)
        mine, dealers = total(end.cards(0)), total(end.cards(end.dealer_id()))
        assert (
            mine > 21
            or 17 <= dealers
            and total(end.cards(end.dealer_id())[:-1]) < 17
            or len(end.cards(1)) == 2
        )
        expected = -1 if mine > 21 else 1 if dealers > 21 else (mine > dealers) - (mine < dealers)
        results.add(expected)
        assert end.returns() == [expected]
    assert results == {-1, 0, 1}


@pytest.mark.parametrize("spec", SPECS["bridge"])
def test_bridge_scores_as_the_rules_say(spec):
    params, kept = load_game(spec).get_parameters(), 0
    for seed in range(2):
        deal = next(play(spec, seed)).history()
        assert opening_state(spec, (*deal, 52, 52, 52, 52)).returns() == [0] * 4
        for side, level, trump in [
            (0, 1, 0),
            (1, 1, 1),
            (0, 1, 4),
            (1, 2, 2),
            (1, 3, 4),
            (0, 4, 3),
            (0, 6, 0),
        ]:
            bid = 55 + 5 * (level - 1) + trump
            end = opening_state(spec, (*deal, *[52] * side, bid, 52, 52, 52))
            vulnerable = params["non_dealer_vul"] if side else params["dealer_vul"]
            tricks = int(re.search(r"Declarer tricks: (\d+)", str(end))[1])
            each = 20 if trump < 2 else 30
            promised = each * level + 10 * (trump == 4)
            if tricks < level + 6:
                score = -(100 if vulnerable else 50) * (level + 6 - tricks)
            else:
                kept += 1
                game = (500 if vulnerable else 300) if promised >= 100 else 50
                slam = {6: (500, 750), 7: (1000, 1500)}.get(level, (0, 0))[vulnerable]
                score = promised + each * (tricks - level - 6) + game + slam
            assert end.returns()[side] == score == end.returns()[side + 2] == -end.returns()[1 - side]
    assert kept


def test_the_declarer_is_who_first_named_the_trump():
    deal = next(play("bridge", 2)).history()
    for calls, declarer in [((57, 52, 62), 0), ((52, 57, 52, 62), 1), ((56, 52, 57, 52, 62), 2)]:
        state = opening_state("bridge", (*deal, *calls, 52, 52, 52))
        other = opening_state("bridge", (*deal, *[52] * declarer, 62, 52, 52, 52))
        assert state.returns() == other.returns()


# Moves


@pytest.mark.parametrize("spec", ALL)
def test_every_move_has_a_name_of_its_own_and_can_be_said(spec):
    "By its ID; by its name, too, unless that holds the ID of a legal move, which goes first."
    for seed in range(2):
        for state in decisions(spec, seed):
            legal = observe(state, state.current_player()).legal
            assert list(legal) == state.legal_actions() and len(set(legal.values())) == len(legal)
            for action, name in legal.items():
                assert "\n" not in name and parse_reply(f"Move {action}.", legal) == Parsed(action)
                if legal.keys().isdisjoint(map(int, re.findall(r"(?<!\w)\d+(?!\w)", name))):
                    assert parse_reply(name, legal) == Parsed(action)


@pytest.mark.parametrize(
    "spec",
    ["hearts(must_break_hearts=False)", "bridge(use_double_dummy_result=False)", "gin_rummy(oklahoma=True)"],
)
def test_rare_variants_use_openspiels_words(spec):
    state = next(play(spec, 0))
    assert "by OpenSpiel's rules" in observe(state, state.current_player()).messages[0]["content"]


def test_a_dealer_who_is_not_north_calls_first():
    state = next(play("bridge(dealer=2)", 0))
    for seat, action in ((2, 55), (3, 52), (0, 52)):
        assert state.current_player() == seat
        assert ("You call first" in observe(state, seat).messages[0]["content"]) == (seat == 2)
        state.apply_action(action)
