"Checkpoints against full disks, kills and impatience: the last good one is always there."

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gamerl.checkpoints import (
    CheckpointError,
    find_checkpoint,
    latest,
    list_checkpoints,
    prune,
    verify,
    write_checkpoint,
)

posix = pytest.mark.skipif(os.name == "nt", reason="limits and signals of POSIX")


def save_step(step: int, size: int = 1000):
    "A writer of a small checkpoint."

    def write(folder: Path):
        (folder / "model").mkdir()
        (folder / "model" / "adapter.bin").write_bytes(bytes(size))
        (folder / "state.json").write_text(json.dumps({"step": step}))

    return write


def run_python(code: str, *args) -> subprocess.CompletedProcess:
    "Run code in a process of its own."
    words = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


@pytest.fixture
def run_folder(tmp_path):
    "A run with two checkpoints."
    for step in (10, 20):
        write_checkpoint(tmp_path, f"checkpoint-{step}", save_step(step))
    return tmp_path


WRITERS = {
    "python": "(folder / 'big.bin').write_bytes(bytes(1_000_000))",
    "torch": "import torch; torch.save(torch.zeros(250_000), folder / 'big.pt')",
    "safetensors": (
        "import torch; from safetensors.torch import save_file; "
        "save_file({'x': torch.zeros(250_000)}, folder / 'big.safetensors')"
    ),
}

FULL_DISK = """
import resource, signal, sys
from gamerl.checkpoints import CheckpointError, write_checkpoint

def write(folder):
    (folder / "small.json").write_text("{{}}")
    {write}

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_checkpoint(sys.argv[1], "checkpoint-30", write)
except CheckpointError as error:
    print(error)
"""


@posix
@pytest.mark.parametrize("library", WRITERS)
def test_no_room_for_a_file(run_folder, library):
    "The system refuses to write more than 100 kB into a file, as a full disk would."
    done = run_python(FULL_DISK.format(write=WRITERS[library]), run_folder)
    assert done.returncode == 0, done.stderr
    assert "checkpoint-30: not saved: " in done.stdout and done.stdout.count("\n") == 1
    assert f"the last good checkpoint is {run_folder / 'checkpoint-20'}" in done.stdout
    assert sorted(os.listdir(run_folder)) == ["checkpoint-10", "checkpoint-20"]
    assert find_checkpoint(run_folder).name == "checkpoint-20"


KILLED = """
import sys, time
from pathlib import Path
from gamerl.checkpoints import write_checkpoint

def write(folder):
    for number in range(50):
        (folder / f"{number}.bin").write_bytes(bytes(20_000))
    (folder / "state.json").write_text('{"step": 1}')

print("ready", flush=True)
while True:
    for name in ("checkpoint-30", "final"):
        write_checkpoint(sys.argv[1], name, write)
"""


@posix
def test_killed_at_any_moment(run_folder):
    "A process that saves all the time is killed; whatever bears a checkpoint's name is whole."
    write_checkpoint(run_folder, "final", save_step(20))
    for moment in range(6):
        process = subprocess.Popen([sys.executable, "-c", KILLED, run_folder], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.03 + 0.017 * moment)
        process.kill()
        process.wait()
        for folder in run_folder.iterdir():
            if not folder.name.startswith("."):
                verify(folder)
        write_checkpoint(run_folder, "checkpoint-40", save_step(40))
        assert not [name for name in os.listdir(run_folder) if name.startswith(".")]
        assert (run_folder / "final").is_dir()
        assert find_checkpoint(run_folder / "checkpoint-20")


INTERRUPTED = """
import sys, time
from gamerl.checkpoints import write_checkpoint

def write(folder):
    print("writing", flush=True)
    for _ in range(20):
        time.sleep(0.02)
    (folder / "state.json").write_text('{"step": 30}')

try:
    write_checkpoint(sys.argv[1], "checkpoint-30", write)
except KeyboardInterrupt:
    print("interrupted")
"""


@posix
def test_ctrl_c_in_the_middle_of_a_save(run_folder):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, run_folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert find_checkpoint(run_folder).name == "checkpoint-30"
    assert sorted(os.listdir(run_folder)) == ["checkpoint-10", "checkpoint-20", "checkpoint-30"]


def test_crash_between_the_two_renames(run_folder):
    "A replaced checkpoint whose successor never got its name comes back."
    (run_folder / "checkpoint-20").rename(run_folder / ".replaced-checkpoint-20")
    write_checkpoint(run_folder, "checkpoint-30", save_step(30))
    assert [path.name for path in list_checkpoints(run_folder)] == [
        "checkpoint-10",
        "checkpoint-20",
        "checkpoint-30",
    ]


@pytest.mark.parametrize("name", ["model/adapter.bin", "state.json", "manifest.json"])
def test_truncated_file_is_named(run_folder, name):
    os.truncate(run_folder / "checkpoint-20" / name, 5)
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(run_folder)
    assert Path(name).name in str(caught.value) and "is damaged" in str(caught.value)
    assert "beside it: checkpoint-10" in str(caught.value) and "\n" not in str(caught.value)


def test_unfinished_or_foreign_folders_do_not_count(run_folder):
    (run_folder / "checkpoint-99").mkdir()
    (run_folder / "checkpoint-best").mkdir()
    assert latest(run_folder).name == "checkpoint-20"
    with pytest.raises(CheckpointError, match="no finished checkpoint"):
        find_checkpoint(run_folder / "checkpoint-99")


def test_writing_again_under_the_same_name(run_folder):
    write_checkpoint(run_folder, "checkpoint-20", save_step(20, size=5))
    assert (verify(run_folder / "checkpoint-20") / "model" / "adapter.bin").stat().st_size == 5


def test_prune_keeps_the_newest_by_number(run_folder):
    write_checkpoint(run_folder, "checkpoint-100", save_step(100))
    write_checkpoint(run_folder, "final", save_step(100))
    prune(run_folder, 2)
    assert sorted(os.listdir(run_folder)) == ["checkpoint-100", "checkpoint-20", "final"]


def test_a_file_where_the_run_should_be(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(CheckpointError, match="not saved: File exists; there is no earlier checkpoint"):
        write_checkpoint(tmp_path / "run", "checkpoint-1", save_step(1))
