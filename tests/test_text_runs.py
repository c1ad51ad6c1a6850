"Runs on texts as users start them: from Python as in the documentation, and from the command line."

import json
from pathlib import Path

import pytest
import torch
from commands import metrics_of
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from gamerl import PPOConfig, PPOTrainer, Qwen3RewardModel, RewardModel, load_config
from gamerl.cli import main
from gamerl.models import load_policy, model_path
from gamerl.reward_training import train_reward_model
from gamerl.text_data import Pair
from gamerl.training import restore
from gamerl.writing import Texts

QUIET = Console(quiet=True)
PROMPTS = ["How do I learn Python?", "What is a qubit?", "Is exercise good?"]


def short(prompts, completions, **columns):
    return [-0.1 * len(text) for text in completions]


def bare(folder: Path, **options) -> PPOTrainer:
    "A trainer from the options of PPO alone, which writes into a folder."
    trainer = PPOTrainer(
        PPOConfig(batch_size=2, ppo_epochs=1, **options), model="tiny", reward_functions=[short]
    )
    run = trainer.config.run.model_copy(update={"output_dir": str(folder)})
    trainer.config = trainer.config.model_copy(update={"run": run})
    return trainer


def configured(folder: Path, *more: str) -> list[str]:
    "The flags of a small run on a file of prompts."
    (folder / "prompts.txt").write_text("\n".join(PROMPTS))
    words = f"--prompts_file {folder}/prompts.txt --model_name tiny --output_dir {folder}/run --batch_size 2"
    return [*words.split(), "--max_new_tokens", "4", "--eval_episodes", "0", *more]


def test_the_documented_python(tmp_path, monkeypatch):
    "Models of transformers go in, a checkpoint comes out; what PPOConfig leaves open is as documented."
    monkeypatch.chdir(tmp_path)
    policy, reference = (AutoModelForCausalLM.from_pretrained(model_path("tiny")) for _ in range(2))
    judge = Qwen3RewardModel.from_pretrained_policy(policy)
    assert Qwen3RewardModel is RewardModel
    tokenizer = AutoTokenizer.from_pretrained(model_path("tiny"))
    config = PPOConfig(learning_rate=1e-5, batch_size=4, ppo_epochs=4, clip_range=0.2, kl_coef=0.1)
    trainer = PPOTrainer(
        config=config, model=policy, ref_model=reference, reward_model=judge, tokenizer=tokenizer
    )
    ppo = trainer.config.ppo
    assert (ppo.gamma, ppo.lam, ppo.vf_coef, ppo.target_kl, ppo.adaptive_kl) == (1.0, 0.95, 0.1, 0.01, True)
    final = trainer.train(PROMPTS, num_epochs=1, max_length=8)
    assert final == Path("ppo_checkpoints/final") and len(metrics_of(Path("ppo_checkpoints"))) == 1
    assert load_config(final / "config.json").model.model_name == model_path("tiny")
    texts = [json.loads(line) for line in Path("ppo_checkpoints/texts.jsonl").read_text().splitlines()]
    assert {text["prompt"] for text in texts} <= set(PROMPTS) and len(texts) == 4


def test_a_custom_reward_as_documented(tmp_path):
    class Custom(Qwen3RewardModel):
        def compute_custom_reward(self, text: str) -> float:
            return float(super().forward(text)) - 0.01 * len(text)

    judge = Custom.from_pretrained("tiny")
    base = RewardModel.from_pretrained("tiny").score(["abc"])
    assert torch.allclose(judge.score(["abc"]), base - 0.03, atol=1e-5)


def test_another_reference_is_stayed_near_to():
    "A reference that is a model of its own gives its own probabilities, also without its adapter."
    model, other = (AutoModelForCausalLM.from_pretrained(model_path("tiny")) for _ in range(2))
    with torch.no_grad():
        other.get_input_embeddings().weight.mul_(1.5)
    trainer = PPOTrainer(PPOConfig(), model=model, ref_model=other, reward_functions=[short])
    ids = torch.arange(20, 30)[None]
    with torch.no_grad(), trainer.policy.reference():
        found = trainer.policy.logits(trainer.policy.hidden(ids))
    assert torch.allclose(found, other(ids).logits, atol=1e-4)
    assert not torch.allclose(found, model(ids).logits, atol=0.1)


def test_training_again_goes_on_from_the_present_step(tmp_path):
    trainer = bare(tmp_path)
    trainer.train(PROMPTS, num_epochs=2, max_length=4, console=QUIET)
    assert trainer.steps == 3
    trainer.train(["And what is a cat?"], max_length=2, console=QUIET)
    assert trainer.steps == 3 + 1 and trainer.source.player.max_new_tokens == 2


def test_a_checkpoint_can_be_restored_before_the_prompts_are_known(tmp_path):
    whole, half, rest = (bare(tmp_path / name) for name in ("whole", "half", "rest"))
    whole.train(PROMPTS, num_epochs=4, max_length=4, console=QUIET)
    saved = half.train(PROMPTS, num_epochs=2, max_length=4, console=QUIET)
    restore(rest, saved)
    rest.train(PROMPTS, num_epochs=4, max_length=4, console=QUIET)
    assert rest.steps == whole.steps == 6
    for mine, theirs in zip(rest.policy.trainable(), whole.policy.trainable()):
        assert torch.equal(mine, theirs)


def test_configured_prompts_heed_what_train_is_told(tmp_path):
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    overrides = {"rlhf.prompts": str(tmp_path / "prompts.txt"), "rlhf.reward_functions": "length_penalty"}
    config = load_config(profile="rlhf-tiny", overrides=overrides | {"run.output_dir": str(tmp_path / "run")})
    trainer = PPOTrainer(config)
    trainer.train(num_epochs=2, max_length=3, console=QUIET)
    assert isinstance(trainer.source, Texts) and trainer.source.player.max_new_tokens == 3
    assert (trainer.config.rlhf.num_epochs, trainer.steps) == (2, 1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"prompts": []}, "prompts: is empty; there must be at least one row"),
        ({"prompts": PROMPTS, "max_length": -1}, "model.max_new_tokens: -1 is not allowed"),
        ({"prompts": PROMPTS, "num_epochs": 0}, "rlhf.num_epochs: 0 is not allowed"),
        ({"prompts": ["  "]}, "an empty text is not allowed"),
        ({}, "prompts: there are none"),
    ],
)
def test_mistakes_of_train_are_one_line(tmp_path, words, complaint):
    with pytest.raises(ValueError, match=complaint) as failed:
        bare(tmp_path).train(**words, console=QUIET)
    assert "\n" not in str(failed.value)


def test_a_bare_configuration_is_about_texts(tmp_path):
    trainer = PPOTrainer(PPOConfig(), model="tiny")
    with pytest.raises(ValueError, match="there is no reward"):
        trainer.train(PROMPTS, console=QUIET)


def test_the_command_line_trains_resumes_and_is_judged_on_games(tmp_path, capsys):
    reward = ["--reward_functions", "2*length_penalty:0.1,tokens; regex_match:[0-9]{1,3}"]
    words = configured(tmp_path, *reward, "--num_epochs", "2", "--save_steps", "2")
    assert main(["rlhf", *words]) == 0
    rows = metrics_of(tmp_path / "run")
    assert len(rows) == 3 and {"reward/length_penalty", "reward/regex_match"} <= rows[0].keys()
    assert main(["rlhf", "--resume_from", f"{tmp_path}/run/checkpoint-2", "--num_epochs", "4"]) == 0
    assert [row["step"] for row in metrics_of(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    capsys.readouterr()
    assert main(["evaluate", "--checkpoint", f"{tmp_path}/run"]) == 2
    assert "games: this run learned from texts; name the games" in capsys.readouterr().err
    play = ["--games", "tic_tac_toe", "--num_episodes", "4", "--json"]
    assert main(["evaluate", "--checkpoint", f"{tmp_path}/run", *play]) == 0
    capsys.readouterr()
    assert main(["evaluate", "--checkpoint", f"{tmp_path}/run", *play, "--opponent", "snapshot"]) == 2
    assert "this run keeps no snapshots" in capsys.readouterr().err


def test_a_checkpoint_is_loaded_without_its_reward_file(tmp_path, monkeypatch):
    "The file has its full path in the configuration, and loading a configuration runs nobody's code."
    monkeypatch.chdir(tmp_path)
    Path("paid.py").write_text("raise RuntimeError('this was run')")
    config = load_config(profile="rlhf", overrides={"rlhf.reward_functions": "0.5*paid.py:vowels"})
    assert config.rlhf.reward_functions == (f"0.5*{tmp_path}/paid.py:vowels",)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--reward_functions", "legalty"], "did you mean legality"),
        (["--reward_functions", "regex_match"], "an empty pattern is not allowed"),
        (["--reward_functions", "regex_match:a", "--normalize_reward", "batch"], "it must be running"),
        (["--reward_functions", "no_such_file.py:f"], "no such file"),
        (["--reward_model_path", "/"], "config.json"),
        (["--reward_model_path", "tiny"], "rlhf.reward_model: 'tiny' is not allowed; it must be a trained"),
        ([], "there is no reward"),
    ],
)
def test_mistakes_of_the_command_line_are_one_line(tmp_path, capsys, words, complaint):
    assert main(["rlhf", *configured(tmp_path, *words)]) == 2
    told = capsys.readouterr().err
    assert complaint in told and told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_judge_that_began_as_the_policy_is_trained_saved_and_named(tmp_path):
    "Its head began fresh, too; what is in the files is what counts."
    judge = RewardModel.from_pretrained_policy(load_policy("tiny", device="cpu"))
    assert judge.began_fresh
    pairs = [Pair(f"Colour {n}?", "blue", "red") for n in range(8)]
    train_reward_model(pairs, judge, tmp_path / "judge", held_out=0.25, show=lambda line: None)
    words = configured(tmp_path, "--reward_model_path", str(tmp_path / "judge"), "--num_train_steps", "1")
    assert main(["rlhf", *words]) == 0
    assert "reward/reward_model" in metrics_of(tmp_path / "run")[0]


def test_data_of_the_recorded_letters_keep_what_is_promised():
    "Nine tenths of the largest reward, and no step whose KL is not under its target."
    told = json.loads((Path(__file__).parents[1] / "data" / "letters.json").read_text())
    assert len(told["runs"]) >= 3
    for run in told["runs"]:
        assert run["reward_interval"][0] >= 0.9 * told["maximum"]
        assert len(run["curve"]) == 60 and max(row["kl"] for row in run["curve"]) < told["target_kl"]


def test_data_of_the_recorded_chain_keep_what_is_promised():
    "The pairs are learned, and games are won that nobody played while learning."
    told = json.loads((Path(__file__).parents[1] / "data" / "rlhf.json").read_text())
    assert len(told["runs"]) >= 3
    for run in told["runs"]:
        assert run["reward_model"]["accuracy"] >= 0.8
        assert run["gain"] >= 0.1 and run["gain_interval"][0] > 0
        assert sum(run["seconds"].values()) < 600
