from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from rota.student.kernels import loss as loss_module
from rota.student.kernels.loss import examined_tokens, smoothed_loss, token_losses, uncertain_tokens


@pytest.fixture(params=[1, 16, 128], ids=["single rows", "several chunks", "one chunk"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", 0)
    monkeypatch.setattr(loss_module, "CHUNK_ROWS", request.param)


def case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """37 states (not a multiple of the chunk), 31 words; a few logits are large."""
    generator = torch.Generator().manual_seed(4)
    states = torch.randn(37, 8, generator=generator) * 3
    output = torch.randn(31, 8, generator=generator) * 2
    return states.requires_grad_(), output.requires_grad_(), torch.randint(0, 31, (37,), generator=generator)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_value_and_gradients_are_those_of_torch(smoothing):
    states, output, target = case()
    ours, losses = smoothed_loss(states, output, target, label_smoothing=smoothing)
    logits = states @ output.t()
    theirs = cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(losses, cross_entropy(logits, target, reduction="none").detach())
    gradients = [torch.autograd.grad(value / 37, [states, output]) for value in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-4)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_token_losses_are_those_of_torch(smoothing):
    states, output, target = case()
    theirs = cross_entropy(states @ output.t(), target, label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(token_losses(states, output, target, label_smoothing=smoothing), theirs.detach())


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_factors_multiply_the_loss_of_each_token_that_is_differentiated(smoothing):
    states, output, target = case()
    factors = torch.linspace(-1, 3, 37)
    ours, losses = smoothed_loss(states, output, target, label_smoothing=smoothing, factors_N=factors)
    logits = states @ output.t()
    theirs = (factors * cross_entropy(logits, target, label_smoothing=smoothing, reduction="none")).sum()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(losses, cross_entropy(logits, target, reduction="none").detach())
    gradients = [torch.autograd.grad(value / 37, [states, output]) for value in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-4)


@pytest.mark.usefixtures("chunk")
def test_examined_tokens_are_those_of_torch():
    states, output, target = case()
    logits = (states @ output.t()).detach()
    target[::3] = logits.argmax(1)[::3]
    found = examined_tokens(states, output, target, temperatures=[0.5, 1.0, 3.0])
    assert found.shape == (5, 37)
    torch.testing.assert_close(found[0], token_losses(states, output, target), atol=0, rtol=0)
    assert found[1].tolist() == (logits.argmax(1) == target).float().tolist()
    assert 0.3 < found[1].mean() < 0.6
    for row, temperature in enumerate((0.5, 1.0, 3.0), start=2):
        torch.testing.assert_close(found[row], cross_entropy(logits / temperature, target, reduction="none"))


@pytest.mark.usefixtures("chunk")
def test_uncertain_tokens_are_those_of_torch():
    states, output, target = case()
    logs = (states @ output.t()).detach().log_softmax(1)
    losses, probabilities, entropies, best = uncertain_tokens(states, output, target)
    wanted = logs.gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(losses, -wanted)
    torch.testing.assert_close(probabilities, wanted.exp(), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(entropies, torch.distributions.Categorical(logits=logs).entropy(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(best, logs.amax(1), atol=1e-5, rtol=1e-4)


def test_a_uniform_prediction_costs_the_log_of_the_vocabulary():
    states, output, target = torch.zeros(3, 4), torch.randn(10, 4), torch.tensor([0, 5, 9])
    smoothed, losses = smoothed_loss(states, output, target, label_smoothing=0.1)
    assert losses.tolist() == pytest.approx([math.log(10)] * 3)
    assert smoothed.item() == pytest.approx(3 * math.log(10))


def test_a_hopeless_token_has_a_large_but_finite_loss():
    states, output = torch.tensor([[1.0]]), torch.tensor([[300.0], [-300.0]])
    smoothed, losses = smoothed_loss(states, output, torch.tensor([1]), label_smoothing=0.0)
    assert float(losses[0]) == smoothed.item() == 600.0


def test_bf16_autocast_stays_close():
    states, output, target = case()
    exact, _ = smoothed_loss(states, output, target, label_smoothing=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, _ = smoothed_loss(states, output, target, label_smoothing=0.1)
    assert rounded.item() == pytest.approx(exact.item(), rel=0.02)
    assert rounded.item() != exact.item()
    for ours, theirs in zip(*(torch.autograd.grad(value, [states, output]) for value in (rounded, exact)), strict=True):
        assert ours.dtype == torch.float32
        assert float((ours - theirs).norm() / theirs.norm()) < 0.05


def test_a_gpu_takes_more_logits_at_once_than_the_cache_of_a_cpu_holds():
    rows = [loss_module._chunk_rows(torch.empty(32_768, 2, device=device)) for device in ("cpu", "meta")]
    assert rows == [128, 2_048]
