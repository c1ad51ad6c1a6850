"Games of random play, for tests that look at many positions."

import random
from collections.abc import Iterator

import pyspiel

from gamerl.states import apply_turn, turn_seats
from gamerl.tasks import load_game


def positions(
    game: str,  # OpenSpiel's game string
    seed: int,
    moves: int = 60,  # turns of players after which to stop
    final: bool = False,  # whether the position after them is shown as well
) -> Iterator[pyspiel.State]:  # copies
    "The positions of a random game at which somebody decides."
    rng, state = random.Random(seed), load_game(game).new_initial_state()
    while not state.is_terminal() and moves > 0:
        if state.is_chance_node():
            actions, weights = zip(*state.chance_outcomes())
            state.apply_action(rng.choices(actions, weights)[0])
            continue
        yield state.clone()
        moves -= 1
        apply_turn(state, [rng.choice(state.legal_actions(p)) for p in turn_seats(state)])
    if final:
        yield state
