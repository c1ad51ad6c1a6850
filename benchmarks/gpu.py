"""What a model of 3 billion parameters costs: memory and time of gamerl's own training steps on one GPU.

    python benchmarks/gpu.py                 # -> data/gpu-qwen2.5-3b.json and .md, on a GPU
    python benchmarks/gpu.py --shape small   # -> data/gpu-small.json and .md: does it run? no GPU, a minute

The model has the exact shape of Qwen2.5-3B-Instruct and random weights. They are made here and written to a
folder (6 GB, removed afterwards), so nothing is downloaded; memory and speed do not ask what the weights are.
Beside them lies a tokenizer that splits text by Qwen's own rule, every digit by itself, and has one token for
each word of our prompts, as a vocabulary of 151,936 nearly has.

From there on it is the way of every run: `PPOTrainer` loads the folder, once in 4 bits (NF4 with double
quantisation) and once in bfloat16, with gradient checkpointing, and takes steps of 8 episodes of the games
0, 1, 2, 6 and 7. The table's last line stands beside what was promised: 80,000 episodes in 80 to 100 hours.
"""

import argparse
import gc
import json
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from time import perf_counter

import bitsandbytes
import peft
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX
from transformers.utils import logging

from gamerl.config import Config, load_config
from gamerl.models import pick_device
from gamerl.tasks import decode_task_id
from gamerl.tiny import CHATML, SPECIAL, random_samples
from gamerl.training import PPOTrainer

QWEN = dict(  # config.json of Qwen2.5-3B-Instruct
    hidden_size=2048,
    intermediate_size=11008,
    num_hidden_layers=36,
    num_attention_heads=16,
    num_key_value_heads=2,
    vocab_size=151_936,
    max_position_embeddings=32_768,
    tie_word_embeddings=True,
    rms_norm_eps=1e-6,
    rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
)
SMALL = QWEN | dict(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=4096
)
SHAPES = {"qwen2.5-3b": QWEN, "small": SMALL}
LESS = {"small": {"ppo.batch_size": 4, "ppo.ppo_epochs": 1, "env.max_turns": 3}}  # enough to see that it runs
GAMES = (0, 1, 2, 6, 7)  # goofspiel, liar's dice, leduc poker, hex, clobber
FORMATS = {  # name -> what the profile is told
    "nf4": {"model.use_4bit": True, "model.bnb_4bit_quant_type": "nf4", "model.use_nested_quant": True},
    "bf16": {"model.use_4bit": False, "model.dtype": "bfloat16"},
}
EPISODES, HOURS = 80_000, (80, 100)  # the promise: 10,000 steps of 8 episodes
PARTS = ("reference", "forward", "backward", "optimiser")


# A model that nobody has to download


def prompt_texts(count: int = 100) -> list[str]:
    "Prompts of the games, for the tokenizer to learn from."
    tasks = [decode_task_id(100_000_000 * index) for index in GAMES]
    samples = [sample for task in tasks for sample in random_samples(task.spec, count)]
    return ["\n".join(m["content"] for m in sample.observation.messages) for sample in samples]


def make_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    "A tokenizer that splits text as Qwen's does: words in one piece, every digit by itself."
    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizers.NFC()
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocabulary, 8000),
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([*texts, CHATML], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHATML
    )


def write_model(folder: Path, shape: dict, device: torch.device) -> None:
    "Random weights and a tokenizer, as `from_pretrained` expects them."
    tokenizer = make_tokenizer(prompt_texts(), shape["vocab_size"])
    config = Qwen2Config(
        **shape, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None
    )
    with torch.random.fork_rng(), device:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# The clock


@dataclass
class Clock:
    "Adds up the seconds that some functions take, the work of the GPU included."

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)

    def now(self) -> float:
        "The time when all that was asked for is done."
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        return perf_counter()

    def timed(self, name: str, function: Callable) -> Callable:
        "The same function, its time added to a name."

        def run(*args, **options):
            start = self.now()
            try:
                return function(*args, **options)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - start

        return run


def watch(trainer: PPOTrainer, clock: Clock) -> None:
    "Time the parts of an update; what is left of `improve` is the forward pass and the loss."
    learner = trainer.learner
    learner.targets = clock.timed("reference", learner.targets)
    learner.improve = clock.timed("improve", learner.improve)
    learner.descend = clock.timed("optimiser", learner.descend)
    learner.accelerator.backward = clock.timed("backward", learner.accelerator.backward)


# Memory, in GB of 10^9 bytes


def gigabytes(device: torch.device) -> float | None:
    "The most memory that tensors have taken since the last `forget_peak`; not known on a CPU."
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None


def forget_peak(device: torch.device) -> None:
    "Give back what nobody uses, and start to look for the peak anew."
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


# One format


def configuration(args: argparse.Namespace, folder: Path, form: str) -> Config:
    "The profile, with this model, these games and one opponent throughout."
    stage = {"name": "benchmark", "tasks": ["0-999999999"], "opponent": args.opponent, "threshold": 1.0}
    return load_config(
        profile=args.profile,
        overrides=FORMATS[form]
        | LESS.get(args.shape, {})
        | {
            "model.model_name": str(folder),
            "env.allowed_game_indices": list(GAMES),
            "curriculum.stages": [stage],
            "run.output_dir": str(folder / "run"),
        },
    )


def measure(args: argparse.Namespace, folder: Path, form: str, device: torch.device) -> dict:
    "Steps of training in one format: what they needed and how long they took."
    forget_peak(device)
    config = configuration(args, folder, form)
    trainer = PPOTrainer(config)
    loaded = gigabytes(device)
    forget_peak(device)
    trainer.step()  # the first of everything is slow
    clock = Clock(device)
    watch(trainer, clock)
    start = clock.now()
    steps = [trainer.step()[0] for _ in range(args.steps)]
    wall = clock.now() - start
    parts = clock.seconds | {"forward": clock.seconds["improve"] - sum(map(clock.seconds.get, PARTS[2:]))}
    lengths = [len(q.prefix) + len(q.suffix) for q in trainer.source.encode.questions.values()]
    episodes, rollout = config.ppo.batch_size * args.steps, sum(s["time_rollout"] for s in steps)
    return {
        "format": form,
        "loading_gb": loaded,
        "peak_gb": gigabytes(device),
        "decisions_per_second": sum(s["decisions"] for s in steps) / rollout,
        "episodes_per_second": episodes / rollout,
        "hours": wall / episodes * EPISODES / 3600,
        "seconds_per_step": wall / args.steps,
        "rollout_seconds": rollout / args.steps,
        "update_seconds": sum(s["time_update"] for s in steps) / args.steps,
        "update_parts": {name: parts[name] / args.steps for name in PARTS},
        "prompt_tokens": {"mean": mean(lengths), "max": max(lengths)},
        "steps": steps,
    }


# The table


def table(found: list[dict]) -> str:
    "A line for each quantity, a column for each format."
    hours = f"hours for {EPISODES:,} episodes (promised: {HOURS[0]} to {HOURS[1]})"
    rows = {
        "peak memory, training (GB)": lambda f: f["peak_gb"],
        "peak memory, loading (GB)": lambda f: f["loading_gb"],
        "decisions per second, playing": lambda f: f["decisions_per_second"],
        "episodes per second, playing": lambda f: f["episodes_per_second"],
        "seconds per step": lambda f: f["seconds_per_step"],
        "- playing": lambda f: f["rollout_seconds"],
        "- update": lambda f: f["update_seconds"],
    }
    rows |= {f"-- {name}": lambda f, name=name: f["update_parts"][name] for name in PARTS}
    rows |= {
        "decisions per step": lambda f: mean(s["decisions"] for s in f["steps"]),
        "prompt tokens, mean": lambda f: f["prompt_tokens"]["mean"],
        "prompt tokens, longest": lambda f: f["prompt_tokens"]["max"],
        hours: lambda f: f["hours"],
    }
    lines = ["| | " + " | ".join(f["format"] for f in found) + " |", "|---|" + "---:|" * len(found)]
    for name, read in rows.items():
        cells = ["unknown" if (x := read(f)) is None else f"{x:,.2f}" for f in found]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def machine(device: torch.device) -> dict:
    "What it was measured on and with."
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    libraries = (torch, transformers, peft, bitsandbytes)
    return {"device": name, "versions": {library.__name__: library.__version__ for library in libraries}}


def options(device: torch.device) -> argparse.Namespace:
    "The command line; without a GPU the small shape is the default."
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shape = "qwen2.5-3b" if device.type == "cuda" else "small"
    parser.add_argument("--shape", choices=SHAPES, default=shape, help="of the model (here: %(default)s)")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="of its weights")
    parser.add_argument("--profile", default="qwen2.5-3b-16gb", help="where all other options come from")
    parser.add_argument("--opponent", default="random", help="on the other seats: random, mcts, ...")
    parser.add_argument("--steps", type=int, default=None, help="of training that are timed (10; small: 1)")
    parser.add_argument(
        "--folder", type=Path, help="where the weights go; it is kept, and used again if it is there"
    )
    parser.add_argument("--output", type=Path, help="a name ending in .json (data/gpu-<shape>.json)")
    args = parser.parse_args()
    args.steps = args.steps or (1 if args.shape == "small" else 10)
    args.output = args.output or Path(__file__).parents[1] / "data" / f"gpu-{args.shape}.json"
    return args


def main():
    logging.disable_progress_bar()
    device = pick_device()
    args = options(device)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="gamerl-gpu-"))
    print(f"{args.shape}, random weights, profile {args.profile}, {machine(device)['device']}", flush=True)
    try:
        if not (folder / "config.json").exists():
            write_model(folder, SHAPES[args.shape], device)
        found = [measure(args, folder, form, device) for form in args.formats]
    finally:
        if not args.folder:
            shutil.rmtree(folder)
    told = {"shape": args.shape, "profile": args.profile, "opponent": args.opponent} | machine(device)
    args.output.write_text(json.dumps(told | {"promised_hours": HOURS, "formats": found}, indent=1) + "\n")
    args.output.with_suffix(".md").write_text(table(found))
    print(table(found), end="")


if __name__ == "__main__":
    main()
