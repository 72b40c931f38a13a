"""Gradients as opaque vectors: against another implementation, finite differences and Adam's own state."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from student_cases import batch_of, hugging_face_twin, make_network, make_student, random_pairs
from torch.nn.functional import cross_entropy

from rota.student.gradients import CHUNK, NetworkGradient
from rota.student.hardware import TooLargeError
from rota.student.transformer import to_m2m100

LENGTHS = ((3, 12), (20, 2), (2, 1), (6, 6), (9, 4))
PAIRS = random_pairs(*LENGTHS)
OTHERS = random_pairs((5, 5), (7, 8), (4, 1), seed=3)


def by_name(student, gradient):
    return {
        name: tensor for (name, _), tensor in zip(student.network.named_parameters(), gradient.tensors, strict=True)
    }


def flat(gradient):
    return torch.cat([tensor.flatten() for tensor in gradient.tensors]).double().numpy()


def vector(*numbers):
    """A gradient of two parameters."""
    tensor = torch.tensor(numbers, dtype=torch.float32)
    return NetworkGradient([tensor[:1], tensor[1:].view(1, -1)], lambda: None)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("smoothing", [None, 0.1])
def test_a_gradient_is_that_of_hugging_faces_network_by_autograd(tied, smoothing):
    student = make_student(make_network(tie_embeddings=tied), label_smoothing=0.1)
    found = student.gradient([batch_of(PAIRS), batch_of(OTHERS)], smoothed=smoothing is not None)
    twin = hugging_face_twin(student.network)
    rows = [
        twin(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[2, *target[:-1]]])).logits[0]
        for source, target in PAIRS + OTHERS
    ]
    targets = torch.tensor([token for _, target in PAIRS + OTHERS for token in target])
    cross_entropy(torch.cat(rows), targets, label_smoothing=smoothing or 0.0).backward()
    ours = to_m2m100(by_name(student, found))
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, atol=1e-6, rtol=1e-4, msg=name)


def test_a_gradient_says_how_the_loss_changes_when_the_weights_do():
    student, batches = make_student(), [batch_of(PAIRS)]
    gradient = student.gradient(batches)
    generator = torch.Generator().manual_seed(5)
    step = NetworkGradient([torch.randn(each.shape, generator=generator) for each in gradient.tensors], lambda: None)
    step = step.scaled(0.004 / step.norm()).plus(gradient.scaled(0.002 / gradient.norm()))

    def loss_after(factor):
        with torch.no_grad():
            torch._foreach_add_(list(student.network.parameters()), step.tensors, alpha=factor)
            loss = student.losses(batches).per_token
            torch._foreach_add_(list(student.network.parameters()), step.tensors, alpha=-factor)
        return loss

    assert (loss_after(1) - loss_after(-1)) / 2 == pytest.approx(gradient.dot(step), rel=0.01)


def test_in_pieces_it_is_the_gradient_of_the_whole():
    whole = make_student().gradient([batch_of(PAIRS * 4)])
    divided = make_student(piece_tokens=10).gradient([batch_of(PAIRS * 4)])
    assert divided.cosine(whole) == pytest.approx(1, abs=1e-6)
    assert divided.minus(whole).norm() < 1e-5 * whole.norm()


def test_in_bf16_it_is_nearly_that_of_float32():
    exact = make_student().gradient([batch_of(PAIRS)])
    rounded = make_student(precision="bf16").gradient([batch_of(PAIRS)])
    assert rounded.cosine(exact) > 0.999
    assert all(tensor.dtype == torch.float32 for tensor in rounded.tensors)


def test_products_norms_and_combinations_worked_out_by_hand():
    one, other = vector(3.0, 0.0, 4.0), vector(1.0, 2.0, -2.0)
    assert one.dot(other) == 3 - 8
    assert (one.norm(), other.norm()) == (5.0, 3.0)
    assert one.cosine(other) == pytest.approx(-1 / 3)
    assert flat(one.plus(other)).tolist() == [4, 2, 2]
    assert flat(one.minus(other)).tolist() == [2, -2, 6]
    assert flat(one.scaled(-0.5)).tolist() == [-1.5, 0, -2]
    assert one.cosine(vector(0.0, 0.0, 0.0)) == 0.0


def test_a_gradient_is_parallel_to_itself_and_not_to_another():
    student = make_student()
    one, other = student.gradient([batch_of(PAIRS)]), student.gradient([batch_of(OTHERS)])
    assert one.cosine(one) == pytest.approx(1, abs=1e-12)
    assert one.cosine(one.scaled(-3)) == pytest.approx(-1, abs=1e-6)
    ours, theirs = flat(one), flat(other)
    expected = ours @ theirs / math.sqrt(ours @ ours) / math.sqrt(theirs @ theirs)
    assert -0.99 < expected < 0.99
    assert one.cosine(other) == pytest.approx(expected, rel=1e-6)


def test_many_small_products_are_not_lost_beside_a_large_one():
    small = torch.ones(5 * CHUNK + 7)
    found = NetworkGradient([torch.tensor([2.0**20]), small], lambda: None)
    assert found.dot(found) == 2**40 + 5 * CHUNK + 7, "float32 has 24 bits"


def test_adams_metric_divides_by_the_root_of_the_second_moments():
    student = make_student(betas=(0.9, 0.98))
    gradient = student.gradient([batch_of(OTHERS)])
    assert flat(gradient.in_adams_metric()).tolist() == flat(gradient).tolist(), "before the first update"
    squares = {name: np.zeros(tuple(weight.shape)) for name, weight in student.network.named_parameters()}
    for pairs in (PAIRS, OTHERS, PAIRS[:2]):
        student.update([batch_of(pairs)])
        for name, parameter in student.network.named_parameters():
            squares[name] = 0.98 * squares[name] + 0.02 * parameter.grad.double().numpy() ** 2
    gradient = student.gradient([batch_of(OTHERS)])
    found, plain = by_name(student, gradient.in_adams_metric()), by_name(student, gradient)
    for name, square in squares.items():
        expected = plain[name].double().numpy() / (np.sqrt(square / (1 - 0.98**3)) + 1e-9)
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-4, err_msg=name)


def test_in_adams_metric_a_weight_that_was_never_updated_has_no_say():
    network = make_network(tie_embeddings=False)
    student = make_student(network)
    seen = {token for source, target in PAIRS for token in (*source, *target)}
    student.update([batch_of(PAIRS)])
    unseen = next(token for token in range(4, 23) if token not in seen)
    gradient = student.gradient([batch_of([([unseen, 2], [unseen, 2])])])
    name = "embedding.weight"
    assert by_name(student, gradient)[name][unseen].abs().max() > 0
    assert by_name(student, gradient.in_adams_metric())[name][unseen].abs().max() == 0


def test_the_projection_of_an_update_is_the_dot_product_with_the_gradient_of_its_batches():
    student = make_student(clip_norm=0.01)
    direction = student.gradient([batch_of(OTHERS)])
    student.follow(direction)
    expected = student.gradient([batch_of(PAIRS), batch_of(OTHERS)], smoothed=True)
    assert student.projection is None
    student.update([batch_of(PAIRS), batch_of(OTHERS)])
    assert student.projection.norm == student.gradient_norm == pytest.approx(expected.norm(), rel=1e-5)
    assert student.projection.norm > 0.01, "before clipping"
    assert student.projection.dot == pytest.approx(expected.dot(direction), rel=1e-5)


def test_a_direction_in_adams_metric_is_followed_as_it_was_when_it_was_given():
    student = make_student()
    student.update([batch_of(OTHERS)])
    direction = student.gradient([batch_of(OTHERS)]).in_adams_metric()
    student.follow(direction)
    for _ in range(2):
        expected = student.gradient([batch_of(PAIRS)], smoothed=True).dot(direction)
        student.update([batch_of(PAIRS)])
        assert student.projection.dot == pytest.approx(expected, rel=1e-4)


def test_without_a_direction_there_is_no_projection():
    student = make_student()
    student.follow(student.gradient([batch_of(OTHERS)]))
    student.update([batch_of(PAIRS)])
    student.follow(None)
    student.update([batch_of(PAIRS)])
    assert student.projection is None
    assert student.gradient_norm > 0


def test_a_gradient_that_does_not_fit_into_memory_says_what_helps(monkeypatch):
    student = make_student()
    monkeypatch.setattr(student, "_forward", lambda *_: torch.empty(2**52))
    message = "computing a gradient of 25 target tokens at once; .*piece_tokens=12"
    with pytest.raises(TooLargeError, match=message):
        student.gradient([batch_of(PAIRS)])
