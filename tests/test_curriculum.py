"The curriculum: rules of advancing and replaying, and a state that survives JSON at any moment."

import json
import random
from collections import Counter

import pytest

from gamerl.curriculum import Curriculum, FailureBuffer, Stage, blocks, draw_id, parse_source
from gamerl.environment import GameEnv
from gamerl.tasks import Task, decode_task_id

EASY = Stage("easy", ("tic_tac_toe", "hex(board_size=3)"))
WIDE = Stage("wide", ("0-999M", 2600000007, "kuhn_poker"))
HARD = Stage("hard", ("hex(board_size=4)",), opponent="mcts:10", threshold=0.4)


def live(ladder, rng, games, batch=7):
    "Pretend to play `games` games, `batch` at a time; everything that was drawn and decided."
    log = []
    for _ in range(games // batch):
        for task in [ladder.sample(rng) for _ in range(batch)]:
            score = rng.choice([0.0, 0.4, 0.5, 0.9, 1.0, 1.0])
            log.append((task, ladder.record(task, score, score > 0.5)))
    return log


def copy_of(rng):
    "A generator in the same state."
    other = random.Random()
    other.setstate(rng.getstate())
    return other


# serialisation


@pytest.mark.parametrize("games", [0, 7, 70, 350, 1400])
@pytest.mark.parametrize("under_way", [0, 5])
@pytest.mark.parametrize(
    "options", [{}, {"count_replays": True, "failure_prob": 0.8}, {"buffer_size": 5, "rehearsal_prob": 0.4}]
)
def test_a_copy_has_the_same_future(games, under_way, options):
    options = dict(window=30, threshold=0.55) | options
    ladder, rng = Curriculum([EASY, WIDE, HARD], **options), random.Random(games)
    live(ladder, rng, games)
    waiting = [ladder.sample(rng) for _ in range(under_way)]
    text = json.dumps(ladder.state_dict())
    copy, same = Curriculum([EASY, WIDE, HARD], **options), copy_of(rng)
    copy.load_state_dict(json.loads(text))
    assert json.dumps(copy.state_dict()) == text
    for task in waiting:
        assert ladder.record(task, 0.2, False) == copy.record(task, 0.2, False)
    assert live(ladder, rng, 700) == live(copy, same, 700)
    assert ladder.state_dict() == copy.state_dict()


def test_loading_replaces_everything():
    used, fresh = Curriculum([EASY, HARD], window=10), Curriculum([EASY, HARD], window=10)
    live(used, random.Random(0), 200)
    used.load_state_dict(fresh.state_dict())
    assert used.state_dict() == fresh.state_dict()
    assert live(used, random.Random(1), 200) == live(fresh, random.Random(1), 200)


def test_a_state_of_another_ladder_is_refused():
    state = Curriculum([EASY, HARD]).state_dict()
    with pytest.raises(ValueError, match="'easy'"):
        Curriculum([HARD, EASY]).load_state_dict(state)
    with pytest.raises(ValueError, match="saved stage 2"):
        Curriculum([EASY]).load_state_dict(state | {"number": 2, "stage": "hard"})


# advancing


def test_three_stages_in_a_row():
    ladder, rng = Curriculum([EASY, WIDE, HARD], window=100, threshold=0.7), random.Random(0)
    changes = {}
    for n in range(500):
        if change := ladder.record(ladder.sample(rng), 1.0, True):
            changes[n] = (change.number, change.old.name, change.new.name, change.success_rate)
    assert changes == {99: (2, "easy", "wide", 1.0), 199: (3, "wide", "hard", 1.0)}
    assert ladder.stage is HARD and ladder.done and ladder.episodes == 500


def test_the_threshold_is_reached_by_equality_and_only_with_a_full_window():
    for wins, advanced in [(69, False), (70, True)]:
        ladder = Curriculum([EASY, HARD], failure_prob=0.0)
        results = [False] * (100 - wins) + [True] * wins
        changes = [ladder.record(Task("tic_tac_toe", seed=i), float(r), r) for i, r in enumerate(results)]
        assert not any(changes[:99])
        assert bool(changes[99]) == advanced


def test_a_stage_may_have_its_own_threshold():
    ladder = Curriculum([Stage("own", ("tic_tac_toe",), threshold=0.5), HARD], window=4, threshold=1.0)
    for i, win in enumerate((True, False, True, False)):
        ladder.record(Task("tic_tac_toe", seed=i), float(win), win)
    assert ladder.number == 2


def test_games_under_way_do_not_count_for_the_next_stage():
    ladder, rng = Curriculum([EASY, HARD], window=10, failure_prob=0.0), random.Random(0)
    for task in [ladder.sample(rng) for _ in range(32)]:
        ladder.record(task, 1.0, True)
    assert (ladder.number, ladder.success_rate, ladder.state_dict()["results"]) == (2, 0.0, [])
    ladder.record(ladder.sample(rng), 0.0, False)
    assert ladder.state_dict()["results"] == [0]


def test_results_without_draws_count_too():
    ladder = Curriculum([EASY, HARD], window=10)
    for i in range(20):
        ladder.record(Task("tic_tac_toe", seed=i), 1.0, True)
    assert (ladder.number, ladder.success_rate, ladder.done) == (2, 1.0, True)


# replays


def test_a_failure_comes_back_until_it_is_won():
    ladder, rng = Curriculum([EASY], failure_prob=1.0), random.Random(0)
    lost = ladder.sample(rng)
    ladder.record(lost, 0.0, False)
    for _ in range(5):
        assert ladder.sample(rng) == lost
        ladder.record(lost, 0.3, False)
    assert ladder.sample(rng) == lost
    ladder.record(lost, 1.0, True)
    assert len(ladder.failures) == 0 and ladder.sample(rng) != lost


def test_twins_of_a_replay_are_replays_even_after_the_first_was_won():
    ladder, rng = Curriculum([EASY, HARD], window=50, failure_prob=1.0), random.Random(0)
    lost = ladder.sample(rng)
    ladder.record(lost, 0.0, False)
    twins = [ladder.sample(rng) for _ in range(8)]
    assert set(twins) == {lost}
    for task in twins:
        ladder.record(task, 1.0, True)
    assert ladder.state_dict()["results"] == [0]


@pytest.mark.parametrize("opponent", ["random", "mcts:10", "self"])
def test_a_replay_is_the_same_position(opponent):
    ladder, rng = Curriculum([Stage("one", ("leduc_poker",), opponent)], failure_prob=1.0), random.Random(1)
    lost = ladder.sample(rng)
    ladder.record(lost, 0.0, False)
    again = Task.from_json(json.loads(json.dumps(ladder.sample(rng).to_json())))
    assert again == lost
    first, second = GameEnv().reset(lost), GameEnv().reset(again)
    assert (first.messages, first.player) == (second.messages, second.player)


def test_the_share_of_replays():
    for share in (0.0, 0.3, 1.0):
        ladder, rng = Curriculum([EASY], failure_prob=share), random.Random(0)
        for i in range(10):
            ladder.record(Task("tic_tac_toe", seed=i), 0.0, False)
        replays = sum(ladder.sample(rng).seed < 10 for _ in range(3000))
        assert replays / 3000 == pytest.approx(share, abs=0.03)


def test_draws_follow_the_priorities():
    buffer, rng = FailureBuffer(), random.Random(0)
    for i in range(5):
        buffer.add(Task("tic_tac_toe", seed=i), i / 5)
    draws = Counter(buffer.sample(rng).seed for _ in range(15_000))
    for i in range(5):
        assert draws[i] / 15_000 == pytest.approx((5 - i) / 15, abs=0.02)


def test_a_full_buffer_keeps_the_worst():
    buffer, rng = FailureBuffer(50), random.Random(0)
    scores = {Task("tic_tac_toe", seed=i): rng.random() for i in range(500)}
    for task, score in scores.items():
        buffer.add(task, score)
    assert set(buffer.scores) == set(sorted(scores, key=scores.get)[:50])


def test_among_equals_the_oldest_leaves():
    buffer = FailureBuffer(3)
    for i in range(10):
        buffer.add(Task("tic_tac_toe", seed=i), 0.0)
    assert [task.seed for task in buffer.scores] == [7, 8, 9]


# drawing tasks


def test_the_same_generator_draws_the_same_tasks():
    first, second = (Curriculum([WIDE]) for _ in range(2))
    rngs = random.Random(4), random.Random(4)
    assert [first.sample(rngs[0]) for _ in range(200)] == [second.sample(rngs[1]) for _ in range(200)]


def test_both_seats_come_up_equally_often_and_seeds_are_fresh():
    ladder, rng = Curriculum([EASY]), random.Random(0)
    tasks = [ladder.sample(rng) for _ in range(2000)]
    assert sum(task.player for task in tasks) / 2000 == pytest.approx(0.5, abs=0.04)
    assert len({task.seed for task in tasks}) == 2000
    assert all(0 <= task.seed < 2**63 for task in tasks)


def test_ranges_draw_only_allowed_games():
    ladder = Curriculum([Stage("wide", ("0-2999M",))], allowed_game_indices=[0, 1, 2, 6, 7])
    rng = random.Random(0)
    games = Counter(ladder.sample(rng).game.split("(")[0] for _ in range(2000))
    assert set(games) == {"goofspiel", "liars_dice", "leduc_poker", "hex", "clobber"}
    assert min(games.values()) > 300  # 5 of the first 22 indices and 5 of the next 8


def test_every_allowed_id_of_a_range_can_be_drawn():
    ids, allowed = range(199_999_998, 600_000_002), frozenset({1, 6})
    assert blocks(ids, allowed) == (range(199_999_998, 200_000_000), range(600_000_000, 600_000_002))
    drawn = Counter(draw_id(ids, allowed, random.Random(i)) for i in range(400))
    assert {decode_task_id(task_id).game for task_id in drawn} == {"liars_dice", "hex"}
    assert len(drawn) == 4 and min(drawn.values()) > 60


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curriculum([]), "stages"),
        (lambda: Curriculum([EASY], window=0), "window: 0"),
        (lambda: Curriculum([EASY], threshold=70), "threshold: 70"),
        (lambda: Curriculum([EASY], failure_prob=-0.1), "failure_prob: -0.1"),
        (lambda: Curriculum([EASY], buffer_size=0), "buffer_size: 0"),
        (lambda: Curriculum([EASY], allowed_game_indices=[22]), "allowed_game_indices: 22"),
        (lambda: Curriculum([Stage("s", ("0-99M",))], allowed_game_indices=[5]), r"no game of \[5\]"),
        (lambda: Curriculum([Stage("s", ("0-999M",), "ismcts:5")]), "ismcts:5"),
        (lambda: Stage("s", ()), "has none"),
        (lambda: Stage("s", ("hex",), "mtcs"), "mtcs"),
        (lambda: Stage("s", (-5,)), "-5"),
        (lambda: Stage("s", ("-5",)), "-5"),
        (lambda: Stage("s", (None,)), "None"),
        (lambda: Stage("s", ("9-3",)), "must rise"),
        (lambda: parse_source("0-1000000M"), "10.12"),
        (lambda: FailureBuffer().add(Task("hex"), 1.0), "score: 1"),
        (lambda: FailureBuffer().add(Task("hex"), float("nan")), "score: nan"),
    ],
)
def test_mistakes_are_named_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
