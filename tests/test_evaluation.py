"What takes too long for a notebook: coverage by simulation, floors by search, exact values against play."

import json
from itertools import product

import numpy as np
import pytest

from gamerl.evaluation import Report, compare, evaluate, exact_results, paired_gain, yardsticks
from gamerl.exact import (
    best_response,
    exact_match,
    expected_return,
    information_states,
    mixture,
    move_table,
    nash_conv,
)
from gamerl.matches import BlindPlayer, bootstrap_mean, find_floor, match_tasks, play_match, wilson
from gamerl.rollouts import UniformPlayer, play_games

POKER = ("kuhn_poker", "leduc_poker")


class Tabular:
    "A player that answers from a move table, by the prompt it is shown."

    def __init__(self, game, table):
        self.answers = {id(s.observation): table[s.key] for s in information_states(game)}

    def probs(self, observations):
        return [self.answers[id(observation)] for observation in observations]


def random_table(game, seed):
    rng = np.random.default_rng(seed)
    return {s.key: rng.dirichlet(np.ones(len(s.observation.legal))) for s in information_states(game)}


def by_prompt(game, seed):
    "A random table that answers alike where the prompts are alike, as a model must."
    rng, answers = np.random.default_rng(seed), {}
    for state in information_states(game):
        if id(state.observation) not in answers:
            answers[id(state.observation)] = rng.dirichlet(np.ones(len(state.observation.legal)))
    return {s.key: answers[id(s.observation)] for s in information_states(game)}


@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.81, 0.98])
@pytest.mark.parametrize("n", [30, 500])
def test_wilson_covers(p, n):
    rng = np.random.default_rng(0)
    wins = rng.binomial(n, p, size=4000)
    covered = [low <= p <= high for low, high in (wilson(int(w), n) for w in wins)]
    assert 0.92 < np.mean(covered) < 0.985


@pytest.mark.parametrize("n", [50, 400])
def test_bootstrap_covers(n):
    rng = np.random.default_rng(1)
    values, odds = [-13, -3, 0, 1, 5], [0.1, 0.2, 0.2, 0.3, 0.2]
    truth = float(np.dot(values, odds))
    intervals = (bootstrap_mean(rng.choice(values, size=n, p=odds), resamples=1000) for _ in range(600))
    assert 0.92 < np.mean([low <= truth <= high for low, high in intervals]) < 0.975


def test_bootstrap_is_reproducible_and_orderless():
    values = np.random.default_rng(2).normal(size=40)
    assert bootstrap_mean(values) == bootstrap_mean(values) == bootstrap_mean(values[::-1])
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values)


@pytest.mark.parametrize("game", POKER)
def test_swapping_seats_cancels_luck(game):
    "The mean over deals is surer than as many games on deals of their own."
    episodes = [p.episode for p in play_games(match_tasks(game, "random", 3000), UniformPlayer())]
    scores = np.array([episode.score for episode in episodes]).reshape(-1, 2)
    assert np.corrcoef(scores.T)[0, 1] < -0.15
    assert scores.mean(axis=1).var() < 0.9 * scores.var() / 2


@pytest.mark.parametrize("game", POKER)
def test_common_deals_make_gains_surer(game):
    "A bold player and a random one, who is bold at times, share much of their luck."
    bold, mixed = (
        play_match(p, game, num_episodes=3000).scores for p in (BlindPlayer((), True), UniformPlayer())
    )
    assert np.subtract(bold, mixed).var() < 0.9 * (np.var(bold) + np.var(mixed))


@pytest.mark.parametrize("game", POKER)
def test_sampled_matches_agree_with_exact_ones(game):
    uniform = move_table(UniformPlayer(), game)
    for seed in range(3):
        table = by_prompt(game, seed)
        exact, match = (
            exact_match(game, table, uniform),
            play_match(Tabular(game, table), game, num_episodes=4000),
        )
        assert abs(match.win_rate - exact.win_rate) < 4 * (0.25 / match.games) ** 0.5
        spread = 13 if game == "leduc_poker" else 2
        assert abs(match.mean_return - exact.mean_return) < 4 * 0.3 * spread / match.games**0.5


@pytest.mark.parametrize("game", POKER)
def test_move_table_asks_each_prompt_once(game):
    class Counting(UniformPlayer):
        asked = ()

        def probs(self, observations):
            self.asked = (*self.asked, *(observation.messages[-1]["content"] for observation in observations))
            return super().probs(observations)

    player = Counting()
    table = move_table(player, game, batch_size=7)
    assert len(table) == len(information_states(game))
    assert len(set(player.asked)) == len(player.asked) <= len(table)


@pytest.mark.parametrize("game", POKER)
def test_mixture_is_worth_its_draws(game):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        tables, share = [random_table(game, 10 * seed + k) for k in range(4)], rng.dirichlet(np.ones(4))
        mixed = mixture(game, tables, share)
        pairs = product(zip(share, tables), repeat=2)
        drawn = sum(p * q * expected_return(game, [mine, theirs]) for (p, mine), (q, theirs) in pairs)
        np.testing.assert_allclose(expected_return(game, [mixed, mixed]), drawn, atol=1e-10)
        other = random_table(game, 99)
        against = sum(p * expected_return(game, [table, other]) for p, table in zip(share, tables))
        np.testing.assert_allclose(expected_return(game, [mixed, other]), against, atol=1e-10)


def test_mixture_of_pure_tables_where_nobody_comes():
    "Rows that no snapshot reaches are still distributions, and NashConv can be taken."
    tables = [move_table(BlindPlayer((), highest), "leduc_poker") for highest in (False, True)]
    mixed = mixture("leduc_poker", tables)
    assert all(abs(row.sum() - 1) < 1e-12 for row in mixed.values())
    assert nash_conv("leduc_poker", mixed) > 0


@pytest.mark.parametrize("game", POKER)
def test_nash_conv_is_the_sum_of_gains(game):
    table = random_table(game, 5)
    now = expected_return(game, [table, table])
    best = [expected_return(game, [best_response(game, table, 0), table])[0]]
    best += [expected_return(game, [table, best_response(game, table, 1)])[1]]
    assert nash_conv(game, table) == pytest.approx(sum(best - now))


FLOORS = [("kuhn_poker", 0.64), ("leduc_poker", 0.72), ("tic_tac_toe", 0.57), ("liars_dice(numdice=1)", 0.77)]


@pytest.mark.parametrize("game, rate", FLOORS)
def test_floors_of_games_with_a_shortcut(game, rate):
    assert play_match(find_floor(game), game, num_episodes=1000).win_rate > rate


def test_the_floor_of_liars_dice_exactly():
    "Bid one six or call: blind to its die, and still hard to beat for random play."
    game, blind = "liars_dice(numdice=1)", BlindPlayer((5,), highest=True)
    exact = exact_match(game, move_table(blind, game), move_table(UniformPlayer(), game))
    assert exact.win_rate == pytest.approx(0.833664, abs=1e-6)


def test_more_favourites_make_a_higher_floor():
    "On a small board of hex one favourite cell helps a little, a list of cells helps more."
    game = "hex(board_size=4)"
    one, two = (play_match(find_floor(game, favourites=n), game, num_episodes=1000).win_rate for n in (1, 2))
    assert 0.5 < one < 0.65 < two + 0.03 and one < two < 0.75


def test_yardsticks_are_played_once():
    yardsticks.cache_clear()
    for player in (UniformPlayer(), BlindPlayer()):
        evaluate(player, ["kuhn_poker"], num_episodes=20)
    assert yardsticks.cache_info().misses == 1


def test_threads_change_nothing():
    one, two = (play_match(UniformPlayer(), "tic_tac_toe", "mcts:5", 24, threads=n) for n in (1, 2))
    assert one == two


def test_reports_survive_json():
    games = ["kuhn_poker", "tic_tac_toe"]
    before = evaluate(UniformPlayer(), games, num_episodes=30)
    after = evaluate(BlindPlayer((), True), games, num_episodes=30)
    again = Report.from_json(json.loads(json.dumps(after.to_json())))
    assert again == after
    assert compare(before, again).to_json() == compare(before, after).to_json()
    assert "NaN" not in json.dumps(compare(before, after).to_json())
    assert paired_gain(before.overall.player, before.overall.player)[0] == 0


def test_mcts_in_a_simultaneous_game_is_said_aloud():
    report = evaluate(UniformPlayer(), ["goofspiel(num_cards=4)"], "mcts:5", num_episodes=4, floor_games=0)
    assert report.rows[0].player.played == "random"
    assert "mcts:5 (played: random)" in report._repr_markdown_()


def test_more_and_fewer_players():
    for game, seats in [("kuhn_poker(players=3)", 3), ("2048", 1)]:
        tasks = match_tasks(game, "random", 4)
        assert len(tasks) == {3: 6, 1: 4}[seats]
    report = evaluate(UniformPlayer(), ["kuhn_poker(players=3)"], num_episodes=30, floor_games=0)
    assert (report.rows[0].player.games, len(report.rows[0].player.scores)) == (30, 10)
    assert report.rows[0].exact is None


def test_exact_results_against_a_searcher_are_nash_conv_alone():
    exact = exact_results(UniformPlayer(), "leduc_poker", "mcts:5")
    assert exact.nash_conv == pytest.approx(4.747222)
    assert exact.player is exact.floor is exact.random is None
