"A user's own game agents: their words, parameters and budgets, and one line for every mistake in them."

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command

from gamerl.agents import VARIABLE, agent_of, agents_in, load_agents, use_agents
from gamerl.config import load_config
from gamerl.exact import information_states
from gamerl.opponents import own_budget, resolve_opponent
from gamerl.prompts import observe, parse_reply
from gamerl.tasks import Task, decode_task_id, load_game, opening_state
from gamerl.training import PPOTrainer

BASE = """
class BaseGameAgent:
    def get_rules(self):
        return "rules of " + self.game_name

    def format_state(self, state, player_id):
        return state.observation_string(player_id)

    def generate_system_prompt(self):
        return f"  You play {self.game_name}.\\n{self.get_rules()}\\n\\n"

    def generate_user_prompt(self, state, player_id, legal_actions):
        moves = "".join(f"{a} -> {state.action_to_string(player_id, a)}\\n" for a in legal_actions)
        return f"{self.format_state(state, player_id)}\\nPlayer {player_id}\\n\\n{moves}\\tYour choice: "
"""
HEX = """
from base_agent import BaseGameAgent


class HexAgent(BaseGameAgent):
    @property
    def game_name(self):
        return "hex"

    def generate_params(self, config_id):
        return {"board_size": 3 + config_id % 5}

    def get_mcts_config(self):
        return (70, 3)
"""
LEDUC = """
from ..base_agent import BaseGameAgent
from .words import RULES


class LeducAgent(BaseGameAgent):
    game_name = "leduc_poker"

    def get_rules(self):
        return RULES

    def generate_params(self, config_id):
        return {"players": 2}

    def get_mcts_config(self):
        return None
"""
INIT = """
from .hex import HexAgent
from .leduc import LeducAgent

GAME_AGENTS = {"hex": HexAgent, "leduc_poker": LeducAgent}
"""
FILES = {
    "base_agent.py": BASE,
    "agents/__init__.py": INIT,
    "agents/hex.py": HEX,
    "agents/leduc.py": LEDUC,
    "agents/words.py": "RULES = 'Three ranks.'",
}


@pytest.fixture(autouse=True)
def no_agents_left_over():
    "Every test begins and ends without agents."
    use_agents(None)
    yield
    use_agents(None)


def write(place: Path, **changed: str) -> Path:
    "The folder with the agents, some files of it changed: `hex=(was, instead)`."
    (place / "agents").mkdir(parents=True)
    for name, text in FILES.items():
        if change := changed.get(Path(name).stem):
            assert change[0] in text
            text = text.replace(*change)
        (place / name).write_text(text)
    return place / "agents"


# Prompts, parameters, budgets


def test_prompts_are_byte_for_byte_the_agents(tmp_path):
    state = opening_state("hex(board_size=4)", (5,))
    board = state.observation_string(1)
    moves = "".join(f"{a} -> {state.action_to_string(1, a)}\n" for a in state.legal_actions(1))
    with agents_in(write(tmp_path)):
        asked = observe(state, 1)
    assert asked.messages == (
        {"role": "system", "content": "  You play hex.\nrules of hex\n\n"},
        {"role": "user", "content": f"{board}\nPlayer 1\n\n{moves}\tYour choice: "},
    )
    assert asked.legal == {a: state.action_to_string(1, a) for a in state.legal_actions(1)}
    assert parse_reply("I take " + asked.legal[7], asked.legal).action == 7


def test_both_kinds_of_import_and_modules_inside(tmp_path):
    agents = load_agents(write(tmp_path))
    assert list(agents) == ["hex", "leduc_poker"]
    assert agents["leduc_poker"].system_prompt() == "  You play leduc_poker.\nThree ranks.\n\n"
    assert not {"base_agent", "agents"} & set(sys.modules) and str(tmp_path) not in sys.path


def test_task_ids_use_the_agents_parameters(tmp_path):
    with agents_in(write(tmp_path)):
        assert [decode_task_id(600_000_000 + n).spec for n in (0, 3, 9)] == [
            "hex(board_size=3)",
            "hex(board_size=6)",
            "hex(board_size=7)",
        ]
        assert Task.from_id(600_000_003).game == "hex(board_size=6)"
        assert decode_task_id(700_000_001).params == {"rows": 6, "columns": 6}
    assert decode_task_id(600_000_003).params == {"board_size": 11}


def test_parameters_that_openspiel_lacks_leave_the_catalogues(tmp_path):
    with agents_in(write(tmp_path, hex=("board_size", "side"))):
        assert decode_task_id(600_000_001).params == {"board_size": 7}


def test_mcts_alone_has_the_agents_budget(tmp_path):
    with agents_in(write(tmp_path)):
        assert own_budget("hex") == (70, 3)
        assert str(resolve_opponent("mcts", load_game("hex"))) == "mcts:70x3"
        assert str(resolve_opponent("mcts:5", load_game("hex"))) == "mcts:5"
        assert str(resolve_opponent("mcts", load_game("leduc_poker"))) == "random"
        assert str(resolve_opponent("mcts:5", load_game("leduc_poker"))) == "mcts:5"
    assert own_budget("hex") == (1000, 50)
    assert str(resolve_opponent("mcts", load_game("leduc_poker"))) == "mcts:3000x200"


def test_other_games_are_as_before(tmp_path):
    def facts():
        states = [opening_state(game) for game in ("tic_tac_toe", "clobber", "breakthrough")]
        words = [observe(state, 0).messages for state in states]
        return words, [decode_task_id(n * 10**8 + 1) for n in range(22) if n not in (2, 6)], own_budget("go")

    before = facts()
    with agents_in(write(tmp_path)):
        assert facts() == before


# Which agents are in force


def test_unset_is_as_before(tmp_path):
    state = opening_state("hex(board_size=4)")
    before = observe(state, 0)
    with agents_in(write(tmp_path)):
        assert observe(state, 0).messages != before.messages
    assert observe(state, 0) is before
    assert agent_of("hex") is None and VARIABLE not in os.environ


def test_the_environment_variable_is_followed(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(write(tmp_path)))
    assert own_budget("hex") == (70, 3)
    monkeypatch.delenv(VARIABLE)
    assert own_budget("hex") == (1000, 50)


def test_processes_inherit_them(tmp_path):
    use_agents(write(tmp_path))
    code = "from gamerl.tasks import decode_task_id; print(decode_task_id(600_000_001).spec)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "hex(board_size=4)\n"


def test_two_folders_do_not_mix(tmp_path):
    one = write(tmp_path / "one")
    two = write(tmp_path / "two", base_agent=("You play", "Somebody plays"), words=("Three", "Four"))
    for folder, said in ((one, "You play"), (two, "Somebody plays"), (one, "You play")):
        use_agents(folder)
        assert agent_of("hex").system_prompt().strip().startswith(said)
        assert ("Four" in agent_of("leduc_poker").system_prompt()) == (folder == two)


def test_a_folder_is_read_anew(tmp_path):
    folder = write(tmp_path)
    use_agents(folder)
    (folder / "hex.py").write_text(HEX.replace("(70, 3)", "(7, 300)"))
    use_agents(folder)
    assert own_budget("hex") == (7, 300)


def test_modules_of_others_with_the_same_name_stay(tmp_path, monkeypatch):
    theirs = type(sys)("base_agent")
    monkeypatch.setitem(sys.modules, "base_agent", theirs)
    load_agents(write(tmp_path))
    assert sys.modules["base_agent"] is theirs


def test_kept_questions_are_forgotten(tmp_path):
    before = information_states("leduc_poker")[0].observation.messages
    with agents_in(write(tmp_path)):
        assert "Three ranks." in information_states("leduc_poker")[0].observation.messages[0]["content"]
    assert information_states("leduc_poker")[0].observation.messages == before


def test_a_broken_folder_changes_nothing(tmp_path):
    good = write(tmp_path / "good")
    bad = write(tmp_path / "bad", hex=("return (70, 3)", "return 70"))
    use_agents(good)
    with pytest.raises(ValueError, match="get_mcts_config gave 70"):
        use_agents(bad)
    assert os.environ[VARIABLE] == str(good.resolve()) and own_budget("hex") == (70, 3)


# Broken agents

BROKEN = [
    ("hex", "def generate_params(self", "def generate_params(self:", "hex.py, line 10: SyntaxError: "),
    ("hex", "def get_mcts_config", "def mcts", "hex.py: HexAgent (hex): get_mcts_config missing"),
    ("hex", "return (70, 3)", "return (70, 0)", "hex.py: HexAgent (hex): get_mcts_config gave (70, 0); it "),
    ("hex", "{", "[1] or {", "hex.py: HexAgent (hex): generate_params gave [1]; it must give a dict"),
    ("hex", 'return "hex"', "return 1 / 0", "hex.py: HexAgent (hex): cannot be made: ZeroDivisionError"),
    ("hex", 'return "hex"', 'return "go"', "hex.py: HexAgent (hex): its game_name is 'go'"),
    ("leduc", "..base_agent", ".base_agent", "leduc.py, line 2: ModuleNotFoundError: No module named"),
    ("leduc", "return RULES", "return None + 1", "leduc.py, line 10: LeducAgent (leduc_poker): generate_sys"),
    ("__init__", "GAME_AGENTS", "AGENTS", "__init__.py: there is no dictionary GAME_AGENTS"),
    ("__init__", '"hex"', '"hax"', "__init__.py: GAME_AGENTS: OpenSpiel has no game 'hax'"),
    ("base_agent", "return f", "raise KeyError('a\\nb'); f", "base_agent.py, line 10: HexAgent (hex): gen"),
    ("base_agent", 'return f"  ', 'return 3; f"', "hex.py: HexAgent (hex): generate_system_prompt gave 3"),
]


@pytest.mark.parametrize(("file", "was", "instead", "told"), BROKEN)
def test_a_broken_agent_is_one_line(tmp_path, file, was, instead, told):
    folder = write(tmp_path, **{file: (was, instead)})
    before = set(sys.path)
    with pytest.raises(ValueError) as caught:
        use_agents(folder)
    said = str(caught.value)
    assert said.startswith("agents: ") and told in said and "\n" not in said
    assert set(sys.path) == before and VARIABLE not in os.environ and agent_of("hex") is None


def test_a_folder_without_a_package_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="no folder of game agents; it has no __init__.py"):
        use_agents(tmp_path)


@pytest.mark.parametrize(
    ("instead", "told"),
    [("[][0]", "IndexError: list index out of range"), ("7", "gave 7; it must give a text")],
)
def test_a_state_that_cannot_be_told_is_one_line(tmp_path, instead, told):
    folder = write(tmp_path, base_agent=('return f"{self.format', f'return {instead}; f"{{self.format'))
    with agents_in(folder), pytest.raises(ValueError) as caught:
        observe(opening_state("leduc_poker", (0, 1)), 0)
    said = str(caught.value)
    assert "LeducAgent (leduc_poker): generate_user_prompt" in said and told in said and "\n" not in said


def test_a_trainer_made_by_hand_plays_in_them_too(tmp_path):
    folder = write(tmp_path, base_agent=("You play", "This is"))
    changes = {"env.agents_path": str(folder), "env.games": ["leduc_poker"], "ppo.batch_size": 2}
    trainer = PPOTrainer(load_config(profile="tiny", overrides=changes | {"run.device": "cpu"}))
    asked = trainer.source.collect(0).batch.questions
    read = trainer.policy.tokenizer.batch_decode([question.prefix + question.suffix for question in asked])
    assert read and all("This is leduc_poker." in text for text in read)
    assert VARIABLE not in os.environ


# The command


def test_training_stops_at_a_broken_agent(tmp_path, small_run):
    folder = write(tmp_path, hex=("return (70, 3)", "return 70"))
    words = small_run(tmp_path / "run", **{"env.agents_path": folder})
    done = Command(*words, files=tmp_path).wait()
    assert done.code == 2
    assert done.err.count("\n") == 1 and "HexAgent (hex): get_mcts_config gave 70" in done.err
    assert not (tmp_path / "run").exists()


def test_a_path_that_is_no_folder_is_refused(tmp_path, small_run):
    words = small_run(tmp_path / "run", **{"env.agents_path": tmp_path / "nowhere"})
    done = Command(*words, files=tmp_path).wait()
    assert done.code == 2
    assert "env.agents_path" in done.err and "it must be a folder" in done.err and done.err.count("\n") == 1


def test_a_run_plays_in_the_agents_words(tmp_path, small_run):
    noted = "open(__file__ + '.told', 'a').write('told ')"
    folder = write(tmp_path, hex=("return {", f"{noted}; return {{"))
    changes = {"env.agents_path": folder, "games": 600000000, "num_train_steps": 1, "save_steps": 1}
    done = Command(*small_run(tmp_path / "run", **changes), files=tmp_path).wait()
    assert done.code == 0, done.err
    assert (folder / "hex.py.told").exists()
    assert f'"agents_path": "{folder}"' in (tmp_path / "run/config.json").read_text()
    words = ("evaluate", "--checkpoint", tmp_path / "run", "--games", 600000000, "--num_episodes", 2)
    (tmp_path / "judged").mkdir()
    done = Command(*words, "--json", files=tmp_path / "judged").wait()
    assert done.code == 0 and "hex(board_size=3)" in done.out, done.err
