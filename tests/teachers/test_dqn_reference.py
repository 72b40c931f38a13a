"""Our DQN update and that of stable-baselines3, on the same transitions, weights and optimiser."""

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.utils import polyak_update

from rota.teachers.dqn.agent import QLearner, Transitions, q_network
from rota.teachers.dqn.config import DQNConfig

INPUTS, HIDDEN, ARMS, TAU = 12, [16, 16], 4, 0.005


class Spaces(gymnasium.Env):
    """An environment that is never stepped: it only has the right sizes."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (INPUTS,), np.float32)
    action_space = gymnasium.spaces.Discrete(ARMS)


class GivenSamples:
    """A replay buffer that hands out prepared minibatches, one after the other."""

    def __init__(self, minibatches):
        self.left = list(minibatches)

    def sample(self, batch_size, env=None):
        batch = self.left.pop(0)
        column = batch.gains_N[:, None]
        return ReplayBufferSamples(
            batch.states_NS, batch.arms_N[:, None], batch.next_states_NS, torch.zeros_like(column), column
        )


def minibatch(generator):
    return Transitions(
        torch.rand(32, INPUTS, generator=generator) * 5,
        torch.randint(ARMS, (32,), generator=generator),
        torch.randn(32, generator=generator) * 2,  # large enough for both branches of the Huber loss
        torch.rand(32, INPUTS, generator=generator) * 5,
    )


def their_dqn(network, minibatches):
    policy = {
        "net_arch": HIDDEN,
        "activation_fn": torch.nn.Tanh,
        "optimizer_class": torch.optim.RMSprop,
        "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-8},
    }
    model = DQN(
        "MlpPolicy",
        Spaces(),
        learning_rate=2.5e-4,
        gamma=0.99,
        max_grad_norm=float("inf"),
        buffer_size=1,
        policy_kwargs=policy,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.q_net.q_net.load_state_dict(network.state_dict())
    model.q_net_target.load_state_dict(model.q_net.state_dict())
    model.replay_buffer = GivenSamples(minibatches)
    return model


def test_eight_updates_equal_those_of_stable_baselines3():
    generator = torch.Generator().manual_seed(4)
    minibatches = [minibatch(generator) for _ in range(8)]
    network = q_network(INPUTS, HIDDEN, ARMS, generator)
    theirs = their_dqn(network, minibatches)
    ours = QLearner(network, DQNConfig(learning_rate=2.5e-4, gamma=0.99, tau=TAU))
    start = network[0].weight.detach().clone()

    for transitions in minibatches:
        loss = ours.learn(transitions)
        theirs.train(gradient_steps=1, batch_size=32)
        polyak_update(theirs.q_net.parameters(), theirs.q_net_target.parameters(), TAU)
        assert loss == pytest.approx(theirs.logger.name_to_value["train/loss"], rel=1e-6)
        for mine, other in ((ours.online, theirs.q_net.q_net), (ours.target, theirs.q_net_target.q_net)):
            for name, tensor in mine.state_dict().items():
                torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-6, atol=1e-8)

    assert (ours.online[0].weight - start).abs().max() > 1e-3
    assert not torch.equal(ours.online[0].weight, ours.target[0].weight)
