"""How fast tabular solvers find an equilibrium: the NashConv of CFR and external-sampling MCCFR.

    python benchmarks/solvers.py        # -> data/solvers.json, half a minute on one core

These solvers hold one number per information state and move, and know the rules exactly. They are no rivals
of a language model; they show what a NashConv of 0.5 costs somebody who can count cards perfectly.
"""

import argparse
import json
from pathlib import Path

import pyspiel

GAMES = ("kuhn_poker", "leduc_poker")
CFR_ITERATIONS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # each walks through the whole game
MCCFR_ITERATIONS = (
    10,
    30,
    100,
    300,
    1000,
    3000,
    10_000,
    30_000,
    100_000,
    300_000,
)  # each samples one path per player


def cfr_curve(game, points):
    "NashConv of CFR's average policy after each number of iterations."
    solver, done, curve = pyspiel.CFRSolver(game), 0, []
    for iterations in points:
        for _ in range(iterations - done):
            solver.evaluate_and_update_policy()
        done = iterations
        curve.append([iterations, pyspiel.nash_conv(game, solver.tabular_average_policy())])
    return curve


def mccfr_curve(game, points, seed):
    "NashConv of the average policy of external-sampling MCCFR after each number of iterations."
    solver, done, curve = pyspiel.ExternalSamplingMCCFRSolver(game, seed), 0, []
    for iterations in points:
        for _ in range(iterations - done):
            solver.run_iteration()
        done = iterations
        average = solver.average_policy()  # kept in a variable: it borrows from the solver
        curve.append([iterations, pyspiel.nash_conv(game, average, True)])
    return curve


def curves(name, seed):
    "Both solvers on one game, and the uniform policy they start from."
    game = pyspiel.load_game(name)
    return {
        "uniform": pyspiel.nash_conv(game, pyspiel.UniformRandomPolicy(game)),
        "CFR": cfr_curve(game, CFR_ITERATIONS),
        "external-sampling MCCFR": mccfr_curve(game, MCCFR_ITERATIONS, seed),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "data" / "solvers.json")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling solver")
    args = parser.parse_args()
    found = {name: curves(name, args.seed) for name in GAMES}
    args.output.write_text(json.dumps(found, indent=1) + "\n")
    for name, solvers in found.items():
        print(f"{name}: uniform {solvers.pop('uniform'):.4f}")
        for solver, curve in solvers.items():
            print(f"  {solver}: " + ", ".join(f"{n} {value:.4f}" for n, value in curve))


if __name__ == "__main__":
    main()
