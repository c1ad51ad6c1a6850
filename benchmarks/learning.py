"""What training reaches: whole runs of the shipped profiles, several seeds each.

    python benchmarks/learning.py tiny --seeds 3
    python benchmarks/learning.py hex selfplay-kuhn selfplay-leduc --seeds 3 --first 0

Each run is `gamerl train` in a process of its own. What it prints goes to `runs/learning/<name>-<seed>.log`;
the results are collected in `data/learning/<name>.json`, a seed at a time, and printed as a table of medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = {
    "tiny": ["--profile", "tiny"],
    "hex": [
        "--profile",
        "tiny",
        "--games",
        "hex(board_size=4)",
        "--num_train_steps",
        "250",
        "--time_limit_minutes",
        "8",
    ],
    "selfplay-kuhn": ["--profile", "selfplay-kuhn"],
    "selfplay-leduc": ["--profile", "selfplay-leduc"],
    "small": ["--profile", "small"],
}


def train(name: str, seed: int, folder: Path, extra: list[str]) -> None:
    "One run in a process of its own."
    words = [str(Path(sys.executable).with_name("gamerl")), "train", *RUNS[name]]
    words += ["--run.seed", str(seed), "--run.output_dir", str(folder), *extra]
    with folder.with_suffix(".log").open("w") as log:
        subprocess.run(words, check=True, stdout=log, stderr=log)


def matches(report: dict) -> list[dict]:
    "Player, floor and random win rates of each row of a report."
    rows = []
    for row in report["rows"]:
        found = {"game": row["player"]["game"], "opponent": row["player"]["opponent"]}
        for who in ("player", "floor", "random"):
            match = row[who]
            if match:
                found[who] = {k: match[k] for k in ("games", "win_rate", "win_interval", "score")}
        if row["exact"]:
            found["nash_conv"] = row["exact"]["nash_conv"]
        rows.append(found)
    return rows


def collect(seed: int, folder: Path) -> dict:
    "What one run has left behind."
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    reports = {
        when: matches(json.loads(path.read_text()))
        for when in ("before", "after")
        if (path := folder / f"{when}.json").exists()
    }
    curve = [
        {k: step[k] for k in step if k.startswith("nash_conv") or k in ("step", "time_total", "episodes")}
        for step in steps
        if "nash_conv" in step
    ]
    last = steps[-1]
    return {
        "seed": seed,
        "seconds": round(last["time_total"], 1),
        "episodes": last["episodes"],
        "stage": last["stage"],
        "finite": all(x == x and abs(x) != float("inf") for step in steps for x in step.values()),
        "nash_conv": curve,
        **reports,
    }


def spread(values: list[float]) -> str:
    "Median and range."
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def table(name: str, runs: list[dict]) -> str:
    "Medians over seeds as markdown."
    seconds = spread([run["seconds"] for run in runs])
    lines = [f"{name}: {len(runs)} seeds, seconds of training {seconds}, median (lowest to highest)", ""]
    if "after" in runs[0]:
        lines += ["| game | opponent | before | after | floor |", "|---|---|---|---|---|"]
        for n, row in enumerate(runs[0]["after"]):
            cells = [
                spread([run[when][n][who]["win_rate"] for run in runs]) if who in row else ""
                for when, who in (("before", "player"), ("after", "player"), ("after", "floor"))
            ]
            lines.append(f"| {row['game']} | {row['opponent']} | " + " | ".join(cells) + " |")
    if runs[0]["nash_conv"]:
        lines += ["", "| NashConv | last | lowest |", "|---|---|---|"]
        for kind in ("nash_conv", "nash_conv_average", "nash_conv_mixture"):
            curves = [[p[kind] for p in run["nash_conv"] if kind in p] for run in runs]
            last, best = ([f(c) for c in curves] for f in (lambda c: c[-1], min))
            lines.append(f"| {kind} | {spread(last)} | {spread(best)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=["tiny"], metavar="name", help=", ".join(RUNS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"), help="where the runs go")
    parser.add_argument("--data", type=Path, default=Path("data/learning"), help="where the results go")
    args, extra = parser.parse_known_args()
    if unknown := [name for name in args.names if name not in RUNS]:
        parser.error(f"{unknown[0]!r} is not known; names are {', '.join(RUNS)}")
    args.runs.mkdir(parents=True, exist_ok=True)
    args.data.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        path = args.data / f"{name}.json"
        found = {run["seed"]: run for run in json.loads(path.read_text())} if path.exists() else {}
        for seed in range(args.first, args.first + args.seeds):
            train(name, seed, args.runs / f"{name}-{seed}", extra)
            found[seed] = collect(seed, args.runs / f"{name}-{seed}")
            path.write_text(json.dumps([found[s] for s in sorted(found)], indent=1) + "\n")
            print(f"{name} seed {seed}: {found[seed]['seconds']} s", flush=True)
        print(table(name, [found[s] for s in sorted(found)]), flush=True)


if __name__ == "__main__":
    main()
