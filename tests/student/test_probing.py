"""What probes ask of a student: averaged weights, weighted sentences, temperatures, dropout samples; and no trace."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
import torch
from student_cases import batch_of, make_network, make_student, random_pairs, states_of
from torch.nn.functional import cross_entropy

from rota.config import parse_config
from rota.runs.checkpoints import Checkpoints
from rota.student.config import StudentConfig
from rota.student.nmt import build_student
from rota.student.transformer import logits
from rota.types import Batch, ProbedStudent

LENGTHS = ((3, 12), (20, 2), (2, 1), (6, 6), (9, 4))
PAIRS = random_pairs(*LENGTHS)
OTHERS = random_pairs((5, 5), (7, 8), (4, 1), seed=3)
DROPPING = {"dropout": 0.3, "attention_dropout": 0.2, "word_dropout": 0.1}


def weighted(pairs, weights) -> Batch:
    batch = batch_of(pairs)
    return Batch(
        batch.arm,
        batch.source,
        batch.source_lengths,
        batch.target,
        batch.target_lengths,
        batch.tokens_by_language,
        np.array(weights, dtype=np.float64),
    )


def assert_same_weights(one, two):
    for (name, first), second in zip(one.network.named_parameters(), two.network.parameters(), strict=True):
        assert torch.equal(first, second), name


def probe(student: ProbedStudent) -> None:
    """All of it."""
    batches = [batch_of(OTHERS), weighted(PAIRS, range(5))]
    for weights in ("raw", "average"):
        gradient = student.gradient(batches, weights=weights)
        gradient.in_adams_metric().dot(gradient)
        student.losses(batches, weights=weights)
        student.examine(batches, temperatures=[0.5, 2.0], weights=weights)
        student.dropout_samples(batches, samples=2, seed=1, weights=weights)
        student.uncertainty(batches, samples=2, seed=1, weights=weights)
    student.source_norms(batches)
    student.embedding_norm()


def test_training_is_the_same_bit_for_bit_whatever_is_probed_between():
    quiet, probed = make_student(**DROPPING), make_student(**DROPPING)
    probed.keep_average(0.9)
    for step in range(4):
        batches = [batch_of(random_pairs(*LENGTHS, seed=step)), batch_of(OTHERS)]
        probe(probed)
        if step == 1:
            probed.follow(probed.gradient([batch_of(OTHERS)], weights="average").in_adams_metric())
        generator, gradients = torch.get_rng_state(), [weight.grad for weight in probed.network.parameters()]
        before = [None if gradient is None else gradient.clone() for gradient in gradients]
        probe(probed)
        assert torch.equal(torch.get_rng_state(), generator)
        for weight, same, value in zip(probed.network.parameters(), gradients, before, strict=True):
            assert weight.grad is same
            assert value is None or torch.equal(weight.grad, value)
        assert probed.update(batches, lambda: [batch_of(OTHERS)]) == quiet.update(batches)
    assert_same_weights(probed, quiet)
    ours, theirs = probed.state_dict()["optimiser"], quiet.state_dict()["optimiser"]
    for moment in ("exp_avg", "exp_avg_sq"):
        assert all(torch.equal(ours[moment][name], tensor) for name, tensor in theirs[moment].items())


def test_the_average_over_three_updates_worked_out_by_hand():
    student = make_student()
    student.keep_average(0.25)
    expected = {name: weight.detach().double().clone() for name, weight in student.network.named_parameters()}
    # The first two updates keep (1 + n) / (10 + n), 2/11 and 3/12, the third one 0.25 instead of 4/13.
    for kept in (2 / 11, 3 / 12, 0.25):
        student.update([batch_of(PAIRS)])
        for name, weight in student.network.named_parameters():
            expected[name] = kept * expected[name] + (1 - kept) * weight.detach().double()
    found = student.state_dict()["average"]
    assert list(found) == list(student.state_dict()["network"])
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].double(), tensor, atol=1e-6, rtol=1e-5, msg=name)


def test_the_average_of_recent_weights_keeps_nine_tenths_from_its_beginning_on():
    student = make_student()
    student.update([batch_of(PAIRS)])
    student.keep_recent()
    expected = {name: weight.detach().double().clone() for name, weight in student.network.named_parameters()}
    for _ in range(3):
        student.update([batch_of(PAIRS)])
        student.keep_recent()  # it is kept already
        for name, weight in student.network.named_parameters():
            expected[name] = 0.9 * expected[name] + 0.1 * weight.detach().double()
    found = student.state_dict()["optimiser"]["recent"]
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].double(), tensor, atol=1e-6, rtol=1e-5, msg=name)
    other = make_student()
    other.network.load_state_dict(found)
    batches = [batch_of(OTHERS)]
    # In other packs, so to rounding.
    expected = pytest.approx(other.losses(batches).sums.tolist(), rel=1e-5)
    assert student.losses(batches, weights="recent").sums.tolist() == expected


def test_a_student_goes_on_with_its_recent_average_from_a_checkpoint():
    student, restored, none = make_student(), make_student(), make_student()
    student.keep_recent()
    student.update([batch_of(PAIRS)])
    restored.load_state_dict(copy.deepcopy(student.state_dict()))
    for each in (student, restored):
        each.update([batch_of(OTHERS)])
    ours, theirs = (each.losses([batch_of(PAIRS)], weights="recent").sums.tolist() for each in (student, restored))
    assert ours == theirs
    restored.load_state_dict(none.state_dict())
    with pytest.raises(ValueError, match="no averaged weights are kept"):
        restored.losses([batch_of(PAIRS)], weights="recent")


def test_with_averaged_weights_everything_is_measured_as_by_a_student_that_has_them():
    student, other = make_student(**DROPPING), make_student(**DROPPING)
    student.keep_average(0.9)
    for _ in range(3):
        student.update([batch_of(PAIRS)])
    other.network.load_state_dict(student.state_dict()["average"])
    batches = [batch_of(OTHERS)]
    assert student.losses(batches).sums.tolist() != other.losses(batches).sums.tolist()
    assert student.losses(batches, weights="average").sums.tolist() == other.losses(batches).sums.tolist()
    examined = student.examine(batches, temperatures=[2.0], weights="average")
    assert (
        examined.sums_by_temperature.tolist() == other.examine(batches, temperatures=[2.0]).sums_by_temperature.tolist()
    )
    sampled = student.dropout_samples(batches, samples=2, seed=1, weights="average")
    assert sampled.tolist() == other.dropout_samples(batches, samples=2, seed=1).tolist()
    uncertainty = student.uncertainty(batches, samples=2, seed=1, weights="average")
    assert uncertainty.entropies.tolist() == other.uncertainty(batches, samples=2, seed=1).entropies.tolist()
    gradient = student.gradient(batches, weights="average")
    assert all(map(torch.equal, gradient.tensors, other.gradient(batches).tensors))


def test_averaged_weights_that_are_not_kept_are_refused_with_the_setting():
    with pytest.raises(ValueError, match="no averaged weights are kept; write for example student.average: 0.99"):
        make_student().losses([batch_of(PAIRS)], weights="average")


def test_an_average_that_is_kept_stays_when_it_is_asked_for_again():
    student = make_student(average=0.5)
    for _ in range(8):
        student.update([batch_of(PAIRS)])
    before = student.losses([batch_of(PAIRS)], weights="average").per_token
    student.keep_average(0.9)
    assert student.losses([batch_of(PAIRS)], weights="average").per_token == before
    assert student._average.decay == 0.5


@pytest.mark.parametrize("decay", [0.0, 1.0, 1.5])
def test_a_decay_that_averages_nothing_is_refused(decay):
    with pytest.raises(ValueError, match=f"decay of averaged weights is {decay}; it must lie between 0 and 1"):
        make_student().keep_average(decay)
    with pytest.raises(ValueError, match="average"):
        StudentConfig(average=decay)


def test_averaging_is_a_setting_that_is_written_only_when_it_is_used():
    data = {"data": {"corpus": "synthetic"}}
    plain, off, on = (
        parse_config(data | {"student": student}) for student in ({}, {"average": None}, {"average": 0.99})
    )
    assert "average" not in plain.dump()["student"]
    assert off.fingerprint == plain.fingerprint != on.fingerprint
    assert on.dump()["student"]["average"] == 0.99
    assert parse_config(json.loads(json.dumps(on.dump()))) == on
    student = build_student(StudentConfig(preset="tiny", layers=1, average=0.99), vocabulary=23, steps=9, seed=1)
    assert "average" in student.state_dict()
    assert sorted(make_student().state_dict()) == ["network", "optimiser", "step"]
    assert sorted(make_student().state_dict()["optimiser"]) == ["exp_avg", "exp_avg_sq"]


def test_a_student_restored_from_a_checkpoint_goes_on_with_its_average_and_its_direction(tmp_path):
    batches = [batch_of(random_pairs(*LENGTHS, seed=seed)) for seed in range(6)]
    student = make_student(**DROPPING)
    student.keep_average(0.9)
    for batch in batches[:2]:
        student.update([batch])
    student.follow(student.gradient([batch_of(OTHERS)]).in_adams_metric())
    student.update([batches[2]])
    folder = Checkpoints(tmp_path).save(3, {"student": student})
    assert {path.name for path in folder.glob("*.safetensors")} == {
        *("student.network.safetensors", "student.average.safetensors", "student.optimiser.safetensors")
    }
    restored = make_student(make_network(seed=8), **DROPPING)
    restored.keep_average(0.9)
    restored.load_state_dict(Checkpoints(tmp_path).newest().load_part("student"))
    assert restored.projection is None
    for batch in batches[3:]:
        assert restored.update([batch]) == student.update([batch])
        assert restored.projection == student.projection
        assert (
            restored.losses([batch], weights="average").per_token
            == student.losses([batch], weights="average").per_token
        )
    direction = restored._directions[0].in_adams_metric()
    assert direction.norm() == student._directions[0].in_adams_metric().norm()


def test_a_state_without_average_or_direction_starts_the_one_and_ends_the_other():
    plain, student = make_student(), make_student()
    plain.update([batch_of(PAIRS)])
    student.keep_average(0.9)
    student.follow(student.gradient([batch_of(OTHERS)]))
    student.update([batch_of(OTHERS)])
    student.load_state_dict(copy.deepcopy(plain.state_dict()))
    batches = [batch_of(OTHERS)]
    assert student.losses(batches, weights="average").per_token == plain.losses(batches).per_token
    student.update(batches)
    assert student.projection is None
    assert student.state_dict()["averaged"] == 1


def test_a_state_with_an_average_serves_a_student_that_keeps_none():
    student, plain = make_student(average=0.9), make_student()
    student.update([batch_of(PAIRS)])
    plain.load_state_dict(copy.deepcopy(student.state_dict()))
    assert_same_weights(student, plain)
    assert "average" not in plain.state_dict()


def gradients(student, batches) -> torch.Tensor:
    student.update(batches)
    return torch.cat([weight.grad.flatten() for weight in student.network.parameters()])


@pytest.mark.parametrize("piece_tokens", [None, 6])
def test_weights_multiply_the_losses_of_sentences_and_not_the_loss_that_is_told(piece_tokens):
    network, weights = make_network(), [0.0, 2.0, 1.0, 0.5, -1.0]
    rows, tokens = logits(network, states_of(network, PAIRS)), [len(target) for _, target in PAIRS]
    target = torch.tensor([token for _, sentence in PAIRS for token in sentence])
    losses_N = cross_entropy(rows, target, label_smoothing=0.1, reduction="none")
    (losses_N * torch.tensor(weights).repeat_interleave(torch.tensor(tokens))).sum().div(sum(tokens)).backward()
    expected = torch.cat([weight.grad.flatten() for weight in network.parameters()])
    settings = {"clip_norm": 1e9, "piece_tokens": piece_tokens}
    student = make_student(**settings)
    same = student.gradient([weighted(PAIRS, weights)], smoothed=True)
    torch.testing.assert_close(torch.cat([each.flatten() for each in same.tensors]), expected, atol=1e-6, rtol=1e-4)
    plain = make_student(**settings).update([batch_of(PAIRS)])
    torch.testing.assert_close(gradients(student, [weighted(PAIRS, weights)]), expected, atol=1e-6, rtol=1e-4)
    assert make_student(**settings).update([weighted(PAIRS, weights)]) == plain
    assert student.losses([weighted(PAIRS, weights)]).sums.tolist() == student.losses([batch_of(PAIRS)]).sums.tolist()


def test_weights_of_one_are_no_weights_bit_for_bit():
    plain, ones = make_student(**DROPPING), make_student(**DROPPING)
    for _ in range(2):
        assert plain.update([batch_of(PAIRS)]) == ones.update([weighted(PAIRS, [1.0] * 5)])
    assert_same_weights(plain, ones)


def test_batches_with_and_without_weights_are_measured_together():
    student = make_student()
    mixed = student.gradient([batch_of(OTHERS), weighted(PAIRS, [0.5] * 5)])
    apart = [student.gradient([batch_of(pairs)]) for pairs in (OTHERS, PAIRS)]
    # 14 tokens of 39 at full weight, 25 at half of it.
    expected = apart[0].scaled(14 / 39).plus(apart[1].scaled(0.5 * 25 / 39))
    assert mixed.minus(expected).norm() < 1e-5 * expected.norm()


def test_every_sentence_needs_a_weight_if_there_are_any():
    with pytest.raises(
        ValueError, match="a batch has 2 weights for 5 sentences and .* tokens; give one for each of either"
    ):
        make_student().update([weighted(PAIRS, [1.0, 2.0])])


def all_logits(student, pairs) -> list[torch.Tensor]:
    """T x V of each sentence."""
    with torch.no_grad():
        rows = logits(student.network, states_of(student.network, pairs)).double()
    return list(rows.split([len(target) for _, target in pairs]))


def test_examining_finds_losses_correct_tokens_and_losses_at_temperatures(monkeypatch):
    monkeypatch.setattr("rota.student.nmt.EVALUATION_TOKENS", 7)
    student = make_student()
    for _ in range(20):
        student.update([batch_of(PAIRS)])
    found = student.examine([batch_of(PAIRS), batch_of(OTHERS)], temperatures=[0.7, 2.0])
    plain = student.losses([batch_of(PAIRS), batch_of(OTHERS)])
    assert found.sums.tolist() == plain.sums.tolist()
    assert found.tokens.tolist() == plain.tokens.tolist()
    for number, (rows, (_, target)) in enumerate(zip(all_logits(student, PAIRS + OTHERS), PAIRS + OTHERS, strict=True)):
        assert found.correct[number] == sum(row.argmax() == token for row, token in zip(rows, target, strict=True))
        for place, temperature in enumerate((0.7, 2.0)):
            expected = cross_entropy(rows / temperature, torch.tensor(target), reduction="sum")
            assert found.sums_by_temperature[place, number] == pytest.approx(float(expected), rel=1e-5)
    assert 0 < found.correct.sum() < found.tokens.sum()
    assert student.examine([batch_of(PAIRS)]).sums_by_temperature.shape == (0, 5)


def test_uncertainty_without_dropout_is_that_of_the_plain_predictions():
    student = make_student()
    found = student.uncertainty([batch_of(PAIRS)], samples=2, seed=1)
    for number, (rows, (_, target)) in enumerate(zip(all_logits(student, PAIRS), PAIRS, strict=True)):
        logs = rows.log_softmax(-1)
        entropies = -(logs.exp() * logs).sum(1)
        wanted, best = logs[range(len(target)), target], logs.amax(1)
        for sample in range(2):
            assert found.losses[sample, number] == pytest.approx(-float(wanted.sum()), rel=1e-5)
            assert found.probabilities[sample, number] == pytest.approx(float(wanted.exp().sum()), rel=1e-5)
            assert found.entropies[sample, number] == pytest.approx(float(entropies.sum()), rel=1e-5)
            assert found.end_entropies[sample, number] == pytest.approx(float(entropies[-1]), rel=1e-5)
            assert found.best[sample, number] == pytest.approx(float(best.sum()), rel=1e-5)
            assert found.best_squares[sample, number] == pytest.approx(float((best**2).sum()), rel=1e-5)
        assert found.entropy[number] == pytest.approx(float(entropies.mean()), rel=1e-5)
        assert found.probability[number] == pytest.approx(float(wanted.exp().mean()), rel=1e-5)
    assert found.variance.tolist() == [0.0] * 5
    assert found.tokens.tolist() == [12, 2, 1, 6, 4]


def test_a_student_without_preferences_is_as_uncertain_as_can_be():
    student = make_student()
    with torch.no_grad():
        student.network.decoder_norm.weight.zero_()
        student.network.decoder_norm.bias.zero_()
    found = student.uncertainty([batch_of(PAIRS)], samples=1, seed=1)
    assert found.entropy.tolist() == pytest.approx([math.log(23)] * 5)
    assert found.probability.tolist() == pytest.approx([1 / 23] * 5)


def test_samples_under_dropout_follow_from_the_seed_and_vary():
    student = make_student(dropout=0.3, attention_dropout=0.2)
    batches = [batch_of(PAIRS), batch_of(OTHERS)]
    losses = student.dropout_samples(batches, samples=40, seed=1)
    assert losses.shape == (40, 8)
    assert np.array_equal(student.dropout_samples(batches, samples=40, seed=1), losses)
    assert np.array_equal(student.dropout_samples(batches, samples=3, seed=1), losses[:3])
    assert not np.array_equal(student.dropout_samples(batches, samples=1, seed=2), losses[:1])
    assert len(np.unique(losses[:, 0])) == 40
    found = student.uncertainty(batches, samples=40, seed=1)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-6)
    np.testing.assert_allclose(found.variance, np.var(losses / found.tokens, axis=0), rtol=1e-5)


def test_the_dropout_of_samples_is_that_of_training():
    student, batches = make_student(seed=5, dropout=0.3, attention_dropout=0.2), [batch_of(PAIRS[:1])]
    # Both draw from a generator seeded by three numbers: seed, step, batch; and seed, sample, pack.
    sampled = student.dropout_samples(batches, samples=2, seed=5)[1]
    assert sampled.tolist() == pytest.approx([12 * student.update(batches)], rel=1e-6)


def test_samples_read_every_word():
    words = make_student(word_dropout=0.5)
    assert words.dropout_samples([batch_of(PAIRS)], samples=1, seed=1)[0].tolist() == pytest.approx(
        words.losses([batch_of(PAIRS)]).sums.tolist(), rel=1e-5
    )
    with pytest.raises(ValueError, match="0 samples of dropout tell nothing; ask for at least 1"):
        words.uncertainty([batch_of(PAIRS)], samples=0, seed=1)


def test_norms_of_embeddings_are_added_up_over_the_source():
    student = make_student()
    table = student.network.embedding.weight.detach().double().numpy()
    expected = [sum(math.sqrt((table[token] ** 2).sum()) for token in source) for source, _ in PAIRS + OTHERS]
    assert student.source_norms([batch_of(PAIRS), batch_of(OTHERS)]).tolist() == pytest.approx(expected, rel=1e-6)
    assert student.embedding_norm() == pytest.approx(math.sqrt((table**2).sum()), rel=1e-6)
