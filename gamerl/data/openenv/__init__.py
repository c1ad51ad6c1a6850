"The games of gamerl as an OpenEnv environment."

from .client import GameClient
from .models import GameAction, GameObservation, GameState

__all__ = ["GameAction", "GameClient", "GameObservation", "GameState"]
