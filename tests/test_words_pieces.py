"""Games of pieces, backgammon and puzzles in words: the words are read back, and their rules are played."""

import random
import re
from collections import Counter
from collections.abc import Iterator

import pyspiel
import pytest
from playing import positions

from gamerl.prompts import WORDINGS, Parsed, observe, parse_reply
from gamerl.tasks import CATALOGUE, game_string, load_game, opening_state

OURS = ["checkers", "chess", "amazons", "oware", "backgammon", "2048", "solitaire"]
SPECS = [
    game_string(entry.name, params) for entry in CATALOGUE if entry.name in OURS for params in entry.variants
]
MORE = [
    "checkers(columns=6,rows=8)",
    "oware(num_houses_per_player=3,num_seeds_per_house=2)",
    "backgammon(max_player_turns=8)",
    "backgammon(scoring_type=full_scoring)",
    "2048(max_tile=32)",
    "solitaire(depth_limit=60)",
]
SIDES = {"checkers": "ox", "amazons": "XO"}
RANKS = "A 2 3 4 5 6 7 8 9 10 J Q K".split()


def play(game: str, seed: int, moves: int = 10_000) -> Iterator[pyspiel.State]:
    "The positions of a random game, the last one included."
    return positions(game, seed, moves, final=True)


def text(state: pyspiel.State) -> str:
    "The position in words."
    return observe(state, state.current_player()).messages[1]["content"]


def rules(state: pyspiel.State) -> str:
    "The rules in words."
    return observe(state, max(state.current_player(), 0)).messages[0]["content"]


def names(state: pyspiel.State) -> dict[int, str]:
    "The legal moves in words."
    return observe(state, state.current_player()).legal


def lines(state: pyspiel.State) -> dict[str, str]:
    "The lines `name: value` of the position."
    return dict(re.findall(r"^([A-Z][^:\n]*): (.*)$", text(state), flags=re.M))


def squares(state: pyspiel.State) -> dict[str, str]:
    "What stands on each square of a board with edges."
    *rows, letters = text(state).splitlines()
    cells = [row.split() for row in rows if re.match(r"\d+ ", row)]
    return {f"{col}{row[0]}": cell for row in cells for col, cell in zip(letters.split(), row[1:])}


# All of them


@pytest.mark.parametrize("game", SPECS + MORE)
def test_rules_are_ours_and_moves_can_be_said(game):
    for n, state in enumerate(play(game, seed=1, moves=250)):
        if not state.is_terminal() and (n < 20 or n % 5 == 0):
            assert "OpenSpiel" not in rules(state)
            legal = names(state)
            assert len(set(legal.values())) == len(legal) == len(state.legal_actions())
            for action, name in legal.items():
                assert "\n" not in name
                assert parse_reply(name, legal) == Parsed(action)


@pytest.mark.parametrize(
    ("game", "said"),
    [
        ("amazons(board_size=6)", "6 rows and 6 columns"),
        ("amazons(board_size=8)", "8 rows and 8 columns"),
        ("amazons(board_size=10)", "IDs 0 to 99"),
        ("checkers", "8 rows and 8 columns"),
        ("oware(num_seeds_per_house=3)", "begins with 3 seeds"),
        ("oware(num_seeds_per_house=5)", "more than 30 captured"),
        ("oware(num_houses_per_player=3)", "A B C a b c"),
        ("backgammon", "After 501 turns"),
        ("backgammon(scoring_type=full_scoring)", "threefold"),
        ("2048(max_tile=64)", "tile of 64"),
        ("solitaire", "after 150 steps"),
    ],
)
def test_parameters_are_told(game, said):
    assert said in rules(next(play(game, 0)))


@pytest.mark.parametrize(
    "game", ["chess(chess960=True)", "backgammon(hyper_backgammon=True)", "solitaire(is_colored=True)"]
)
def test_rare_variants_use_openspiels_words(game):
    assert "OpenSpiel" in rules(next(play(game, 0)))


def one_to_one(game: str, seeds: range, key, moves: int = 10_000) -> int:
    "Same key, same prompt, and the other way round; the number of positions that came up again."
    prompts, keys, again = {}, {}, 0
    for seed in seeds:
        for state in play(game, seed, moves):
            if not state.is_terminal() and not state.is_chance_node():
                told, known = (state.current_player(), text(state)), (state.current_player(), key(state))
                again += told in keys
                assert prompts.setdefault(known, told) == told
                assert keys.setdefault(told, known) == known
    return again


# Chess


def chess_key(state: pyspiel.State) -> str:
    "A position but for the counts of moves, from its FEN."
    return " ".join(str(state).split()[:4])


def chess_past(state: pyspiel.State) -> Counter:
    "How often each position was on the board, replayed from the start."
    past = load_game("chess").new_initial_state()
    seen = Counter([chess_key(past)])
    for action in state.history():
        past.apply_action(action)
        seen[chess_key(past)] += 1
    return seen


def shuffle(seed: int, quiet: float = 0.8, moves: int = 60):
    "Chess in which pieces like to go back where they came from."
    rng, state = random.Random(seed), load_game("chess").new_initial_state()
    while not state.is_terminal() and moves > 0:
        yield state.clone()
        seen, legal = chess_past(state), state.legal_actions()
        back = [action for action in legal if seen[chess_key(state.child(action))]]
        calm = [a for a in legal if re.match(r"[NR][a-h]?[1-8]?[a-h][1-8]$", names(state)[a])] or legal
        state.apply_action(rng.choice(back if back and rng.random() < quiet else calm))
        moves -= 1
    yield state


def test_chess_shows_all_that_a_fen_tells():
    for seed in range(3):
        for state in list(play("chess", seed))[:-1:3]:
            placement, side, castling, passant, quiet, _ = str(state).split()
            told, board = lines(state), squares(state)
            for rank, row in zip(range(8, 0, -1), placement.split("/")):
                cells = re.sub(r"\d", lambda blank: "." * int(blank[0]), row)
                assert [board[f"{col}{rank}"] for col in "abcdefgh"] == list(cells)
            white, black = re.fullmatch(r"White (.+), Black (.+)", told["Right to castle"]).groups()
            assert [move in white.split() for move in ("O-O", "O-O-O")] == ["K" in castling, "Q" in castling]
            assert [move in black.split() for move in ("O-O", "O-O-O")] == ["k" in castling, "q" in castling]
            assert told["Square for en passant"] == ("none" if passant == "-" else passant)
            assert told["Moves without capture or pawn move"] == f"{quiet} of 100"
            assert f"You are {'White' if side == 'w' else 'Black'} (" in text(state)
            assert text(state).split("\n")[-9].startswith("8 ") and state.current_player() == (side == "w")


def test_chess_tells_which_positions_come_back():
    draws = 0
    for seed in range(8):
        *before, _ = shuffle(seed)
        for state in before:
            seen, told, legal = chess_past(state), lines(state), names(state)
            assert int(told["Times this position was on the board"]) == seen[chess_key(state)]
            for times, line in [(1, "was there once"), (2, "was there twice, a draw")]:
                back = [legal[a] for a in legal if seen[chess_key(state.child(a))] == times]
                assert told[f"Moves to a position that {line}"] == (" ".join(back) or "none")
            for action in legal:
                if seen[chess_key(state.child(action))] == 2:
                    draws += 1
                    assert state.child(action).is_terminal() and state.child(action).returns() == [0, 0]
    assert draws > 5


def test_equal_prompts_are_equal_chess_positions():
    def key(state):
        seen = chess_past(state)
        after = tuple(seen[chess_key(state.child(action))] for action in state.legal_actions())
        return chess_key(state), str(state).split()[4], seen[chess_key(state)], after

    assert one_to_one("chess", range(60), key, moves=5) > 60
    same = [
        ("Nf3 Nf6 Nc3", "Nc3 Nf6 Nf3"),
        ("e4 e5 Nf3 Nc6 Bc4 Bc5", "e4 e5 Bc4 Bc5 Nf3 Nc6"),
    ]
    for pair in same:
        states = [opening_state("chess") for _ in pair]
        for state, moves in zip(states, pair):
            for move in moves.split():
                state.apply_action(state.string_to_action(state.current_player(), move))
        assert observe(*(states[0], states[0].current_player())) is observe(
            states[1], states[1].current_player()
        )


def test_chess_ends_as_the_rules_say():
    ends = Counter()
    for seed in range(12):
        *_, before, last = play("chess", seed)
        name = names(before)[last.history()[-1]]
        placement, _, _, _, quiet, _ = str(last).split()
        pieces = Counter(piece.upper() for piece in placement if piece.isalpha() and piece not in "kK")
        if name.endswith("#"):
            ends["mate"] += 1
            assert last.returns()[before.current_player()] == 1
            continue
        assert last.returns() == [0, 0]
        bare = sum(pieces.values()) <= 1 and set(pieces) <= set("NB") or set(pieces) == {"B"}
        repeated = chess_past(last)[chess_key(last)] == 3
        stuck = not pyspiel.load_game("chess").new_initial_state(str(last)).legal_actions()
        assert bare or repeated or quiet == "100" or stuck
        ends["draw"] += 1
    assert ends["mate"] and ends["draw"]


@pytest.mark.parametrize(
    ("fen", "over"),
    [
        ("8/8/4k3/8/8/3NK3/8/8 w - - 0 1", True),
        ("8/8/4k3/8/8/3NK1N1/8/8 w - - 0 1", False),
        ("8/8/4k1b1/8/8/3BKB2/8/8 w - - 0 1", True),
        ("8/8/4kb2/8/8/3BK3/8/8 w - - 0 1", False),
        ("8/8/4kn2/8/8/3BK3/8/8 w - - 0 1", False),
        ("8/4p3/4k3/8/8/3BK3/8/8 w - - 99 1", False),
        ("8/4p3/4k3/8/8/3BK3/8/8 w - - 100 1", True),
    ],
)
def test_chess_is_drawn_without_material_or_progress(fen, over):
    assert pyspiel.load_game("chess").new_initial_state(fen).is_terminal() == over


# Checkers


def jumper(state: pyspiel.State) -> str:
    "The square of the piece in the middle of its jumps, from who moved last."
    events = state.full_history()
    if not events or events[-1].player != state.current_player():
        return "none"
    return state.action_to_string(state.current_player(), events[-1].action)[-2:]


def checkers_moves(board: dict[str, str], side: str, only: str) -> set[str]:
    "The legal moves by the rules of the prompt."
    steps, jumps = set(), set()
    forward = 1 if side == "o" else -1
    for square, piece in board.items():
        if piece.lower() != side or only not in ("none", square):
            continue
        for right in (-1, 1):
            for up in (-1, 1) if piece.isupper() else (forward,):
                near = f"{chr(ord(square[0]) + right)}{int(square[1]) + up}"
                far = f"{chr(ord(square[0]) + 2 * right)}{int(square[1]) + 2 * up}"
                if board.get(near) == ".":
                    steps.add(square + near)
                elif near in board and board[near].lower() != side and board.get(far) == ".":
                    jumps.add(square + far)
    return jumps or steps


@pytest.mark.parametrize("game", ["checkers", "checkers(columns=6,rows=8)"])
def test_checkers_is_played_by_its_rules(game):
    jumping, drawn = 0, 0
    for seed in range(40):
        *before, last = play(game, seed)
        for state, after in zip(before, [*before[1:], last]):
            told, board, side = lines(state), squares(state), "ox"[state.current_player()]
            only, legal = told["Piece that must go on jumping"], names(state)
            assert set(legal.values()) == checkers_moves(board, side, only)
            assert only == jumper(state)
            jumping += only != "none"
            move = legal[after.history()[-1]]
            quiet = 0 if abs(int(move[1]) - int(move[3])) == 2 else int(told[QUIET].split()[0]) + 1
            if not after.is_terminal():
                assert told[QUIET].endswith(" of 40") and lines(after)[QUIET] == f"{quiet} of 40"
                piece = board[move[:2]]
                crowned = piece.upper() if move[3] in (max(board)[1], "1")[side == "x"] else piece
                assert squares(after)[move[2:]] == crowned and squares(after)[move[:2]] == "."
                assert crowned == piece or lines(after)["Piece that must go on jumping"] == "none"
            elif quiet == 40:
                drawn += 1
                assert last.returns() == [0, 0]
            else:
                assert last.returns()[state.current_player()] == 1
    assert jumping > 20 and (drawn or game == "checkers")


QUIET = "Moves since the last capture"


def test_equal_prompts_are_equal_checkers_positions():
    def key(state):
        quiet = [action % 2 for action in reversed(state.history())]
        return str(state), quiet.index(1) if 1 in quiet else len(quiet), jumper(state)

    assert one_to_one("checkers", range(60), key, moves=12) > 60


# Amazons


@pytest.mark.parametrize("side", [6, 8, 10])
def test_amazons_move_and_shoot_like_queens(side):
    for seed in range(3):
        *before, last = play(f"amazons(board_size={side})", seed)
        for state, after in zip(before, [*before[1:], last]):
            first, who, *rows = text(state).splitlines()
            words, own = " ".join(rows).split(), "XO"[state.current_player()]
            cells = ["." if word.isdigit() else word[0] for word in words]
            assert all(word in (str(n), "#", f"X{n}", f"O{n}") for n, word in enumerate(words))
            amazons = [n for n, cell in enumerate(cells) if cell == own]
            assert len(cells) == side * side and len(amazons) == 4

            def rays(start):
                for down, right in [(0, 1), (1, 0), (1, 1), (1, -1), (0, -1), (-1, 0), (-1, -1), (-1, 1)]:
                    row, col = start // side + down, start % side + right
                    while 0 <= row < side and 0 <= col < side and cells[row * side + col] == ".":
                        yield row * side + col
                        row, col = row + down, col + right

            part = re.fullmatch(rf"You are {own}\. Choose (an amazon|where .* on cell (\d+) (.*))\.", who)
            if part[1] == "an amazon":
                legal = {start for start in amazons if list(rays(start))}
            else:
                assert int(part[2]) in amazons and part[3] == ("goes", "shoots")[state.move_number() % 3 - 1]
                legal = set(rays(int(part[2])))
            assert first == f"Legal moves: {' '.join(map(str, sorted(legal)))}"
            assert set(names(state)) == legal
        assert last.returns()[before[-1].current_player()] == 1


def test_equal_prompts_are_equal_amazons_positions():
    def key(state):
        part = state.move_number() % 3
        return str(state), part, state.history()[-1] if part else None

    assert one_to_one("amazons(board_size=6)", range(80), key, moves=6) > 80


# Oware


def houses(state: pyspiel.State) -> tuple[list[int], list[int], list[int]]:
    "Captured seeds, own seeds and those of the opponent, from the words."
    told = lines(state)
    seeds = [[int(word) for word in re.findall(r"\d+", told[f"{who} houses"])] for who in ("Your", "Their")]
    return [int(word) for word in re.findall(r"\d+", told["Captured"])], *seeds


def sow(own: list[int], other: list[int], house: int) -> tuple[int, list[int], list[int]]:
    "Seeds captured, and the houses after a move, by the rules of the prompt."
    size, row = len(own), own + other
    hand, row[house], place = row[house], 0, house
    for _ in range(hand):
        place = (place + 1) % len(row)
        place = (place + 1) % len(row) if place == house else place
        row[place] += 1
    took = []
    while place >= size and row[place] in (2, 3):
        took.append(place)
        place -= 1
    captured = sum(row[n] for n in took)
    if captured == sum(row[size:]):
        return 0, row[:size], row[size:]
    return captured, row[:size], [0 if size + n in took else seeds for n, seeds in enumerate(row[size:])]


@pytest.mark.parametrize("game", [spec for spec in SPECS + MORE if spec.startswith("oware")])
def test_oware_is_played_by_its_rules(game):
    ends = Counter()
    for seed in range(40):
        *before, last = play(game, seed)
        total, seen = sum(map(sum, houses(before[0]))), set()
        for state, after in zip(before, [*before[1:], last]):
            player, legal = state.current_player(), names(state)
            (mine, theirs), own, other = houses(state)
            assert mine + theirs + sum(own) + sum(other) == total
            seen.add((player, mine, theirs, *own, *other))
            results = {action: sow(own, other, action) for action in range(len(own)) if own[action]}
            if not any(other):
                results = {action: result for action, result in results.items() if any(result[2])}
            assert set(results) == set(legal)
            assert list(legal.values()) == [("ABCDEF", "abcdef")[player][action] for action in results]
            back = [
                legal[action]
                for action, (captured, mine_left, their_left) in results.items()
                if (1 - player, theirs, mine + captured, *their_left, *mine_left) in seen
            ]
            assert lines(state)["Moves that bring back a position"] == (", ".join(back) or "none")
            captured, own, other = results[after.history()[-1]]
            mine += captured
            feeding = [n for n in range(len(other)) if other[n] and any(sow(other, own, n)[2])]
            stuck = not any(other) or not any(own) and not feeding
            repeated = legal[after.history()[-1]] in back
            over = mine > total / 2 or repeated or stuck
            assert over == after.is_terminal() or mine == theirs == total / 2
            if not after.is_terminal():
                assert houses(after) == ([theirs, mine], other, own)
            else:
                ends["repeated" if repeated else "stuck" if stuck else "won"] += 1
                points = [mine + sum(own), theirs + sum(other)]
                assert last.returns()[player] == (points[0] > points[1]) - (points[0] < points[1])
    assert ends["won"] + ends["stuck"] and (ends["repeated"] or "seeds_per_house=2" not in game)


def test_equal_prompts_are_equal_oware_positions():
    def key(state):
        ends = [action for action in state.legal_actions() if state.child(action).is_terminal()]
        return state.observation_string(0), tuple(ends) if "none" not in text(state) else ()

    assert one_to_one("oware(num_seeds_per_house=3)", range(60), key, moves=30) > 60


# Backgammon


def checkers_of(state: pyspiel.State) -> tuple[list[int], list[int], list[int]]:
    "Own and other checkers on off, p1 to p24 and bar (for the owner of x), and the dice, from the words."
    told, own, other = lines(state), [0] * 26, [0] * 26
    for place, kind, count in re.findall(r"p(\d+):([xo])(\d+)", text(state)):
        (own if kind == "x" else other)[int(place)] = int(count)
    for line, place in [("Off", 0), ("Bar", 25)]:
        own[place], other[place] = map(int, re.fullmatch(r"x (\d+), o (\d+)", told[line]).groups())
    return own, other, [int(die) for die in told["Dice"].split(",")[0].split(" and ")]


def step(own: list[int], other: list[int], start: int, die: int) -> tuple[str, list[int], list[int]] | None:
    "One die by the rules of the prompt: its name and what is on the board after it, or None."
    end = max(start - die, 0)
    if not own[start] or (own[25] and start < 25) or (end and other[end] > 1):
        return None
    if end == 0 and (any(own[7:]) or (start < die and any(own[start + 1 :]))):
        return None
    own, other, hit = own.copy(), other.copy(), end and other[end] == 1
    own[start], own[end] = own[start] - 1, own[end] + 1
    if hit:
        other[end], other[25] = 0, other[25] + 1
    name = f"{f'p{start}' if start < 25 else 'bar'}/{f'p{end}' if end else 'off'}{'*' if hit else ''}"
    return name, own, other


def backgammon_moves(own: list[int], other: list[int], dice: list[int]) -> dict[str, tuple]:
    "The legal moves by the rules of the prompt, and what each leads to."
    both, single = {}, {max(dice): {}, min(dice): {}}
    for first, second in {tuple(dice), tuple(reversed(dice))}:
        for start in range(1, 26):
            if one := step(own, other, start, first):
                single[first][one[0]] = (one[1], one[2])
                for again in range(1, 26):
                    if two := step(one[1], one[2], again, second):
                        both[f"{one[0]} {two[0]}"] = (two[1], two[2])
    return both or single[max(dice)] or single[min(dice)] or {"pass": (own, other)}


def test_backgammon_is_played_by_its_rules():
    doubles = 0
    for seed in range(4):
        *before, last = play("backgammon", seed)
        for state, after in zip(before, [*before[1:], last]):
            own, other, dice = checkers_of(state)
            assert sum(own) == sum(other) == 15 and dice == sorted(dice, reverse=True)
            results, legal = backgammon_moves(own, other, dice), names(state)
            assert set(legal.values()) == set(results)
            length = {len(name.split()) for name in results}
            own, other = results[legal[played(state, after)]]
            if after.is_terminal():
                assert own[0] == 15 and last.returns()[state.current_player()] == 1
                continue
            same = after.current_player() == state.current_player()
            doubles += same
            assert same == ("first two of four" in text(state) and length == {2} and "pass" not in results)
            assert checkers_of(after)[:2] == ((own, other) if same else (mirrored(other), mirrored(own)))
            assert same == ("last two steps" in text(after))
    assert doubles > 20


def mirrored(side: list[int]) -> list[int]:
    "Checkers with points counted from the other end."
    return [side[0], *side[24:0:-1], side[25]]


def played(state: pyspiel.State, after: pyspiel.State) -> int:
    "The action between two positions at which somebody decides."
    return after.history()[state.move_number()]


def test_backgammon_counts_its_turns():
    for seed in range(6):
        *before, last = play("backgammon(max_player_turns=8)", seed)
        turns = [tuple(map(int, lines(state)["Turn"].split(" of "))) for state in before]
        assert turns[0] == (1, 9) and turns[-1] == (9, 9) and last.returns() == [0, 0]
        for (turn, _), (later, _), state, after in zip(turns, turns[1:], before, before[1:]):
            assert later - turn == (
                "first two of four" not in text(state) or "last two steps" not in text(after)
            )


def test_equal_prompts_are_equal_backgammon_positions():
    def key(state):
        cells = [state.board(seat, place) for seat in (0, 1) for place in [*range(24), 100]]
        board = dict(line.split(":", 1) for line in str(state).splitlines() if ":" in line)
        rolls = sum(event.player < 0 for event in state.full_history())
        return tuple(cells), tuple(sorted(board["Dice"])), board["Extra turn"], board["Scores, X"], rolls

    assert one_to_one("backgammon", range(150), key, moves=3) > 60


# 2048


DIRECTIONS = ("Up", "Right", "Down", "Left")


def rows_of(board: list[list], name: str) -> list[list]:
    "A board as rows that begin at the edge to which a move pushes."
    turned = [list(row) for row in zip(*board)] if name in ("Up", "Down") else board
    return [row[:: -1 if name in ("Right", "Down") else 1] for row in turned]


def board_of(rows: list[list], name: str) -> list[list]:
    "The board whose rows these are."
    rows = [row[:: -1 if name in ("Right", "Down") else 1] for row in rows]
    return [list(row) for row in zip(*rows)] if name in ("Up", "Down") else rows


def slide(row: list[int]) -> tuple[list[int], list[int]]:
    "A row pushed to its beginning, and in each place the points made there, by the rules of the prompt."
    tiles, out, points = [tile for tile in row if tile], [], []
    while tiles:
        tile = tiles.pop(0)
        merges = tiles[:1] == [tile]
        out.append(tile + (tiles.pop(0) if merges else 0))
        points.append(out[-1] if merges else 0)
    return out + [0] * (4 - len(out)), points + [0] * (4 - len(points))


def is_legal(board: list[list[int]], made: list[list[int]], name: str) -> bool:
    "Whether a push moves a tile, or merges one onto a tile that the move before did not make."
    for row, fresh in zip(rows_of(board, name), rows_of(made, name)):
        for n in range(1, 4):
            if row[n] and (row[n - 1] == 0 or (row[n - 1] == row[n] and not fresh[n - 1])):
                return True
    return False


@pytest.mark.parametrize("game", ["2048", "2048(max_tile=32)"])
def test_2048_is_played_by_its_rules(game):
    left_out, top = 0, load_game(game).get_parameters()["max_tile"]
    for seed in range(12):
        *before, last = play(game, seed)
        made = [[0] * 4 for _ in range(4)]
        for state, after in zip(before, [*before[1:], last]):
            told = text(state).replace(".", "0").splitlines()
            board = [[int(tile) for tile in row.split()] for row in told[-4:]]
            assert board == [[int(tile) for tile in row.split()] for row in str(state).splitlines()]
            legal, points = names(state), int(lines(state)["Points"])
            assert set(legal.values()) == {name for name in DIRECTIONS if is_legal(board, made, name)}
            left_out += any(
                not is_legal(board, made, name) and pushed(board, name)[0] != board for name in DIRECTIONS
            )
            board, made = pushed(board, legal[played(state, after)])
            assert after.returns() == [points + sum(map(sum, made))]
            rows = zip(board, str(after).splitlines())
            new = [
                int(tile) for row, line in rows for old, tile in zip(row, line.split()) if old != int(tile)
            ]
            assert new in ([2], [4]) or (new == [] and max(map(max, board)) == top)
        tiles = [int(tile) for tile in str(last).split()]
        assert max(tiles) == top or all(tiles)
    assert left_out


def pushed(board: list[list[int]], name: str) -> tuple[list[list[int]], list[list[int]]]:
    "A board after a move and before the new tile, and the points made in each place."
    results = [slide(row) for row in rows_of(board, name)]
    return board_of([row for row, _ in results], name), board_of([points for _, points in results], name)


def test_equal_prompts_are_equal_2048_positions():
    assert one_to_one("2048", range(300), lambda state: (str(state), state.returns()[0]), moves=3) > 20


# Solitaire


def piles(state: pyspiel.State) -> tuple[list[str], dict[str, int], list[list[str]]]:
    "The waste, the height of each foundation, and the columns, from the words."
    told, content = lines(state), text(state)
    tops = [top.split()[0] for top in told["Foundations"].split(", ")]
    heights = {top[-1]: RANKS.index(top[:-1]) + 1 if top[:-1] else 0 for top in tops}
    columns = [row.split() for row in content.split("Columns:\n")[1].split("\n")]
    waste = [] if told["Waste"] == "none" else told["Waste"].split()
    return waste, heights, [[] if column == ["empty"] else column for column in columns]


def fits(card: str, on: str) -> bool:
    "Whether a card goes onto another one in a column."
    return RANKS.index(on[:-1]) - RANKS.index(card[:-1]) == 1 and (card[-1] in "♥♦") != (on[-1] in "♥♦")


def solitaire_moves(waste: list[str], heights: dict[str, int], columns: list[list[str]]) -> set[str]:
    "The legal moves by the rules of the prompt."
    lasts = [column[-1] for column in columns if column]
    single = {card[1:-1] for card in waste if card.startswith("[")}
    opened = {card for column in columns for card in column if card != "?"}
    tops = {f"{RANKS[height - 1]}{suit}" for suit, height in heights.items() if height}
    found = {
        f"{card} to its foundation"
        for card in single | set(lasts)
        if RANKS.index(card[:-1]) == heights[card[-1]]
    }
    found |= {f"{card} to {on}" for card in single | opened | tops for on in lasts if fits(card, on)}
    if [] in columns:
        firsts = {column[0] for column in columns if column}
        kings = {card for card in single | opened - firsts if card.startswith("K")}
        found |= {f"{card} to an empty column" for card in kings}
    return found


def value(card: str) -> int:
    "Points for a card on its foundation."
    return max(100 - 10 * RANKS.index(card[:-1]), 10)


@pytest.mark.parametrize("game", ["solitaire", "solitaire(depth_limit=60)"])
def test_solitaire_is_played_by_its_rules(game):
    for seed in range(12):
        *before, last = play(game, seed)
        limit = load_game(game).get_parameters()["depth_limit"]
        for state, after in zip(before, [*before[1:], last]):
            (waste, heights, columns), legal, told = piles(state), names(state), lines(state)
            shown = [card.strip("[]") for pile in (waste, *columns) for card in pile]
            assert len(shown) + sum(heights.values()) == 52 and len(columns) == 7
            cards = [card for card in shown if card != "?"]
            assert len(set(cards)) == len(cards) and not any(
                RANKS.index(card[:-1]) < heights[card[-1]] for card in cards
            )
            assert [card[0] == "[" for card in waste] == [n % 3 == 0 for n in range(len(waste))]
            assert told["Steps"] == f"{state.move_number()} of {limit}"
            allowed = solitaire_moves(waste, heights, columns)
            assert set(legal.values()) == (allowed or {"end the game"})
            name = legal[played(state, after)]
            if name == "end the game":
                assert after.is_terminal()
                continue
            moved = name.split()[0]
            points = 20 * (f"[{moved}]" in waste)
            points += value(moved) if name.endswith("its foundation") else 0
            points -= value(moved) if heights[moved[-1]] == RANKS.index(moved[:-1]) + 1 else 0
            points += 20 * any(
                column[n : n + 2] == ["?", moved] for column in columns for n in range(len(column))
            )
            assert after.returns()[0] == int(told["Points"]) + points
            assert not after.is_terminal() or after.move_number() == limit


def every_solitaire_move() -> dict[int, str]:
    "All moves that the game knows, in words."
    start, wording = load_game("solitaire").new_initial_state(), WORDINGS["solitaire"]
    return {action: wording.move_name(start, 0, action) for action in range(53, 205)}


def test_every_solitaire_move_has_a_name_of_its_own():
    assert len(set(every_solitaire_move().values())) == 152


def test_what_is_dealt_later_is_not_told():
    rng = random.Random(0)
    for seed in range(5):
        *before, _ = play("solitaire", seed)
        for state in before[::4]:
            for action in state.legal_actions():
                child = state.child(action)
                if child.is_chance_node():
                    prompt = text(state)
                    child.apply_action(rng.choice(child.legal_actions()))
                    card = re.sub("Reveal", "", child.action_to_string(-1, child.history()[-1])).replace(
                        "T", "10"
                    )
                    assert card not in re.split(r"[\s\[\]]+", prompt) and text(state) == prompt


def test_equal_prompts_are_equal_solitaire_positions():
    def key(state):
        return str(state), state.move_number(), state.returns()[0], tuple(state.legal_actions())

    one_to_one("solitaire", range(30), key)
