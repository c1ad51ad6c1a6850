"What `pip install .` gives to someone who has no copy of the repository."

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from time import perf_counter

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCES = ("settings.ini", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "gamerl")
HEAVY = ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes", "pyspiel", "matplotlib")


def settings() -> dict[str, str]:
    "What settings.ini says."
    config = ConfigParser(delimiters=["="])
    config.read(ROOT / "settings.ini", encoding="utf-8")
    return dict(config["DEFAULT"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    "The wheel, built from a copy that holds nothing but the sources of the package."
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--no-build-isolation", "--wheel-dir", out, source], check=True)
    (built,) = out.glob("*.whl")
    return built


def required(requirements: list[str]) -> dict:
    "What pip installs for these requirements, name -> distribution, as far as it is installed here."
    found, left = {}, [(Requirement(text), "") for text in requirements]
    while left:
        wanted, extra = left.pop()
        if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
            continue
        try:
            there = distribution(wanted.name)
        except PackageNotFoundError:
            continue  # optional after all: its own tests would miss it
        key = (there.name, *sorted(wanted.extras))
        if key not in found:
            found[key] = there
            needs = [Requirement(text) for text in there.requires or []]
            left += [(need, extra) for need in needs for extra in ("", *wanted.extras)]
    return {name: there for (name, *_), there in found.items()}


@pytest.fixture(scope="module")
def bin_folder(wheel, tmp_path_factory) -> Path:
    """The commands of a new environment with the wheel in it.

    The libraries that gamerl requires are borrowed from the environment that runs this test, link by link, so
    nothing is there that `pip install .` would not bring: no extra, and no gamerl installed in place.
    """
    home = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(home, with_pip=False)
    scripts = home / ("Scripts" if sys.platform == "win32" else "bin")
    python = str(scripts / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    for there in required(settings()["requirements"].split()).values():
        for top in {file.parts[0] for file in there.files} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(there.locate_file(top))
    return scripts


@pytest.fixture
def run(bin_folder, tmp_path, monkeypatch):
    "Run a command of the clean environment in an empty folder, with an empty home."
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()

    def run(command: str, *args: str, code: int = 0) -> str:
        words = [str(bin_folder / command), *args]
        done = subprocess.run(words, cwd=tmp_path / "here", capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return run


def test_wheel_holds_the_package_and_its_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    info = f"gamerl-{settings()['version']}.dist-info"
    assert {name.split("/")[0] for name in names} == {"gamerl", info}
    data = {p.relative_to(ROOT).as_posix() for p in (ROOT / "gamerl" / "data").rglob("*") if p.is_file()}
    assert data and data <= set(names)
    assert any(name.endswith("LICENSE") for name in names)
    assert wheel.stat().st_size < 6e6
    told = zipfile.ZipFile(wheel).read(f"{info}/METADATA").decode().splitlines()
    extras = {line.split(": ")[1] for line in told if line.startswith("Provides-Extra: ")}
    assert extras == {"serve", "endpoint", "doors", "trackers", "dev", "docs"}


def test_command_works_without_the_repository(run):
    where = run("python", "-c", "import gamerl; print(gamerl.__file__)")
    assert str(ROOT) not in where
    assert "train" in run("gamerl", "--help")
    told = json.loads(run("gamerl", "info", "--json"))
    assert told["versions"]["gamerl"] == settings()["version"]
    assert {p.stem for p in (ROOT / "gamerl/data/profiles").glob("*.json")} == set(told["profiles"])


def test_what_an_extra_brings_is_absent_and_asked_for(run):
    told = json.loads(run("gamerl", "info", "--json"))["versions"]
    absent = {"fastapi", "openai", "gymnasium", "openenv"}
    assert {name for name, version in told.items() if version == "not installed"} == absent
    said = run("gamerl", "serve", "--port", "0", code=2)
    assert said == "gamerl: error: fastapi is not installed; this needs: pip install 'gamerl[serve]'\n"
    options = "--profile tiny --stages.0.opponent endpoint:m@http://localhost:1/v1 --output_dir out".split()
    said = run("gamerl", "train", *options, code=2)
    assert (
        said.splitlines()[-1]
        == "gamerl: error: openai is not installed; this needs: pip install 'gamerl[endpoint]'"
    )


@pytest.mark.slow
def test_training_works_without_the_repository(run, tmp_path):
    "Nor does it need any extra."
    few = "--num_train_steps 1 --batch_size 2 --eval_episodes 2 --run.output_dir out".split()
    run("gamerl", "train", "--profile", "tiny", *few)
    assert (tmp_path / "here/out/final/model/adapter_model.safetensors").exists()


def loaded(run, code: str) -> set[str]:
    "The heavy libraries that `code` imports."
    told = run("python", "-c", f"import sys; {code}; print([m for m in {HEAVY} if m in sys.modules])")
    return set(json.loads(told.strip().split("\n")[-1].replace("'", '"')))


def fastest(run, command: str, *args: str) -> float:
    "Seconds of the best of five attempts: others may be using the machine."
    times = []
    for _ in range(5):
        start = perf_counter()
        run(command, *args)
        times.append(perf_counter() - start)
    return min(times)


def test_import_is_instant(run):
    assert loaded(run, "import gamerl") == set()
    nothing = fastest(run, "python", "-c", "pass")
    assert fastest(run, "python", "-c", "import gamerl") < nothing + 0.1


def test_help_takes_less_than_a_second(run):
    assert loaded(run, "from gamerl.cli import parse") == set()
    assert fastest(run, "gamerl", "--help") < 1
