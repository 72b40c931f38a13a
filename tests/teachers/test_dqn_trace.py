"""DQN against Algorithm 2, written down here a second time from the paper, in plain numpy."""

import numpy as np
import pytest
from dqn_by_hand import DQNByHand, NetworkByHand
from dqn_cases import ARMS, losses_at, make, play, prototype_at, weights_of

from rota.teachers.dqn.agent import Replay


def algorithm_2(network, steps, *, own, warm, w, decay, options):
    """The pseudo-code with n = 10 and languages numbered from 0; returns actions, reasons, epsilons and Q values.

    Two readings of the ledger: the first transition is stored with the second observation, and a choice before any
    observation is random.
    """
    agent = DQNByHand(network, **options)
    previous_state = previous_x = None
    chosen = [(1 + int(warm.integers(2)), "warmup", None, None)]
    for t in range(10, steps, 10):
        i = chosen[-1][0]
        if t < w:
            chosen.append((1 + int(warm.integers(2)), "warmup", None, None))
            continue
        if t == w:
            chosen.append((int(own.integers(3)), "explore", 1.0, None))
            continue
        state, x = prototype_at(t), -losses_at(t, ARMS[i])[0]
        if previous_state is not None:
            agent.store((previous_state, i, x - previous_x, state))
        previous_state, previous_x = state, x
        agent.train(own)
        epsilon = max(0.01, 1 - 0.99 * (t - w) / decay)
        q = agent.target(state)[0]
        if own.random() < epsilon:
            chosen.append((int(own.integers(3)), "explore", epsilon, q))
        else:
            chosen.append((int(np.argmax(q)), "exploit", epsilon, q))
    return chosen, agent


def by_hand(teacher):
    """The numpy twin of an untrained teacher's network."""
    found = weights_of(teacher.learner.online)
    return NetworkByHand(found[: len(found) // 2], found[len(found) // 2 :])


def test_the_decisions_and_updates_are_those_of_algorithm_2():
    teacher = make()
    own, warm, _ = np.random.default_rng(3).spawn(3)
    own.integers(2**63)  # the seed of the network
    options = {"capacity": 9, "minimum": 4, "batch": 6, "gamma": 0.99, "tau": 0.1, "lr": 0.01}
    network = by_hand(teacher.teacher)
    decisions = play(teacher, 400)
    expected, agent = algorithm_2(network, 400, own=own, warm=warm, w=30, decay=200, options=options)

    assert [decision.arm for decision in decisions] == [ARMS[number] for number, *_ in expected]
    assert [decision.why for decision in decisions] == [why for _, why, *_ in expected]
    assert {decision.why for decision in decisions} == {"warmup", "explore", "exploit"}
    for decision, (_, _, epsilon, q) in zip(decisions, expected, strict=True):
        assert decision.epsilon == (None if epsilon is None else pytest.approx(epsilon))
        if q is not None:
            assert list(decision.scores.values()) == pytest.approx(q, abs=2e-4)
    # observations at 40, 50, ... 390; the first stores nothing, and the fourth transition comes with the fifth
    assert agent.updates == 36 - 4
    assert teacher.teacher.learner.updates == agent.updates + 1  # ours also hears of its last choice, at 400


def test_twelve_updates_move_both_networks_as_by_hand():
    teacher = make(warmup=None).learner
    rng = np.random.default_rng(8)
    replay = Replay(20, 6)
    agent = DQNByHand(
        by_hand(make(warmup=None)), capacity=20, minimum=1, batch=6, gamma=0.99, tau=0.1, lr=0.01, clip=None
    )
    for _ in range(20):
        transition = (rng.random(6), int(rng.integers(3)), float(3 * rng.standard_normal()), rng.random(6))
        replay.add(*transition)
        agent.store(transition)
    for update in range(12):
        teacher.learn(replay.sample(6, np.random.default_rng(update)))
        agent.train(np.random.default_rng(update))
        for got, expected in zip(weights_of(teacher.online), agent.online.parameters, strict=True):
            np.testing.assert_allclose(got, expected, atol=2e-5)
        for got, expected in zip(weights_of(teacher.target), agent.target.parameters, strict=True):
            np.testing.assert_allclose(got, expected, atol=2e-5)
