"""The mathematics of PPO against two implementations that other people wrote.

OpenSpiel's PPO (`open_spiel.python.pytorch.ppo`, a descendant of CleanRL's) comes with open_spiel: it runs
beside ours, and both must end with the same weights. TorchRL tells a game that was cut off from one that
ended; its answers are recorded below.
"""

import copy
from types import SimpleNamespace

import pytest
import torch
from open_spiel.python.pytorch import ppo as open_spiel_ppo
from torch.distributions import Categorical, kl_divergence

from gamerl.advantages import explained_variance, gae
from gamerl.ppo import (
    approx_kl,
    clip_fraction,
    entropy,
    kl_estimate,
    kl_full,
    policy_loss,
    value_loss,
)

STEPS, GAMES, FEATURES, MOVES = 8, 3, 5, 4  # decisions, games side by side, size of an observation, moves
GAMMA, LAM, CLIP_RANGE, VALUE_COEF, ENTROPY_COEF, LEARNING_RATE, EPOCHS = 0.9, 0.8, 0.2, 0.5, 0.01, 0.1, 4


class Recorder:
    "Keeps what OpenSpiel's PPO would write to TensorBoard."

    def __init__(self):
        self.scalars = {}

    def add_scalar(self, name, value, step):
        self.scalars[name.split("/")[1]] = float(value)


def rand_legal(rng):
    "[STEPS,GAMES,MOVES] legal moves, at least one each."
    legal = torch.rand(STEPS, GAMES, MOVES, generator=rng) < 0.6
    legal[..., 0] |= ~legal.any(-1)
    return legal


def open_spiel_agent(seed):
    "OpenSpiel's PPO with a full buffer: random observations, legal moves, rewards and ends of games."
    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # the layers of PPOAgent draw from torch's own generator
        agent = open_spiel_ppo.PPO(
            input_shape=(FEATURES,),
            num_actions=MOVES,
            num_players=2,
            num_envs=GAMES,
            steps_per_batch=STEPS,
            num_minibatches=1,
            update_epochs=EPOCHS,
            learning_rate=LEARNING_RATE,
            gamma=GAMMA,
            gae_lambda=LAM,
            normalize_advantages=False,
            clip_coef=CLIP_RANGE,
            entropy_coef=ENTROPY_COEF,
            value_coef=VALUE_COEF,
            writer=Recorder(),
            agent_fn=open_spiel_ppo.PPOAgent,
        )
    agent.obs[:] = torch.randn(STEPS, GAMES, FEATURES, generator=rng)
    agent.legal_actions_mask[:] = rand_legal(rng)
    drawn = torch.multinomial(agent.legal_actions_mask.float().flatten(0, 1), 1, generator=rng)
    agent.actions[:] = drawn.view(STEPS, GAMES)
    agent.rewards[:] = torch.randn(STEPS, GAMES, generator=rng)
    agent.dones[:] = (torch.rand(STEPS, GAMES, generator=rng) < 0.25).float()
    with torch.no_grad():
        table, values = evaluate(agent.network, agent.obs, agent.legal_actions_mask)
    agent.logprobs[:] = table.gather(-1, agent.actions.long()[..., None])[..., 0]
    agent.values[:] = values
    return agent, torch.randn(GAMES, FEATURES, generator=rng)


def evaluate(network, observations, legal):
    "Log-probabilities of the moves and values, from the layers of OpenSpiel's network."
    logits = network.actor(observations).masked_fill(~legal, -torch.inf)
    return logits.log_softmax(-1), network.critic(observations)[..., 0]


def to_rows(dones):
    "Decisions (step, game) of each episode and whether it ended; the last one of a column is cut off."
    rows = []
    for game in range(GAMES):
        row = []
        for step in range(STEPS):
            row.append((step, game))
            if dones[step, game] or step == STEPS - 1:
                rows.append((row, bool(dones[step, game])))
                row = []
    return rows


def our_advantages(agent, last_observations):
    "[STEPS,GAMES] advantages and returns through gamerl's padded rows, one for each episode."
    with torch.no_grad():
        last_values = agent.network.critic(last_observations)[:, 0]
    rows = to_rows(agent.dones)
    rewards, values, mask = torch.zeros(3, len(rows), STEPS)
    for i, (row, _) in enumerate(rows):
        steps, games = map(list, zip(*row))
        rewards[i, : len(row)] = agent.rewards[steps, games]
        values[i, : len(row)] = agent.values[steps, games]
        mask[i, : len(row)] = 1
    bootstrap = torch.stack([0 * last_values[0] if ended else last_values[row[0][1]] for row, ended in rows])
    columns = torch.zeros(2, STEPS, GAMES)
    for column, padded in zip(columns, gae(rewards, values, mask, GAMMA, LAM, bootstrap)):
        for i, (row, _) in enumerate(rows):
            for t, (step, game) in enumerate(row):
                column[step, game] = padded[i, t]
    return columns


def our_update(agent, last_observations):
    "OpenSpiel's update with gamerl's functions, on a copy of its network; the metrics that both report."
    network = copy.deepcopy(agent.network)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, eps=1e-5)
    advantages, returns = (x.flatten() for x in our_advantages(agent, last_observations))
    old_logprobs, old_values = agent.logprobs.flatten(), agent.values.flatten()
    legal, taken = agent.legal_actions_mask.flatten(0, 1), agent.actions.long().flatten()[:, None]
    clip_fractions = []
    for _ in range(EPOCHS):
        table, values = evaluate(network, agent.obs.flatten(0, 1), legal)
        logprobs = table.gather(-1, taken)[:, 0]
        losses = {
            "policy_loss": policy_loss(logprobs, old_logprobs, advantages, CLIP_RANGE).mean(),
            "value_loss": value_loss(values, old_values, returns, CLIP_RANGE).mean(),
            "entropy": entropy(table, legal).mean(),
        }
        clip_fractions.append(clip_fraction(logprobs, old_logprobs, CLIP_RANGE))
        optimizer.zero_grad()
        loss = losses["policy_loss"] + VALUE_COEF * losses["value_loss"] - ENTROPY_COEF * losses["entropy"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()
    metrics = losses | {
        "old_approx_kl": kl_estimate(old_logprobs, logprobs, "k1").mean(),
        "approx_kl": approx_kl(logprobs, old_logprobs),
        "clipfrac": torch.stack(clip_fractions).mean(),
        "explained_variance": explained_variance(returns, old_values, torch.ones_like(returns)),
    }
    return network, {name: value.item() for name, value in metrics.items()}


@pytest.mark.parametrize("seed", range(4))
def test_a_whole_update_equals_open_spiels(seed):
    agent, last_observations = open_spiel_agent(seed)
    network, metrics = our_update(agent, last_observations)
    before = copy.deepcopy(agent.network)
    agent.learn([SimpleNamespace(observations={"info_state": [o.numpy()]}) for o in last_observations])

    assert 0 < metrics["clipfrac"] < 1  # clipping is at work, and not everywhere
    assert metrics["approx_kl"] > 0.01
    for name, value in metrics.items():
        assert value == pytest.approx(agent.writer.scalars[name], rel=1e-3, abs=1e-5), name
    for old, theirs, ours in zip(before.parameters(), agent.network.parameters(), network.parameters()):
        assert not torch.equal(old, theirs)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def rand_table(legal, rng):
    "[N,MOVES] log-probabilities of a random policy."
    return torch.randn(legal.shape, generator=rng).masked_fill(~legal, -torch.inf).log_softmax(-1)


def test_divergence_equals_torchs():
    rng = torch.Generator().manual_seed(0)
    legal = rand_legal(rng).flatten(0, 1)
    table, ref_table = rand_table(legal, rng), rand_table(legal, rng)
    ours = kl_full(table, ref_table, legal)
    for row in range(len(legal)):
        p, q = (Categorical(logits=t[row][legal[row]]) for t in (table, ref_table))
        torch.testing.assert_close(ours[row], kl_divergence(p, q), rtol=1e-5, atol=1e-6)


# Recorded with torchrl 0.14.1, tensordict 0.14.3 and torch 2.13.0 from the inputs of the two tests below:
#
#     from torchrl.objectives.value.functional import generalized_advantage_estimate
#     columns = (x[:, None] for x in (values, next_values, rewards, done, terminated))
#     advantages, returns = generalized_advantage_estimate(0.9, 0.8, *columns)
#
#     class Fixed(nn.Module):  # answers with a parameter, whatever the observation
#         def __init__(self, x): super().__init__(); self.x = nn.Parameter(x)
#         def forward(self, observation): return self.x
#     actor = ProbabilisticTensorDictSequential(
#         TensorDictModule(Fixed(logits), in_keys=["observation"], out_keys=["logits"]),
#         ProbabilisticTensorDictModule(
#             in_keys=["logits"], out_keys=["action"], distribution_class=Categorical, return_log_prob=True))
#     critic = TensorDictModule(Fixed(values[:, None]), in_keys=["observation"], out_keys=["state_value"])
#     loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=1.0, critic_coeff=1.0, clip_value=0.1,
#                        loss_critic_type="l2", normalize_advantage=False, reduction="none")
#     loss(TensorDict({"observation": torch.zeros(5, 1), "action": taken, "action_log_prob": old_logprobs,
#                      "advantage": advantages[:, None], "value_target": returns[:, None],
#                      "state_value": old_values[:, None]}, [5]))
TORCHRL_ADVANTAGES = [0.10131198, -0.22040001, -0.07, 0.74120003, 0.20999998, 0.5]
TORCHRL_RETURNS = [0.20131198, 0.1796, -0.37, 0.94120002, 0.81, 1.0]
TORCHRL_OBJECTIVE = [-0.47648868, 1.41441143, -2.4000001, -0.45154056, 1.03636479]
TORCHRL_CRITIC = [0.48999998, 0.20249999, 0.49000007, 0.04000001, 0.72250003]  # squared errors, not halved
TORCHRL_NEGATIVE_ENTROPY = [-0.62158465, -1.07716072, -0.88445175, -1.0952873, -0.83239549]
TORCHRL_CLIP_FRACTION, TORCHRL_KL_APPROX = 0.8, -0.04817929


def test_a_game_that_was_cut_off_as_in_torchrl():
    rewards = torch.tensor([0.0, 0.5, -1.0, 0.25, 0.0, 1.0])
    values = torch.tensor([0.1, 0.4, -0.3, 0.2, 0.6, 0.5])
    next_values = torch.tensor([0.4, -0.3, 0.7, 0.6, 0.5, 9.0])
    done, terminated = torch.tensor([[0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1]]).bool()
    bootstrap = torch.where(terminated, 0, next_values)[done]
    advantages, returns = gae(rewards.view(2, 3), values.view(2, 3), torch.ones(2, 3), 0.9, 0.8, bootstrap)
    torch.testing.assert_close(advantages.flatten(), torch.tensor(TORCHRL_ADVANTAGES))
    torch.testing.assert_close(returns.flatten(), torch.tensor(TORCHRL_RETURNS))


def test_losses_as_in_torchrl():
    logits = torch.tensor([[0.5, -1, 2], [0, 0.3, -0.2], [1.5, 1, -0.5], [0.2, 0.1, 0], [-1, 0, 1]])
    taken = torch.tensor([0, 1, 0, 2, 2])
    old_logprobs = torch.tensor([-1.0, -1.2, -0.9, -1.1, -0.8])
    advantages = torch.tensor([1.0, -1.0, 2.0, 0.5, -0.7])
    values, old_values = torch.tensor([[0.6, 0.45, -0.4, 0.3, 0.35], [0.2, 0.5, -0.1, 0.0, 0.4]])
    returns = torch.tensor([1.0, 0.0, 0.3, 0.1, -0.5])
    table, legal = logits.log_softmax(-1), torch.ones(5, 3).bool()
    logprobs = table.gather(-1, taken[:, None])[:, 0]

    def same(ours, recorded):
        torch.testing.assert_close(ours, torch.tensor(recorded), rtol=1e-5, atol=1e-6)

    same(policy_loss(logprobs, old_logprobs, advantages, 0.2), TORCHRL_OBJECTIVE)
    same(2 * value_loss(values, old_values, returns, 0.1), TORCHRL_CRITIC)
    same(-entropy(table, legal), TORCHRL_NEGATIVE_ENTROPY)
    same(clip_fraction(logprobs, old_logprobs, 0.2), TORCHRL_CLIP_FRACTION)
    same(kl_estimate(old_logprobs, logprobs, "k1").mean(), TORCHRL_KL_APPROX)
