"""What is said about board games, against the same games played by their stated rules in plain Python."""

import itertools
import random
import re
from collections import defaultdict

import pyspiel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gamerl.prompts import Observation, Parsed, observe, parse_reply
from gamerl.tasks import CATALOGUE, game_string, load_game

SEEDS = st.integers(0, 2**63 - 1)
VARIANTS = {entry.name: [game_string(entry.name, params) for params in entry.variants] for entry in CATALOGUE}
GO = [*VARIANTS["go"], "go(board_size=3,komi=0.5)", "go(board_size=2,komi=1.0,max_game_length=30)"]
DOTS = [*VARIANTS["dots_and_boxes"], "dots_and_boxes(num_cols=3,num_rows=1,utility_margin=True)"]
PHANTOM = [
    *VARIANTS["phantom_ttt"],
    "phantom_ttt(gameversion=abrupt,obstype=reveal-nothing)",
    "phantom_ttt(gameversion=abrupt,obstype=reveal-numturns)",
]
QUORIDOR = [
    *VARIANTS["quoridor"],
    "quoridor(board_size=3,wall_count=2)",
    "quoridor(board_size=4,wall_count=3)",
]
EVERY = ["othello", *GO, *PHANTOM, *DOTS, *QUORIDOR, "quoridor(board_size=10)", "go(board_size=9,komi=7.0)"]


def play(game: str, seed: int, moves: int = 500) -> list[pyspiel.State]:
    "All positions of one game of random play."
    rng, states = random.Random(seed), [load_game(game).new_initial_state()]
    while not states[-1].is_terminal() and len(states) <= moves:
        states.append(states[-1].child(rng.choice(states[-1].legal_actions())))
    return states


def told(state: pyspiel.State) -> tuple[Observation, dict[str, str], list[str]]:
    "What the player to move is told: everything, the lines `name: value`, and the words after `You are`."
    observation = observe(state, state.current_player())
    text = observation.messages[1]["content"]
    said, board = text.split("\nYou are ")
    return observation, dict(re.findall(r"^([^:\n]+): (.*)$", said, flags=re.M)), board.split("\n")[1:]


def cells(board: list[str]) -> list[str]:
    "The words of a board."
    return " ".join(board).split()


def all_states(game: str, depth: int) -> list[pyspiel.State]:
    "Every position that can be reached with so many moves, once for each way that leads there."
    states, last = [], [load_game(game).new_initial_state()]
    for _ in range(depth):
        states += last
        last = [state.child(action) for state in last for action in state.legal_actions()]
    return [state for state in states + last if not state.is_terminal()]


def assert_one_prompt_for_each(keys: list) -> None:
    "Equal facts have one prompt, and different facts have different ones; some facts occur more than once."
    by_fact, by_prompt = defaultdict(set), defaultdict(set)
    for fact, observation in keys:
        by_fact[fact].add(observation)
        by_prompt[observation].add(fact)
    assert {len(same) for same in by_fact.values()} == {len(same) for same in by_prompt.values()} == {1}
    assert len(by_fact) < len(keys)


# Every game


@pytest.mark.parametrize("game", EVERY)
def test_every_move_has_a_name_of_its_own_that_is_understood(game):
    for state in play(game, seed=0)[:-1:7]:
        legal = told(state)[0].legal
        assert list(legal) == state.legal_actions() and len(set(legal.values())) == len(legal)
        for action, name in legal.items():
            assert "\n" not in name and parse_reply(name, legal) == Parsed(action)
            assert parse_reply(f"I play {name}.", legal) == Parsed(action)


@pytest.mark.parametrize("game", ["go", "phantom_ttt", "dots_and_boxes", "quoridor"])
def test_the_rules_of_no_two_variants_are_the_same(game):
    rules = [
        observe(load_game(spec).new_initial_state(), 0).messages[0]["content"] for spec in VARIANTS[game]
    ]
    assert len(set(rules)) == len(rules)
    for spec, text in zip(VARIANTS[game], rules):
        for number in re.findall(r"[\d.]+", spec):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", text)
        if game in ("go", "quoridor"):
            assert f" {load_game(spec).max_game_length()} moves" in text


@pytest.mark.parametrize("game", EVERY)
def test_the_rules_name_the_seat(game):
    for state in play(game, seed=1, moves=12)[:-1]:
        player = state.current_player()
        system, user = (message["content"] for message in observe(state, player).messages)
        assert f" as {'xo'[player]}" in system and "x moves first" in system and "OpenSpiel" not in system
        assert f"\nYou are {'xo'[player]}" in user


@pytest.mark.parametrize("game", ["quoridor(players=3)", "quoridor(ansi_color_output=True)"])
def test_variants_with_other_rules_are_told_in_general_words(game):
    assert "by OpenSpiel's rules" in observe(load_game(game).new_initial_state(), 0).messages[0]["content"]


# Othello


def turned(board: list[str], square: int, mark: str) -> list[int]:
    "The stones that turn when the mark is put on a free square."
    found, (row, col) = [], divmod(square, 8)
    for down, right in itertools.product((-1, 0, 1), repeat=2):
        line, far = [], 1
        while (down or right) and 0 <= row + far * down < 8 and 0 <= col + far * right < 8:
            other = (row + far * down) * 8 + col + far * right
            if board[other] in (".", mark):
                found += line if board[other] == mark else []
                break
            line, far = [*line, other], far + 1
    return found if board[square] == "." else []


def othello_moves(board: list[str], mark: str) -> list[int]:
    "All squares where a stone turns another."
    return [square for square in range(64) if turned(board, square, mark)]


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_othello_is_played_as_told(seed):
    board, mark = ["."] * 64, "x"
    board[27] = board[36] = "o"
    board[28] = board[35] = "x"
    states = play("othello", seed)
    for state, after in itertools.pairwise(states):
        observation, lines, drawn = told(state)
        assert mark == "xo"[state.current_player()]
        moves = othello_moves(board, mark)
        assert list(observation.legal) == (moves or [64])
        assert cells(drawn) == [str(n) if n in moves else cell for n, cell in enumerate(board)]
        mine, theirs = board.count(mark), board.count("xo"[mark == "x"])
        assert lines["Stones"] == f"you {mine}, they {theirs}"
        if (action := after.history()[-1]) < 64:
            for square in [action, *turned(board, action, mark)]:
                board[square] = mark
        mark = "xo"[mark == "x"]
    assert not othello_moves(board, "x") and not othello_moves(board, "o")
    difference = board.count("x") - board.count("o")
    assert states[-1].returns()[0] == (difference > 0) - (difference < 0)


def test_an_othello_prompt_is_the_board_and_the_player():
    keys = []
    for state in all_states("othello", depth=5):
        planes = bytes(int(bit) for bit in state.observation_tensor(0))
        keys.append(((planes, state.current_player()), told(state)[0]))
    assert_one_prompt_for_each(keys)


# Go


def beside(point: int, size: int) -> list[int]:
    "The points that a point touches."
    row, col = divmod(point, size)
    around = [(row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)]
    return [r * size + c for r, c in around if 0 <= r < size and 0 <= c < size]


def region(board: tuple, point: int, size: int) -> tuple[set, set]:
    "All points of the same content that hang together, and the contents of those around."
    inside, around, todo = {point}, set(), [point]
    while todo:
        for other in beside(todo.pop(), size):
            if board[other] != board[point]:
                around.add(board[other])
            elif other not in inside:
                inside.add(other)
                todo.append(other)
    return inside, around


def place(board: tuple, point: int, mark: str, size: int) -> tuple[tuple, set] | None:
    "The board after a stone, and what it took; None where no stone may be put."
    if board[point] != ".":
        return None
    stones, taken = list(board), set()
    stones[point] = mark
    for other in beside(point, size):
        inside, around = region(tuple(stones), other, size)
        if stones[other] not in (".", mark) and "." not in around:
            taken |= inside
    after = tuple("." if n in taken else stone for n, stone in enumerate(stones))
    return None if "." not in region(after, point, size)[1] else (after, taken)


def go_points(board: tuple, mark: str, size: int) -> int:
    "Own stones, and free areas that touch only own stones."
    owners = [region(board, n, size)[1] if stone == "." else {stone} for n, stone in enumerate(board)]
    return sum(owner == {mark} for owner in owners)


@pytest.mark.parametrize("game", GO)
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_go_is_played_as_told(game, seed):
    params, limit = load_game(game).get_parameters(), load_game(game).max_game_length()
    size = params["board_size"]
    board, ko, earlier, said, repeated = (".",) * size**2, None, [(".",) * size**2], [], False
    states = play(game, seed)
    for turn, (state, after) in enumerate(itertools.pairwise(states)):
        assert not repeated and said[-2:] != ["pass", "pass"] and turn < limit
        (observation, lines, drawn), mark = told(state), "xo"[turn % 2]
        ids = [n if stone == "." else stone for n, stone in enumerate(board)]
        ids = [str(cell) for row in reversed(range(size)) for cell in ids[row * size : (row + 1) * size]]
        assert cells(drawn) == ids and len(drawn) == size
        assert lines["Moves so far"] == (" ".join(said) or "none")
        assert int(lines["Moves left"]) == limit - turn
        tried = {point: place(board, point, mark, size) for point in range(size**2)}
        legal = [point for point, done in tried.items() if done and ko not in done[1]]
        assert list(observation.legal) == [*legal, size**2]
        ko, action = None, after.history()[-1]
        said.append("pass" if action == size**2 else str(action))
        if action < size**2:
            board, taken = tried[action]
            ko = action if len(taken) == len(region(board, action, size)[0]) == 1 else None
            repeated = board in earlier
            earlier.append(board)
    assert repeated or said[-2:] == ["pass", "pass"] or len(said) == limit
    lead = go_points(board, "x", size) - go_points(board, "o", size) - params["komi"]
    assert states[-1].returns()[0] == (0 if repeated else (lead > 0) - (lead < 0))


def test_a_board_that_was_there_before_is_a_draw_in_go():
    ends = [play("go(board_size=2,komi=0.5)", seed)[-1] for seed in range(60)]
    drawn = [state for state in ends if state.returns() == [0, 0]]
    assert drawn and all(4 != state.history()[-1] for state in drawn)  # 4 is a pass


def test_a_go_prompt_is_the_whole_game():
    states = all_states("go(board_size=2,komi=0.5)", depth=6)
    assert len({told(state)[0] for state in states}) == len({tuple(state.history()) for state in states})
    assert len({str(state) for state in states}) < len(states)


# Phantom tic-tac-toe


def phantom_facts(game: str, history: list[int], player: int) -> tuple[list[tuple], dict[int, str], int]:
    "All tries that a player knows of, the marks on all squares, and whose turn it is."
    params = load_game(game).get_parameters()
    marks, tries, turn = {}, [], 0
    for square in history:
        taken = square in marks
        marks.setdefault(square, "xo"[turn])
        if turn == player:
            tries.append(("you", str(square), taken))
        elif params["obstype"] == "reveal-numturns":
            tries.append(("they", "?", False))
        if not taken or params["gameversion"] == "abrupt":
            turn = 1 - turn
    return tries, marks, turn


@pytest.mark.parametrize("game", PHANTOM)
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_phantom_tries_and_marks_are_those_that_the_player_knows(game, seed):
    for state in play(game, seed)[:-1]:
        player = state.current_player()
        observation, lines, drawn = told(state)
        tries, marks, turn = phantom_facts(game, state.history(), player)
        said = re.findall(r"(you|they) (\d|\?)( \(taken\))?", lines["Tries so far"])
        assert [(who, square, bool(taken)) for who, square, taken in said] == tries
        known = {int(square): marks[int(square)] for who, square, _ in tries if who == "you"}
        assert cells(drawn) == [known.get(square, str(square)) for square in range(9)]
        assert turn == player and list(observation.legal) == [n for n in range(9) if n not in known]


@pytest.mark.parametrize("game", PHANTOM)
def test_a_phantom_prompt_is_what_the_player_knows(game):
    keys = []
    for state in all_states(game, depth=4):
        tries, marks, player = phantom_facts(game, state.history(), state.current_player())
        keys.append(((tuple(tries), player), told(state)[0]))
    assert_one_prompt_for_each(keys)


@pytest.mark.parametrize("game", PHANTOM)
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_phantom_games_end_as_told(game, seed):
    state = play(game, seed)[-1]
    _, marks, _ = phantom_facts(game, state.history(), 0)
    rows = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
    won = [any(all(marks.get(n) == mark for n in row) for row in rows) for mark in "xo"]
    assert state.returns() == [won[0] - won[1], won[1] - won[0]] and (any(won) or len(marks) == 9)


# Dots and boxes


def box_sides(rows: int, cols: int) -> dict[tuple[int, int], set[int]]:
    "The four lines of every box: those across come first, row by row, then those that go down."
    down = (rows + 1) * cols
    return {
        (row, col): {row * cols + col, (row + 1) * cols + col}
        | {down + row * (cols + 1) + col, down + row * (cols + 1) + col + 1}
        for row in range(rows)
        for col in range(cols)
    }


def dots_facts(game: str, history: list[int]) -> tuple[dict, int]:
    "The owners of the boxes, and whose turn it is."
    params = load_game(game).get_parameters()
    sides, owners, drawn, turn = box_sides(params["num_rows"], params["num_cols"]), {}, set(), 0
    for line in history:
        drawn.add(line)
        closed = [box for box in sides if box not in owners and sides[box] <= drawn]
        owners |= dict.fromkeys(closed, "xo"[turn])
        turn = turn if closed else 1 - turn
    return owners, turn


def dots_drawing(rows: int, cols: int, history: list[int], owners: dict) -> list[list[str]]:
    "Dots, lines and boxes where they should stand."
    drawing = [["+"] * (2 * cols + 1) for _ in range(2 * rows + 1)]
    for (row, col), (above, below, left, right) in [(k, sorted(v)) for k, v in box_sides(rows, cols).items()]:
        y, x = 2 * row + 1, 2 * col + 1
        drawing[y][x] = owners.get((row, col), ".")
        for dy, dx, line in [(-1, 0, above), (1, 0, below), (0, -1, left), (0, 1, right)]:
            drawing[y + dy][x + dx] = str(line) if line not in history else "-" if dy else "|"
    return drawing


@pytest.mark.parametrize("game", DOTS)
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_dots_and_boxes_is_played_as_told(game, seed):
    params, states = load_game(game).get_parameters(), play(game, seed)
    rows, cols = params["num_rows"], params["num_cols"]
    for state in states[:-1]:
        (_, lines, drawn), player = told(state), state.current_player()
        owners, turn = dots_facts(game, state.history())
        assert turn == player
        assert [row.split() for row in drawn] == dots_drawing(rows, cols, state.history(), owners)
        mine, theirs = (list(owners.values()).count(mark) for mark in ("xo"[player], "ox"[player]))
        assert lines["Boxes"] == f"you {mine}, they {theirs}, open {rows * cols - mine - theirs}"
    owners, _ = dots_facts(game, states[-1].history())
    difference = list(owners.values()).count("x") - list(owners.values()).count("o")
    expected = difference if params["utility_margin"] else (difference > 0) - (difference < 0)
    assert len(owners) == rows * cols and states[-1].returns() == [expected, -expected]


def test_a_dots_and_boxes_prompt_is_lines_owners_and_player():
    keys = []
    for state in all_states("dots_and_boxes(num_cols=2,num_rows=1)", depth=5):
        owners, player = dots_facts("dots_and_boxes(num_cols=2,num_rows=1)", state.history())
        fact = (frozenset(state.history()), tuple(sorted(owners.items())), player)
        keys.append((fact, told(state)[0]))
    assert_one_prompt_for_each(keys)


# Quoridor


class Walls:
    "A board of quoridor: squares are (column, row), a wall is its square and v or h."

    def __init__(self, size: int):
        self.size, self.walls = size, set()
        middle = size // 2
        self.pawns = [(middle, size - 1), (middle, 0)]

    def blocked(self) -> set:
        "The pairs of neighbouring squares with a wall between them."
        pairs = set()
        for (col, row), way in self.walls:
            for n in (0, 1):
                here = (col, row + n) if way == "v" else (col + n, row)
                pairs.add((here, (here[0] + 1, here[1]) if way == "v" else (here[0], here[1] + 1)))
        return pairs | {(b, a) for a, b in pairs}

    def steps(self, square: tuple, blocked: set) -> list[tuple]:
        "The squares next to one, without a wall between."
        ways = [(square[0] + right, square[1] + down) for right, down in ((0, 1), (0, -1), (1, 0), (-1, 0))]
        return [w for w in ways if min(w) >= 0 and max(w) < self.size and (square, w) not in blocked]

    def pawn_moves(self, player: int) -> set[tuple]:
        "Steps, and jumps over the other pawn: straight on, or to the side where that is not possible."
        blocked, (me, other) = self.blocked(), (self.pawns[player], self.pawns[1 - player])
        moves = set(self.steps(me, blocked))
        if other in moves:
            beyond = (2 * other[0] - me[0], 2 * other[1] - me[1])
            after = set(self.steps(other, blocked)) - {me}
            moves = moves - {other} | ({beyond} if beyond in after else after)
        return moves

    def open(self) -> bool:
        "Whether each pawn has a way to its goal."
        blocked = self.blocked()
        for pawn, goal in zip(self.pawns, (0, self.size - 1)):
            reached, todo = {pawn}, [pawn]
            while todo:
                new = set(self.steps(todo.pop(), blocked)) - reached
                reached |= new
                todo += new
            if all(row != goal for _, row in reached):
                return False
        return True

    def wall_moves(self) -> set:
        "The walls that overlap no wall, cross none, and leave both ways open."
        moves, standing = set(), set(self.walls)
        for col, row, way in itertools.product(range(self.size - 1), range(self.size - 1), "vh"):
            near = {((col, row + n), way) if way == "v" else ((col + n, row), way) for n in (-1, 0, 1)}
            if not standing & {*near, ((col, row), "v"), ((col, row), "h")}:
                self.walls.add(((col, row), way))
                if self.open():
                    moves.add(((col, row), way))
                self.walls = set(standing)
        return moves

    def play(self, player: int, name: str) -> None:
        "Make the move with this name."
        square = (ord(name[0]) - ord("a"), int(name[1:].rstrip("vh")) - 1)
        if name[-1] in "vh":
            self.walls.add((square, name[-1]))
        else:
            self.pawns[player] = square

    def drawing(self) -> list[str]:
        "The board as it should be drawn."
        signs = [[" "] * (4 * self.size + 1) for _ in range(2 * self.size - 1)]
        for row, col in itertools.product(range(self.size), repeat=2):
            signs[2 * row][4 * col + 3] = "."
        for (col, row), mark in zip(self.pawns, "xo"):
            signs[2 * row][4 * col + 3] = mark
        for (col, row), (right, below) in self.blocked():
            if right > col:
                signs[2 * row][4 * col + 5] = "|"
            if below > row:
                signs[2 * row + 1][4 * col + 2 : 4 * col + 5] = "---"
        for (col, row), _ in self.walls:
            signs[2 * row + 1][4 * col + 5] = "+"
        for row in range(self.size):
            signs[2 * row][:2] = f"{row + 1:2}"
        return ["".join(line).rstrip() for line in signs]


def name_of(square: tuple) -> str:
    "A square by its letter and number."
    return f"{chr(ord('a') + square[0])}{square[1] + 1}"


@pytest.mark.parametrize("game", QUORIDOR)
@given(seed=SEEDS)
@settings(max_examples=12, deadline=None)
def test_quoridor_is_played_as_told(game, seed):
    params, limit = load_game(game).get_parameters(), load_game(game).max_game_length()
    board, left = Walls(params["board_size"]), [params["wall_count"]] * 2
    states = play(game, seed)
    for turn, (state, after) in enumerate(itertools.pairwise(states)):
        (observation, lines, drawn), player = told(state), state.current_player()
        assert player == turn % 2 and int(lines["Moves left"]) == limit - turn > 0
        assert (
            lines["Pawns"] == f"you {name_of(board.pawns[player])}, they {name_of(board.pawns[1 - player])}"
        )
        assert lines["Walls left"] == f"you {left[player]}, they {left[1 - player]}"
        assert drawn[0].split() == [name_of((col, 0))[0] for col in range(board.size)]
        assert drawn[1:] == board.drawing()
        names = set(observation.legal.values())
        pawn = {name for name in names if name[-1] not in "vh"}
        assert pawn == {name_of(square) for square in board.pawn_moves(player)}
        if left[player] == 0 or board.size < 5 or turn % 9 == 0:  # searching all ways is slow
            walls = board.wall_moves() if left[player] else set()
            assert names - pawn == {f"{name_of(square)}{way}" for square, way in walls}
        name = observation.legal[after.history()[-1]]
        board.play(player, name)
        left[player] -= name[-1] in "vh"
    won = [board.pawns[0][1] == 0, board.pawns[1][1] == board.size - 1]
    expected = [0, 0] if len(states) - 1 == limit else [won[0] - won[1], won[1] - won[0]]
    assert states[-1].returns() == expected and (any(won) or len(states) - 1 == limit)


def test_a_quoridor_prompt_is_pawns_walls_and_moves_left():
    keys = []
    for state in all_states("quoridor(board_size=3,wall_count=2)", depth=3):
        board, left, replay = (
            Walls(3),
            [2, 2],
            load_game("quoridor(board_size=3,wall_count=2)").new_initial_state(),
        )
        for turn, action in enumerate(state.history()):
            name = replay.action_to_string(turn % 2, action)
            replay.apply_action(action)
            board.play(turn % 2, name)
            left[turn % 2] -= name[-1] in "vh"
        fact = (tuple(board.pawns), frozenset(board.walls), tuple(left), len(state.history()))
        keys.append((fact, told(state)[0]))
    assert_one_prompt_for_each(keys)


# Off the catalogue


@pytest.mark.parametrize(
    "game, words",
    [
        ("go(board_size=9,komi=7.0)", "o gets 7 points more. More points win; equally many are a draw."),
        ("go(board_size=9,komi=-0.5)", "o gets -0.5 points more. More points win. "),
        ("dots_and_boxes(utility_margin=True)", "Your result is the number of your boxes minus"),
        ("phantom_ttt(gameversion=abrupt)", "your turn is over, too"),
        ("quoridor(board_size=10)", "x starts on f10 and wins by reaching row 1; o starts on f1"),
    ],
)
def test_other_variants_are_told_as_they_are(game, words):
    assert words in observe(load_game(game).new_initial_state(), 0).messages[0]["content"]
