"Scripts in two processes that train together."

import os
import subprocess
import sys
from pathlib import Path

import torch

from gamerl.config import Config


def two_processes(
    folder: Path,  # gets the script, the configuration and what each process saves
    script: str,  # Python; it is given the configuration's path and where to save, without its own rank
    config: Config,
) -> list:  # what each of the two has saved with torch
    "Run a script in two processes that train together."
    (folder / "config.json").write_text(config.to_json())
    (folder / "rank.py").write_text(script)
    launch = Path(sys.executable).with_name("accelerate")
    flags = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
    words = [launch, "launch", *flags.split(), "--main_process_port", "0"]
    done = subprocess.run(
        [*words, folder / "rank.py", folder / "config.json", folder / "rank"],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank-{n}.pt") for n in (0, 1)]
