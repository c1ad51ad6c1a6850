"What others see: plain transformers and peft, tokenizers of digits, 4-bit weights, the machine's memory."

import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from commands import forks
from peft import AutoPeftModelForCausalLM, PeftModel
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from gamerl.environment import GameEnv
from gamerl.models import adapter_parameters, load_base, load_policy, model_path, new_policy, quantization
from gamerl.ppo import ratio
from gamerl.prompts import Observation, observe, reply_text
from gamerl.rollouts import ModelPlayer, make_batch, play_games
from gamerl.runs import load_checkpoint
from gamerl.sampling import Encoder, score
from gamerl.tasks import Task, load_game
from gamerl.tiny import VOCABULARY

torch.set_num_threads(1)


def positions(game: str, count: int, seed: int = 0, spread: int = 6) -> list[Observation]:
    "Decisions met in random play, about `spread` moves apart."
    rng, found = random.Random(seed), []
    state = load_game(game).new_initial_state()
    while len(found) < count:
        if state.is_terminal():
            state = load_game(game).new_initial_state()
        if not state.is_chance_node() and state.move_number() % spread == 0:
            found.append(observe(state, state.current_player()))
        state.apply_action(rng.choice(state.legal_actions()))
    return found


@torch.no_grad()
def slow_probs(model, tokenizer, observation: Observation, temperature: float = 1.0) -> np.ndarray:
    "The definition: token by token, each among the tokens that lead to an allowed reply, no cache, no batch."
    prompt = tokenizer.apply_chat_template(
        list(observation.messages), tokenize=False, add_generation_prompt=True
    )
    prompt = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    replies = [
        (*tokenizer(str(action), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
        for action in observation.legal
    ]
    steps: dict[tuple, dict[int, float]] = {}
    for reply in replies:
        for n in range(len(reply)):
            before = reply[:n]
            allowed = sorted({r[n] for r in replies if r[:n] == before})
            if before not in steps:
                steps[before] = {}
                if len(allowed) > 1:
                    logits = model(input_ids=torch.tensor([[*prompt, *before]])).logits[0, -1].double()
                    shares = (logits[allowed] / temperature).softmax(0)
                    steps[before] = dict(zip(allowed, shares.tolist()))
    return np.array([np.prod([steps[r[:n]].get(r[n], 1.0) for n in range(len(r))]) for r in replies])


GAMES = ("hex(board_size=3)", "tic_tac_toe", "liars_dice(numdice=1)")


def test_plain_transformers_and_peft_read_a_checkpoint(finished):
    "The base, the adapter and the tokenizer of a finished run, without gamerl, make gamerl's own moves."
    folder = finished[0] / "final"
    policy, config = load_checkpoint(folder)
    model = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(model_path("tiny")), folder / "model"
    )
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    seen = [o for game in GAMES for o in positions(game, 3, spread=2)]
    ours = ModelPlayer(policy, temperature=config.ppo.temperature).probs(seen)
    with model.disable_adapter():
        before = [slow_probs(model, tokenizer, o, config.ppo.temperature) for o in seen]
    theirs = [slow_probs(model.eval(), tokenizer, o, config.ppo.temperature) for o in seen]
    assert max(np.abs(a - b).max() for a, b in zip(ours, theirs)) < 1e-5
    assert max(np.abs(a - b).max() for a, b in zip(before, theirs)) > 1e-3, "the adapter does nothing"


def test_the_adapter_knows_its_base(finished):
    "peft alone finds the base that the adapter belongs to."
    model = AutoPeftModelForCausalLM.from_pretrained(finished[0] / "final" / "model")
    assert model.peft_config["default"].r == 16 and model.config.vocab_size == VOCABULARY


# Qwen's: words, single digits, punctuation, line ends.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LARGE = {"hex(board_size=11)": Qwen2Config, "chess": Qwen3Config}


@pytest.fixture(scope="module")
def digits() -> PreTrainedTokenizerFast:
    "A byte-level tokenizer that splits text as Qwen's does: every digit is a token of its own."
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=640, special_tokens=special, initial_alphabet=alphabet)
    texts = [m["content"] for game in LARGE for o in positions(game, 20) for m in o.messages]
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token=special[0])
    fast.chat_template = CHATML
    return fast


@pytest.fixture(scope="module", params=LARGE)
def large(request, digits):
    "A game with many moves, and a random model with strong opinions that reads digits one by one."
    shape = dict(vocab_size=640, hidden_size=64, intermediate_size=64, num_hidden_layers=2)
    heads = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=32, initializer_range=0.2)
    config = LARGE[request.param](
        **shape, **heads, max_position_embeddings=8192, eos_token_id=digits.eos_token_id
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config).requires_grad_(False).eval()
        policy = new_policy(model, digits, r=4)
        for p in adapter_parameters(policy).values():
            p.data.normal_(std=0.1)
    return request.param, policy


def test_moves_have_several_digits(large, digits):
    "Hex 11x11 begins with 121 moves; chess numbers thousands."
    game, policy = large
    start = load_game(game).new_initial_state()
    first = observe(start, start.current_player())
    most = {"hex(board_size=11)": (121, 120), "chess": (20, 4673)}
    distinct = load_game(game).num_distinct_actions()
    assert (len(first.legal), distinct - 1) == most[game]
    assert len(digits(str(distinct - 1), add_special_tokens=False)["input_ids"]) == len(str(distinct - 1))
    question = Encoder(digits, 8192)(first.messages, tuple(map(reply_text, first.legal)))
    assert len(question.trie.tokens) > 10


def test_distribution_over_many_moves(large):
    "Sums to one, differs from uniform, and is the slow definition."
    game, policy = large
    seen = positions(game, 3, spread=10)
    player = ModelPlayer(policy, Encoder(policy.tokenizer, 8192), temperature=0.7)
    fast = player.probs(seen)
    for observation, probs in zip(seen, fast):
        assert abs(probs.sum() - 1) < 1e-9 and len(probs) == len(observation.legal)
        assert probs.max() > 2 / len(probs)
        raw = np.exp(player.answers([observation])[0].logprobs)
        assert abs(raw.sum() - 1) < 1e-5
    slow = slow_probs(policy.lm, policy.tokenizer, seen[1], temperature=0.7)
    assert np.abs(fast[1] - slow).max() < 1e-4


def test_gradient_over_many_moves(large):
    "The gradient of a move's log-probability is that of the product over its tokens."
    game, policy = large
    observation = positions(game, 2, spread=10)[1]
    encode = Encoder(policy.tokenizer, 8192)
    question = encode(observation.messages, tuple(map(reply_text, observation.legal)))
    parameters = policy.trainable()[:4]
    fast = torch.autograd.grad(score(policy, [question]).table[0, -1], parameters)
    prompt, reply, total = question.prefix + question.suffix, question.replies[-1], 0.0
    for n, token in enumerate(reply):
        allowed = sorted({r[n] for r in question.replies if r[:n] == reply[:n]})
        logits = policy.lm(input_ids=torch.tensor([[*prompt, *reply[:n]]])).logits[0, -1]
        total = total + logits[allowed].log_softmax(0)[allowed.index(token)]
    slow = torch.autograd.grad(total, parameters)
    for a, b in zip(fast, slow):
        assert float((a - b).norm() / b.norm()) < 1e-4


def test_games_with_many_moves_are_played(large):
    "Only legal moves, up to the end: a wrong one would be an error of OpenSpiel."
    game, policy = large
    opening = near_the_end(game) if game == "chess" else ()  # or the test would be long
    player = ModelPlayer(policy, Encoder(policy.tokenizer, 8192))
    tasks = [Task(game, seed=seed, opponent="random", opening=opening) for seed in (0, 1)]
    games = play_games(tasks, player, make_env=GameEnv)
    for played in games:
        assert played.episode.terminated and not played.episode.truncated and not played.episode.forfeited
        state = load_game(game).new_initial_state()
        for action in played.episode.actions:
            assert action in state.legal_actions()
            state.apply_action(action)
        assert state.is_terminal()
    assert len(make_batch(games, player)) == sum(len(g.decisions) for g in games) > 20


def near_the_end(game: str, left: int = 60) -> tuple[int, ...]:
    "All moves of a random game but the last few."
    rng, state = random.Random(3), load_game(game).new_initial_state()
    while not state.is_terminal():
        state.apply_action(rng.choice(state.legal_actions()))
    return tuple(state.history()[:-left])


def four_bits(compute: str):
    "The tiny model in NF4."
    policy = load_policy("tiny", device="cpu", quantized=quantization("nf4", True, compute), seed=3)
    return with_opinions(policy)


def with_opinions(policy):
    "The policy with an adapter that does something."
    generator = torch.Generator().manual_seed(5)
    for p in adapter_parameters(policy).values():
        p.data.copy_(0.05 * torch.randn(p.shape, generator=generator))
    return policy


def unpacked():
    "The tiny model with the weights that its NF4 form stands for, as plain numbers."
    packed = load_base("tiny", device="cpu", quantized=quantization("nf4", True, "float32"))
    plain = load_base("tiny", dtype="float32", device="cpu")
    linear = {n: m for n, m in packed.named_modules() if isinstance(m, Linear4bit)}
    assert len(linear) == 28
    for name, module in linear.items():
        weight = dequantize_4bit(module.weight.data, module.weight.quant_state)
        plain.get_submodule(name).weight.data.copy_(weight)
    return with_opinions(new_policy(plain, AutoTokenizer.from_pretrained(model_path("tiny")), seed=3))


def gradients(policy, seen: list[Observation]) -> dict[str, torch.Tensor]:
    "Of some moves' log-probabilities."
    encode = Encoder(policy.tokenizer)
    questions = [encode(o.messages, tuple(map(reply_text, o.legal))) for o in seen]
    score(policy, questions).table[:, 0].sum().backward()
    return {name: p.grad for name, p in adapter_parameters(policy).items()}


def test_gradient_through_4_bits():
    "Is the gradient through the weights that the 4 bits stand for."
    seen = [o for game in GAMES for o in positions(game, 2, spread=2)]
    packed, plain = gradients(four_bits("float32"), seen), gradients(unpacked(), seen)
    assert packed.keys() == plain.keys()
    for name, gradient in packed.items():
        assert float((gradient - plain[name]).norm() / plain[name].norm()) < 1e-4, name


@pytest.mark.parametrize(("compute", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_player_and_trainer_agree_in_4_bits(compute, tolerance):
    "Before the first step, every move is as likely to the trainer as it was when it was played."
    policy = four_bits(compute)
    player = ModelPlayer(policy)
    games = play_games([Task("hex(board_size=3)", seed=seed) for seed in range(6)], player)
    batch = make_batch(games, player)
    for first in range(0, len(batch.questions), 4):
        chosen = list(range(first, min(first + 4, len(batch.questions))))
        members, row = batch.answered(chosen)
        table = score(policy, [batch.questions[u] for u in chosen], rows=4).table
        now = table[row, batch.choice[members]]
        assert now.requires_grad
        assert float((ratio(now.detach(), batch.old_logprobs[members]) - 1).abs().max()) < tolerance


MEGABYTE = 2**20


def memory(field: str) -> float:
    "What the system says about this process, in MB: VmRSS is held now, VmHWM was held at most."
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


def weigh(folder: str, answer) -> None:
    "In a process of its own: load a policy, play, ask the reference, learn; how much memory did that take?"
    torch.set_num_threads(1)
    train_a_little(load_policy("tiny", device="cpu"))  # what the libraries take for themselves
    start = memory("VmRSS")
    tokenizer = AutoTokenizer.from_pretrained(model_path("tiny"))
    policy = new_policy(load_base(folder, dtype="float32", device="cpu"), tokenizer)
    train_a_little(policy)
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in policy.parameters()}
    answer.send((memory("VmRSS") - start, memory("VmHWM") - start, sum(storages.values()) / MEGABYTE))


def train_a_little(policy) -> None:
    "Two steps away from the reference."
    question = Encoder(policy.tokenizer)([{"role": "user", "content": "3 4"}], ("3", "4"))
    optimizer = torch.optim.AdamW(policy.trainable(), lr=1e-3)
    for _ in range(2):
        with torch.no_grad(), policy.reference():
            reference = score(policy, [question]).table
        table = score(policy, [question]).table
        (table.exp() * (table - reference)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads Linux's account of memory")
def test_the_base_is_held_once(tmp_path):
    "A model of 60 MB plays, is its own reference, and learns, in less than twice its size."
    config = Qwen3Config(
        vocab_size=896,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config)
    base = sum(p.nbytes for p in model.parameters()) / MEGABYTE
    model.save_pretrained(tmp_path)
    here, there = forks.Pipe()
    process = forks.Process(target=weigh, args=(str(tmp_path), there))
    process.start()
    assert here.poll(60)
    held, most, parameters = here.recv()
    process.join()
    assert base > 50 and parameters < 1.2 * base
    assert 0.9 * base < held < 1.7 * base and most < 1.9 * base, (base, held, most)
