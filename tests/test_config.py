"Configuration: every documented name and default, every layer, one line for every mistake."

import json

import pytest

from gamerl.config import HOMES, PROFILES, ConfigError, differences, load_config
from gamerl.options import SECTIONS, Config
from gamerl.sections import aliases_of

DEFAULTS = {
    "model_name": "Qwen/Qwen2.5-3B-Instruct",
    "use_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "use_nested_quant": True,
    "r": 16,
    "lora_alpha": 32,
    "target_modules": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "learning_rate": 1e-5,
    "batch_size": 8,
    "ppo_epochs": 4,
    "gamma": 0.99,
    "lam": 0.95,
    "clip_range": 0.2,
    "kl_coef": 0.1,
    "vf_coef": 0.1,
    "target_kl": 0.01,
    "adaptive_kl": True,
    "max_grad_norm": 1.0,
    "temperature": 0.7,
    "num_train_steps": 10_000,
    "save_steps": 500,
    "window": 100,
    "threshold": 0.7,
    "failure_replay_prob": 0.3,
    "failure_buffer_size": 1000,
    "output_dir": "checkpoints/game_ppo_lora",
}

SYNONYMS = {
    "cliprange": "clip_range",
    "cliprange_value": "value_clip_range",
    "init_kl_coef": "kl_coef",
    "adap_kl_ctrl": "adaptive_kl",
    "target": "target_kl",
    "horizon": "kl_horizon",
    "lambda": "lam",
    "lambda_": "lam",
    "gae_lambda": "lam",
    "value_coef": "vf_coef",
    "value_loss_coef": "vf_coef",
    "torch_dtype": "dtype",
    "bnb_4bit_use_double_quant": "use_nested_quant",
    "bnb_4bit_compute_dtype": "compute_dtype",
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "window_size": "window",
    "progression_threshold": "threshold",
    "buffer_size": "failure_buffer_size",
    "use_wandb": "report_to",
}


def value_of(config: Config, name: str):
    "The value of an option by any of its names."
    section, key = HOMES[name]
    return getattr(getattr(config, section), key)


@pytest.mark.parametrize("name", DEFAULTS)
def test_documented_default(name):
    assert value_of(Config(), name) == DEFAULTS[name]


@pytest.mark.parametrize("name", SYNONYMS)
def test_documented_synonym(name):
    assert HOMES[name] == HOMES[SYNONYMS[name]]


def test_default_curriculum():
    stages = [(s.name, s.tasks, s.opponent, s.threshold) for s in Config().stages]
    assert stages == [
        ("easy", ("0-999999999",), "random", 0.6),
        ("medium", ("1000000000-1999999999",), "random", 0.5),
        ("hard", ("2000000000-2999999999",), "mcts", 0.4),
    ]


def test_every_option_survives_json_and_has_a_meaning():
    config = Config()
    assert Config.model_validate_json(config.to_json()) == config
    for section in SECTIONS.values():
        for name, field in section.model_fields.items():
            assert field.description, name


def test_no_name_stands_for_two_options():
    assert len(HOMES) == sum(len(aliases_of(section)) for section in SECTIONS.values())


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_loads_and_says_what_it_is_for(profile):
    config = load_config(profile=profile)
    assert config.about and differences(config)
    assert load_config(json.loads(config.to_json())) == config


def test_the_promised_profiles_exist():
    promised = {"tiny", "small", "selfplay-kuhn", "selfplay-leduc"}
    promised |= {"qwen2.5-3b-12gb", "qwen2.5-3b-16gb", "qwen2.5-3b-24gb", "qwen3-4b-16gb"}
    promised |= {"rlhf", "rlhf-tiny", "rlhf-small", "rlhf-medium", "rlhf-large"}
    assert promised == set(PROFILES)


@pytest.mark.parametrize(
    ("profile", "batch", "mini", "accumulation", "use_4bit"),
    [("12gb", 2, 1, 16, True), ("16gb", 8, 4, 1, True), ("24gb", 16, 4, 1, False)],
)
def test_profiles_by_memory(profile, batch, mini, accumulation, use_4bit):
    config = load_config(profile=f"qwen2.5-3b-{profile}")
    assert config.ppo.batch_size == batch
    assert config.ppo.mini_batch_size == mini
    assert config.ppo.gradient_accumulation_steps == accumulation
    assert config.model.use_4bit is use_4bit


@pytest.fixture
def three_files(tmp_path):
    "The layout with a file for each concern."
    (tmp_path / "train_config.json").write_text(
        json.dumps(
            {
                "model": {"model_name": "Qwen/Qwen2.5-3B-Instruct", "use_4bit": True},
                "lora": {"r": 16, "lora_alpha": 32},
                "ppo": {"learning_rate": 1e-5, "batch_size": 8, "num_train_steps": 10000, "save_steps": 100},
            }
        )
    )
    (tmp_path / "env_config.json").write_text(
        json.dumps({"allowed_game_indices": [0, 1, 2, 6, 7], "opponent": "mcts", "gamma": 0.98})
    )
    (tmp_path / "curriculum_config.json").write_text(
        json.dumps(
            {
                "stages": [
                    {"name": "easy", "task_id_range": [0, 999999999], "opponent": "random", "threshold": 0.6},
                    {"name": "medium", "task_id_range": "1000-1999M", "opponent": "random"},
                    {"name": "hard", "task_ids": [2000000000], "opponent": "mcts", "success_threshold": 0.4},
                ],
                "progression_threshold": 0.5,
                "failure_replay_prob": 0.5,
            }
        )
    )
    return tmp_path


def test_three_files(three_files):
    for source in (three_files, three_files / "train_config.json"):
        config = load_config(source)
        assert config.run.save_steps == 100
        assert config.ppo.gamma == 0.98
        assert config.curriculum.failure_replay_prob == 0.5
        assert [stage.threshold for stage in config.stages] == [0.6, 0.5, 0.4]
        # no allowed game lies between 1000 and 1999 million: the stage falls back on the allowed ones
        assert config.stages[1].tasks[0] == "0-99999999" and len(config.stages[1].tasks) == 5


def test_the_curriculum_takes_the_stages(three_files):
    import random

    from gamerl.curriculum import Curriculum, Stage

    config = load_config(three_files)
    stages = [Stage(s.name, s.tasks, s.opponent, s.threshold) for s in config.stages]
    curriculum = Curriculum(stages, allowed_game_indices=config.env.allowed_game_indices)
    assert curriculum.sample(random.Random(0)).opponent == "random"


def test_section_as_path_is_read_from_the_folder_of_its_file(three_files, monkeypatch, tmp_path):
    inner = three_files / "inner"
    inner.mkdir()
    (inner / "lora.json").write_text('{"lora": {"rank": 4}}')
    (inner / "mine.json").write_text('{"lora": "lora.json", "profile": "tiny"}')
    monkeypatch.chdir(tmp_path)
    config = load_config("inner/mine.json")
    assert config.lora.r == 4 and config.model.model_name == "tiny"


def test_later_layers_win():
    config = load_config({"ppo": {"lr": 1e-4, "gamma": 0.9}}, "tiny", {"learning-rate": "2e-5"})
    assert config.ppo.learning_rate == 2e-5 and config.ppo.gamma == 0.9
    assert config.model.model_name == "tiny"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("none", None),
        ("null", None),
        ("0.001", 0.001),
    ],
)
def test_words_of_a_command_line(text, value):
    assert load_config(overrides={"ppo.value_learning_rate": text}).ppo.value_learning_rate == value


MISTAKES = [
    ({"ppo.learning_rate": -1}, "ppo.learning_rate: -1 is not allowed; it must be greater than 0"),
    ({"ppo.learning_rate": "inf"}, "ppo.learning_rate: 'inf' is not allowed; it must be a finite number"),
    ({"ppo.batch_size": 2.5}, "ppo.batch_size: 2.5 is not allowed; it must be a whole number"),
    ({"ppo.batch_size": True}, "ppo.batch_size: true is not allowed; it must be a number"),
    ({"ppo.kl_kind": "k4"}, "ppo.kl_kind: 'k4' is not allowed; it must be 'full', 'k1', 'k2' or 'k3'"),
    ({"model.use_4bit": "perhaps"}, "model.use_4bit: 'perhaps' is not allowed; it must be true or false"),
    ({"pppo.gamma": 1}, "pppo.gamma: unknown section 'pppo'; the sections are model, lora, ppo, env"),
    ({"ppo.gama": 1}, "ppo.gama: unknown option; did you mean gamma"),
    ({"env.games": [-5]}, "env.games: -5 is not allowed"),
    ({"env.games": "hexx"}, "env.games: OpenSpiel has no 'hexx'; did you mean hex"),
    ({"env.opponent": "mtcs"}, "env.opponent: 'mtcs' is not known; allowed are random; mcts"),
    ({"env.opponent": "mcts:5"}, "env.opponent: every stage names its own"),
    ({"curriculum.stages.3.threshold": 1}, "there is no stage '3'; they are numbered 0 to 2"),
    ({"curriculum.stages.0.opponent": "mtcs"}, "curriculum.stages.0.opponent: 'mtcs' is not known"),
    ({"curriculum.stages": "[{}]", "env.games": "none"}, "curriculum.stages.0: nothing to play"),
    ({"clip_range": 0.1, "cliprange": 0.2}, "they are the same option"),
    ({"run.device": "gpu"}, "run.device: 'gpu' is not allowed; it must be auto, cpu, cuda, cuda:0 or mps"),
]


@pytest.mark.parametrize(("overrides", "complaint"), MISTAKES)
def test_mistake_is_one_line(overrides, complaint):
    with pytest.raises(ConfigError) as caught:
        load_config(profile=None, overrides=overrides)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"ppo": {"gamma": 0.9,}}', "broken JSON at line 1, column 2"),
        (b"", "broken JSON at line 1, column 1"),
        (b"[1]", "must hold a JSON object, not list"),
        (b"\xff\xfe{}", "is not a text file"),
        (b'{"ppo": 3}', "ppo: 3 is not allowed"),
        (b'{"ppo": "absent.json"}', "absent.json: cannot be read: No such file or directory"),
        (b'{"gamma": {"x": 1}}', "gamma: unknown section"),
        (b'{"profile": "huge"}', "profile 'huge' is unknown; the profiles are"),
        (b'{"curriculum": {"stages": [{"oponent": "mcts"}]}}', "did you mean opponent"),
    ],
)
def test_broken_file_is_one_line(tmp_path, content, complaint):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
            load_config(path)
