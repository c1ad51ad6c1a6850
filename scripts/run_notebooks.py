"""Run notebooks as `nbdev_test` does, and keep what they show.

python scripts/run_notebooks.py                                # all of them, in the order of their numbers
python scripts/run_notebooks.py nbs/11_ppo.ipynb --flags slow  # one of them, its slow cells too

Warnings and progress bars (stderr) are of this machine and this moment, and are not kept.
Cells under a flag of `tst_flags` that `--flags` does not name are skipped and keep the outputs they had.
"""

import argparse
import multiprocessing
import sys
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from time import perf_counter

from execnb.nbio import read_nb, write_nb
from execnb.shell import CaptureShell
from fastcore.xtras import working_directory
from nbdev.config import get_config
from nbdev.doclinks import nbglob
from nbdev.process import NBProcessor
from PIL import Image


def is_skipped(cell: dict, skip_flags: set[str]) -> bool:
    "Is this no code, the export itself, switched off, or under a flag that was not asked for?"
    if cell.cell_type != "code" or "nbdev_export(" in cell.source:
        return True
    off = cell.directives_.get("eval:", [""])[0] == "false"
    return off or bool(skip_flags & cell.directives_.keys())


def lighter(png: str) -> str:
    "The same picture, base64 in and out, with 128 colours: charts need no more, and a third of the room."
    picture, out = Image.open(BytesIO(b64decode(png))).convert("RGBA"), BytesIO()
    paper = Image.new("RGBA", picture.size, "white")
    picture = Image.alpha_composite(paper, picture).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return b64encode(out.getvalue()).decode()


def kept(outputs: list[dict]) -> list[dict]:
    "The outputs of a cell, as the notebook keeps them."
    outputs = [out for out in outputs if out.get("name") != "stderr"]
    for data in (out.get("data", {}) for out in outputs):
        if "image/png" in data:
            data["image/png"] = lighter("".join(data["image/png"]))
    return outputs


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
            cell["outputs"] = kept(new[cell["id"]].get("outputs", []))
    write_nb(old, path)


def main() -> str | None:
    "Run what the command line names; the message of a failure, else None."
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--flags", nargs="*", default=[], help="run cells under these flags too")
    args, cfg = parser.parse_args(), get_config()
    sys.path.insert(0, str(cfg.config_path))
    skip_flags = set(cfg.tst_flags.split()) - set(args.flags)
    everything = [path.relative_to(cfg.config_path) for path in sorted(nbglob(as_path=True))]
    for path in args.notebooks or everything:
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
