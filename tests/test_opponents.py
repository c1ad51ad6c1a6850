"The other seats: fair search, sure play, solved games, strangers on a network, several at one table."

import json
import random
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pyspiel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gamerl.endpoint
from gamerl.curriculum import Curriculum, Stage
from gamerl.environment import GameEnv
from gamerl.matches import play_match
from gamerl.opponents import make_opponent, resolve_opponent, resolve_opponents
from gamerl.options import Config
from gamerl.rollouts import UniformPlayer, play_games
from gamerl.search import MinimaxBot, in_turns
from gamerl.solvers import cache_folder, solve
from gamerl.tasks import Task, load_game
from gamerl.training import PPOTrainer
from gamerl.worlds import Determiniser, is_sound, memory

# fair search

HIDDEN = (
    "kuhn_poker",
    "kuhn_poker(players=3)",
    "leduc_poker",
    "liars_dice(numdice=2)",
    "phantom_ttt",
    "phantom_ttt(obstype=reveal-numturns)",
    "hearts",
    "euchre",
    "gin_rummy",
    "turn_based_simultaneous_game(game=goofspiel(num_cards=5,points_order=random))",
    "dark_hex(board_size=3)",
)


def random_decision(name, seed, moves):
    "A position in which a player is to move, after at most so many random moves."
    rng, state = random.Random(seed), load_game(name).new_initial_state()
    found = None
    while not state.is_terminal() and moves >= 0:
        if not state.is_chance_node():
            found, moves = state.clone(), moves - 1
        state.apply_action(rng.choice(state.legal_actions()))
    return found


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(HIDDEN), seed=st.integers(0, 10**6), moves=st.integers(0, 40))
def test_an_imagined_world_is_one_that_the_seat_could_not_tell_apart(name, seed, moves):
    state = random_decision(name, seed, moves)
    player = state.current_player()
    world = Determiniser(random.Random(seed))(state, player)
    assert is_sound(world) and world.current_player() == player
    assert world.legal_actions() == state.legal_actions()
    if name not in ("hearts", "euchre", "gin_rummy"):  # OpenSpiel deals one's own cards in another order
        assert memory(world, player) == memory(state, player)


@pytest.mark.parametrize("name", HIDDEN)
def test_fair_search_does_not_depend_on_what_is_hidden(name):
    game, changed = load_game(name), 0
    for seed in range(4):
        state = random_decision(name, seed, 3 + 4 * seed)
        player = state.current_player()
        other = Determiniser(random.Random(seed))(state, player)
        changed += str(other) != str(state)
        choices = [
            make_opponent("ismcts:10", game, player, random.Random(7))[0].step(position)
            for position in (state, other)
        ]
        assert choices[0] == choices[1]
    assert changed  # else nothing was shown


def test_the_proof_would_catch_a_cheat():
    "With the middle card, a search on the true state folds to the high card and calls the low one."
    game, answers = load_game("kuhn_poker"), []
    for other in (0, 2):
        state = game.new_initial_state()
        for action in (other, 1, 1):
            state.apply_action(action)
        answers.append(make_opponent("mcts:200", game, 1, random.Random(0))[0].step(state))
    assert answers == [1, 0]


def test_fair_search_in_simultaneous_moves_with_hidden_bids():
    name = "goofspiel(num_cards=5,imp_info=True,points_order=descending)"
    game, changed = load_game(name), 0
    for seed in range(6):
        state, rng = game.new_initial_state(), random.Random(seed)
        for _ in range(2):
            state.apply_actions([rng.choice(state.legal_actions(player)) for player in (0, 1)])
        for player in (0, 1):
            turns = Determiniser(random.Random(seed))(in_turns(state, player), player)
            bids, twin = turns.history()[:4], game.new_initial_state()
            twin.apply_actions(bids[:2])
            twin.apply_actions(bids[2:])
            changed += twin.history() != state.history()
            bots = [make_opponent("ismcts:20", game, player, random.Random(7)) for _ in range(2)]
            assert bots[0][1] == "ismcts:20"
            assert bots[0][0].step(state) == bots[1][0].step(twin)
    assert changed


@pytest.mark.parametrize("game", ["liars_dice", "phantom_ttt", "hearts", "goofspiel", "euchre"])
def test_fair_search_sits_at_the_table(game):
    task = Task(game, seed=3, opponent="ismcts:3")
    first, again = (play_games([task], UniformPlayer())[0].episode for _ in range(2))
    assert first == again and first.opponent_played == "ismcts:3" and not first.failed


def test_more_thought_is_worth_something():
    match = play_match(UniformPlayer(), "liars_dice(numdice=1)", "ismcts:50", 100)
    assert match.win_interval[1] < 0.5


# sure play


def worst_results(state, seat, bot):
    "The results of all lines of play against a bot."
    if state.is_terminal():
        return {state.player_return(seat)}
    actions = [bot.step(state)] if state.current_player() == seat else state.legal_actions()
    return set().union(*(worst_results(state.child(action), seat, bot) for action in actions))


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_minimax_never_loses_tic_tac_toe(seat, seed):
    bot = MinimaxBot(None, random.Random(seed))
    results = worst_results(load_game("tic_tac_toe").new_initial_state(), seat, bot)
    assert results <= {0.0, 1.0} and 1.0 in results


def lost_to(word):
    "How many of forty games on a small board random play loses to an opponent that begins."
    games = play_games([Task("hex(board_size=3)", seed, 1, word) for seed in range(40)], UniformPlayer())
    return sum(game.episode.score < 0.5 for game in games)


def test_a_depth_is_kept():
    assert lost_to("minimax:1") < lost_to("minimax:3") == 40


@pytest.mark.parametrize(
    ("word", "game", "reason"),
    [
        ("minimax", "backgammon", "dice"),
        ("minimax", "kuhn_poker", "hides"),
        ("minimax", "goofspiel", "hides"),
        ("cfr", "liars_dice", "100,000"),
        ("cfr", "tic_tac_toe", "too big"),
        ("cfr:10", "goofspiel", "simultaneous"),
        ("ismcts", "chess", "hides nothing"),
        ("mcts", "cribbage", "before its end"),
        ("random,self", "leduc_poker", "1 other seats"),
        ("endpoint:m", "hex", "endpoint:<model>@<address>"),
        ("checkpoint:", "hex", "checkpoint:<folder>"),
    ],
)
def test_refusals_are_one_line(word, game, reason):
    with pytest.raises(ValueError, match=reason) as error:
        resolve_opponents(word, load_game(game))
    assert "\n" not in str(error.value) and word.split(",")[0] in str(error.value)


# solved games

SOLVE = "from gamerl.solvers import solve; print(len(solve('kuhn_poker(players=3)', 30)))"


def test_many_processes_solve_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runs = [subprocess.Popen([sys.executable, "-c", SOLVE], stdout=subprocess.PIPE) for _ in range(3)]
    said = {run.communicate(timeout=120)[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0] and said == {b"48\n"}
    assert [path.suffix for path in cache_folder().iterdir()] == [".json"]
    kept = next(cache_folder().iterdir())
    before = kept.stat().st_mtime_ns
    assert len(solve("kuhn_poker(players=3)", 30)) == 48 and kept.stat().st_mtime_ns == before


def test_a_solved_game_is_hard_to_exploit(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    game = load_game("kuhn_poker")
    strategy = {told: list(map(tuple, moves)) for told, moves in solve("kuhn_poker", 100).items()}
    assert pyspiel.nash_conv(game, pyspiel.TabularPolicy(strategy), True) < 0.01
    episodes = play_games([Task("kuhn_poker", n, opponent="cfr:100") for n in range(50)], UniformPlayer())
    assert {game.episode.opponent_played for game in episodes} == {"cfr:100"}


# strangers on a network


class Server:
    "An endpoint that answers with the first legal move, until it breaks."

    def __init__(self, working_calls=10**6, status=500, body=None, kind="application/json"):
        self.calls = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler):
                asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                self.calls.append((asked, handler.headers["Authorization"]))
                handler.send_response(200 if len(self.calls) <= working_calls else status)
                handler.send_header("Content-Type", kind)
                handler.end_headers()
                if body is not None:
                    handler.wfile.write(body)
                    return
                message = {"role": "assistant", "content": "<think>0 or 1?</think>0"}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                told = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
                handler.wfile.write(json.dumps(told | {"choices": [choice]}).encode())

            def log_message(handler, *args):
                "Quiet."

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.word = f"endpoint:some/model@http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def impatient(monkeypatch):
    "One attempt at each call."
    monkeypatch.setattr(gamerl.endpoint, "CALLS", 1)


def nobody():
    "The word for an address at which nobody listens."
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"endpoint:m@http://127.0.0.1:{free.getsockname()[1]}/v1"


def test_an_endpoint_plays(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    monkeypatch.setenv("GAMERL_ENDPOINT_KEY", "ours")
    server = Server()
    task = Task("kuhn_poker", seed=1, seat=1, opponent=server.word)
    episode = play_games([task], UniformPlayer(), threads=2)[0].episode
    assert episode.failed is None and episode.opponent_played == server.word
    assert all(action == 0 for player, action in episode.moves if player == 0)
    asked, key = server.calls[0]
    assert asked["model"] == "some/model" and key == "Bearer ours"
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]


def test_games_that_fail_are_left_out_and_counted(impatient):
    server = Server(working_calls=50)
    match = play_match(UniformPlayer(), "kuhn_poker", server.word, 40)
    assert 0 < match.games < 40 and match.failed > 0
    assert len(match.scores) == match.games / 2
    with pytest.raises(ValueError, match="did not answer"):
        play_match(UniformPlayer(), "kuhn_poker", nobody(), 4)


def test_an_answer_that_is_no_move_fails_after_reminders():
    server = Server()
    task = Task("tic_tac_toe", seed=0, seat=0, opponent=server.word)
    env = GameEnv()
    env.reset(task)
    env.step(0)  # the only square that the endpoint ever names
    assert env.episode.scores == () and "no legal move" in env.episode.failed
    assert [len(asked["messages"]) for asked, _ in server.calls] == [2, 4, 6]
    assert env.episode.to_json()["score"] is None


def test_training_goes_on_without_failed_games(impatient, tmp_path):
    options = {"model": {"model_name": "tiny"}, "run": {"output_dir": str(tmp_path)}}
    ppo = {"batch_size": 8, "mini_batch_size": 8, "ppo_epochs": 1}
    stages = [{"tasks": ["kuhn_poker"], "opponent": Server(working_calls=3, status=401).word, "threshold": 1}]
    curriculum = {"stages": stages, "failure_replay_prob": 0}
    env = {"search_threads": 1}
    model = options["model"] | {"use_4bit": False, "gradient_checkpointing": False}
    config = Config(**options | {"model": model, "ppo": ppo, "curriculum": curriculum, "env": env})
    trainer = PPOTrainer(config)
    metrics, _ = trainer.step()
    assert 0 < metrics["failed"] < 8 and metrics["episodes"] == 8 - metrics["failed"]
    with pytest.raises(ValueError, match="no game of step 1 could be finished"):
        trainer.step()


def test_a_failed_game_leaves_the_curriculum_as_it_was():
    stages = [Stage("one", ("kuhn_poker",), threshold=1.0), Stage("two", ("leduc_poker",))]
    curriculum, rng = Curriculum(stages, window=2, failure_prob=0.0), random.Random(0)
    tasks = [curriculum.sample(rng) for _ in range(4)]
    curriculum.record(tasks[0], 1.0, True)
    curriculum.drop(tasks[1])
    assert (curriculum.episodes, curriculum.number) == (1, 1)
    assert curriculum.record(tasks[2], 1.0, True).number == 2
    assert curriculum.state_dict()["late"] == 1


# several at one table


def test_each_seat_has_its_own_opponent():
    words = ["mcts:2", "random", "self"]
    for seat in range(4):
        episode = play_games([Task("euchre", 5, seat, words)], UniformPlayer())[0].episode
        assert episode.opponent_played == "mcts:2,random,self"
    played = play_games([Task("euchre", 5, 1, words)], UniformPlayer())[0]
    assert {decision.observation.player for decision in played.decisions} == {
        1,
        3,
    }  # the learner, and the last of the other seats 0, 2, 3


def test_lists_commas_and_json_say_the_same():
    listed, written = ["random", "self", "mcts:2"], "random,self,mcts:2"
    assert Task("hearts", opponent=listed) == Task("hearts", opponent=written)
    assert (
        Task.from_json(json.loads(json.dumps(Task("hearts", opponent=listed).to_json()))).opponent == written
    )
    assert Task.from_json({"game": "hearts", "opponent": "random"}) == Task("hearts")
    assert Config(env={"opponent": listed}).env.opponent == written
    stage = {"tasks": ["hearts"], "opponent": listed}
    config = Config(curriculum={"stages": [stage]})
    assert Config.model_validate_json(config.to_json()) == config
    assert config.stages[0].opponent == Stage("", ("hearts",), listed).opponent == written


# the learner and the search at the same time


class SlowEnv(GameEnv):
    "Its opponents think for a while."

    def step(self, reply):
        time.sleep(0.004)
        return super().step(reply)


class SlowPlayer(UniformPlayer):
    "Needs the same time for each question."

    def probs(self, observations):
        time.sleep(0.004 * len(observations))
        return super().probs(observations)


def seconds(player, env):
    "How long 32 games take with one search thread."
    tasks = [Task("hex(board_size=3)", n, 0, "mcts:1") for n in range(32)]
    started = time.perf_counter()
    play_games(tasks, player, make_env=env)
    return time.perf_counter() - started


def test_search_runs_beside_the_learner():
    search, learner = seconds(UniformPlayer(), SlowEnv), seconds(SlowPlayer(), GameEnv)
    assert seconds(SlowPlayer(), SlowEnv) < 0.8 * (search + learner)


def test_an_unknown_word_names_what_is_known():
    with pytest.raises(ValueError, match="allowed are random; mcts") as error:
        resolve_opponent("alphazero", load_game("hex"))
    assert "minimax" in str(error.value) and "cfr" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>Welcome!</html>", "text/html"),
        (b'{"choices": [{"message": "hello"}]}', "application/json"),
        (b'{"choices": []}', "application/json"),
        (b"[1, 2]", "application/json"),
    ],
)
def test_an_answer_that_is_no_chat_is_no_move(body, kind):
    server = Server(body=body, kind=kind)
    env = GameEnv()
    env.reset(Task("tic_tac_toe", seed=0, seat=1, opponent=server.word))
    assert env.episode.failed.endswith("named no legal move: the reply is empty")
    assert "\n" not in env.episode.failed
