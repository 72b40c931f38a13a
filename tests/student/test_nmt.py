from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from student_cases import batch_of, make_network, make_student, random_pairs, states_of
from torch.nn.functional import cross_entropy

from rota.student.config import LearningRate, Schedule, StudentConfig
from rota.student.hardware import find_device
from rota.student.kernels.dropout import Noise
from rota.student.nmt import build_student
from rota.student.optimiser import NotFiniteError
from rota.student.transformer import logits
from rota.types import Student

LENGTHS = ((3, 12), (20, 2), (2, 1), (6, 6), (9, 4))


def gradients_of(batches) -> dict[str, torch.Tensor]:
    student = make_student(clip_norm=1e9)
    student.update(batches)
    return {name: parameter.grad for name, parameter in student.network.named_parameters()}


def test_it_is_a_student():
    student: Student = make_student()
    assert student.losses([batch_of(random_pairs((3, 3)))]).tokens.tolist() == [3]


def test_the_loss_equals_plain_torch_over_all_logits():
    pairs = random_pairs(*LENGTHS)
    student = make_student()
    target = torch.tensor([token for _, sentence in pairs for token in sentence])
    with torch.no_grad():
        expected = cross_entropy(logits(student.network, states_of(student.network, pairs)), target)
    assert student.losses([batch_of(pairs)]).per_token == pytest.approx(float(expected), rel=1e-5)
    assert student.update([batch_of(pairs)]) == pytest.approx(float(expected), rel=1e-5)


def test_the_gradient_is_that_of_the_smoothed_mean_over_tokens():
    pairs = random_pairs(*LENGTHS)
    network = make_network()
    target = torch.tensor([token for _, sentence in pairs for token in sentence])
    cross_entropy(logits(network, states_of(network, pairs)), target, label_smoothing=0.1).backward()
    ours = gradients_of([batch_of(pairs)])
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, atol=1e-6, rtol=1e-4, msg=name)


def test_losses_do_not_depend_on_batch_composition():
    pairs = random_pairs(*LENGTHS)
    student = make_student()
    together = student.losses([batch_of(pairs)])
    apart = student.losses([batch_of([pair]) for pair in pairs])
    alone = [student.losses([batch_of([pair])]).sums[0] for pair in pairs]
    assert together.tokens.tolist() == apart.tokens.tolist() == [12, 2, 1, 6, 4]
    np.testing.assert_allclose(together.sums, alone, rtol=1e-5)
    np.testing.assert_allclose(apart.sums, alone, rtol=1e-5)


def test_losses_keep_the_order_when_they_run_in_several_packs(monkeypatch):
    monkeypatch.setattr("rota.student.nmt.EVALUATION_TOKENS", 7)
    pairs = random_pairs(*LENGTHS)
    student = make_student()
    alone = [student.losses([batch_of([pair])]).sums[0] for pair in pairs]
    np.testing.assert_allclose(student.losses([batch_of(pairs)]).sums, alone, rtol=1e-5)


def test_accumulated_batches_make_the_same_step_as_one_joint_batch():
    pairs = random_pairs(*LENGTHS)
    joint = gradients_of([batch_of(pairs)])
    parts = gradients_of([batch_of([pair]) for pair in pairs])
    for name, gradient in joint.items():
        torch.testing.assert_close(parts[name], gradient, atol=1e-6, rtol=1e-4, msg=name)
    students = make_student(), make_student()
    losses = students[0].update([batch_of(pairs)]), students[1].update([batch_of(pairs[:2]), batch_of(pairs[2:])])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert students[0].step == students[1].step == 1
    for one, two in zip(students[0].network.parameters(), students[1].network.parameters(), strict=True):
        # Adam's first step is the sign of the gradient: where that is rounding noise (as for the bias of keys,
        # which changes nothing) the two may part.
        real = one.grad.abs() > 1e-5
        torch.testing.assert_close(one[real], two[real], atol=1e-5, rtol=0)


def test_the_first_step_of_adam_has_the_length_of_the_learning_rate():
    student = make_student(schedule=Schedule(peak=0.01, warmup=4))
    before = student.network.decoder_norm.weight.detach().clone()
    student.update([batch_of(random_pairs(*LENGTHS))])
    moved = (student.network.decoder_norm.weight - before).abs()
    assert moved.tolist() == pytest.approx([0.01 / 4] * 16, rel=1e-3)


def test_evaluation_leaves_no_trace():
    batch, other = batch_of(random_pairs(*LENGTHS)), batch_of(random_pairs((4, 5), seed=9))
    quiet, disturbed = (make_student(dropout=0.3, attention_dropout=0.3) for _ in range(2))
    for _ in range(2):
        quiet.update([batch])
        disturbed.losses([other, batch])
        disturbed.update([batch])
    assert_same_weights(quiet, disturbed)


def assert_same_weights(one, two):
    for (name, first), second in zip(one.network.named_parameters(), two.network.parameters(), strict=True):
        assert torch.equal(first, second), name


def test_a_restored_student_goes_on_bit_for_bit():
    batches = [batch_of(random_pairs(*LENGTHS, seed=seed)) for seed in range(4)]
    student = make_student(dropout=0.3, attention_dropout=0.2)
    student.update(batches[:2])
    student.update(batches[1:])
    saved = copy.deepcopy(student.state_dict())
    expected = [student.update(batches[2:]) for _ in range(3)]
    restored = make_student(make_network(seed=8), dropout=0.3, attention_dropout=0.2)
    restored.update(batches[:1])
    restored.load_state_dict(saved)
    assert [restored.update(batches[2:]) for _ in range(3)] == expected
    assert restored.step == 5
    assert_same_weights(student, restored)


def test_a_state_from_before_the_first_step_can_be_restored():
    batch = batch_of(random_pairs(*LENGTHS))
    student = make_student()
    saved = copy.deepcopy(student.state_dict())
    first = student.update([batch])
    student.load_state_dict(saved)
    assert student.step == 0
    assert student.update([batch]) == first


def test_dropout_differs_between_steps_micro_batches_and_seeds():
    batch = batch_of(random_pairs(*LENGTHS))
    frozen = {"dropout": 0.3, "attention_dropout": 0.3, "schedule": Schedule(peak=1e-30, warmup=0)}
    student = make_student(**frozen)
    first, second = student.update([batch]), student.update([batch])
    both = make_student(**frozen).update([batch, batch])
    other = make_student(seed=2, **frozen).update([batch])
    assert make_student(**frozen).update([batch]) == first
    assert len({first, second, both, other}) == 4


def test_a_loss_that_is_not_finite_stops_before_the_weights_change():
    student = make_student()
    with torch.no_grad():
        student.network.decoder_norm.bias.fill_(math.inf)
    before = copy.deepcopy(student.network.state_dict())
    with pytest.raises(NotFiniteError, match=r"loss nan .* step 1 .* rate 0.01; .* lower student.learning_rate"):
        student.update([batch_of(random_pairs((3, 3)))])
    assert student.step == 0
    for name, tensor in student.network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_clipping_scales_the_gradient_to_the_norm():
    student = make_student(clip_norm=0.01)
    student.update([batch_of(random_pairs(*LENGTHS))])
    squares = sum(float(parameter.grad.square().sum()) for parameter in student.network.parameters())
    assert math.sqrt(squares) == pytest.approx(0.01, rel=1e-4)


def test_bf16_runs_and_stays_close():
    batch = batch_of(random_pairs(*LENGTHS))
    exact, rounded = make_student(), make_student(precision="bf16", dropout=0.1, attention_dropout=0.1)
    assert rounded.losses([batch]).per_token == pytest.approx(exact.losses([batch]).per_token, rel=0.05)
    losses = [rounded.update([batch]) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in rounded.network.parameters())


def test_a_copy_task_is_learned():
    rng = np.random.default_rng(1)

    def copies(count: int) -> list[tuple[list[int], list[int]]]:
        sentences = [[*rng.integers(4, 20, size=rng.integers(2, 8)).tolist(), 2] for _ in range(count)]
        return [(sentence, sentence) for sentence in sentences]

    config = StudentConfig(
        preset="tiny",
        layers=1,
        width=64,
        feedforward=128,
        dropout=0.0,
        label_smoothing=0.0,
        learning_rate=LearningRate(peak=0.003),
        lr_warmup=40,
    )
    student = build_student(config, vocabulary=20, steps=200, seed=1)
    unseen = [batch_of(copies(50))]
    assert student.losses(unseen).per_token > 2.5
    for _ in range(200):
        student.update([batch_of(copies(64))])
    assert student.losses(unseen).per_token < 0.1


def test_the_same_seed_gives_the_same_weights():
    config = StudentConfig(preset="tiny")
    one, two, other = (build_student(config, vocabulary=50, steps=10, seed=seed) for seed in (1, 1, 2))
    assert_same_weights(one, two)
    assert not torch.equal(one.network.embedding.weight, other.network.embedding.weight)


def test_an_unknown_device_is_refused_with_the_remedy():
    assert find_device("cpu").type == "cpu"
    with pytest.raises(ValueError, match="device 'gpu' cannot be used here; write auto or cpu"):
        find_device("gpu")


def test_word_dropout_hides_its_share_of_the_tokens_read():
    noise = Noise(torch.Generator().manual_seed(1), states=0.0, attention=0.0, words=0.25)
    read = noise.drop_words(torch.full((4096,), 7), unknown=3)
    assert set(read.tolist()) == {3, 7}
    assert (read == 3).float().mean().item() == pytest.approx(0.25, abs=0.03)


def test_word_dropout_changes_what_is_read_but_not_what_is_to_be_said():
    batches = [batch_of(random_pairs(*LENGTHS, seed=1))]
    plain = make_student(dropout=0.0, attention_dropout=0.0)
    dropped = make_student(dropout=0.0, attention_dropout=0.0, word_dropout=0.9)
    assert plain.losses(batches).per_token == dropped.losses(batches).per_token
    assert plain.update(batches) != dropped.update(batches)
    for _ in range(30):  # a sentence it cannot read is still a sentence it can learn by heart
        last = dropped.update(batches)
    assert last < plain.losses(batches).per_token
