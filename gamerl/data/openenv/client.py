"The client."

from gamerl.openenv import GameClient

__all__ = ["GameClient"]
