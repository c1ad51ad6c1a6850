"The benchmarks run; what they find on a quick run means nothing."

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gamerl.tasks import CATALOGUE

SCRIPTS = Path(__file__).parents[1] / "benchmarks"


def run(script: str, *args: object) -> list[list[str]]:
    "The cells of the table that a script prints, line by line."
    words = [sys.executable, SCRIPTS / script, *map(str, args)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_speed_compares_playing_and_learning(tmp_path):
    head, _, *rows = run("speed.py", "--quick", "--output", tmp_path / "speed.json")
    assert [(row[0], row[1]) for row in rows] == [
        (what, f"`{game}`")
        for game in ("leduc_poker", "hex(board_size=4)")
        for what in ("playing", "playing", "learning")
    ]
    told = json.loads((tmp_path / "speed.json").read_text())
    for row, line in zip(told["rows"], rows):
        assert row["gamerl"] > 0 and row["plain"] > 0 and len(row["ratios"]) == told["rounds"]
        assert f"{row['ratio']:.2f}" == line[head.index("ratio")]


@pytest.mark.slow
def test_gpu_runs_a_small_shape_without_a_gpu(tmp_path):
    head, _, *rows = run("gpu.py", "--shape", "small", "--output", tmp_path / "gpu.json")
    assert head[1:] == ["nf4", "bf16"]
    told = json.loads((tmp_path / "gpu.json").read_text())
    for found in told["formats"]:
        assert found["seconds_per_step"] > 0 and found["decisions_per_second"] > 0
        assert sum(found["update_parts"].values()) <= found["update_seconds"]
        assert all(seconds > 0 for seconds in found["update_parts"].values())
    assert (tmp_path / "gpu.md").read_text().count("\n") == 2 + len(rows)


@pytest.mark.slow
def test_games_measures_every_variant(tmp_path):
    words = [sys.executable, SCRIPTS / "games.py", "--quick", "--out", tmp_path / "games.json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "games.json").read_text())
    rows, others = told["games"], told["others"]
    assert len(others) == 5 and not {row["game"] for row in others} & {e.name for e in CATALOGUE}
    assert [row["index"] for row in rows] == [e.index for e in CATALOGUE for _ in e.variants]
    for row in rows + others:
        length = row["tokens"]["tiny"]
        assert 0 < length["turn"] < length["mean"] <= length["most"] and 0 <= row["own_share"] < 1


@pytest.mark.slow
def test_replay_compares_three_rules(tmp_path):
    words = [sys.executable, SCRIPTS / "replay.py", "--steps", "2", "--seeds", "1", "--episodes", "4"]
    done = subprocess.run([*words, "--out", tmp_path / "replay.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "replay.json").read_text())["runs"]
    assert [run["rule"] for run in runs] == ["start", "before_end", "value_drop"]
    assert all(run["games"] == 4 and len(run["curve"]) == 2 for run in runs)


@pytest.mark.slow
def test_opponents_measures_overlap_and_languages(tmp_path):
    run("opponents.py", "--quick", "--output", tmp_path / "opponents.json")
    told = json.loads((tmp_path / "opponents.json").read_text())
    for row in told["overlap"]:
        assert 0 < row["ratio"] and 0 < row["bound"] and row["extra work"] > 0
    for row in told["languages"]:
        assert row["times_faster"] > 1 and row["interval"][0] <= row["points"] <= row["interval"][1]


@pytest.mark.slow
def test_server_is_loaded_and_weighed():
    done = subprocess.run([sys.executable, SCRIPTS / "server.py", "--quick"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["load"]["episodes_per_second"] > 0 and len(told["memory"]) == 10


@pytest.mark.slow
def test_letters_are_learned(tmp_path):
    "Nine tenths of the largest reward, with the KL of every step under its target."
    run("letters.py", "--seeds", 1, "--texts", 200, "--output", tmp_path / "letters.json")
    told = json.loads((tmp_path / "letters.json").read_text())
    (found,) = told["runs"]
    assert found["reward_interval"][0] >= 0.9 * told["maximum"]
    assert all(row["kl"] < told["target_kl"] for row in found["curve"])
    assert found["curve"][0]["reward"] < 0.6 * told["maximum"]


@pytest.mark.slow
def test_rlhf_walks_the_whole_road(tmp_path):
    few = ["--seeds", 1, "--count", 60, "--steps", 2, "--games", 20]
    run("rlhf.py", *few, "--output", tmp_path / "rlhf.json")
    (found,) = json.loads((tmp_path / "rlhf.json").read_text())["runs"]
    assert found["pairs"] == 60 and found["reward_model"]["held_out"] > 0
    assert found["before"]["games"] == found["after"]["games"] == 20
