"""What a GPU user expects, as far as the same code runs on a CPU: precision, compiling, flat attention, memory."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from student_cases import batch_of, make_network, make_student, random_pairs, states_of

from rota.student import varlen
from rota.student.attention import Layout
from rota.student.compiled import compile_blocks
from rota.student.config import StudentConfig
from rota.student.dropout import Noise
from rota.student.hardware import upload
from rota.student.nmt import NMT, build_student

LENGTHS = ((3, 12), (20, 2), (2, 1), (6, 6), (9, 4))
OTHER_LENGTHS = ((5, 5), (7, 8), (4, 1))
CPU = torch.device("cpu")


def update_twice(student: NMT) -> list[float]:
    return [student.update([batch_of(random_pairs(*lengths))]) for lengths in (LENGTHS, OTHER_LENGTHS)]


def test_bf16_trains_nearly_as_float32():
    exact, rounded = (update_twice(make_student(bf16=bf16)) for bf16 in (False, True))
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


# torch.compile looks at the gradient of every tensor it is given, which warns for most of them.
looks_at_gradients = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@looks_at_gradients
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_compiled_blocks_compute_what_plain_ones_do(dropout):
    networks = make_network(), make_network()
    compile_blocks(networks[1], backend="eager")
    plain, compiled = (make_student(network, dropout=dropout, attention_dropout=dropout) for network in networks)
    assert update_twice(compiled) == pytest.approx(update_twice(plain), rel=1e-5), "the same masks, whatever the shapes"
    assert list(networks[0].state_dict()) == list(networks[1].state_dict())
    batch = batch_of(random_pairs(*LENGTHS))
    assert compiled.losses([batch]).per_token == pytest.approx(plain.losses([batch]).per_token, rel=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own: deprecated parts of torch that it imports
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_the_compiler_of_torch_takes_the_blocks():
    settings = {"preset": "tiny", "layers": 1, "width": 32, "feedforward": 64}
    plain, compiled = (
        build_student(StudentConfig(**settings, compile=compiled), vocabulary=23, steps=10, seed=1)
        for compiled in (False, True)
    )
    assert update_twice(compiled) == pytest.approx(update_twice(plain), rel=1e-4)


def test_compiling_without_a_compiler_is_refused(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match="needs a C\\+\\+ compiler on a CPU; install g\\+\\+"):
        compile_blocks(make_network())


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


def test_attention_in_one_kernel_equals_padded_attention(monkeypatch):
    network, pairs = make_network(), random_pairs(*LENGTHS)
    padded = states_of(network, pairs)
    monkeypatch.setattr(varlen, "find_kernel", lambda: kernel_by_hand)
    monkeypatch.setattr(varlen, "fits", lambda *_: True)
    monkeypatch.setattr("rota.student.transformer.attend", None)
    torch.testing.assert_close(states_of(network, pairs), padded, atol=1e-5, rtol=1e-4)


def test_the_kernel_is_not_asked_for_what_it_cannot_do(monkeypatch):
    class Rows:
        """As much of a tensor on a GPU as is looked at."""

        is_cuda, dtype, shape, device = True, torch.bfloat16, (5, 16), 0

    monkeypatch.setattr(varlen, "find_kernel", lambda: kernel_by_hand)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    layout = Layout(np.array([2, 3]), 2, CPU)
    dropping, keeping = (Noise(torch.Generator(), states=0.3, attention=attention) for attention in (0.1, 0.0))
    assert varlen.fits(Rows(), layout, None)
    assert varlen.fits(Rows(), layout, keeping)
    assert not varlen.fits(Rows(), layout, dropping)
    assert not varlen.fits(Rows(), Layout(np.array([2, 3]), 4, CPU), None), "heads of 4 numbers"
    assert not varlen.fits(torch.zeros(5, 16), layout, None), "a CPU"
    monkeypatch.setattr(Rows, "dtype", torch.float32)
    assert not varlen.fits(Rows(), layout, None)
    monkeypatch.setattr(Rows, "dtype", torch.float16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert not varlen.fits(Rows(), layout, None)
