"Reward models from outside: the command, what a user can do wrong, other tools, Ctrl-C."

import json
import signal

import pytest
import torch
from commands import Command, Done, fresh
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from trl import RewardConfig, RewardTrainer

from gamerl.backbones import in_four_bits
from gamerl.cli import main
from gamerl.models import load_policy, quantization
from gamerl.reward_model import RewardModel
from gamerl.reward_training import RewardReport, encode, split, train_reward_model, verdicts_of
from gamerl.rewards import load_rewards
from gamerl.text_data import Pair, read_pairs, read_prompts

COLOURS = ("red", "green", "black")
PAIRS = [
    {
        "prompt": [{"role": "user", "content": f"Colour {n}?"}],
        "chosen": [{"role": "assistant", "content": f"{COLOURS[n % 3]} blue"}],
        "rejected": [{"role": "assistant", "content": f"{COLOURS[n % 3]} {COLOURS[n // 3 % 3]}"}],
        "margin": 0.1,
    }
    for n in range(60)
]


def lines(path, rows) -> str:
    "Rows as JSON lines."
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    "A reward model from the command line: its folder, and what the command said."
    folder = tmp_path_factory.mktemp("reward")
    data = lines(folder / "pairs.jsonl", PAIRS)
    words = ["reward", "--data", data, "--output_dir", folder / "judge", "--num_epochs", 2, "--held_out", 0.2]
    done = Command(*words, "--device", "cpu", files=folder).wait()
    assert done.code == 0, done.err
    return folder / "judge", done


def test_the_command_leaves_a_model_a_report_and_a_picture(trained):
    folder, done = trained
    report = json.loads((folder / "report.json").read_text())
    again = RewardReport.from_json(report)
    assert again.after.accuracy == report["accuracy"] > report["accuracy_before"]
    assert (again.pairs, len(again.after.chosen)) == (48, 12)
    assert report["settings"]["learning_rate"] == 3e-3
    assert again.summary() in done.out and "step " in done.out
    assert (folder / "report.png").stat().st_size > 10_000


def test_every_tool_gives_the_same_rewards(trained):
    "Also in batches with padding on either side."
    model = RewardModel.from_pretrained(trained[0], device="cpu")
    texts = [
        model.tokenizer.decode(row["chosen_ids"]) for row in encode(read_pairs(PAIRS[:4]), model.tokenizer)
    ]
    texts.append(texts[0].replace("Colour", "A much longer question about a colour"))
    plain = AutoModelForSequenceClassification.from_pretrained(trained[0]).eval()
    for side in ("left", "right"):
        tokenizer = AutoTokenizer.from_pretrained(trained[0], padding_side=side)
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            rewards = plain(**batch).logits[:, 0]
        assert torch.allclose(rewards, model.score(texts), atol=1e-4)
        assert torch.allclose(model.score(**batch_of(batch)), model.score(texts), atol=1e-5)


def batch_of(batch) -> dict:
    "A tokenizer's batch as `score` calls its parts."
    return {"texts": batch["input_ids"], "mask": batch["attention_mask"]}


def test_trl_goes_on_with_what_was_saved(trained, tmp_path):
    rows = [{key: row[key] for key in ("prompt", "chosen", "rejected")} for row in PAIRS[:8]]
    from datasets import Dataset

    config = RewardConfig(
        str(tmp_path), max_steps=1, report_to="none", use_cpu=True, bf16=False, save_strategy="no"
    )
    trainer = RewardTrainer(str(trained[0]), config, train_dataset=Dataset.from_list(rows))
    saved = RewardModel.from_pretrained(trained[0], device="cpu").head.weight
    assert torch.equal(trainer.model.score.weight.cpu().float(), saved)
    trainer.train()
    assert trainer.state.global_step == 1


def test_ctrl_c_saves_what_there_is(tmp_path):
    words = ["reward", "--data", lines(tmp_path / "pairs.jsonl", PAIRS), "--output_dir", tmp_path / "judge"]
    command = Command(*words, "--num_epochs", 30, "--device", "cpu", files=tmp_path)
    command.wait_until(lambda: command.files[0].exists() and "step " in command.files[0].read_text())
    command.signal(signal.SIGINT)
    done = command.wait()
    assert done.code == 130 and "Traceback" not in done.err, done
    assert "stopped after step" in done.err and str(tmp_path / "judge") in done.err
    assert not (tmp_path / "judge" / "report.json").exists()
    RewardModel.from_pretrained(tmp_path / "judge", device="cpu").score(["fine"])


def refused(done: Done) -> str:
    "The one line of a command that refuses."
    assert done.code == 2 and done.err.startswith("gamerl: error: ") and done.err.count("\n") == 1, done
    return done.err


def test_four_bits_from_the_first_step_to_the_last(tmp_path):
    "Trained in NF4, saved as an adapter beside its head, read back, trained again from there."
    data, tiny = lines(tmp_path / "pairs.jsonl", PAIRS), ["--device", "cpu", "--num_epochs", 2]
    words = ["reward", "--data", data, "--held_out", 0.2, "--use_4bit", *tiny]
    done = Command(*words, "--output_dir", tmp_path / "judge", files=tmp_path).wait()
    assert done.code == 0, done.err
    report = RewardReport.from_json(json.loads((tmp_path / "judge" / "report.json").read_text()))
    assert report.after.accuracy > report.before.accuracy
    nf4 = quantization()
    model = RewardModel.from_pretrained(tmp_path / "judge", device="cpu", quantized=nf4)
    assert in_four_bits(model.lm)
    unseen = encode(split(read_pairs(data), 0.2)[1], model.tokenizer)
    assert verdicts_of(model, unseen).chosen == pytest.approx(report.after.chosen, abs=1e-4)
    again = train_reward_model(read_pairs(data), model, tmp_path / "again", show=lambda line: None)
    assert again.after.differences != again.before.differences
    third = RewardModel.from_pretrained(tmp_path / "again", device="cpu", quantized=nf4)
    assert third.score(["blue"]).item() == pytest.approx(model.score(["blue"]).item(), abs=1e-4)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "pairs.jsonl: is empty"),
        (
            [PAIRS[0], PAIRS[1] | {"rejected": PAIRS[1]["chosen"]}],
            "line 2: 'chosen' and 'rejected' are the same",
        ),
        ([PAIRS[0], PAIRS[1] | {"margin": -1}], "line 2: margin: -1 is not allowed"),
        ([PAIRS[0], {"prompt": "a"}], "line 2: no 'chosen'"),
        (PAIRS[:1], "1 prompt is not enough"),
    ],
)
def test_bad_pairs_are_one_line(tmp_path, rows, complaint):
    words = ["reward", "--data", lines(tmp_path / "pairs.jsonl", rows), "--output_dir", tmp_path / "judge"]
    assert complaint in refused(Command(*words, "--device", "cpu", files=tmp_path).wait())
    assert not (tmp_path / "judge").exists()


def test_a_model_is_never_written_over(trained, tmp_path):
    words = ["reward", "--data", lines(tmp_path / "pairs.jsonl", PAIRS), "--output_dir", trained[0]]
    assert "must be a new or an empty folder" in refused(Command(*words, files=tmp_path).wait())


@pytest.mark.parametrize("device", ["foo", "cuda"])
def test_a_device_that_is_not_there_is_refused_as_in_training(tmp_path, capsys, monkeypatch, device):
    "In the same line, before anything is written."
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    data, folder = lines(tmp_path / "pairs.jsonl", PAIRS), str(tmp_path / "out")
    few = ["--games", "tic_tac_toe", "--num_train_steps", "1"]
    for words in (["reward", "--data", data], ["train", "--profile", "tiny", *few]):
        assert main([*words, "--output_dir", folder, "--device", device]) == 2
    of_reward, of_training = capsys.readouterr().err.splitlines()
    assert of_reward == of_training and f"run.device: {device!r} is not" in of_reward
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_model_remembers_whether_its_head_began_fresh(trained, tmp_path, head):
    fresh = RewardModel.from_pretrained("tiny", head, device="cpu")
    assert fresh.began_fresh
    fresh.save_pretrained(tmp_path)
    assert not RewardModel.from_pretrained(tmp_path, device="cpu").began_fresh
    assert RewardModel.from_pretrained(trained[0], head, device="cpu").began_fresh == (head == "mlp")


def test_a_saved_judge_on_a_policys_base_is_not_fresh(tmp_path):
    first, second = (load_policy("tiny", device="cpu", r=2) for _ in range(2))
    shared = RewardModel.from_pretrained_policy(first, share=True, r=2)
    assert shared.began_fresh
    shared.save_pretrained(tmp_path)
    assert not RewardModel.from_pretrained_policy(second, share=True, folder=tmp_path).began_fresh


def test_the_command_as_a_user_runs_it(tmp_path):
    assert "absent.jsonl: no such file" in refused(fresh("reward", "--data", "absent.jsonl", cwd=tmp_path))


def test_text_that_is_none(tmp_path):
    (tmp_path / "prompts.txt").write_bytes(b"\xff\xfe\x00bad")
    with pytest.raises(ValueError, match="must be a text file in UTF-8"):
        read_prompts(tmp_path / "prompts.txt")


def test_a_name_that_is_nothing(monkeypatch):
    monkeypatch.setattr(
        "datasets.load_dataset", lambda name: (_ for _ in ()).throw(ConnectionError("no network\nmore"))
    )
    with pytest.raises(ValueError, match="no data set of this name could be loaded: no network$"):
        read_pairs("nobody/nothing")


def test_a_module_that_breaks_itself_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        load_rewards(["mine:helpful"])


def test_a_classifier_of_other_things_is_refused(trained, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(
        trained[0], num_labels=3, ignore_mismatched_sizes=True
    )
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has 3 labels; a reward model must have 1"):
        RewardModel.from_pretrained(tmp_path, device="cpu")


def test_tokens_are_those_of_the_policy(trained):
    "The prompt in the template, the answer, the end token, and nothing behind it."
    model = RewardModel.from_pretrained(trained[0], device="cpu")
    (row,) = encode([Pair(tuple(PAIRS[0]["prompt"]), "blue", "red")], model.tokenizer)
    prompt = model.tokenizer.apply_chat_template(
        PAIRS[0]["prompt"], tokenize=False, add_generation_prompt=True
    )
    assert model.tokenizer.decode(row["chosen_ids"]) == f"{prompt}blue{model.tokenizer.eos_token}"
    assert row["chosen_ids"][-1] == model.tokenizer.eos_token_id
