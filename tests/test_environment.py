"The environment: repeatable in any order, thread and process; scores; every game of the catalogue."

import hashlib
import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gamerl.environment import GameEnv, score_of
from gamerl.tasks import CATALOGUE, Task, encode_task_id, load_game


def play(task, env=None, seed=0):
    "Play a task to its end with random moves drawn from `seed`."
    env, rng = env or GameEnv(), random.Random(seed)
    observation = env.reset(task)
    while observation is not None:
        observation = env.step(rng.choice(list(observation.legal))).observation
    return env.episode


def line(episode):
    "An episode as bytes."
    return json.dumps(episode.to_json(), sort_keys=True).encode()


MIXED = [
    Task(game, seed, opponent=opponent)
    for game, opponent in [
        ("leduc_poker", "random"),
        ("leduc_poker", "mcts:5x2"),
        ("leduc_poker", "ismcts:5"),
        ("kuhn_poker(players=3)", "self"),
        ("liars_dice(numdice=1)", "mcts:5"),
        ("hex(board_size=3)", "mcts:10"),
        ("goofspiel(num_cards=5)", "random"),
        ("goofspiel(num_cards=5)", "self"),
        ("hearts", "random"),
        ("gin_rummy", "snapshot"),
        ("blackjack", "random"),
        ("backgammon", "random"),
    ]
    for seed in range(3)
]


# repeatability


def digest():
    "A fingerprint of all mixed episodes."
    env = GameEnv(max_turns=30)
    return hashlib.sha256(b"\n".join(line(play(task, env)) for task in MIXED)).hexdigest()


def test_order_does_not_matter():
    forwards = [line(play(task)) for task in MIXED]
    shuffled = random.Random(1).sample(range(len(MIXED)), len(MIXED))
    env, again = GameEnv(), {}
    for i in shuffled:
        again[i] = line(play(MIXED[i], env))
    assert [again[i] for i in range(len(MIXED))] == forwards


def test_threads_do_not_matter():
    forwards = [line(play(task)) for task in MIXED]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda task: line(play(task)), MIXED)) == forwards


def test_interleaved_games_do_not_matter():
    envs = [GameEnv() for _ in MIXED]
    rngs = [random.Random(0) for _ in MIXED]
    waiting = {i: env.reset(task) for i, (env, task) in enumerate(zip(envs, MIXED))}
    while waiting := {i: observation for i, observation in waiting.items() if observation is not None}:
        for i, observation in waiting.items():
            waiting[i] = envs[i].step(rngs[i].choice(list(observation.legal))).observation
    assert [line(env.episode) for env in envs] == [line(play(task)) for task in MIXED]


def test_processes_and_hash_seeds_do_not_matter():
    command = [sys.executable, "-c", "from test_environment import digest; print(digest())"]
    for hash_seed in ("0", "1", "random"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.path.dirname(__file__)}
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
        assert out.stdout.split() == [digest()]


def test_the_global_generator_is_neither_used_nor_moved():
    random.seed(5)
    before = random.getstate()
    first = [line(play(task)) for task in MIXED]
    assert random.getstate() == before
    random.seed(6)
    assert [line(play(task)) for task in MIXED] == first


def test_other_seeds_are_other_games():
    deals = {play(Task("leduc_poker", seed, 0)).actions[:2] for seed in range(200)}
    assert len(deals) == 6 * 5


def test_seats_and_opponents_share_the_deal():
    for seed in range(10):
        opponents = ("random", "mcts:3", "ismcts:3", "self", "snapshot")
        tasks = [Task("leduc_poker", seed, seat, opponent) for seat in (0, 1) for opponent in opponents]
        assert len({play(task).actions[:2] for task in tasks}) == 1


# scores


@pytest.mark.parametrize(
    ("game", "returns", "scores"),
    [
        ("tic_tac_toe", [1, -1], [1, 0]),
        ("tic_tac_toe", [0, 0], [0.5, 0.5]),
        ("leduc_poker", [-13, 13], [0, 1]),
        ("leduc_poker", [1, -1], [14 / 26, 12 / 26]),
        ("kuhn_poker(players=3)", [-1, 2, -1], [1 / 6, 4 / 6, 1 / 6]),  # zero-sum, from -2 to 4
        ("euchre", [2, -2, 2, -2], [0.75, 0.25, 0.75, 0.25]),
        ("hearts", [26, 26, 26, 0], [1, 1, 1, 0]),
        ("hearts", [10, 26, 26, 16], [0, 1, 1, 1 / 3]),
        ("bargaining", [7, 4], [1, 0]),
        ("bargaining", [5, 5], [0.5, 0.5]),
        ("2048", [20480], [1]),
        ("2048", [2048], [0.1]),
        ("blackjack", [0], [0.5]),
        ("blackjack", [-1], [0]),
    ],
)
def test_scores(game, returns, scores):
    found = [score_of(load_game(game), list(map(float, returns)), player) for player in range(len(returns))]
    assert found == pytest.approx(scores)


def test_the_last_reward_is_the_score_of_the_seat_that_replied():
    for task in MIXED:
        env, rng = GameEnv(), random.Random(0)
        observation, rewards = env.reset(task), []
        while observation is not None:
            player = observation.player
            step = env.step(rng.choice(list(observation.legal)))
            observation = step.observation
            rewards.append(step.reward)
        assert rewards[-1] == env.episode.scores[player]
        assert not any(rewards[:-1])
        assert step.terminated and not step.truncated


def test_success_needs_more_than_a_draw():
    draw = (0, 1, 2, 4, 3, 5, 7, 6, 8)
    env = GameEnv()
    assert env.reset(Task("tic_tac_toe", opening=draw)) is None
    assert (env.episode.score, env.episode.success) == (0.5, False)


# every game


@pytest.mark.parametrize("game", CATALOGUE, ids=lambda game: game.name)
def test_every_catalogue_game_can_be_played_from_every_seat(game):
    for config in range(len(game.variants)):
        task = Task.from_id(encode_task_id(game.index, config))
        for seat in range(load_game(task.game).num_players()):
            task = Task.from_id(task.task_id, seed=seat, seat=seat)
            episode = play(task, GameEnv(max_turns=40), seed=config)
            assert episode.terminated != episode.truncated
            assert all(0 <= score <= 1 for score in episode.scores)
            own = sum(player == seat for player, _ in episode.moves)
            assert own == 40 if episode.truncated else own <= 40
            assert episode.invalid_replies == 0


@pytest.mark.parametrize("opponent", ["mcts:2", "self", "snapshot"])
@pytest.mark.parametrize("index", range(len(CATALOGUE)), ids=lambda index: CATALOGUE[index].name)
def test_every_catalogue_game_accepts_the_opponents(index, opponent):
    task = Task.from_id(encode_task_id(index), seed=1, opponent=opponent)
    episode = play(
        task, GameEnv(max_turns=1 if task.game == "bridge" else 3)
    )  # its search takes seconds a move
    plays_random = CATALOGUE[index].mcts is None and opponent == "mcts:2"
    assert episode.opponent_played == ("random" if plays_random else opponent)


# replies


def test_a_turn_has_two_retries_and_then_the_game_is_lost():
    env = GameEnv()
    env.reset(Task("leduc_poker", seed=0))
    for attempt in range(2):
        step = env.step("no idea")
        assert step.error and not step.terminated and step.reward == 0
        roles = [message["role"] for message in step.observation.messages]
        assert roles == ["system", "user"] + ["assistant", "user"] * (attempt + 1)
    step = env.step("no idea")
    assert (step.observation, step.reward, step.terminated, step.truncated) == (None, 0.0, True, False)
    assert env.episode.forfeited and env.episode.scores == (0.0, 0.5) and env.episode.returns[0] == -13
    assert env.observation is None


def test_retries_are_counted_per_turn():
    env, rng = GameEnv(retries=1), random.Random(0)
    observation, turns = env.reset(Task("tic_tac_toe", seed=2)), 0
    while observation is not None:
        env.step("what?")
        turns += 1
        observation = env.step(str(rng.choice(list(observation.legal)))).observation
    assert not env.episode.forfeited and env.episode.invalid_replies == turns


def test_the_fields_of_a_forfeit_in_self_play():
    env = GameEnv(retries=0, invalid_penalty=0.5)
    env.reset(Task("kuhn_poker", opponent="self"))
    env.step("Pass")
    assert env.observation.player == 1
    assert env.step("").reward == -0.5
    assert env.episode.scores == (0.5, 0.0) and env.episode.returns == (0.0, -2.0)
    assert env.episode.moves == ((0, 0),)


def test_texts_and_ids_play_the_same_game():
    for task in MIXED[:9]:
        by_id, rng = play(task), random.Random(0)
        env = GameEnv()
        observation = env.reset(task)
        while observation is not None:
            observation = env.step(f" {rng.choice(list(observation.legal))}\n").observation
        assert line(env.episode) == line(by_id)


# simultaneous moves


def test_nobody_sees_a_choice_before_all_have_chosen():
    task = Task("goofspiel(num_cards=4)", seed=3, opponent="self")
    told = set()
    for bid in range(4):
        env = GameEnv()
        first = env.reset(task)
        second = env.step(bid).observation
        assert (first.player, second.player) == (0, 1)
        told.add((second.messages[-1]["content"], tuple(second.legal)))
    assert len(told) == 1


def test_both_seats_of_a_simultaneous_game_are_played():
    env = GameEnv()
    env.reset(Task("goofspiel(num_cards=3,points_order=descending)", opponent="self"))
    for bid in (2, 0, 1, 2):
        env.step(bid)
    assert env.episode.moves[:4] == ((0, 2), (1, 0), (0, 1), (1, 2))
    assert env.episode.scores == (0.5, 0.5)  # 3 points for seat 0, then 2 and 1 for seat 1


def test_a_bot_of_a_simultaneous_game_does_not_answer_the_learner():
    bids = []
    for bid in range(4):
        env = GameEnv()
        env.reset(Task("goofspiel(num_cards=4)", seed=3, seat=0))
        env.step(bid)
        while env.observation is not None:
            env.step(min(env.observation.legal))
        bids.append(next(action for player, action in env.episode.moves if player == 1))
    assert len(set(bids)) == 1


# endings and beginnings


def test_a_cut_game_is_truncated_and_keeps_its_last_position():
    for opponent in ("random", "self"):
        env = GameEnv(max_turns=4)
        episode = play(Task("chess", seed=1, opponent=opponent), env)
        assert (episode.terminated, episode.truncated) == (False, True)
        assert episode.scores == (0.5, 0.5) and not episode.success
        assert episode.final_observation.player == episode.task.player
    env = GameEnv(max_turns=1)
    env.reset(Task("chess"))
    step = env.step(min(env.observation.legal))
    assert (step.reward, step.terminated, step.truncated) == (0.0, False, True)


def test_a_limit_that_is_not_reached_changes_nothing():
    for task in MIXED:
        assert line(play(task, GameEnv(max_turns=10_000))) == line(play(task))
        assert play(task).final_observation is None


def test_a_simultaneous_game_is_cut_between_turns():
    for seat in (0, 1):
        episode = play(Task("goofspiel", 1, seat, "self"), GameEnv(max_turns=3))
        assert episode.truncated and len(episode.moves) == 6
        assert episode.final_observation.player == seat


def test_an_opening_is_replayed_exactly():
    for task in MIXED:
        game = play(task)
        root = load_game(task.game).new_initial_state()
        for n in cut_points(root, game.actions):
            again = Task(task.game, 99, task.seat, task.opponent, game.actions[:n])
            env = GameEnv(max_turns=5)
            env.reset(again)
            assert play(again, env).actions[:n] == game.actions[:n]


def cut_points(state, actions):
    "The lengths at which a game may be cut: never between two simultaneous choices; a dozen at most."
    points, n = [0], 0
    while n < len(actions):
        width = state.num_players() if state.is_simultaneous_node() else 1
        if width > 1:
            state.apply_actions(actions[n : n + width])
        else:
            state.apply_action(actions[n])
        points.append(n := n + width)
    return points[:: max(1, len(points) // 12)]


def test_a_finished_opening_leaves_nothing_to_answer():
    game = play(Task("leduc_poker", seed=1, opponent="self"))
    env = GameEnv()
    assert env.reset(Task("leduc_poker", opening=game.actions)) is None
    assert env.episode.returns == game.returns
    with pytest.raises(RuntimeError, match="no question"):
        env.step(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Task("tic_tac_toe", opening=(0, 0)), "opening"),
        (lambda: Task("goofspiel(num_cards=4)", opening=(0, 1)), "opening"),
        (lambda: GameEnv().reset(Task("hex", opponent="mtcs")), "mtcs"),
        (lambda: GameEnv().reset(Task("hex", opponent="ismcts:10")), "hides nothing"),
        (lambda: GameEnv().reset(Task("negotiation")), "repeated"),
        (lambda: GameEnv(retries=-1), "retries: -1"),
        (lambda: GameEnv(max_turns=0), "max_turns: 0"),
        (lambda: GameEnv(invalid_penalty=float("nan")), "invalid_penalty: nan"),
    ],
)
def test_mistakes_are_named_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
