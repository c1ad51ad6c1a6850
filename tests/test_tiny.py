"The shipped base: small, made again bit for bit, fluent in the format, and no better than random."

from importlib import resources

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from gamerl import tiny
from gamerl.matches import play_match
from gamerl.models import load_policy
from gamerl.prompts import reply_text
from gamerl.rollouts import ModelPlayer
from gamerl.sampling import Encoder, read_prefix, run_rows
from gamerl.tasks import decode_task_id, load_game

FOLDER = resources.files("gamerl") / "data" / "tiny"
DEFAULT_GAMES = [decode_task_id(index * 100_000_000).spec for index in (0, 1, 2, 6, 7)]


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return load_policy("tiny", device="cpu")


def test_it_is_small(policy):
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 5_000_000
    parameters = sum(p.numel() for p in policy.lm.get_base_model().parameters() if not p.requires_grad)
    assert 500_000 <= parameters <= 1_000_000
    config = policy.lm.get_base_model().config
    widths = config.hidden_size, config.intermediate_size, config.num_attention_heads * config.head_dim
    assert config.model_type == "qwen3" and all(width % 64 == 0 for width in widths)


def test_made_again_bit_for_bit(tmp_path):
    for name in ("one", "two"):
        tiny.build(tmp_path / name, count=20, steps=3)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


@pytest.mark.parametrize("game", DEFAULT_GAMES)
def test_every_id_is_one_token(game):
    tokenizer = AutoTokenizer.from_pretrained(str(FOLDER))
    ids = [tokenizer(reply_text(n))["input_ids"] for n in range(load_game(game).num_distinct_actions())]
    assert all(len(tokens) == 1 for tokens in ids)


@pytest.mark.parametrize("game", ["leduc_poker", "tic_tac_toe", "hex(board_size=4)"])
def test_it_knows_the_format(policy, game):
    "Left alone, it puts most of its probability on legal IDs."
    samples = tiny.random_samples(game, 80, seed=9)
    encode, legal = Encoder(policy.tokenizer), []
    for sample in samples:
        question = encode(sample.observation.messages, tuple(map(reply_text, sample.observation.legal)))
        with torch.no_grad():
            hidden = run_rows(policy, [question], read_prefix(policy, question.prefix))[
                0, len(question.suffix) - 1
            ]
        first = sorted({reply[0] for reply in question.replies})
        legal.append(float(policy.logits(hidden).softmax(-1)[first].sum()))
    assert np.mean(legal) > 0.9


@pytest.mark.parametrize("game", ["hex(board_size=4)", "tic_tac_toe", "liars_dice(numdice=1)"])
def test_it_is_about_as_strong_as_random(policy, game):
    match = play_match(ModelPlayer(policy), game, "random", 300, seed=5)
    assert abs(match.score - 0.5) < 0.12  # four standard errors of 300 games
