"The habits of the repository: its words, its checks, its environment."

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from build_docs import outside_requests, signature
from check_generated import stale
from check_order import check

ROOT = Path(__file__).parents[1]
WORDS = "setup train test export format notebooks base docs bench lab constraints clean".split()
IMPORTED_AS = {"pyspiel": "open-spiel", "yaml": "pyyaml"}


def dry_run(word: str) -> list[str]:
    "The commands of `make word`, without running them."
    make = ["make", "--dry-run", "--no-print-directory", word]
    return subprocess.run(make, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")


def notebook(path: Path, *cells: str) -> Path:
    "A small notebook with these code cells."
    body = [dict(cell_type="code", id=f"c{n}", metadata={}, outputs=[], execution_count=None, source=c)
            for n, c in enumerate(cells)]  # fmt: skip
    kernel = dict(display_name="python3", language="python", name="python3")
    content = dict(cells=body, metadata=dict(kernelspec=kernel), nbformat=4, nbformat_minor=5)
    path.write_text(
        json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return path


def settings() -> dict[str, str]:
    "What settings.ini says."
    config = ConfigParser(delimiters=["="])
    config.read(ROOT / "settings.ini", encoding="utf-8")
    return dict(config["DEFAULT"])


def normal(name: str) -> str:
    "The name of a distribution as package indices compare it."
    return re.sub(r"[-_.]+", "-", name).lower()


# The words


@pytest.mark.parametrize("word", WORDS)
def test_every_word_makes_its_own_environment_first(word):
    commands = dry_run(word)
    assert word == "clean" or "scripts/setup.sh" in commands[0]


def test_help_names_every_word():
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert re.findall(r"make (\w+)", told)[: len(WORDS) + 1] == ["help", *WORDS]


def test_make_test_checks_in_order():
    steps = (
        "setup.sh,notebooks,check_order,package,ruff check,ruff format,nbdev_test,pytest,build_docs".split(
            ","
        )
    )
    commands = [line for line in dry_run("test") if line]
    assert len(commands) == len(steps)
    assert all(step in command for step, command in zip(steps, commands))


def test_ci_runs_make_test_and_nothing_else():
    lines = (ROOT / ".ci/run").read_text().split("\n")
    assert [line for line in lines if line and not line.startswith("#")] == ["exec make test"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


# The environment


def test_setup_without_a_python_is_one_line(tmp_path):
    (tmp_path / "bin").mkdir()
    for tool in "sh cat cksum dirname grep head".split():
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    (tmp_path / "scripts").mkdir()
    for name in "settings.ini setup.py pyproject.toml constraints.txt scripts/setup.sh".split():
        shutil.copy(ROOT / name, tmp_path / name)
    script = ["sh", str(tmp_path / "scripts/setup.sh")]
    done = subprocess.run(script, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"setup: no Python 3\.11 or newer .*\n", done.stderr)


def test_constraints_pin_every_requirement_without_a_build_mark():
    pins = (line for line in (ROOT / "constraints.txt").read_text().split("\n") if line and line[0] != "#")
    pinned = dict(line.split("==") for line in pins)
    assert not [pin for pin in pinned.values() if "+" in pin]
    said = (ROOT / "scripts/setup.sh").read_text()
    extras = re.search(r"--editable '\.\[([\w,]+)\]'", said)[1].split(",")
    assert {"serve", "endpoint", "doors", "dev", "docs"} <= set(extras)
    wanted = " ".join(settings()[key] for key in ("requirements", *(f"{e}_requirements" for e in extras)))
    names = {normal(re.split(r"[<>=!~]", requirement)[0]) for requirement in wanted.split()}
    assert names <= {normal(name) for name in pinned}


def test_requirements_name_everything_that_the_package_imports():
    known = {normal(re.split(r"[<>=!~]", r)[0]) for r in settings()["requirements"].split()}
    extras = " ".join(settings()[f"{e}_requirements"] for e in ("serve", "endpoint", "doors")).split()
    optional = {normal(re.split(r"[<>=!~]", r)[0]) for r in extras}
    assert not known & optional
    for path in (ROOT / "gamerl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            tops = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"gamerl"}
            assert {normal(IMPORTED_AS.get(top, top)) for top in tops} <= known | optional, path.name


# The order of the house


def test_the_house_is_in_order():
    assert check(ROOT / "nbs") == []


@pytest.mark.parametrize(
    ("book", "code", "complaint"),
    [
        ("00_one", "from gamerl.two import f", "imports gamerl.two, whose number is not lower"),
        ("00_one", "from gamerl.one import f", "imports gamerl.one, whose number is not lower"),
        ("20_both", "import gamerl.nowhere", "imports gamerl.nowhere, which no notebook exports"),
        ("00_one", "import torch", "imports torch"),
        ("01_two", "def f():\n    from transformers import pipeline", "imports transformers"),
        ("01_two", "import numpy, peft.tuners", "imports peft"),
        ("01_two", "from importlib import import_module\nimport_module('accelerate')", "imports accelerate"),
        ("02_three", "from gamerl import maths", "imports gamerl.maths, which is of the other half"),
        ("10_maths", "from gamerl.one import f", "imports gamerl.one, which is of the other half"),
        ("10_maths", "from . import one", "imports gamerl.one, which is of the other half"),
        ("11_more", "import pyspiel", "imports pyspiel"),
        ("11_more", "import open_spiel.python as spiel", "imports open_spiel"),
        ("20_both", "from fastcore.all import L", "imports fastcore"),
    ],
)
def test_a_broken_rule_is_found(tmp_path, book, code, complaint):
    for name in ("00_one", "01_two", "02_three", "10_maths", "11_more", "20_both"):
        cells = [f"#| default_exp {name[3:]}", "#| export\nimport json", "import torch, pyspiel, fastcore"]
        notebook(tmp_path / f"{name}.ipynb", *cells, *([f"#| exports\n{code}"] if name == book else []))
    assert check(tmp_path) == [f"{tmp_path / book}.ipynb: {complaint}"]


def test_what_is_allowed_is_not_found(tmp_path):
    notebook(tmp_path / "00_one.ipynb", "#| default_exp one", "#| export\nimport numpy, pyspiel")
    notebook(tmp_path / "10_maths.ipynb", "#| default_exp maths", "#| export\nfrom torch import nn")
    code = "#| export\nfrom gamerl import __version__\nfrom gamerl.one import f\nfrom gamerl.maths import g"
    notebook(tmp_path / "20_both.ipynb", "#| default_exp both", code)
    notebook(tmp_path / "index.ipynb", "import torch, pyspiel")
    assert check(tmp_path) == []


def test_the_command_fails_and_says_why(tmp_path):
    notebook(tmp_path / "00_one.ipynb", "#| default_exp one", "#| export\nimport torch")
    command = [sys.executable, ROOT / "scripts/check_order.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "imports torch" in done.stderr


# What is made from the notebooks


@pytest.fixture
def small_project(tmp_path) -> Path:
    "A project with one clean notebook and what it exports."
    for name in ("settings.ini", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("nbs", "gamerl"):
        (tmp_path / name).mkdir()
    notebook(tmp_path / "nbs/00_one.ipynb", "#| default_exp one", "#| export\ndef f():\n    return 1")
    subprocess.run([Path(sys.executable).with_name("nbdev_export")], cwd=tmp_path, check=True)
    return tmp_path


def test_clean_and_exported_is_accepted(small_project):
    before = {p: p.read_bytes() for p in small_project.rglob("*.*") if p.is_file()}
    assert stale(small_project, "notebooks") == []
    assert stale(small_project, "package") == []
    assert {p: p.read_bytes() for p in small_project.rglob("*.*") if p.is_file()} == before


def test_a_notebook_with_traces_of_its_run_is_found(small_project):
    path = small_project / "nbs/00_one.ipynb"
    path.write_text(path.read_text().replace('"execution_count": null', '"execution_count": 7'))
    assert stale(small_project, "notebooks") == ["nbs/00_one.ipynb"]


def test_a_module_that_was_edited_is_found(small_project):
    path = small_project / "gamerl/one.py"
    path.write_text(path.read_text().replace("return 1", "return 2"))
    assert stale(small_project, "package") == ["gamerl/one.py"]


def test_a_module_whose_notebook_is_gone_is_found(small_project):
    (small_project / "nbs/00_one.ipynb").rename(small_project / "nbs/_old.ipynb")
    assert "gamerl/one.py" in stale(small_project, "package")


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook_begins_with_title_and_subtitle(path):
    first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
    assert first["cell_type"] == "markdown"
    assert re.fullmatch(r"# \S.*\n\n> \S.*", "".join(first["source"]).strip())


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_kept_outputs_name_no_place_of_one_machine(path):
    assert not re.search(r"site-packages|/root/|/home/\w+/|/Users/\w+/", path.read_text(encoding="utf-8"))


# The site


def test_outside_requests_are_found(tmp_path):
    links = '<a href="https://example.org">a link is no request</a><img src="_static/a.png">'
    (tmp_path / "good.html").write_text(links)
    assert outside_requests(tmp_path) == []
    (tmp_path / "bad.html").write_text(links + '<script defer src="https://cdn.example.org/a.js"></script>')
    (tmp_path / "bad.css").write_text(
        "@import '//fonts.example.org/b.css'; body { background: url(http://c.org/c) }"
    )
    urls = {line.split(": ", 1)[1] for line in outside_requests(tmp_path)}
    assert urls == {"https://cdn.example.org/a.js", "//fonts.example.org/b.css", "http://c.org/c"}


def test_signatures_keep_the_words_of_the_source():
    source = """
@dataclass(frozen=True)
class Pair:
    "Two numbers."

    a: int  # the first
    b: int = 2  # the second

    @property
    def total(
        self,
    ) -> int:  # their sum
        "Their sum."
        return self.a + self.b
"""
    head = "@dataclass(frozen=True)\nclass Pair:\n    a: int  # the first\n    b: int = 2  # the second"
    assert signature("Pair", source) == head
    assert signature("Pair.total", source) == "@property\ndef total(\n    self,\n) -> int:  # their sum"
    assert signature("Pair.product", source) is None


def test_a_folder_called_gamerl_does_not_hide_the_package(tmp_path):
    "A clone has that name, and people run scripts beside it."
    (tmp_path / "gamerl").symlink_to(ROOT)
    code = "import gamerl.config; print(gamerl.__version__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
