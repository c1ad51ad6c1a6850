"The `gamerl` command for tests: in a fresh process, or forked from one that has done the imports."

import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GAMERL = Path(sys.executable).with_name("gamerl")

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["gamerl.runs"])


@dataclass(frozen=True)
class Done:
    "A command that has ended."

    code: int
    out: str
    err: str


def _become(words: list[str], files: list[Path], file_limit: int | None) -> None:
    "What a forked process does."
    for number, path in zip((1, 2), files):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    from gamerl.cli import main

    code = main(words)
    sys.stdout.flush()
    sys.exit(code)


class Command:
    "`gamerl` with some words, started at once in a forked process."

    def __init__(self, *words, files: Path, file_limit: int | None = None):
        self.files = [files / "stdout", files / "stderr"]
        self.process = forks.Process(target=_become, args=([str(w) for w in words], self.files, file_limit))
        self.process.start()

    def signal(self, number: int) -> None:
        "Send a signal."
        os.kill(self.process.pid, number)

    def wait_until(self, happened: Callable[[], bool]) -> None:
        "Wait for something that the command is to do."
        while not happened():
            assert self.process.is_alive(), self.files[1].read_text()
            time.sleep(0.002)

    def wait(self) -> Done:
        "Its exit code and what it said."
        self.process.join(120)
        code = self.process.exitcode
        self.process.kill()
        return Done(code, *(path.read_text() for path in self.files))


def fresh(*words, cwd: Path | None = None) -> Done:
    "Run the installed `gamerl` as a user does."
    done = subprocess.run(
        [GAMERL, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def metrics_of(run: Path) -> list[dict]:
    "The lines of a run's metrics.jsonl; every number must be one."
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        assert all(math.isfinite(value) for value in line.values()), line
    return lines
