"""What a GPU user expects, as far as the same code runs on a CPU: precision, flat attention, memory."""

from __future__ import annotations

import inspect
from itertools import groupby, pairwise

import numpy as np
import pytest
import torch
from student_cases import batch_of, make_network, make_student, random_pairs, states_of

from rota.student.config import StudentConfig
from rota.student.hardware import upload
from rota.student.kernels import attention
from rota.student.kernels.attention import Layout
from rota.student.kernels.dropout import Noise
from rota.student.nmt import NMT, build_student
from rota.student.transformer import Transformer
from rota.team import Team

LENGTHS = ((3, 12), (20, 2), (2, 1), (6, 6), (9, 4))
OTHER_LENGTHS = ((5, 5), (7, 8), (4, 1))
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def update_twice(student: NMT) -> list[float]:
    return [student.update([batch_of(random_pairs(*lengths))]) for lengths in (LENGTHS, OTHER_LENGTHS)]


def test_bf16_trains_nearly_as_float32():
    exact, rounded = (update_twice(make_student(precision=precision)) for precision in ("float32", "bf16"))
    assert rounded == pytest.approx(exact, rel=0.02)
    assert rounded != exact, "autocast was on"


def test_tf32_is_float32_where_there_is_no_cuda():
    before = torch.get_float32_matmul_precision()
    exact, rounded = (
        build_student(StudentConfig(preset="tiny", layers=1, precision=name), vocabulary=23, steps=10, seed=1)
        for name in ("float32", "tf32")
    )
    assert update_twice(exact) == update_twice(rounded)
    assert torch.get_float32_matmul_precision() == before


def test_on_a_cpu_nothing_is_copied():
    ids = np.arange(5)
    upload(ids, CPU)[0] = 7
    assert ids[0] == 7


@pytest.fixture
def copies(monkeypatch):
    """Pretends that there is a GPU. For each copy to it: whether it was from pinned memory, and whether we waited."""
    found, pinned = [], set()

    def pin_memory(tensor):
        copy = tensor.clone()
        pinned.add(id(copy))
        return copy

    def to(tensor, device, non_blocking=False):
        assert device == GPU
        found.append((id(tensor) in pinned, not non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "to", to)
    return found


def test_to_a_gpu_arrays_go_from_pinned_memory_and_nobody_waits(copies):
    assert upload(np.arange(5), GPU).tolist() == [0, 1, 2, 3, 4]
    assert copies == [(True, False)]


def test_so_does_everything_that_attention_is_told_of_a_batch(copies):
    layout = Layout(np.array([2, 3]), 2, GPU)
    assert layout.hide_padding.tolist() == [[[0, 0, -np.inf]], [[0, 0, 0]]]
    for name in ("positions", "first_rows", "bounds", "query", "key_value", "query_key_value"):
        getattr(layout, name)
    assert copies == [(True, False)] * 10


@pytest.mark.parametrize("flat", [False, True])
def test_all_of_it_is_on_its_way_before_the_network_computes(monkeypatch, flat):
    student, sent, forward = make_student(), [], Transformer.forward
    monkeypatch.setattr(attention, "upload", lambda *arguments: sent.append(0) or upload(*arguments))
    if flat:
        monkeypatch.setattr(NMT, "_uses_varlen", lambda *_, **__: True)
        monkeypatch.setattr(attention, "find_kernel", lambda: kernel_by_hand)
        monkeypatch.setattr(attention, "fits_varlen", lambda *_: True)

    def compute(*arguments):
        before = len(sent)
        result = forward(*arguments)
        assert len(sent) == before, "a copy in the middle of the network"
        return result

    monkeypatch.setattr(Transformer, "forward", compute)
    student.update([batch_of(random_pairs(*LENGTHS))])
    # Positions of both sides, the target's first rows; then bounds of both, or two arrays for each of the
    # parts query_key_value and query of both sides, key_value of the source, and its padding.
    assert len(sent) == (3 + 2 if flat else 3 + 2 * 5 + 1)


def test_rectangles_are_built_unless_the_kernel_will_do(monkeypatch):
    student = make_student(precision="bf16")
    assert not student._uses_varlen(training=True), "a CPU"
    monkeypatch.setattr(Transformer, "device", GPU)
    monkeypatch.setattr(attention, "find_kernel", lambda: kernel_by_hand)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert student._uses_varlen(training=True)
    dropping = make_student(precision="bf16", attention_dropout=0.1)
    assert not dropping._uses_varlen(training=True)
    assert dropping._uses_varlen(training=False)
    assert not make_student(precision="float32")._uses_varlen(training=True)


@pytest.fixture
def order(monkeypatch):
    """What happens in updates, in order: tables sent to the device, the network's turn, a number read from it."""
    found, forward, add_up = [], Transformer.forward, Team.add_up
    monkeypatch.setattr(attention, "upload", lambda *given: found.append("send") or upload(*given))
    monkeypatch.setattr(Transformer, "forward", lambda *given: found.append("compute") or forward(*given))
    monkeypatch.setattr(Team, "add_up", lambda *given: found.append("read") or add_up(*given))
    return found


def once_each(events: list[str]) -> list[str]:
    return [event for event, _ in groupby(events)]


@pytest.mark.parametrize("piece_tokens", [None, 4])
def test_the_next_batch_is_on_its_way_before_the_loss_is_read(order, piece_tokens):
    first, second = (batch_of(random_pairs(*lengths)) for lengths in (LENGTHS, OTHER_LENGTHS))
    student = make_student(piece_tokens=piece_tokens)
    pieces = sum(1 for _ in student._pieces(first)), sum(1 for _ in student._pieces(second))
    assert pieces == ((1, 1) if piece_tokens is None else (2, 2))
    order.clear()
    student.update([first], lambda: order.append("draw") or [second])
    assert once_each(order) == ["send", "compute"] * pieces[0] + ["draw", "send", "read"]
    order.clear()
    student.update([second])
    assert once_each(order) == ["compute"] + ["send", "compute"] * (pieces[1] - 1) + ["read"]


@pytest.mark.parametrize("piece_tokens", [None, 4])
def test_laid_out_ahead_or_not_it_is_the_same_training(piece_tokens):
    batches = [
        [batch_of(random_pairs(*lengths, seed=step))] for step in range(3) for lengths in (LENGTHS, OTHER_LENGTHS)
    ]
    plain, ahead, wrong = (make_student(dropout=0.3, word_dropout=0.1, piece_tokens=piece_tokens) for _ in range(3))
    expected = [plain.update(now) for now in batches]
    assert [ahead.update(now, lambda then=then: then) for now, then in pairwise([*batches, []])] == expected
    assert [wrong.update(now, lambda: batches[0]) for now in batches] == expected, "others than announced are no harm"


def kernel_by_hand(query, key, value, query_bounds, key_bounds, longest_query, longest_key, *, window_size):
    """What the documentation of torch's kernel says, one sentence after the other."""
    assert query_bounds.dtype == key_bounds.dtype == torch.int32
    assert (longest_query, longest_key) == (query_bounds.diff().max(), key_bounds.diff().max())
    mixed = []
    for number in range(len(query_bounds) - 1):
        rows = slice(query_bounds[number], query_bounds[number + 1])
        looked_at = slice(key_bounds[number], key_bounds[number + 1])
        heads = (part.transpose(0, 1) for part in (query[rows], key[looked_at], value[looked_at]))
        causal = {(-1, 0): True, (-1, -1): False}[window_size]
        mixed.append(torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal).transpose(0, 1))
    return torch.cat(mixed)


def states_and_gradients(network, pairs):
    network.zero_grad()
    states = states_of(network, pairs)
    torch.linalg.vector_norm(states - 0.5).backward()
    return states.detach(), [parameter.grad.clone() for parameter in network.parameters()]


def test_attention_in_one_kernel_equals_padded_attention(monkeypatch):
    network, pairs = make_network(), random_pairs(*LENGTHS)
    states, gradients = states_and_gradients(network, pairs)
    monkeypatch.setattr(attention, "find_kernel", lambda: kernel_by_hand)
    monkeypatch.setattr(attention, "fits_varlen", lambda *_: True)
    monkeypatch.setattr(attention, "attend", None)
    flat_states, flat_gradients = states_and_gradients(network, pairs)
    torch.testing.assert_close(flat_states, states, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(flat_gradients, gradients, atol=1e-5, rtol=1e-4)


def test_the_kernel_of_torch_takes_what_it_is_given(monkeypatch):
    kernel, calls = attention.find_kernel(), []
    if kernel is None:
        pytest.skip("this torch has no kernel that we would use")
    signature = inspect.signature(kernel)

    def bound(*arguments, **settings):
        calls.append(signature.bind(*arguments, **settings).arguments)
        return kernel_by_hand(*arguments, **settings)

    monkeypatch.setattr(attention, "find_kernel", lambda: bound)
    monkeypatch.setattr(attention, "fits_varlen", lambda *_: True)
    states_of(make_network(encoder_layers=1, decoder_layers=1), random_pairs((2, 3), (5, 1)))
    sides = [(call["cu_seq_q"].tolist(), call["cu_seq_k"].tolist(), call["max_q"], call["max_k"]) for call in calls]
    source, target = [0, 2, 7], [0, 3, 4]
    assert sides == [(source, source, 5, 5), (target, target, 3, 3), (target, source, 3, 5)]
    assert [call["window_size"] for call in calls] == [(-1, -1), (-1, 0), (-1, -1)]
    assert [tuple(call["query"].shape) for call in calls] == [(7, 2, 8), (4, 2, 8), (4, 2, 8)]
    assert [tuple(call["value"].shape) for call in calls] == [(7, 2, 8), (4, 2, 8), (7, 2, 8)]


def test_the_kernel_is_not_asked_for_what_it_cannot_do(monkeypatch):
    class Rows:
        """As much of a tensor on a GPU as is looked at."""

        is_cuda, dtype, shape, device = True, torch.bfloat16, (5, 16), 0

    monkeypatch.setattr(attention, "find_kernel", lambda: kernel_by_hand)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    layout = Layout(np.array([2, 3]), 2, CPU)
    dropping, keeping = (Noise(torch.Generator(), states=0.3, attention=attention) for attention in (0.1, 0.0))
    assert attention.fits_varlen(Rows(), layout, None)
    assert attention.fits_varlen(Rows(), layout, keeping)
    assert not attention.fits_varlen(Rows(), layout, dropping)
    assert not attention.fits_varlen(Rows(), Layout(np.array([2, 3]), 4, CPU), None), "heads of 4 numbers"
    assert not attention.fits_varlen(torch.zeros(5, 16), layout, None), "a CPU"
    for width, expected in ((256, True), (264, False)):
        monkeypatch.setattr(Rows, "shape", (5, 2 * width))
        assert attention.fits_varlen(Rows(), layout, None) == expected
        monkeypatch.setattr(Rows, "shape", (5, 3 * 2 * width))
        assert attention.fits_varlen(Rows(), layout, None, 3) == expected
    monkeypatch.setattr(Rows, "shape", (5, 16))
    monkeypatch.setattr(Rows, "dtype", torch.float32)
    assert not attention.fits_varlen(Rows(), layout, None)
    monkeypatch.setattr(Rows, "dtype", torch.float16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert not attention.fits_varlen(Rows(), layout, None)
