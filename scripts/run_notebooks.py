"""Run notebooks as `nbdev_test` does, and keep what they show.

python scripts/run_notebooks.py                                # all of them, in the order of their numbers
python scripts/run_notebooks.py nbs/11_ppo.ipynb --flags slow  # one of them, its slow cells too

Cells under a flag of `tst_flags` that `--flags` does not name are skipped and keep the outputs they had.
"""

import argparse
import multiprocessing
import sys
from pathlib import Path
from time import perf_counter

from execnb.nbio import read_nb, write_nb
from execnb.shell import CaptureShell
from fastcore.xtras import working_directory
from nbdev.config import get_config
from nbdev.doclinks import nbglob
from nbdev.process import NBProcessor


def is_skipped(cell: dict, skip_flags: set[str]) -> bool:
    "Is this no code, the export itself, switched off, or under a flag that was not asked for?"
    if cell.cell_type != "code" or "nbdev_export(" in cell.source:
        return True
    off = cell.directives_.get("eval:", [""])[0] == "false"
    return off or bool(skip_flags & cell.directives_.keys())


def run(path: Path, skip_flags: set[str]) -> None:
    "Execute the notebook at `path` and write its new outputs into it."
    nb, ran = NBProcessor(path, process=True).nb, set()

    def skip(cell: dict) -> bool:
        skipped = is_skipped(cell, skip_flags)
        return skipped or bool(ran.add(cell["id"]))

    with working_directory(path.parent):
        CaptureShell(path).run_all(nb, exc_stop=True, preproc=skip)
    new, old = {c["id"]: c for c in nb.cells}, read_nb(path)
    for cell in old.cells:
        if cell["id"] in ran:
            cell["outputs"] = new[cell["id"]].get("outputs", [])
    write_nb(old, path)


def main() -> str | None:
    "Run what the command line names; the message of a failure, else None."
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--flags", nargs="*", default=[], help="run cells under these flags too")
    args, cfg = parser.parse_args(), get_config()
    sys.path.insert(0, str(cfg.config_path))
    skip_flags = set(cfg.tst_flags.split()) - set(args.flags)
    for path in args.notebooks or sorted(nbglob(as_path=True)):
        start = perf_counter()
        # A process of its own: nothing that one notebook imports or sets is there for the next.
        child = multiprocessing.get_context("spawn").Process(target=run, args=(path.absolute(), skip_flags))
        child.start()
        child.join()
        if child.exitcode:
            return f"{path} failed"
        print(f"{path}: {perf_counter() - start:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
