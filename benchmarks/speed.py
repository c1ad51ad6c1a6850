"""How fast gamerl plays and learns on one core, each beside the plain way of doing the same.

    python benchmarks/speed.py          # -> data/speed.json, a few minutes on one core
    python benchmarks/speed.py --quick  # does it run? seconds; the numbers mean nothing

Playing: decisions per second of `play_games` with a `ModelPlayer`, beside one game at a time in which every
decision is a call of transformers' `generate` (at most three new tokens) whose text is parsed. A reply that
is no legal move is counted, and a random move played in its place. `ModelPlayer` begins without answers each
time, as in every step of training.

Learning: samples (decisions) x epochs per second of `Learner.learn`, beside a bare loop over the same
decisions and the same model: distinct prompts only, sorted by length into minibatches of the same size,
the keys and values of the rules shared; hidden states, logits where the reply begins, one cross-entropy,
backward. No PPO, no optimiser.

Both sides take turns, and what counts is the ratio of two neighbours. Time is processor time, so that other
work on the machine counts for less.
"""

import os

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}  # before torch is there to read them

import argparse
import json
import platform
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time

import torch
import transformers
from accelerate import Accelerator
from torch import nn
from transformers import DynamicCache

from gamerl.config import load_config
from gamerl.environment import GameEnv
from gamerl.learning import Learner, Scheduled
from gamerl.models import Policy, load_policy
from gamerl.prompts import parse_reply
from gamerl.rollouts import ModelPlayer, make_batch, play_games
from gamerl.sampling import Encoder, Question
from gamerl.tasks import Task
from gamerl.training_options import PPOConfig


@dataclass(frozen=True)
class Case:
    "A game as one of the profiles plays and learns it."

    game: str
    opponent: str
    profile: str
    playing_target: float  # times one game at a time
    learning_target: float = 0.75  # of the bare loop


CASES = (
    Case("leduc_poker", "self", "selfplay-leduc", 10.0),
    Case("hex(board_size=4)", "random", "tiny", 5.0),
)


@dataclass(frozen=True)
class Row:
    "What one comparison found; a rate is in decisions per second of processor time."

    what: str
    game: str
    games: int  # played at once
    gamerl: float  # median rate
    plain: float  # median rate of the other way
    ratios: list[float]  # of each round
    target: float | None
    note: str = ""

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    def line(self) -> str:
        "A line of the table."
        spread = f"{min(self.ratios):.2f} to {max(self.ratios):.2f}"
        target = "" if self.target is None else f"{self.target:g}"
        cells = [self.what, f"`{self.game}`", self.games, f"{self.gamerl:,.0f}", f"{self.plain:,.0f}"]
        return "| " + " | ".join(map(str, [*cells, f"{self.ratio:.2f}", spread, target, self.note])) + " |"


HEAD = """| | game | games at once | gamerl | plain | ratio | spread | target | |
|---|---|---:|---:|---:|---:|---|---:|---|"""


# Taking turns

Work = Callable[[], int]  # does some of it, and says how much


def rate(work: Work, seconds: float) -> float:
    "Work per second of processor time, measured over at least so many seconds."
    done, spent, start = 0, 0.0, process_time()
    while spent < seconds or not done:
        done += work()
        spent = process_time() - start
    return done / spent


def take_turns(ours: Work, theirs: Work, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    "Rates of both sides in each round; who begins changes from round to round."
    ours(), theirs()  # the first time of anything is slow
    found = {ours: [], theirs: []}
    for n in range(rounds):
        for work in (ours, theirs)[:: -1 if n % 2 else 1]:
            found[work].append(rate(work, seconds))
    return found[ours], found[theirs]


# Playing


def fresh_tasks(case: Case) -> Iterator[Task]:
    "Deals without end."
    seed = 0
    while True:
        yield Task(case.game, seed=seed, opponent=case.opponent)
        seed += 1


def many_at_once(policy: Policy, case: Case, games: int) -> Work:
    "gamerl's way: all games at once, each distinct prompt answered once."
    tasks, encode = fresh_tasks(case), Encoder(policy.tokenizer)

    def work() -> int:
        played = play_games([next(tasks) for _ in range(games)], ModelPlayer(policy, encode))
        return sum(len(game.decisions) for game in played)

    return work


class OneAtATime:
    "The plain way: one game, one prompt, one `generate`."

    def __init__(self, policy: Policy, case: Case):
        self.policy, self.tasks, self.rng = policy, fresh_tasks(case), random.Random(0)
        self.asked = self.illegal = 0

    def __call__(self) -> int:
        "Play one game to its end."
        env, before = GameEnv(), self.asked
        observation = env.reset(next(self.tasks))
        while observation is not None:
            observation = env.step(self.decide(observation)).observation
        return self.asked - before

    def decide(self, observation) -> int:
        "A move: the one that the model writes, or any if what it writes is none."
        action = parse_reply(self.write(list(observation.messages)), observation.legal).action
        self.asked += 1
        self.illegal += action is None
        return self.rng.choice(list(observation.legal)) if action is None else action

    @torch.no_grad()
    def write(self, messages: list[dict]) -> str:
        "What the model answers."
        tokenizer = self.policy.tokenizer
        asked = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        told = self.policy.lm.generate(
            input_ids=asked["input_ids"],
            attention_mask=asked["attention_mask"],
            max_new_tokens=3,
            do_sample=True,
            top_k=0,
            pad_token_id=tokenizer.pad_token_id,
        )
        return tokenizer.decode(told[0, asked["input_ids"].shape[1] :], skip_special_tokens=True)


def compare_playing(policy: Policy, case: Case, games: int, rounds: int, seconds: float) -> Row:
    "Decisions per second, many games at once beside one at a time."
    plain = OneAtATime(policy, case)
    ours, theirs = take_turns(many_at_once(policy, case, games), plain, rounds, seconds)
    ratios = [a / b for a, b in zip(ours, theirs)]
    note = f"plain: {100 * plain.illegal / plain.asked:.1f} % illegal"
    return Row("playing", case.game, games, median(ours), median(theirs), ratios, case.playing_target, note)


# Learning


@dataclass(frozen=True)
class Chunk:
    "Distinct prompts of one prefix and about one length, and the decisions made at them."

    prefix: torch.Tensor  # [1,P] token ids
    suffix: torch.Tensor  # [u,L] token ids, padded on the right
    last: torch.Tensor  # [u] place of the last token of each prompt in its suffix
    row: torch.Tensor  # [n] which prompt each decision answered
    token: torch.Tensor  # [n] first token of the reply


def chunked(questions: list[Question], size: int) -> Iterator[list[int]]:
    "Numbers of prompts to be computed together, nearest in length, of one prefix."
    groups: dict[tuple[int, ...], list[int]] = {}
    for u in sorted(range(len(questions)), key=lambda u: len(questions[u].suffix)):
        groups.setdefault(questions[u].prefix, []).append(u)
    for group in groups.values():
        yield from (group[n : n + size] for n in range(0, len(group), size))


def make_chunk(batch, members: list[int]) -> Chunk:
    "Tensors of some prompts."
    questions = [batch.questions[u] for u in members]
    width = max(len(question.suffix) for question in questions)
    taken, row = batch.answered(members)
    return Chunk(
        prefix=torch.tensor([questions[0].prefix], dtype=torch.long),
        suffix=torch.tensor(
            [question.suffix + (0,) * (width - len(question.suffix)) for question in questions]
        ),
        last=torch.tensor([len(question.suffix) - 1 for question in questions]),
        row=row,
        token=torch.tensor([questions[r].replies[c][0] for r, c in zip(row, batch.choice[taken])]),
    )


class Bare:
    "Forward and backward of a language model, and nothing else."

    def __init__(self, policy: Policy, batch, size: int, epochs: int):
        model = policy.lm.get_base_model()
        self.decoder, self.vocabulary = model.get_decoder(), model.get_output_embeddings()
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.chunks = [make_chunk(batch, members) for members in chunked(batch.questions, size)]
        self.samples, self.epochs = len(batch), epochs

    def __call__(self) -> int:
        "All epochs over the batch."
        for _ in range(self.epochs):
            for chunk in self.chunks:
                self.loss(chunk).backward()
                for p in self.parameters:
                    p.grad = None
        return self.samples * self.epochs

    def loss(self, chunk: Chunk) -> torch.Tensor:
        "Cross-entropy of the first tokens that were answered."
        cache, rows = DynamicCache(), len(chunk.suffix)
        if chunk.prefix.shape[1]:
            self.decoder(chunk.prefix, past_key_values=cache, use_cache=True)
            layers = [(layer.keys, layer.values) for layer in cache.layers]
            cache = DynamicCache(
                [(k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)) for k, v in layers]
            )
        places = (chunk.prefix.shape[1] + torch.arange(chunk.suffix.shape[1])).expand(rows, -1)
        told = self.decoder(chunk.suffix, position_ids=places, past_key_values=cache, use_cache=True)
        logits = self.vocabulary(told.last_hidden_state[torch.arange(rows), chunk.last])
        return nn.functional.nll_loss(logits.log_softmax(-1)[chunk.row], chunk.token)


def learning(policy: Policy, ppo: PPOConfig, batch) -> Work:
    "gamerl's update."
    learner, now = Learner(policy, ppo, Accelerator(cpu=True)), Scheduled(1.0, ppo.entropy_coef, 0.0)
    rng = random.Random(0)

    def work() -> int:
        learner.learn(batch, now, rng)
        return len(batch) * ppo.ppo_epochs

    return work


def compare_learning(policy: Policy, case: Case, games: int, rounds: int, seconds: float) -> Row:
    "Samples x epochs per second, PPO beside a bare loop."
    options = {
        "ppo.stop_kl": None,
        "ppo.learning_rate": 1e-9,
    }  # whole updates, of a policy that stays as it is
    ppo = load_config(profile=case.profile, overrides=options).ppo
    player, tasks = ModelPlayer(policy), fresh_tasks(case)
    batch = make_batch(play_games([next(tasks) for _ in range(games)], player), player)
    bare = Bare(policy, batch, ppo.mini_batch_size, ppo.ppo_epochs)
    ours, theirs = take_turns(learning(policy, ppo, batch), bare, rounds, seconds)
    ratios = [a / b for a, b in zip(ours, theirs)]
    note = (
        f"{len(batch):,} decisions, {len(batch.questions):,} distinct prompts, {ppo.mini_batch_size} at once"
    )
    return Row("learning", case.game, games, median(ours), median(theirs), ratios, case.learning_target, note)


# The table


def machine() -> dict:
    "What it was measured on and with."
    libraries = {m.__name__: m.__version__ for m in (torch, transformers)}
    return {"machine": platform.machine(), "versions": libraries | {"python": platform.python_version()}}


def measure(quick: bool, rounds: int, seconds: float) -> Iterator[Row]:
    "All comparisons: playing with few games and with the profile's batch, then learning."
    torch.set_num_threads(1)
    policy = load_policy()
    for case in CASES:
        few, batch = (4, 8) if quick else (64, load_config(profile=case.profile).ppo.batch_size)
        for games in (few, batch):
            yield compare_playing(policy, case, games, rounds, seconds)
        yield compare_learning(policy, case, batch, rounds, seconds)


def main():
    root = Path(__file__).parents[1]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=root / "data" / "speed.json", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="of taking turns (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="a turn, at least (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short round of a few games")
    args = parser.parse_args()
    rounds, seconds = (1, 0.0) if args.quick else (args.rounds, args.seconds)
    print(HEAD, flush=True)
    rows = []
    for row in measure(args.quick, rounds, seconds):
        print(row.line(), flush=True)
        rows.append(asdict(row) | {"ratio": row.ratio})
    told = machine() | {"quick": args.quick, "rounds": rounds, "seconds": seconds, "rows": rows}
    args.output.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
