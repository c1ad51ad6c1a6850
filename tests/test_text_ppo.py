"""PPO on texts, token by token: against slow definitions, against padding, against TRL's trainer."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from commands import metrics_of
from launching import two_processes
from torch import Tensor, nn
from transformers import AutoTokenizer

from gamerl.completions import Completion, completion_scores, generate
from gamerl.config import load_config
from gamerl.learning import Learner, scheduled
from gamerl.losses import Weights, make_targets, score_texts, token_losses
from gamerl.models import Policy, adapter_parameters, load_policy
from gamerl.reward_model import RewardModel
from gamerl.rollouts import FreePlayer, Written
from gamerl.sampling import Question
from gamerl.texts import Pay, text_batch, write_texts
from gamerl.training import PPOTrainer, restore, run, save
from gamerl.training_options import PPOConfig

torch.set_num_threads(1)

TEMPERATURE = 0.7


@pytest.fixture(autouse=True)
def few_threads():
    "The trainer may ask for more."
    yield
    torch.set_num_threads(1)


def new_writer(dtype: str = "float64") -> Policy:
    "The tiny model made talkative: adapter and value head say something, and many tokens end a text."
    policy = load_policy("tiny", device="cpu", dtype=dtype)
    rng = torch.Generator().manual_seed(6)
    for p in [*adapter_parameters(policy).values(), policy.value_head.outer.weight]:
        p.data.copy_(0.2 * torch.randn(p.shape, generator=rng))
    policy.lm.generation_config.eos_token_id = list(range(2, 1280, 6))
    return policy


@pytest.fixture(scope="module")
def writer() -> Policy:
    "A policy that no test changes."
    return new_writer()


def new_questions(policy: Policy) -> list[Question]:
    "Prompts of 1 to about 40 tokens, with the end of a turn and the padding's token inside."
    chats = [[{"role": "user", "content": "Free: " + " ".join(map(str, range(n)))}] for n in (1, 4, 9, 14)]
    prompts = [policy.tokenizer.apply_chat_template(c, add_generation_prompt=True) for c in chats]
    prompts = [tuple(p["input_ids"]) for p in prompts]
    prompts += [prompts[0][:1], (0, 0, *prompts[1][:5]), (*prompts[2], 0)]
    assert len({len(p) for p in prompts}) > 4 and any(policy.tokenizer.eos_token_id in p for p in prompts)
    return [Question((), p, ()) for p in prompts]


def new_texts(policy: Policy, longest: int = 8) -> list[Written]:
    "Texts of several lengths, some cut, two to each prompt."
    player = FreePlayer(policy, None, TEMPERATURE, 0.0, 5, max_new_tokens=longest)
    written = write_texts(player, 2 * new_questions(policy), "texts")
    made = [w.completion for w in written]
    assert len({len(c.tokens) for c in made}) > 3 and 0 < sum(c.ended for c in made) < len(made)
    return written


def options(**changes) -> PPOConfig:
    "Small minibatches, one optimiser step, the reference charged in the reward."
    given = {
        "mini_batch_size": 3,
        "gradient_accumulation_steps": 100,
        "ppo_epochs": 1,
        "learning_rate": 1e-3,
        "temperature": TEMPERATURE,
        "gamma": 0.9,
        "lam": 0.8,
        "kl_coef": 0.3,
        "kl_in": "reward",
        "kl_kind": "k3",
        "adaptive_kl": False,
    }
    return PPOConfig(**given | changes)


def new_learner(policy: Policy, ppo: PPOConfig) -> Learner:
    "A learner on one core."
    return Learner(policy, ppo, Accelerator(cpu=True))


@torch.no_grad()
def read_alone(policy: Policy, written: Written) -> tuple[Tensor, Tensor]:
    "Log-probabilities [T] and values [T+1] of a text, from the plain model, with nothing beside it."
    prompt, tokens = written.question.suffix, written.completion.tokens
    seen = policy.lm(input_ids=torch.tensor([prompt + tokens]), output_hidden_states=True)
    table = (seen.logits[0, len(prompt) - 1 : -1].double() / TEMPERATURE).log_softmax(-1)
    logprobs = torch.stack([line[token] for line, token in zip(table, tokens)])
    head, hidden = policy.value_head, seen.hidden_states[-1][0, len(prompt) - 1 :].float()
    return logprobs, head.outer(torch.tanh(head.inner(hidden)))[:, 0].double()


def test_ratio_1_in_the_first_pass():
    "What is scored with padding on the right is what was sampled with padding on the left, at the same heat."
    policy = new_writer()
    batch = text_batch(texts := new_texts(policy), [float(n) for n in range(14)])
    learner = new_learner(policy, ppo := options())
    logprobs, _, values = score_texts(policy, batch, list(range(len(texts))), TEMPERATURE)
    torch.testing.assert_close(logprobs[batch.row, batch.time], batch.old_logprobs, rtol=0, atol=2e-6)
    torch.testing.assert_close(values[batch.row, batch.time], batch.old_values, rtol=0, atol=2e-6)
    first = learner.learn(batch, scheduled(ppo, 0), random.Random(0))
    assert first["updates"] == 1 and first["clip_fraction"] == 0 and abs(first["approx_kl"]) < 1e-9
    assert abs(first["first_kl"]) < 1e-9 and first["grad_norm"] > 0
    second = learner.learn(batch, scheduled(ppo, 1), random.Random(0))
    assert second["approx_kl"] > 1e-4 and second["clip_fraction"] > 0


def slow_advantages(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    "Errors of all n-step forecasts, weighted by powers of lambda; the last value is that of the rest."
    count, found = len(rewards), []
    for t in range(count):
        errors = []
        for n in range(1, count - t + 1):
            paid = sum(gamma**k * rewards[t + k] for k in range(n))
            errors.append(paid + gamma**n * values[t + n] - values[t])
        total = lam ** (len(errors) - 1) * errors[-1]
        for n, error in enumerate(errors[:-1], 1):
            total += (1 - lam) * lam ** (n - 1) * error
        found.append(total)
    return found


@pytest.mark.parametrize("cut", ["bootstrap", "score"])
def test_targets_are_the_slow_definition(writer, cut):
    "Every token is charged for leaving the reference, the last one is paid, a cut text is trusted to go on."
    texts, pay = new_texts(writer), Pay(cut, missing_end=0.25)
    rewards = [math.sin(n) for n in range(len(texts))]
    batch, ppo = text_batch(texts, rewards, pay), options()
    targets = new_learner(writer, ppo).targets(batch)
    advantages, returns, charges = [], [], []
    for written, reward in zip(texts, rewards):
        logprobs, values = read_alone(writer, written)
        with writer.lm.disable_adapter():
            ref_logprobs, _ = read_alone(writer, written)
        steps, values = (-ppo.kl_coef * (logprobs - ref_logprobs)).tolist(), values.tolist()
        charges += steps
        trusted = cut == "bootstrap" and not written.completion.ended
        steps[-1] += 0.0 if trusted else reward
        steps[-1] -= 0.0 if written.completion.ended else 0.25
        values[-1] = values[-1] if trusted else 0.0
        found = slow_advantages(steps, values, ppo.gamma, ppo.lam)
        advantages += found
        returns += [a + v for a, v in zip(found, values)]
    assert max(map(abs, charges)) > 0.1  # the reference is another policy
    torch.testing.assert_close(targets.raw, torch.tensor(advantages), rtol=1e-6, atol=2e-6)
    torch.testing.assert_close(targets.returns, torch.tensor(returns), rtol=1e-6, atol=2e-6)
    whitened = (targets.raw - targets.raw.mean()) / targets.raw.std(correction=0)
    torch.testing.assert_close(targets.advantages, whitened, rtol=0, atol=1e-5)


def test_the_charge_follows_the_divergence_by_tokens():
    "The mean over tokens is measured, and the horizon is counted in tokens, not in texts."
    policy = new_writer()
    texts = new_texts(policy)
    batch, measured = text_batch(texts, [0.0] * len(texts)), []
    for written in texts:
        logprobs, _ = read_alone(policy, written)
        with policy.lm.disable_adapter():
            log_x = read_alone(policy, written)[0] - logprobs
        measured += (log_x.expm1() - log_x).tolist()  # k3
    kl, tokens = sum(measured) / len(measured), len(measured)
    assert tokens == len(batch) > 3 * len(texts)
    for target, error in ((kl / 10, 0.2), (kl / 1.1, 0.1), (kl / 0.95, -0.05), (10 * kl, -0.2)):
        adaptive = {"adaptive_kl": True, "target_kl": target, "kl_horizon": 1000, "learning_rate": 1e-9}
        learner = new_learner(policy, ppo := options(**adaptive))
        metrics = learner.learn(batch, scheduled(ppo, 0), random.Random(0))
        assert metrics["kl"] == pytest.approx(kl, rel=1e-4) and metrics["kl_coef"] == 0.3
        assert learner.kl.coef == pytest.approx(0.3 * (1 + error * tokens / 1000), rel=1e-5)


@torch.no_grad()
def test_values_never_see_the_token_they_judge(writer):
    "Another token at a place changes the values behind it, and neither that before it nor any earlier one."
    texts = [w for w in new_texts(writer) if len(w.completion.tokens) > 4]
    for written in texts:
        prompt, tokens = written.question.suffix, written.completion.tokens
        base, _, values = completion_scores(writer, [prompt], [tokens], TEMPERATURE)
        torch.testing.assert_close(values[0], torch.tensor(written.completion.values), rtol=0, atol=2e-6)
        for place in range(len(tokens) - 1):
            other = (*tokens[:place], tokens[place] ^ 1, *tokens[place + 1 :])
            logprobs, _, changed = completion_scores(writer, [prompt], [other], TEMPERATURE)
            torch.testing.assert_close(changed[0, : place + 1], values[0, : place + 1], rtol=0, atol=1e-6)
            torch.testing.assert_close(logprobs[0, :place], base[0, :place], rtol=0, atol=1e-6)
            assert abs(changed[0, place + 1] - values[0, place + 1]) > 1e-4


def test_the_bootstrap_sees_the_whole_cut_text(writer):
    "It is the value behind the last token, and another last token makes another one."
    for written in new_texts(writer):
        _, values = read_alone(writer, written)
        made = written.completion
        if made.ended:
            assert made.next_value == 0
            continue
        assert made.next_value == pytest.approx(float(values[-1]), abs=2e-6)
        other = replace(made, tokens=(*made.tokens[:-1], made.tokens[-1] ^ 1))
        _, values = read_alone(writer, replace(written, completion=other))
        assert abs(made.next_value - float(values[-1])) > 1e-4


def uniforms(seed: int):
    "A text's own random numbers."
    return iter(random.Random(seed).random, None)


@pytest.mark.parametrize("pad", ["another token", "the end"])
@pytest.mark.parametrize("dtype, error", [("float64", 1e-6), ("float32", 1e-5)])
def test_padding_changes_nothing(dtype, error, pad):
    "A text alone, among longer prompts, among longer texts: the same tokens and numbers."
    policy = new_writer(dtype)
    if pad == "the end":
        policy.tokenizer.pad_token = policy.tokenizer.eos_token
        policy.lm.config.pad_token_id = policy.tokenizer.eos_token_id
    prompts = [question.suffix for question in new_questions(policy)]
    together = generate(policy, prompts, [uniforms(n) for n in range(len(prompts))], 12, TEMPERATURE)
    assert len({len(made.tokens) for made in together}) > 3
    whole = completion_scores(policy, prompts, [made.tokens for made in together], TEMPERATURE)
    for n, (prompt, made) in enumerate(zip(prompts, together)):
        (alone,) = generate(policy, [prompt], [uniforms(n)], 12, TEMPERATURE)
        assert (alone.tokens, alone.ended) == (made.tokens, made.ended)
        for one, other in ((alone.logprobs, made.logprobs), (alone.values, made.values)):
            torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=error, atol=error)
        assert alone.next_value == pytest.approx(made.next_value, abs=error)
        single = completion_scores(policy, [prompt], [made.tokens], TEMPERATURE)
        length = len(made.tokens)
        for one, other in zip(single, whole):
            torch.testing.assert_close(other[n, :length], one[0], rtol=error, atol=error)
            assert not other[n, length:].any()


def test_the_company_in_a_minibatch_changes_no_loss(writer):
    "All parts of every token's loss, one text at a time and all together."
    texts = new_texts(writer)
    batch, ppo = text_batch(texts, [math.cos(n) for n in range(len(texts))]), options()
    learner = new_learner(writer, ppo)
    targets, weights = learner.targets(batch), Weights(0.2, 0.2, 0.5, 0.01, 0.1, "k3")
    with torch.no_grad():
        whole = learner.losses(batch, targets, list(range(len(texts))), weights)
        alone = [learner.losses(batch, targets, [n], weights) for n in range(len(texts))]
    assert set(whole) >= {"loss", "policy_loss", "value_loss", "entropy", "kl"}
    for name in whole.keys() - {"clip_fraction"}:  # that one is a mean already
        torch.testing.assert_close(
            whole[name], torch.cat([part[name] for part in alone]), rtol=1e-5, atol=5e-6
        )


def text_run(folder: Path, **changes) -> dict:
    "The options of four steps on texts, with everything at work that a checkpoint must remember."
    (folder / "prompts.txt").write_text("\n".join(f"Free: 1 2 {n}" for n in range(9)))
    (folder / "paid.py").write_text(
        "def vowels(prompts, completions, **columns):\n"
        "    return [len(c) * (0.5 + sum(x in 'aeiou12345' for x in c)) for c in completions]\n"
    )
    return {
        "rlhf.prompts": str(folder / "prompts.txt"),
        "rlhf.reward_functions": f"{folder / 'paid.py'}:vowels",
        "rlhf.normalize_reward": "running",
        "rlhf.num_epochs": 100,
        "rlhf.cut_texts": "score",
        "model.max_new_tokens": 6,
        "ppo.num_train_steps": 4,
        "ppo.batch_size": 6,
        "ppo.mini_batch_size": 2,
        "ppo.ppo_epochs": 2,
        "ppo.learning_rate": 3e-4,
        "ppo.kl_coef": 0.1,
        "ppo.kl_in": "reward",
        "ppo.kl_kind": "k3",
        "ppo.adaptive_kl": True,
        "ppo.kl_horizon": 100,
        "ppo.adjust_lr": True,
        "ppo.stop_kl": 0.01,
        "ppo.ema_decay": 0.9,
        "run.device": "cpu",
        "run.output_dir": str(folder / "run"),
    } | changes


def weights_of(trainer: PPOTrainer) -> Tensor:
    "All that is trained, in one row."
    return torch.cat([p.detach().flatten() for p in trainer.policy.trainable()])


def timeless(metrics: list[dict]) -> list[dict]:
    "Metrics without the clock's."
    return [{name: x for name, x in line.items() if not name.startswith("time_")} for line in metrics]


def test_two_and_two_steps_are_four(tmp_path):
    "Weights, metrics, the scale of the rewards and what the alarms have seen, bit for bit."
    given = text_run(tmp_path)
    four, parts = (
        load_config(profile="tiny", overrides=given | {"run.output_dir": str(tmp_path / name)})
        for name in ("four", "parts")
    )
    whole, first, second = PPOTrainer(four), PPOTrainer(parts), PPOTrainer(parts)
    run(whole)
    lines = [first.step()[0] for _ in range(2)]
    assert first.source.alarms.silent and len(first.source.alarms.rewards) == 2
    restore(second, save(first))
    assert second.source.state_dict() == first.source.state_dict()
    lines += [second.step()[0] for _ in range(2)]
    assert timeless(lines) == timeless(metrics_of(tmp_path / "four"))
    assert torch.equal(weights_of(whole), weights_of(second))
    assert whole.source.state_dict() == second.source.state_dict()
    assert whole.learner.kl.coef == second.learner.kl.coef != 0.1
    assert whole.source.rewards.statistics.count == 24 and whole.source.rewards.statistics.std > 0


RANK = """
import sys
import torch
from gamerl.config import load_config
from gamerl.training import PPOTrainer, run

torch.set_num_threads(1)
trainer = PPOTrainer(load_config(sys.argv[1]))
start = [p.detach().clone() for p in trainer.policy.trainable()]
run(trainer)
weights = [p.detach() for p in trainer.policy.trainable()]
kept = [start, weights, trainer.source.state_dict(), trainer.learner.kl.coef, trainer.texts]
torch.save(kept, f"{sys.argv[2]}-{trainer.accelerator.process_index}.pt")
"""


def test_two_processes_end_alike(tmp_path):
    "Each writes texts of its own; weights, the rewards' scale and the alarms are one."
    given = text_run(tmp_path, **{"ppo.num_train_steps": 2, "rlhf.log_texts": 6})
    one, other = two_processes(tmp_path, RANK, load_config(profile="tiny", overrides=given))
    for start, a, b in zip(one[0], one[1], other[1]):
        assert torch.equal(a, b)
    assert any(not torch.equal(start, a) for start, a in zip(one[0], one[1]))
    assert one[2:4] == other[2:4] and one[3] != 0.1
    assert [text["prompt"] for text in one[4]] != [text["prompt"] for text in other[4]]
    scale, metrics = one[2]["rewards"], metrics_of(tmp_path / "run")
    assert scale["count"] == 24 and [line["episodes"] for line in metrics] == [12, 24]
    assert scale["mean"] == pytest.approx(sum(line["reward"] for line in metrics) / 2)
    last = [text["reward"] for _, *rest in (one, other) for text in rest[-1]]
    assert sum(last) / len(last) == pytest.approx(metrics[-1]["reward"])


# Recorded with trl 1.12.0, transformers 5.23.0 and torch 2.13.0, the last TRL with a PPO trainer, from one
# update of the trainer itself. Its mathematics stands inside `train`, so the local variables were read from
# its frame; what is kept is of the third epoch, when many ratios are clipped, rounded to seven digits:
#
#     config = Qwen2Config(vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
#                          num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False,
#                          pad_token_id=0, eos_token_id=1, num_labels=1, initializer_range=0.35)
#     policy, ref = (Qwen2ForCausalLM(config), seeds 1 and 2)
#     value, reward = (Qwen2ForSequenceClassification(config), seeds 3 and 4)
#     args = PPOConfig(per_device_train_batch_size=4, num_mini_batches=2, num_ppo_epochs=3, total_episodes=4,
#                      response_length=5, temperature=0.7, kl_coef=0.3, gamma=0.9, lam=0.8, cliprange=0.2,
#                      cliprange_value=0.5, vf_coef=0.5, learning_rate=0.0015, seed=2, bf16=False, ...)
#     trainer = PPOTrainer(args, tokenizer, policy, ref, reward, four_prompts, value)
#     backward = trainer.accelerator.backward
#     def record(loss):
#         x = sys._getframe(1).f_locals
#         x["logits"].retain_grad(), x["vpred"].retain_grad()
#         backward(loss)
#         keep(x)  # queries, responses, ..., logits (divided by the temperature already), their gradient
#     trainer.accelerator.backward = record
#     trainer.train()
#
# All texts fill the response length. TRL pays a text that ends before one place behind its end, and reads a
# value there too; ours pays the last token, so that such texts cannot agree.
TRL = json.loads((Path(__file__).parent / "data" / "trl_ppo.json").read_text())


class Recorded:
    "A policy that answers with TRL's logits and values; the scaled logits and the values are leaves."

    device = torch.device("cpu")

    def __init__(self, minibatch: dict):
        self.scaled = torch.tensor(minibatch["logits"], requires_grad=True)
        self.expected = torch.tensor(minibatch["values"], requires_grad=True)
        self.starts = [len(TRL["prompts"][n]) for n in minibatch["members"]]

    def hidden(self, ids: Tensor) -> Tensor:
        "The answers, where the model would have read the token before."
        answers = torch.cat([self.scaled * TRL["temperature"], self.expected[..., None]], -1)
        after = ids.shape[1] - answers.shape[1] + 1
        rows = [
            nn.functional.pad(a, (0, 0, start - 1, after - start)) for a, start in zip(answers, self.starts)
        ]
        return torch.stack(rows)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden[..., :-1]

    def values(self, hidden: Tensor) -> Tensor:
        return hidden[..., -1]


def trl_batch():
    "TRL's texts as a batch of ours, what each token is charged, and the targets before whitening."
    written = [
        Written("", Question((), tuple(prompt), ()), Completion(tuple(tokens), tuple(lp), tuple(v), True))
        for prompt, tokens, lp, v in zip(TRL["prompts"], TRL["responses"], TRL["logprobs"], TRL["values"])
    ]
    batch = text_batch(written, TRL["scores"])
    charge = TRL["kl_coef"] * (batch.old_logprobs - torch.tensor(TRL["ref_logprobs"]).flatten())
    return batch, charge, make_targets(batch, TRL["gamma"], TRL["lam"], "batch", charge)


def same(ours: Tensor, recorded: list) -> None:
    "Equal but for rounding."
    torch.testing.assert_close(ours, torch.tensor(recorded), rtol=1e-5, atol=2e-6)


def as_in_trl(whitened: Tensor) -> Tensor:
    "Standard scores with TRL's variance, which is divided by n - 1."
    return whitened * math.sqrt((len(whitened) - 1) / len(whitened))


def test_rewards_and_advantages_as_in_trl():
    batch, charge, targets = trl_batch()
    same(batch.step_rewards() - batch.padded(charge), TRL["rewards"])
    same(batch.padded(targets.returns), TRL["returns"])
    same(batch.padded(as_in_trl(targets.advantages)), TRL["advantages"])


@pytest.mark.parametrize("n", range(len(TRL["minibatches"])))
def test_losses_and_gradients_as_in_trl(n):
    batch, _, targets = trl_batch()
    targets = replace(targets, advantages=as_in_trl(targets.advantages))
    theirs = TRL["minibatches"][n]
    weights = Weights(TRL["clip_range"], TRL["value_clip_range"], TRL["vf_coef"], 0.0, 0.0, "k3")
    policy = Recorded(theirs)
    parts = token_losses(policy, batch, targets, theirs["members"], weights, TRL["temperature"])
    means = {name: part.mean() for name, part in parts.items()}
    assert 0.2 < means["clip_fraction"] < 0.8 and means["approx_kl"] > 0.01  # clipping, and not everywhere
    for name in ("policy_loss", "value_loss", "loss"):
        same(means[name], theirs[name])
    means["loss"].backward()
    same(policy.scaled.grad, theirs["logits_grad"])
    same(policy.expected.grad, theirs["values_grad"])
    assert 0 < (policy.expected.grad == 0).sum() < policy.expected.numel()  # some values are clipped


def judged(tmp_path: Path, **given) -> PPOTrainer:
    "A trainer on texts that pays each as it stands."
    changes = {"rlhf.reward_functions": (), "rlhf.normalize_reward": "none", "ppo.batch_size": 8}
    config = load_config(profile="tiny", overrides=text_run(tmp_path, **changes))
    return PPOTrainer(config, new_writer(), **given)


@torch.no_grad()
def test_a_reward_model_reads_the_very_tokens(tmp_path):
    "Not the text tokenised again: the policy's last hidden state behind prompt and completion, and the head."
    policy = new_writer()
    model = RewardModel.from_pretrained_policy(policy, seed=3)
    trainer = judged(tmp_path, reward_model=model)
    batch, tokenizer = trainer.source.collect(0).batch, policy.tokenizer
    rows = [q.suffix + c.tokens for q, c in zip(batch.questions, batch.completions)]
    for row, reward in zip(rows, batch.rewards):
        seen = policy.lm(input_ids=torch.tensor([row]), output_hidden_states=True)
        assert float(reward) == pytest.approx(
            float(model.head(seen.hidden_states[-1][:, -1].float())), abs=1e-4
        )
    again = [tuple(tokenizer(tokenizer.decode(row), add_special_tokens=False)["input_ids"]) for row in rows]
    assert again != rows  # so that it would have been noticed
    assert batch.rewards.std() > 0.01


def test_a_reward_model_of_another_vocabulary(tmp_path, writer):
    model = RewardModel.from_pretrained_policy(writer)
    model.tokenizer = AutoTokenizer.from_pretrained(writer.tokenizer.name_or_path)
    model.tokenizer.add_tokens(["gamerl"])
    with pytest.raises(ValueError, match=r"^reward_model: its vocabulary has \d+ tokens and .*policy's") as e:
        judged(tmp_path, reward_model=model)
    assert "\n" not in str(e.value)


BROKEN = {
    "NaN": (lambda n: [0.0, math.nan] + [0.0] * (n - 2), "broken: nan for completion 1 is not allowed"),
    "too few": (lambda n: [0.0] * (n - 1), "broken: returned 7 rewards; it must return a list of 8"),
    "a number": (lambda n: 1.0, "broken: returned float; it must return a list of 8"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_reward_function_that_is_wrong(tmp_path, case):
    answer, complaint = BROKEN[case]

    def broken(prompts, completions, **columns):
        return answer(len(completions))

    trainer = judged(tmp_path, reward_functions=[broken])
    before = weights_of(trainer).clone()
    with pytest.raises(ValueError, match=complaint) as e:
        trainer.step()
    assert "\n" not in str(e.value) and str(e.value).startswith("reward function ")
    assert torch.equal(weights_of(trainer), before) and trainer.steps == 0
