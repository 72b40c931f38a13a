"""With an even number of torch's threads two pieces of an update are computed at once, with the same result."""

import re
import threading
import time

import pytest
import torch
from student_cases import batch_of, make_network, make_student, random_pairs

from rota.student import nmt
from rota.student.hardware import TooLargeError
from rota.student.kernels.dropout import mixed_seed
from rota.student.optimiser import freeze
from rota.student.parallel import Pairs
from rota.team import Team

PAIRS = random_pairs(*[(3 + number % 5, 2 + number % 4) for number in range(24)])
TOKENS = 84


@pytest.fixture
def threads():
    """Sets the number of torch's threads for the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(params=[3, 4])
def count(request, monkeypatch):
    """In so many pieces a student cuts the batch of PAIRS."""
    monkeypatch.setattr(nmt, "TRAINING_TOKENS", TOKENS // request.param)
    assert len(list(make_student()._pieces(batch_of(PAIRS)))) == request.param
    return request.param


def gradients(student):
    return torch.cat([parameter.grad.flatten() for parameter in student.network.parameters()])


def watched(student, monkeypatch, begins=lambda: None):
    """How many threads torch had for each piece, in the order of the dropout seeds, which is that of the pieces."""
    seen, usual = {}, student._loss

    def loss(network, replica, piece, noise, smoothing):
        seen[noise.generator.initial_seed()] = torch.get_num_threads(), threading.current_thread().name
        begins()
        return usual(network, replica, piece, noise, smoothing)

    monkeypatch.setattr(student, "_loss", loss)
    return lambda pieces: [seen[mixed_seed(1, 1, 0, turn)] for turn in range(pieces)]


def test_an_update_in_pairs_is_the_update_of_one_thread(threads, count):
    threads(1)
    one = make_student(dropout=0.1)
    loss = one.update([batch_of(PAIRS), batch_of(PAIRS[:9])])
    threads(2)
    two = make_student(dropout=0.1)
    assert two.update([batch_of(PAIRS), batch_of(PAIRS[:9])]) == pytest.approx(loss, rel=1e-6)
    torch.testing.assert_close(gradients(two), gradients(one), atol=1e-6, rtol=1e-4)
    assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5)


def test_the_same_run_has_the_same_weights_whichever_thread_is_quicker(threads, count, monkeypatch):
    threads(2)
    found = []
    for delay in (0.0, 0.01):
        student = make_student(dropout=0.1)
        delays = iter([0.0, delay] * 40)
        watched(student, monkeypatch, lambda delays=delays: time.sleep(next(delays)))
        for _ in range(5):
            student.update([batch_of(PAIRS)])
        found.append(student.network.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_run_that_is_cut_in_two_has_the_weights_of_one_in_one_piece(threads, count):
    threads(2)
    whole, first, second = (make_student(make_network(), dropout=0.1) for _ in range(3))
    for _ in range(6):
        whole.update([batch_of(PAIRS)])
    for _ in range(2):
        first.update([batch_of(PAIRS)])
    second.load_state_dict(first.state_dict())
    for _ in range(4):
        second.update([batch_of(PAIRS)])
    found = second.network.state_dict()
    assert all(torch.equal(found[name], value) for name, value in whole.network.state_dict().items())


def test_two_pieces_are_computed_at_once_each_with_half_of_the_threads(threads, count, monkeypatch):
    threads(4)
    student = make_student(dropout=0.1)
    both, main = threading.Barrier(2), threading.current_thread().name

    def meet():
        if threading.current_thread().name != main:
            both.wait(timeout=60)  # breaks if one piece waits for the other to end

    pieces = watched(student, monkeypatch, meet)
    student.update([batch_of(PAIRS)])
    alone, paired = pieces(count)[: count % 2], pieces(count)[count % 2 :]
    assert alone == [(4, main)] * (count % 2)
    assert {threads for threads, _ in paired} == {2}
    assert len({name for _, name in paired} - {main}) == 2
    assert torch.get_num_threads() == 4


def test_other_numbers_of_threads_change_the_threads_of_each_piece(threads, count, monkeypatch):
    student = make_student(dropout=0.1)
    threads(2)
    student.update([batch_of(PAIRS)])
    threads(4)
    pieces = watched(student, monkeypatch)
    student.step = 0
    student.update([batch_of(PAIRS)])
    assert {threads for threads, name in pieces(count) if name.startswith("piece")} == {2}


class Two(Team):
    size = 2


@pytest.mark.parametrize(
    ("number", "pairs", "team", "suits"),
    [
        (2, PAIRS, Team(), True),
        (1, PAIRS, Team(), False),
        (3, PAIRS, Team(), False),  # an odd number cannot be halved
        (2, PAIRS[:3], Team(), False),  # one piece
        (2, PAIRS, Two(), False),  # the processes share the batches already
    ],
)
def test_when_two_pieces_are_computed_at_once(threads, monkeypatch, number, pairs, team, suits):
    monkeypatch.setattr(nmt, "TRAINING_TOKENS", 21)
    threads(number)
    student = make_student(team=team)
    assert student._works_in_pairs([batch_of(pairs)]) is suits
    monkeypatch.setattr(nmt, "PAIRED_WIDTH", student.network.shape.width - 1)
    assert student._works_in_pairs([batch_of(pairs)]) is False, "wide ones take much memory for little time"


def test_two_small_batches_of_an_update_are_a_pair(threads):
    threads(2)
    assert make_student()._works_in_pairs([batch_of(PAIRS[:2]), batch_of(PAIRS[:2])])


def test_results_come_in_the_order_of_the_items(threads):
    threads(2)
    slow_first = Pairs().map(lambda item: time.sleep(0.02 * (item % 3)) or item, range(7))
    assert list(slow_first) == [0, 1, 2, 3, 4, 5, 6]


def test_an_error_is_raised_when_the_other_piece_has_ended_too(threads):
    threads(2)
    ended = []

    def work(item):
        if item == 0:
            raise KeyError("first")
        time.sleep(0.05)
        ended.append(item)

    with pytest.raises(KeyError, match="first"):
        list(Pairs().map(work, [0, 1, 2, 3]))
    assert ended == [1]


def test_threads_started_later_have_as_many_of_torchs_as_before(threads):
    threads(4)
    pairs, found = Pairs(), []
    assert list(pairs.map(lambda _: torch.get_num_threads(), range(4))) == [2, 2, 2, 2]
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert found == [4]
    assert list(pairs.map(lambda _: torch.get_num_threads(), range(4))) == [2, 2, 2, 2]


def test_the_setting_it_names_halves_what_is_computed_at_once(threads, monkeypatch):
    threads(2)
    student, at_once, named = make_student(), [], [TOKENS]

    def fail(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(student.network, "forward", fail)
    for _ in range(3):
        with pytest.raises(TooLargeError) as found:
            student.update([batch_of(PAIRS)])
        at_once.append(int(re.search(r"training on (\d+) target tokens", str(found.value))[1]))
        named.append(int(re.search(r"--set student\.piece_tokens=(\d+)", str(found.value))[1]))
        student = make_student(student.network, piece_tokens=named[-1])
    assert at_once == [84, 42, 20]  # all of it in one piece; then two pieces of these sizes
    assert named == [84, 21, 10, 5]


def test_a_student_with_frozen_parts_and_one_in_bf16_are_trained_in_pairs(threads, count):
    for settings in ({"freeze": ["embeddings"]}, {"precision": "bf16"}):
        updated = {}
        for number in (1, 2):
            threads(number)
            student = make_student(make_network(), dropout=0.1, **settings)
            freeze(student.network, student.config.freeze)
            student = make_student(student.network, dropout=0.1, **settings)
            losses = [student.update([batch_of(PAIRS)]) for _ in range(3)]
            updated[number] = losses, {name: value.clone() for name, value in student.network.state_dict().items()}
        assert updated[1][0] == pytest.approx(updated[2][0], rel=2e-3)
        before = make_network().state_dict()["embedding.weight"]
        frozen = torch.equal(updated[2][1]["embedding.weight"], before)
        assert frozen is ("freeze" in settings)


def test_too_little_memory_for_two_pieces_is_one_line_and_changes_nothing(threads, monkeypatch):
    monkeypatch.setattr(nmt, "TRAINING_TOKENS", 21)
    threads(2)
    student = make_student()
    before = {name: tensor.clone() for name, tensor in student.network.state_dict().items()}

    def fail(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(student.network, "forward", fail)
    with pytest.raises(TooLargeError, match="training on 42 target tokens at once; continue the run with"):
        student.update([batch_of(PAIRS)])
    assert student.step == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in student.network.state_dict().items())
