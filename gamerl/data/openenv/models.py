"What is sent."

from gamerl.openenv import GameAction, GameObservation, GameState

__all__ = ["GameAction", "GameObservation", "GameState"]
