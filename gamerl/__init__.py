"""Language models learn games, and whatever else has a reward, by PPO and LoRA."""

__version__ = "0.1.0"

_HOMES = {  # what most scripts need, and where it lives; nothing is imported before it is asked for
    "Config": "options",
    "GameEnv": "environment",
    "PPOConfig": "options",
    "PPOTrainer": "training",
    "Qwen3RewardModel": "reward_model",
    "RewardModel": "reward_model",
    "Task": "tasks",
    "evaluate": "evaluation",
    "load_config": "config",
    "train": "runs",
}
__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'gamerl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gamerl.{_HOMES[name]}"), name)
