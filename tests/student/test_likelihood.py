"""How well references are predicted, against torch's own functions and a search for the best temperature."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

from rota.student.kernels import loss as kernel
from rota.student.kernels.loss import examined_together, examined_tokens
from rota.student.likelihood import TEMPERATURES, calibrate, fit, fits
from rota.types import Examined


def networks(count, tokens=23, width=8, vocabulary=40, seed=3):
    generator = torch.Generator().manual_seed(seed)
    made = [
        (torch.randn(tokens, width, generator=generator), torch.randn(vocabulary, width, generator=generator))
        for _ in range(count)
    ]
    return made, torch.randint(vocabulary, (tokens,), generator=generator)


def test_an_ensemble_is_examined_by_the_mean_of_its_probabilities(monkeypatch):
    monkeypatch.setattr(kernel, "CHUNK_LOGITS", 0)
    monkeypatch.setattr(kernel, "CHUNK_ROWS", 5)
    made, target = networks(3)
    logs = torch.stack([(states @ output.t()).softmax(1) for states, output in made]).mean(0).log()
    target[::4] = logs.argmax(1)[::4]
    found = examined_together(made, target, temperatures=[0.5, 2.0])
    torch.testing.assert_close(found[0], cross_entropy(logs, target, reduction="none"))
    assert found[1].tolist() == (logs.argmax(1) == target).float().tolist()
    for row, temperature in ((2, 0.5), (3, 2.0)):
        torch.testing.assert_close(found[row], cross_entropy(logs / temperature, target, reduction="none"))


def test_an_ensemble_of_one_is_that_network():
    made, target = networks(1)
    together = examined_together(made, target, temperatures=TEMPERATURES)
    torch.testing.assert_close(together, examined_tokens(*made[0], target, temperatures=TEMPERATURES))


def test_a_token_that_all_networks_rule_out_has_a_large_but_finite_loss():
    never = (torch.tensor([[1.0]]), torch.tensor([[300.0], [-300.0]]))
    found = examined_together([never, never], torch.tensor([1]), temperatures=[2.0])
    assert 80 < float(found[0, 0]) < 90
    assert torch.isfinite(found).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**20), st.floats(0.6, 1.4))
def test_the_calibrated_loss_is_the_minimum_over_temperatures(seed, sharpness):
    """Predictions that are right as often as they say, made too sure or not sure enough."""
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(scale=2.0, size=(400, 50)))
    probabilities = logits.softmax(1).numpy()
    target = torch.tensor([rng.choice(50, p=row / row.sum()) for row in probabilities])

    def loss(inverse):
        return float(cross_entropy(logits * sharpness * inverse, target))

    best = minimize_scalar(loss, bounds=(0.5, 1.2), method="bounded", options={"xatol": 1e-6})
    calibrated, temperature = calibrate(loss(1.0), [loss(1 / each) for each in TEMPERATURES])
    assert calibrated == pytest.approx(best.fun, abs=5e-4)
    assert calibrated <= loss(1.0)
    assert 1 / temperature == pytest.approx(best.x, abs=0.02)


def test_a_model_that_is_sure_beyond_all_measure_has_the_highest_temperature():
    calibrated, temperature = calibrate(9.0, [5.0, 6.5, 7.8, 11.0])
    assert (calibrated, temperature) == (5.0, 2.0)


def test_sentences_are_summed_by_group():
    sums, tokens = np.array([2.0, 4.0, 9.0]), np.array([1, 3, 3])
    above = [(1 / temperature - 1) ** 2 * tokens for temperature in TEMPERATURES]
    examined = Examined(sums, tokens, np.array([1, 1, 0]), sums + np.array(above))
    first, second = fits(examined, [2, 1])
    assert (first.loss, first.accuracy) == (1.5, 0.5)
    assert (first.calibrated, first.temperature) == (pytest.approx(1.5), pytest.approx(1))
    assert (second.loss, second.accuracy) == (3.0, 0.0)
    assert fit(examined).loss == 15 / 7
