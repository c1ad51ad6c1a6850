"""PPO on texts with a reward that is a function: vowels, four to eight letters long.

    python benchmarks/letters.py                   # -> data/letters.json, three seeds

The model is made on the spot: two layers of the Qwen3 architecture with random weights, which know ten
letters and an end. Its first texts are random letters, and what it becomes is learned from the reward alone.
The reward is the share of vowels plus 1 for a text of four to eight letters; its maximum is 2. The weight of
the KL follows a target of 1.5 nats per letter. It adapts slowly enough (`kl_horizon` is 10,000 letters, the
default) that no step gets there. Both are checked at the end: no step's KL reaches the target, and at least
nine tenths of the maximum are learned.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from gamerl.config import Config, load_config
from gamerl.matches import bootstrap_mean
from gamerl.rewards import letter_share, target_length
from gamerl.training import PPOTrainer

LETTERS, MAXIMUM, TARGET_KL = "aeioubcdfg", 2.0, 1.5
PROMPTS = ("a", "b", "cd", "egg")


def letter_tokenizer() -> PreTrainedTokenizerFast:
    "A token for each letter."
    vocabulary = {token: n for n, token in enumerate(["<end>", "<pad>", *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")


def letter_model(seed: int) -> torch.nn.Module:
    "A language model that has read nothing."
    config = Qwen3Config(
        vocab_size=len(LETTERS) + 2,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
        initializer_range=0.08,  # at the usual 0.02 no state could make one letter much likelier
        eos_token_id=0,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config)


def letter_config(seed: int, steps: int, folder: str) -> Config:
    "What differs from the profile `rlhf`."
    overrides = {
        "ppo.batch_size": 64,
        "ppo.mini_batch_size": 64,
        "ppo.rollout_rows": 64,
        "ppo.ppo_epochs": 2,
        "ppo.learning_rate": 3e-3,
        "ppo.value_learning_rate": 1e-2,
        "ppo.lr_schedule": "linear",
        "ppo.detach_value": False,
        "ppo.kl_coef": 0.05,
        "ppo.target_kl": TARGET_KL,
        "ppo.num_train_steps": steps,
        "rlhf.num_epochs": steps * 64 // len(PROMPTS) + 1,
        "rlhf.cut_texts": "score",
        "model.max_new_tokens": 16,
        "run.device": "cpu",
        "run.seed": seed,
        "run.output_dir": folder,
    }
    return load_config(profile="rlhf", overrides=overrides)


def measure(seed: int, steps: int, texts: int) -> dict:
    "One run."
    with tempfile.TemporaryDirectory() as folder:
        trainer = PPOTrainer(
            letter_config(seed, steps, folder),
            model=letter_model(seed),
            tokenizer=letter_tokenizer(),
            reward_functions=[letter_share("aeiou"), target_length(4, 8)],
        )
        trainer.train(PROMPTS)
        curve = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
        shown = [
            json.loads(line)["completion"] for line in Path(folder, "texts.jsonl").read_text().splitlines()
        ]
    rewards, kls = trainer.source.appraise(texts), [row["kl"] for row in curve]
    return {
        "seed": seed,
        "seconds": trainer.seconds,
        "reward": fmean(rewards),
        "reward_interval": bootstrap_mean(rewards),
        "kl": fmean(kls[-10:]),
        "largest_kl": max(kls),
        "curve": [{name: row[name] for name in ("step", "reward", "kl", "kl_coef")} for row in curve],
        "first_texts": shown[:6],
        "last_texts": shown[-6:],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs")
    parser.add_argument("--steps", type=int, default=60, help="steps of PPO")
    parser.add_argument("--texts", type=int, default=400, help="texts that are judged at the end")
    parser.add_argument("--output", type=Path, default=Path("data/letters.json"), help="where the results go")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = [measure(seed, args.steps, args.texts) for seed in range(args.seeds)]
    for run in runs:
        low, high = run["reward_interval"]
        print(
            f"seed {run['seed']}: reward {run['reward']:.3f} ({low:.3f} to {high:.3f}) of {MAXIMUM}, ", end=""
        )
        print(f"KL {run['kl']:.2f} nats a letter, at most {run['largest_kl']:.2f}, ", end="")
        print(f"{run['seconds']:.0f} s; {', '.join(run['last_texts'])}")
    told = {"maximum": MAXIMUM, "target_kl": TARGET_KL, "runs": runs}
    args.output.write_text(json.dumps(told, indent=1) + "\n")
    for run in runs if args.steps >= 60 else []:
        assert run["largest_kl"] < TARGET_KL, f"seed {run['seed']}: the KL of a step is not under its target"
        assert run["reward_interval"][0] >= 0.9 * MAXIMUM, f"seed {run['seed']}: too little is learned"


if __name__ == "__main__":
    main()
