"""A batch that is too large for one pass goes through in pieces; the gradients are those of the whole."""

import pytest
import torch
from student_cases import batch_of, make_student, random_pairs

from rota.student import nmt
from rota.student.kernels.dropout import mixed_seed

PAIRS = random_pairs(*[(3 + number % 5, 2 + number % 4) for number in range(24)])


def pieces_of(student, batch):
    return list(student._pieces(batch))


def gradients(student):
    """Of the last update. Weights would not do: Adam makes a full step of a gradient that is nothing but rounding."""
    return torch.cat([parameter.grad.flatten() for parameter in student.network.parameters()])


@pytest.mark.parametrize("tokens", [10, 30])
def test_an_update_in_pieces_is_the_update_of_the_whole(monkeypatch, tokens):
    whole, divided = make_student(), make_student()
    loss = whole.update([batch_of(PAIRS), batch_of(PAIRS[:9])])
    monkeypatch.setattr(nmt, "TRAINING_TOKENS", tokens)
    assert len(pieces_of(divided, batch_of(PAIRS))) > 1
    assert divided.update([batch_of(PAIRS), batch_of(PAIRS[:9])]) == pytest.approx(loss, rel=1e-6)
    torch.testing.assert_close(gradients(divided), gradients(whole), atol=1e-6, rtol=1e-4)


def test_pieces_hold_every_sentence_once_and_are_counted_down(monkeypatch):
    monkeypatch.setattr(nmt, "TRAINING_TOKENS", 21)  # 84 tokens: four pieces
    turns, left, parts = zip(*pieces_of(make_student(), batch_of(PAIRS)), strict=True)
    assert (turns, left) == ((0, 1, 2, 3), (3, 2, 1, 0))
    assert sum(part.target.sentences for part in parts) == len(PAIRS)
    assert sorted(token for part in parts for token in part.target_N.tolist()) == sorted(
        token for _, target in PAIRS for token in target
    )


def test_a_batch_that_fits_stays_whole_with_the_dropout_it_always_had(monkeypatch):
    batch = batch_of(PAIRS)
    monkeypatch.setattr(nmt, "TRAINING_TOKENS", 60)  # 84 tokens are less than one and a half times that
    assert [piece.target_N.tolist() for _, _, piece in pieces_of(make_student(), batch)] == [batch.target.tolist()]
    assert mixed_seed(1, 2, 3, 0) == mixed_seed(1, 2, 3)
    assert mixed_seed(1, 2, 3, 1) != mixed_seed(1, 2, 3)


def test_every_piece_of_every_batch_has_dropout_of_its_own():
    student = make_student(dropout=0.1)
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({student._noise(place).generator.initial_seed() for place in places}) == len(places)
