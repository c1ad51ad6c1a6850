"The game server from outside: many games at once, bad requests, limits, lost answers, judged endpoints."

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import psutil
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse

from gamerl import calls
from gamerl.calls import Server, ServerError, knows_tasks
from gamerl.cli import main
from gamerl.config import load_config
from gamerl.environment import GameEnv
from gamerl.history import WithHistory
from gamerl.host import FINISHED_KEPT, Host
from gamerl.judge import DEFAULT_URL, Judge
from gamerl.remote import PlainGame, RemoteEnv
from gamerl.rollouts import UniformPlayer, play_games
from gamerl.server import create_app, serving
from gamerl.tasks import CONFIGS_PER_GAME, Task, catalogue_game
from gamerl.wire import episode_json, read_legal

CALL = "import sys; from gamerl.cli import main; sys.exit(main())"
MIXED = [
    Task(game, seed, opponent=opponent)
    for seed in range(8)
    for game, opponent in [
        ("leduc_poker", "random"),
        ("hex(board_size=3)", "mcts:10"),
        ("kuhn_poker(players=3)", "self"),
        ("goofspiel(num_cards=4)", "random"),
        ("hearts", "random"),
        ("liars_dice(numdice=2)", "mcts:5"),
        ("tic_tac_toe", "snapshot"),
        ("blackjack", "random"),
    ]
]


class Process:
    "`gamerl serve` on a free port."

    def __init__(self, *words: str):
        command = [sys.executable, "-c", CALL, "serve", "--port", "0", *words]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.popen.stdout.readline().split()[-1]

    def stop(self) -> tuple[int, str]:
        "Press Ctrl-C; the exit code and what was complained about."
        self.popen.send_signal(signal.SIGINT)
        _, err = self.popen.communicate(timeout=20)
        return self.popen.returncode, err


@pytest.fixture(scope="module")
def server():
    "One server for all tests."
    process = Process()
    yield process
    assert process.stop() == (130, "gamerl: stopped\n")


def post(url: str, path: str, **options) -> httpx.Response:
    "A call that may take a while on a busy machine."
    return httpx.post(f"{url}/{path}", timeout=60, **options)


def games(tasks, url: str | None = None, salt: str = "moves", threads: int = 8) -> list[str]:
    "Play tasks with random moves, here or on a server: the episodes and decisions as text."
    make_env = GameEnv if url is None else lambda: RemoteEnv(url, timeout=60)
    player = UniformPlayer()
    played = play_games(tasks, player, lambda task, seat: player, make_env, threads, salt)
    heard = [
        [(d.observation.messages, d.observation.legal, d.past) for d in game.decisions] for game in played
    ]
    return [json.dumps([episode_json(game.episode), said], default=str) for game, said in zip(played, heard)]


# Many at once


def test_64_games_at_once_equal_their_twins(server):
    assert games(MIXED, server.url) == games(MIXED)


CLIENT = """
import json, random, sys
from gamerl.environment import GameEnv
from gamerl.remote import RemoteEnv
from gamerl.tasks import Task

url, salt = sys.argv[1:]
for seed in range(12):
    for task in (Task("leduc_poker", seed), Task("hex(board_size=3)", seed, opponent="mcts:10")):
        here, there, rng = GameEnv(), RemoteEnv(url, timeout=60), random.Random(f"{salt} {seed}")
        question, asked = here.reset(task), there.reset(task)
        while question:
            assert (asked.messages, asked.legal) == (question.messages, question.legal)
            move = rng.choice(list(question.legal))
            question, asked = here.step(move).observation, there.step(move).observation
        assert there.episode == here.episode
print("equal")
"""


def test_clients_in_several_processes_do_not_meet(server):
    words = [sys.executable, "-c", CLIENT, server.url]
    clients = [subprocess.Popen([*words, salt], stdout=subprocess.PIPE, text=True) for salt in "abc"]
    assert [client.communicate(timeout=120)[0] for client in clients] == ["equal\n"] * 3


def test_a_deep_search_holds_nobody_up():
    "While one game searches for many seconds, others start and end, and Ctrl-C still works."
    process = Process("--max_simulations", "20000000")
    deep = {"task": Task("go(board_size=7)", seed=1, opponent="mcts:2000000x10").to_json()}
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post, process.url, "reset", json=deep) for _ in range(2)]
        time.sleep(0.3)
        assert games(MIXED[:8], process.url) == games(MIXED[:8])
        assert httpx.get(f"{process.url}/health", timeout=10).json() == {"status": "ok"}
        assert not any(call.done() for call in waiting)
        assert process.stop() == (130, "gamerl: stopped\n")
        assert all(
            isinstance(call.exception() or call.result(), (httpx.TransportError, httpx.Response))
            for call in waiting
        )


def test_memory_stays_flat():
    "What 600 games add after the first 300, on a host of its own."
    host, process = Host(), psutil.Process()

    def play(seeds):
        for seed in seeds:
            told = host.reset(task_id=200000000, seed=seed, opponent="random")
            while not told["done"]:
                told = host.step("1", told["episode_id"])

    play(range(FINISHED_KEPT + 50))
    before = process.memory_info().rss
    play(range(1000, 1600))
    assert process.memory_info().rss - before < 4e6
    assert (len(host.games), len(host.finished)) == (0, FINISHED_KEPT)


def test_abandoned_games_make_room():
    host = Host(max_episodes=8, max_age=0.0)
    for seed in range(50):
        host.reset(200000000, seed, "random")
    assert len(host.games) <= 8


# The protocol

KEYS = {"observation", "reward", "done", "truncated", "episode_id", "info"}
INFO = {"task_id", "seed", "game_name", "llm_player_id", "opponent_type", "step_count", "cumulative_reward"}


def test_a_plain_client_needs_nothing_else(server):
    "Both forms of a call, every key, and the score as the last reward."
    with httpx.Client(base_url=server.url, timeout=60) as client:
        asked = {"task_id": 200000000, "seed": 4, "opponent": "random"}
        told = client.post("/reset", json=asked).json()
        assert told["status"] == "success" and set(told["result"]) == KEYS
        told, here = told["result"], GameEnv()
        question = here.reset(Task.from_id(200000000, 4))
        assert INFO <= set(told["info"]) <= INFO | {"last_opponent_action"}
        assert told["observation"] == "\n\n".join(m["content"] for m in question.messages)
        paid, name = 0.0, told["episode_id"]
        for reply in ("what?", *["1"] * 20):
            call = {"method": "step", "args": [], "kwargs": {"action": reply, "episode_id": name}}
            told = client.post("/call", json=call).json()["result"]
            paid += told["reward"]
            if told["done"]:
                break
            if reply == "1":
                assert told["observation"] == here.step(1).observation.messages[1]["content"]
            else:
                error = told["info"]["error"]
                assert (told["reward"], error["type"], error["retryable"]) == (-0.01, "invalid_action", True)
        here.step(1)
        assert told["reward"] == here.episode.score and not told["truncated"]
        assert (
            told["info"]["cumulative_reward"] == pytest.approx(paid) == pytest.approx(told["reward"] - 0.01)
        )
        state = client.post("/state", json={"episode_id": name}).json()["result"]
        assert state == told | {"reward": 0.0}
        stop = [client.post("/stop", json={"episode_id": name}).json()["result"]["stopped"] for _ in range(2)]
        assert stop == [True, False]


def test_methods_are_listed(server):
    listed = httpx.get(f"{server.url}/methods", timeout=60).json()["methods"]
    assert {row["name"] for row in listed} == {"reset", "step", "state", "stop", "evaluate"}
    assert all("self" not in row["signature"] for row in listed)


BAD = [
    ("call", b"{oops", 400, "not JSON"),
    ("call", b"[" * 100_000, 400, "not JSON"),
    ("call", b"\xff\xfe", 400, "not JSON"),
    ("call", b"[1]", 400, "must be a JSON object, not list"),
    ("call", b"", 404, "Method not found: None"),
    ("call", b'{"method": "reset", "args": {}}', 400, "args must be a list"),
    ("call", b'{"method": "__init__"}', 404, "Method not found"),
    ("call", b'{"method": ["reset"]}', 404, "Method not found"),
    ("call", b'"' + b"x" * 2**21 + b'"', 413, "too large"),
    ("walk", b"{}", 404, "Method not found: 'walk'"),
    ("games", b"{}", 404, "Method not found"),
    ("reset", b'{"task_id": 1, "sed": 2}', 400, "unexpected keyword argument 'sed'"),
    ("step", b"{}", 400, "missing a required argument: 'action'"),
]


@pytest.mark.parametrize(("path", "body", "code", "complaint"), BAD)
def test_a_senseless_request_is_refused(server, path, body, code, complaint):
    answer = post(server.url, path, content=body)
    assert answer.status_code == code
    content = answer.json()
    assert content["status"] == "failed" and complaint in content["result"]["error"] == content["detail"]
    assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200


TROUBLE = [
    ("step", {"action": "1"}, "no_episode_id"),
    ("state", {}, "no_episode_id"),
    ("step", {"action": "1", "episode_id": "nowhere"}, "episode_not_found"),
    ("state", {"episode_id": ["x"]}, "episode_not_found"),
    ("reset", {"task_id": -1}, "invalid_game"),
    ("reset", {"task_id": "leduc"}, "invalid_game"),
    ("reset", {"task_id": 0, "seed": 1.5}, "invalid_game"),
    ("reset", {"task_id": 0, "seed": 0, "opponent": "mtcs"}, "invalid_game"),
    ("reset", {"task_id": 0, "seed": 0, "opponent": ["mcts"]}, "invalid_game"),
    ("reset", {"task_id": 0, "seed": 0, "opponent": "self"}, "invalid_game"),
    ("reset", {"task": {"game": "hexx"}}, "invalid_game"),
    ("reset", {"task": {"game": "hex", "wins": 1}}, "invalid_game"),
    ("reset", {"task": "hex"}, "invalid_game"),
    ("reset", {"task": {"game": "hex"}, "rules": {"retries": 10**9}}, "invalid_game"),
    ("reset", {"task": {"game": "hex", "opponent": "ismcts"}}, "invalid_game"),
    ("reset", {"task": {"game": "hex", "opening": 5}}, "invalid_game"),
    ("reset", {"task": {"game": "hex", "opening": [1.0]}}, "invalid_game"),
    ("reset", {"task": {"game": {}}}, "invalid_game"),
    ("reset", {"task": {"game": ["x"]}}, "invalid_game"),
    ("reset", {"task": {"game": "hex", "opponent": {}}}, "invalid_game"),
    ("reset", {"task": {"game": "hex"}, "rules": {"invalid_penalty": float("inf")}}, "invalid_game"),
    ("reset", {"task": {"game": "hex"}, "rules": {"retries": "many"}}, "invalid_game"),
    ("reset", {"task_id": 0, "rules": {"retries": 1}}, "invalid_game"),
    ("reset", {"task_id": 0, "opponent": 5}, "invalid_game"),
    ("reset", {"task_id": 600000000, "opponent": "mcts:3001x200"}, "invalid_game"),
    ("reset", {"task": {"game": "leduc_poker", "opponent": "cfr:999999"}}, "invalid_game"),
    ("reset", {"task": {"game": "chess", "opponent": "minimax:60"}}, "invalid_game"),
    ("reset", {"task": {"game": "connect_four(rows=0)"}}, "invalid_game"),
    ("reset", {"task": {"game": "universal_poker(numPlayers=1)"}}, "invalid_game"),
    ("reset", {"task": {"game": "universal_poker(numRanks=0)"}}, "invalid_game"),
    ("reset", {"task": {"game": "universal_poker(numBoardCards=x)"}}, "invalid_game"),
    ("reset", {"task": {"game": "hex(board_size=0)"}}, "invalid_game"),
    ("reset", {"task": {"game": "clobber(rows=1,columns=1)"}}, "invalid_game"),
    ("reset", {"task": {"game": "goofspiel(num_cards=0)"}}, "invalid_game"),
    ("reset", {"task": {"game": "pig(diceoutcomes=0)"}}, "invalid_game"),
    ("reset", {"task": {"game": "liars_dice(numdice=0)"}}, "invalid_game"),
    ("reset", {"task": {"game": "bridge(dealer=9)"}}, "invalid_game"),
    ("reset", {"task": {"game": "nfg_game()"}}, "invalid_game"),
    ("reset", {"task": {"game": "blotto(coins=1000,fields=20)"}}, "invalid_game"),
]


@pytest.mark.parametrize(("method", "arguments", "kind"), TROUBLE)
def test_trouble_has_a_type(server, method, arguments, kind):
    answer = post(server.url, method, content=json.dumps(arguments))
    assert answer.status_code == 200
    told = answer.json()["result"]
    assert set(told) == KEYS and told["done"] and told["info"]["error"]["type"] == kind
    assert "\n" not in told["observation"]
    assert httpx.get(f"{server.url}/health", timeout=60).json() == {"status": "ok"}


@pytest.mark.parametrize(
    "game",
    [
        "nfg_game(filename={})",
        "efg_game(filename = {})",
        "crossword(word_list_file={})",
        "turn_based_simultaneous_game(game=nfg_game(filename={}))",
    ],
)
def test_no_caller_names_a_file(game, tmp_path):
    file = tmp_path / "secret"
    file.write_text("the first words of the file")
    told = Host().reset(task={"game": game.format(file)})
    assert "names a file" in told["observation"] and "first words" not in told["observation"]


def test_a_number_that_openspiel_cannot_read():
    told = Host().reset(task={"game": "hex(board_size=99999999999999999999)"})
    assert told["info"]["error"]["type"] == "invalid_game" and "cannot be read" in told["observation"]


def test_the_limit_of_searches_is_the_operator_s():
    small = Host(max_simulations=100)
    for opponent, allowed in [("mcts:100", True), ("mcts:101", False), ("mcts:51x2", False), ("mcts", False)]:
        told = small.reset(600000000, 1, opponent)
        assert ("error" not in told["info"]) == allowed


def test_a_game_that_cannot_begin_frees_its_place(monkeypatch):
    host = Host(max_episodes=1)
    with monkeypatch.context() as broken:
        broken.setattr(GameEnv, "reset", lambda env, task: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            host.reset(200000000, 4, "random")
    assert not host.games and not host.reset(200000000, 4, "random")["done"]


def test_a_game_that_is_over_or_elsewhere():
    host = Host()
    told = host.reset(task=Task("kuhn_poker", 1).to_json())
    name = told["episode_id"]
    assert host.step({}, name)["info"]["error"]["type"] == "invalid_action"
    assert host.step("1", name, turn=7)["info"]["error"]["type"] == "not_your_turn"
    while not told["done"]:
        told = host.step("0", name)
    assert host.step("0", name)["info"]["error"]["type"] == "episode_done"


def test_a_token_is_asked_for():
    process = Process("--token", "sesame", "--max_episodes", "1", "--max_body", "500")
    try:
        asked = {"task_id": 200000000, "seed": 4, "opponent": "random"}
        for headers in ({}, {"Authorization": "Bearer barley"}, {"Authorization": "sesame"}):
            answer = post(process.url, "reset", json=asked, headers=headers)
            assert answer.status_code == 401 and "token" in answer.json()["result"]["error"]
            assert httpx.get(f"{process.url}/methods", headers=headers).status_code == 401
        assert httpx.get(f"{process.url}/health").status_code == 200
        with pytest.raises(ServerError, match=r"\(401\): the token is missing or wrong"):
            RemoteEnv(process.url).reset(MIXED[0])
        right = {"Authorization": "Bearer sesame"}
        codes = [post(process.url, "reset", json=asked, headers=right).status_code for _ in range(2)]
        assert codes == [200, 503]
        assert post(process.url, "reset", content=b" " * 501, headers=right).status_code == 413
    finally:
        process.stop()


# The command


def complaint(capsys, *words) -> str:
    "What `gamerl serve` says to flags that cannot be meant."
    assert main(["serve", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("gamerl: error: ") and err.count("\n") == 1
    return err


def test_a_port_in_use_is_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = complaint(capsys, "--port", taken.getsockname()[1])
    assert "cannot be used: Address already in use" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "99999"), "port: 99999 is not allowed"),
        (("--max_episodes", "0"), "--max_episodes: 0 is not allowed"),
        (("--max_simulations", "0"), "--max_simulations: 0 is not allowed"),
        (("--max_age", "-1"), "--max_age: -1.0 is not allowed"),
        (("--prot", "1"), "did you mean --port?"),
        (("--port", "x"), "must be a whole number"),
    ],
)
def test_a_wrong_flag_is_one_line(capsys, words, said):
    assert said in complaint(capsys, *words)


def test_answers_do_not_wait(server):
    "A small answer comes in far less than the 40 ms of a delayed confirmation."
    with httpx.Client(base_url=server.url, timeout=60) as client:
        waited = []
        for _ in range(30):
            start = time.perf_counter()
            client.post("/state", json={"episode_id": "nowhere"})
            waited.append(time.perf_counter() - start)
    assert min(waited) < 0.03


# The client


class Unreliable(httpx.HTTPTransport):
    "A network that loses some questions and some answers."

    def __init__(self):
        super().__init__()
        self.rng, self.lost, self.lock = random.Random(0), 0, threading.Lock()

    def handle_request(self, request):
        "Deliver, or not, or lose the answer."
        with self.lock:
            place = self.rng.random()
            self.lost += place < 0.3
        if place < 0.15:
            raise httpx.ConnectError("lost on the way", request=request)
        answer = super().handle_request(request)
        answer.read()
        if place < 0.3:
            raise httpx.ReadError("lost on the way back", request=request)
        return answer


def test_lost_calls_change_nothing(server, monkeypatch):
    network, tasks = Unreliable(), MIXED[:16]
    client = httpx.Client(base_url=server.url, transport=network, timeout=60)
    knows_tasks(Server(server.url, timeout=60))
    monkeypatch.setattr(calls, "connection", lambda server: client)
    monkeypatch.setattr(calls, "PAUSE", 0.001)
    assert games(tasks, server.url, threads=1) == games(tasks)
    assert network.lost > 20


def test_a_server_that_dies_is_replaced(server):
    "The games go on elsewhere, with the replies so far given again."
    doomed, task = Process(), Task("othello", seed=3)
    here, env = GameEnv(), RemoteEnv([doomed.url, server.url], timeout=60)
    env._place, rng = 0, random.Random(0)
    question = here.reset(task)
    assert env.reset(task).legal == question.legal
    for turn in range(12):
        if turn == 6:
            assert env._game.server.url == doomed.url
            doomed.popen.kill()
            doomed.popen.communicate()
        reply = rng.choice(list(question.legal))
        there, question = env.step(reply).observation, here.step(reply).observation
        assert (there.messages, there.legal) == (question.messages, question.legal)
    assert env._game.server.url == server.url


def test_no_server_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServerError, match="no game server answers") as told:
        RemoteEnv(url).reset(MIXED[0])
    assert isinstance(told.value, OSError) and "\n" not in str(told.value)


def test_games_spread_over_the_servers(server):
    host = Host()
    with serving(create_app(host)) as second:
        envs = [RemoteEnv([server.url, second]) for _ in range(6)]
        for env in envs:
            env.reset(Task("othello", 1))
        assert len(host.games) == 3
        for env in envs:
            env.close()
        assert not host.games


def stranger() -> FastAPI:
    "A server of the public environment's kind: task IDs, its own words, numpy seeds."
    host, app = Host(), FastAPI()

    def told(answer: dict, name: str | None = None) -> JSONResponse:
        question = answer["info"].pop("question", None)
        answer["info"].pop("episode", None)
        if question:
            moves = "\n".join(f"  {action} -> {name}" for action, name in question["legal"])
            answer = answer | {"observation": f"You are Player 0.\n\nLegal Actions:\n{moves}\n\nYour choice:"}
        return JSONResponse({"status": "success", "result": answer})

    @app.get("/methods")
    def methods():
        return {
            "methods": [{"name": "reset", "signature": "(self, task_id=None, seed=None)", "source": "Actor"}]
        }

    @app.post("/call")
    async def call(request: Request):
        body = await request.json()
        arguments = body["kwargs"]
        if body["method"] == "reset":
            if set(arguments) != {"task_id", "seed", "opponent"}:
                return JSONResponse({"detail": "reset() got an unexpected keyword argument"}, 500)
            return told(host.reset(task=Task.from_id(**arguments).to_json()))
        if set(arguments) - {"action", "episode_id"}:
            return JSONResponse({"detail": "unexpected keyword argument"}, 500)
        if body["method"] == "stop":
            return {"status": "success", "result": host.stop(**arguments)}
        return told(host.step(**arguments))

    return app


def test_a_server_of_another_make():
    tasks = [Task.from_id(task_id, seed) for task_id in (200000000, 600000000, 0) for seed in range(2)]
    with serving(stranger()) as url:
        env = RemoteEnv(url)
        for task in tasks:
            here, rng, asked = GameEnv(), random.Random(1), env.reset(task)
            question = here.reset(task)
            while question:
                assert asked.legal == question.legal and asked.messages[0] == question.messages[0]
                reply = rng.choice(list(question.legal))
                step, question = env.step(reply), here.step(reply).observation
                asked = step.observation
            assert env.episode.scores == pytest.approx(here.episode.scores)
            assert step.terminated and step.reward == env.episode.score
        with pytest.raises(ValueError, match="not in the catalogue"):
            env.reset(Task("tic_tac_toe"))


@pytest.mark.parametrize("methods", [[1], {"methods": 3}, {"methods": ["reset"]}, {}, "text", None])
def test_a_strange_list_of_methods_means_no_extension(methods):
    app = FastAPI()
    if methods is not None:
        app.add_api_route("/methods", lambda: methods)
    with serving(app) as url:
        assert not knows_tasks(Server(url))


def good(**changes) -> dict:
    "An answer to `reset` as a server with the extension gives it, with changes."
    result = Host().reset(task=Task("leduc_poker", 4).to_json())
    return {"status": "success", "result": result | changes}


def info(**changes) -> dict:
    "The same, with changes in `info`."
    return good(info=good()["result"]["info"] | changes)


NONSENSE = [
    ({"status": "success"}, "the result must be an object, not None"),
    ({"status": "success", "result": [1]}, "the result must be an object, not [1]"),
    ([1], "failed (200): [1]"),
    ("hello", "failed (200): hello"),
    (good() | {"status": "fine"}, "failed (200): "),
    ({"status": "success", "result": {}}, "observation is missing"),
    (good(observation=5), "observation cannot be 5"),
    (good(reward="1"), "reward cannot be '1'"),
    (good(reward=True), "reward cannot be True"),
    (good(done=0), "done cannot be 0"),
    (good(info=None), "info cannot be None"),
    (good(episode_id=7), "episode_id cannot be 7"),
    (info(error="oops"), "info.error cannot be 'oops'"),
    (info(error={"kind": 1}), "info.error cannot be {'kind': 1}"),
    (info(error={"type": [], "message": 5}), "info.error cannot be"),
    (good(reward=10**400), "reward cannot be 1000"),
]
NONSENSE_BY_TASK = [
    (good(info={}), "info cannot be read: KeyError: 'question'"),
    (info(question=[1]), "info cannot be read: TypeError"),
    (info(question={"messages": "hi"}), "info cannot be read: TypeError"),
    (info(question={"messages": [], "legal": [1], "player": 0}), "info cannot be read: TypeError"),
    (info(question=None), "either a question or an episode"),
    (info(episode=3), "info cannot be read: TypeError"),
    (info(question={"messages": [], "legal": [[1, "a"]], "player": 0}), "messages in text and legal moves"),
    (
        info(question={"messages": [{"role": "user", "content": 5}], "legal": [[1, "a"]], "player": 0}),
        "messages in text and legal moves",
    ),
    (
        info(question={"messages": [{"role": "user", "content": "?"}], "legal": [], "player": 0}),
        "messages in text and legal moves",
    ),
]


class Talker(BaseHTTPRequestHandler):
    "Answers every call with the same words, true to the protocol or not."

    says: object = None
    after = 0  # calls that are answered as they should be
    methods = {"methods": [{"name": "reset", "signature": "(task_id=None, task=None)"}]}

    def do_GET(self):
        "What can be called."
        self.answer(self.methods)

    def do_POST(self):
        "A call."
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls += 1
        fine = self.server.calls <= self.server.after
        self.answer(good() if fine else self.server.says)

    def answer(self, content: object) -> None:
        "Send JSON."
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        "Say nothing."


@contextmanager
def talker(says: object, after: int = 0):
    "The address of a server that says the same to every call, after so many sensible answers."
    web = ThreadingHTTPServer(("127.0.0.1", 0), Talker)
    web.says, web.after, web.calls = says, after, 0
    threading.Thread(target=web.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{web.server_port}"
    finally:
        web.shutdown()
        web.server_close()


@pytest.mark.parametrize(("says", "why"), NONSENSE + NONSENSE_BY_TASK)
def test_a_server_that_talks_nonsense_is_one_line(says, why):
    "At the start of a game and in the middle of one."
    with talker(says) as url:
        with pytest.raises(ServerError) as told:
            RemoteEnv(url).reset(Task("leduc_poker", 4))
        assert str(told.value).startswith(f"{url}: reset ") and why in str(told.value)
        assert "\n" not in str(told.value)
    with talker(says, after=1) as url:
        env = RemoteEnv(url)
        env.reset(Task("leduc_poker", 4))
        with pytest.raises(ServerError) as told:
            env.step("1")
        assert str(told.value).startswith(f"{url}: ") and why in str(told.value)


@pytest.mark.parametrize(("says", "why"), NONSENSE)
def test_a_plain_server_that_talks_nonsense_is_one_line(says, why):
    rules = {"retries": 1, "max_turns": None, "invalid_penalty": 0.0}
    with talker(says) as url, pytest.raises(ServerError) as told:
        PlainGame(Server(url), Task.from_id(200000000, 4), rules)
    assert why in str(told.value)


def test_nonsense_is_left_for_a_server_that_makes_sense(server):
    with talker({"status": "success"}) as url:
        env = RemoteEnv([url, server.url], timeout=60)
        env._place = 0
        assert env.reset(Task("leduc_poker", 4)).legal == GameEnv().reset(Task("leduc_poker", 4)).legal


def test_no_server_at_all():
    with pytest.raises(ValueError, match=r"server_url: \[\] is not allowed; it must name at least one"):
        RemoteEnv([])


def test_games_that_end_here_end_there():
    "A forfeit and a cut, which only the client knows of."
    host, rules = Host(), {"retries": 0, "max_turns": 1, "invalid_penalty": 0.0}
    with serving(create_app(host)) as url:
        for reply, scores in (("nonsense", (0.0, 0.5)), ("1", (0.5, 0.5))):
            game = PlainGame(Server(url), Task.from_id(600000000, 2), rules)
            assert len(host.games) == 1
            game.step(reply)
            assert game.episode.scores == scores and not host.games


def test_a_cut_game_for_one_is_worth_the_same():
    cut, here = {"retries": 0, "max_turns": 1, "invalid_penalty": 0.0}, GameEnv(max_turns=1)
    for seed in range(20):  # the first game of blackjack that one more card does not end
        task = Task.from_id(1500000000, seed)
        if here.reset(task) and here.step(0).truncated:
            break
    with serving(create_app()) as url:
        there = PlainGame(Server(url), task, cut)
        there.step(0)
        assert here.episode.truncated and there.episode.truncated
        assert (there.episode.scores, there.episode.returns) == (here.episode.scores, here.episode.returns)
        for index in (17, 18):  # these pay on their way
            with pytest.raises(ValueError, match="max_turns"):
                PlainGame(Server(url), Task.from_id(index * 100_000_000), cut)


WRONG_URLS = ["", "localhost:8000", "ftp://x", "http://localhost:notaport", "http://", "http://x:70000"]


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_wrong_url(url):
    with pytest.raises(ValueError, match=r"server_url: .* is not allowed; .*") as told:
        RemoteEnv(url)
    assert "\n" not in str(told.value)
    with pytest.raises(ValueError, match=r"env.server_url: .* is not allowed; .*"):
        load_config(overrides={"env.server_url": url or "x"})


def test_a_run_can_play_on_servers(server):
    "One step of a small run, here and there: the same games."
    from gamerl.training import PPOTrainer

    few = {"batch_size": 4, "games": "hex(board_size=3),leduc_poker", "num_threads": 1, "run.device": "cpu"}
    told = []
    for servers in ({}, {"env.server_url": f"{server.url},{server.url}"}):
        trainer = PPOTrainer(load_config(profile="tiny", overrides=few | servers))
        told.append([game.episode for game in trainer.source.play(trainer.source.player(), trainer.steps)])
    assert told[0] == told[1]


# Judging endpoints


@pytest.fixture(scope="module")
def endpoint():
    "An OpenAI-compatible endpoint whose model's name says how it behaves."
    app, heard = FastAPI(), []

    @app.post("/v1/chat/completions")
    async def complete(request: Request):
        body = await request.json()
        heard.append((request.headers["authorization"], body))
        if body["model"] == "broken":
            return JSONResponse({"error": {"message": "out of order"}}, 400)
        if body["model"] == "page":
            return HTMLResponse("<html>welcome</html>")
        if body["model"] == "odd":
            return {"choices": [{"message": 3}], "usage": []}
        if body["model"] == "slow":
            time.sleep(1)
        words = {"one": "<think>0 or 2?</think>1", "nonsense": "as you like", "mute": None}
        message = {"role": "assistant", "content": words.get(body["model"], "1")}
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": []
            if body["model"] == "empty"
            else [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }

    with serving(app) as url:
        yield url, heard


def judged(server, endpoint_url: str, **options) -> dict:
    "What `evaluate` answers."
    asked = {
        "task_id": 200000000,
        "seed": 4,
        "opponent": "random",
        "base_url": f"{endpoint_url}/v1",
    } | options
    return post(server.url, "evaluate", json=asked).json()["result"]


def test_an_endpoint_is_judged(server, endpoint):
    url, heard = endpoint
    heard.clear()
    result, env = judged(server, url, model="one", api_key="k", temperature=0.5), GameEnv()
    env.reset(Task.from_id(200000000, 4))
    while env.observation:
        env.step("1")
    extra = result["extra"]
    assert (result["task_name"], result["score"]) == ("openspiel:leduc_poker", env.episode.score)
    assert result["success"] == env.episode.success and result["time_taken"] > 0 and "error" not in result
    assert extra["all_returns"] == list(env.episode.returns)
    assert extra["final_return"] == env.episode.returns[0]
    assert extra["usage"] == {
        "prompt_tokens": 7 * len(heard), "completion_tokens": 3 * len(heard), "total_tokens": 10 * len(heard)
    }  # fmt: skip
    assert [(m["player"], m["action_id"]) for m in extra["action_history"]] == list(env.episode.moves)
    assert {key for key, body in heard} == {"Bearer k"} and heard[0][1]["temperature"] == 0.5
    conversation = heard[-1][1]["messages"]
    assert [m["role"] for m in conversation] == ["system"] + ["user", "assistant"] * (len(heard) - 1) + [
        "user"
    ]
    assert all(m["content"] == "1" for m in conversation if m["role"] == "assistant")  # no thoughts


@pytest.mark.parametrize(
    ("model", "asked", "complaint"),
    [
        ("nonsense", 3, "no legal move"),
        ("mute", 3, "no legal move"),
        ("empty", 3, "no legal move"),
        ("page", 3, "no legal move"),
        ("odd", 3, "no legal move"),
        ("broken", 1, "out of order"),
    ],
)
def test_an_endpoint_that_cannot_play_scores_0(server, endpoint, model, asked, complaint):
    url, heard = endpoint
    heard.clear()
    result = judged(server, url, model=model)
    assert (result["score"], result["success"], len(heard)) == (0.0, False, asked)
    assert complaint in result["error"]


def test_an_endpoint_that_is_slow_or_down(server, endpoint):
    url, _ = endpoint
    assert "time" in judged(server, url, model="slow", timeout=0.3)["error"].lower()
    with socket.create_server(("127.0.0.1", 0)) as free:
        down = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = judged(server, down, model="one")
    assert result["score"] == 0.0 and "Connection" in result["error"]


def test_the_environment_s_key_goes_to_known_addresses_only(endpoint, monkeypatch):
    url, heard = endpoint
    monkeypatch.setenv("CHUTES_API_KEY", "from the environment")
    Judge().evaluate(200000000, 4, "one", f"{url}/v1", opponent="random")
    assert heard[-1][0] == "Bearer none"
    Judge((f"{url}/v1/",)).evaluate(200000000, 4, "one", f"{url}/v1", opponent="random")
    assert heard[-1][0] == "Bearer from the environment"
    assert Judge().key_for(DEFAULT_URL) == "from the environment"
    assert Judge((f"{url}/v1",)).key_for(f"{url}/v1/../else") == "none"


def test_the_last_question_is_told(server, endpoint):
    "Also when the endpoint has not answered it."
    url, _ = endpoint
    extra = judged(server, url, model="broken")["extra"]
    assert extra["conversation"][-1] == {"role": "user", "content": extra["observation"]}
    extra = judged(server, url, model="one")["extra"]
    assert extra["conversation"][-2] == {"role": "user", "content": extra["observation"]}


SENSELESS = [
    {"base_url": "http://localhost:notaport"}, {"base_url": 5}, {"model": 5}, {"timeout": "long"},
    {"timeout": float("inf")}, {"temperature": [1]}, {"api_key": 7}, {"opponent": 5},
    {"opponent": "mcts:999999"},
]  # fmt: skip


@pytest.mark.parametrize("asked", SENSELESS)
def test_a_senseless_judgement_is_refused(server, asked):
    answer = post(server.url, "evaluate", content=json.dumps({"task_id": 600000000} | asked))
    assert answer.status_code == 400 and f"{list(asked)[0]}: " in answer.json()["detail"]


# The judge's conversation

CONVERSED = ["leduc_poker", "hex", "goofspiel", "hearts", "phantom_ttt", "liars_dice", "blackjack"]


def said_to(messages: list[dict]) -> str:
    "A reply that follows from the conversation: thoughts and a move, now and then no move at all."
    rng = random.Random(json.dumps(messages))
    asked = [message["content"] for message in messages if message["role"] == "user"]
    listed = next(legal for text in reversed(asked) if (legal := read_legal(text)))  # a reminder lists none
    if rng.random() < 0.3 and len(messages) % 6:
        return "<think>either way</think>I pass"
    return f"<think>one of {len(listed)}</think>{rng.choice(sorted(listed))}"


@pytest.mark.parametrize("name", CONVERSED)
def test_the_judge_holds_the_conversation_of_training(name):
    "Turn by turn, an endpoint hears what `env.history_turns` all tells a model in training."
    heard, app = [], FastAPI()

    @app.post("/v1/chat/completions")
    async def complete(request: Request):
        heard.append((await request.json())["messages"])
        message = {"role": "assistant", "content": said_to(heard[-1])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    index, forfeits, turns = catalogue_game(name).index, 0, 0
    with serving(app) as url:
        for seed in range(4):
            heard.clear()
            task_id = index * CONFIGS_PER_GAME + seed
            result = Judge().evaluate(task_id, seed, "m", f"{url}/v1", opponent="random")
            env, told = WithHistory(GameEnv(), "all"), []
            question = env.reset(Task.from_id(task_id, seed))
            while question:
                told.append(list(question.messages))
                question = env.step(said_to(told[-1])).observation
            assert heard == told and result["score"] == env.episode.score
            forfeits, turns = forfeits + env.episode.forfeited, turns + len(told)
    assert turns >= 4 and forfeits < 4
