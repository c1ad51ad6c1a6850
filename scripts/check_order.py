"""The number of a notebook is its place: fail when exported code breaks the order of the house.

    python scripts/check_order.py [folder with notebooks, nbs by default]

1. A module imports only modules whose notebooks have lower numbers.
2. Games (0x) and learner (1x) know nothing of each other: 0x imports no learning library and nothing of 1x,
   1x imports no OpenSpiel and nothing of 0x. They meet in 2x.
3. Nothing imports nbdev or fastcore: they are tools of development.

Imports inside functions count too.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "gamerl"
LEARNING = {"torch", "transformers", "peft", "trl", "bitsandbytes", "accelerate"}
GAMES = {"pyspiel", "open_spiel"}
TOOLS = {"nbdev", "fastcore", "execnb"}
FOREIGN = {"0": LEARNING | TOOLS, "1": GAMES | TOOLS}  # by the first digit of the notebook's number
OTHER_HALF = {"0": "1", "1": "0"}


@dataclass(frozen=True)
class Book:
    "A notebook that exports a module."

    path: Path
    module: str
    imports: tuple[str, ...]  # full names, `gamerl.tasks` or `torch.nn`

    @property
    def half(self) -> str:
        "The first digit of its number."
        return self.path.name[0]


def called_import(node: ast.Call) -> bool:
    "Is this `import_module(...)` or `__import__(...)`?"
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    return name in ("import_module", "__import__")


def imported(code: str) -> Iterator[str]:
    "Every module that `code` imports, wherever the import stands."
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [PACKAGE if node.level else "", node.module]))
            names = [alias.name for alias in node.names]
            yield from (f"{base}.{name}" for name in names) if base == PACKAGE else [base]
        elif isinstance(node, ast.Call) and called_import(node):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant))


def read_book(path: Path) -> Book | None:
    "The module that the notebook at `path` exports, or None."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    module = next((m[1] for c in code if (m := re.search(r"^#\|\s*default_exp\s+(\S+)", c, re.M))), None)
    exported = (c for c in code if re.match(r"\s*#\|\s*exports?(i)?\b", c))
    return module and Book(path, module, tuple(name for cell in exported for name in imported(cell)))


def complaint(book: Book, name: str, books: dict[str, Book]) -> str | None:
    "What is wrong with `book` importing `name`, or None."
    top, _, rest = name.partition(".")
    if top != PACKAGE:
        return f"imports {top}" if top in FOREIGN.get(book.half, TOOLS) else None
    if not rest or rest == "__version__":
        return None
    other = books.get(rest.split(".")[0])
    if other is None:
        return f"imports {name}, which no notebook exports"
    if other.half == OTHER_HALF.get(book.half):
        return f"imports {name}, which is of the other half"
    return None if other.path.name < book.path.name else f"imports {name}, whose number is not lower"


def check(folder: Path) -> list[str]:
    "One line for each import that breaks a rule."
    found = [book for path in sorted(folder.glob("[0-9]*.ipynb")) if (book := read_book(path))]
    books = {book.module: book for book in found}
    told = ((book, complaint(book, name, books)) for book in found for name in book.imports)
    return [f"{book.path}: {text}" for book, text in told if text]


if __name__ == "__main__":
    sys.exit("\n".join(check(Path(sys.argv[1] if len(sys.argv) > 1 else "nbs"))) or None)
