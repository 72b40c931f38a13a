"""Layers whose way back is written by hand, beside what autograd makes of their formulas; and their memory."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from student_cases import CPU
from torch.nn import functional

from rota.student import hardware
from rota.student.config import StudentConfig
from rota.student.kernels.attention import Layout, attend
from rota.student.kernels.dropout import Noise
from rota.student.kernels.linear import Linear
from rota.student.nmt import build_student

SOURCE, TARGET = np.array([3, 1, 5]), np.array([2, 4, 4])
HEADS, WIDTH = 2, 8


def normal(*size: int, seed: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def plain_attention(query, key, value, lengths, memory_lengths, kept, *, causal):
    """Sentence by sentence, head by head; ``kept`` (B x H x Q x T) is multiplied with the weights."""
    found, row, memory_row = [], 0, 0
    for number, (length, memory_length) in enumerate(zip(lengths, memory_lengths, strict=True)):
        rows, memory = slice(row, row + length), slice(memory_row, memory_row + memory_length)
        heads = []
        for head in range(HEADS):
            columns = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            scores = query[rows, columns] @ key[memory, columns].T / (WIDTH // HEADS) ** 0.5
            if causal:
                scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
            heads.append(scores.softmax(1) * kept[number, head, :length, :memory_length] @ value[memory, columns])
        found.append(torch.cat(heads, 1))
        row, memory_row = row + length, memory_row + memory_length
    return torch.cat(found)


def drawn(probability: float, *size: int) -> torch.Tensor:
    """What the noise of the tests keeps, scaled."""
    kept, scale = Noise(torch.Generator().manual_seed(7), 0.0, probability).attention_mask(torch.empty(size))
    return torch.ones(size) if kept is None else kept * scale


def noise(probability: float) -> Noise:
    return Noise(torch.Generator().manual_seed(7), states=0.0, attention=probability)


def assert_same(found, wanted, inputs):
    weights = normal(*wanted.shape, seed=9).detach()
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    gradients = [torch.autograd.grad((result * weights).sum(), inputs) for result in (found, wanted)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("probability", [0.0, 0.4])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_within_a_sentence_and_its_gradient(probability, causal):
    rows, layout = normal(TARGET.sum(), 3 * WIDTH, seed=1), Layout(TARGET, HEADS, CPU)
    hidden = layout.hide_future if causal else layout.hide_padding
    found = attend([rows], [layout.query_key_value], hidden, layout.query, noise(probability))
    kept = drawn(probability, 3, HEADS, 4, 4)
    assert_same(found, plain_attention(*rows.split(WIDTH, 1), TARGET, TARGET, kept, causal=causal), [rows])


@pytest.mark.parametrize("probability", [0.0, 0.4])
def test_attention_to_another_sentence_and_its_gradient(probability):
    rows, memory = normal(TARGET.sum(), WIDTH, seed=1), normal(SOURCE.sum(), 2 * WIDTH, seed=2)
    layout, memory_layout = Layout(TARGET, HEADS, CPU), Layout(SOURCE, HEADS, CPU)
    parts = [layout.query, memory_layout.key_value]
    found = attend([rows, memory], parts, memory_layout.hide_padding, layout.query, noise(probability))
    kept = drawn(probability, 3, HEADS, 4, 5)
    assert_same(
        found, plain_attention(rows, *memory.split(WIDTH, 1), TARGET, SOURCE, kept, causal=False), [rows, memory]
    )


def test_attention_with_16_bits_is_near_that_with_32():
    rows, layout = normal(TARGET.sum(), 3 * WIDTH, seed=1), Layout(TARGET, HEADS, CPU)
    found = [
        attend([rows.to(dtype)], [layout.query_key_value], layout.hide_future, layout.query, noise(0.4))
        for dtype in (torch.bfloat16, torch.float32)
    ]
    assert found[0].dtype == torch.bfloat16
    torch.testing.assert_close(found[0].float(), found[1], atol=0.02, rtol=0.02)
    gradients = [torch.autograd.grad(result.float().square().sum(), rows)[0] for result in found]
    torch.testing.assert_close(gradients[0], gradients[1], atol=0.1, rtol=0.05)


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_a_linear_layer_and_its_gradient(scale):
    torch.manual_seed(3)
    layer, rows = Linear(WIDTH, 5), normal(7, WIDTH, seed=1)
    wanted = functional.linear(rows * scale, layer.weight, layer.bias)
    assert_same(layer(rows, scale), wanted, [rows, layer.weight, layer.bias])


def test_a_linear_layer_obeys_autocast():
    layer, rows = Linear(WIDTH, 5), normal(7, WIDTH, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(rows, 1.5)
        wanted = functional.linear(rows * 1.5, layer.weight, layer.bias)
    assert found.dtype == torch.bfloat16
    assert found.tolist() == wanted.tolist()


def test_freed_memory_is_kept_unless_the_environment_says_otherwise(monkeypatch):
    asked = []
    monkeypatch.setattr(hardware.sys, "platform", "linux")
    monkeypatch.setattr(hardware.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=lambda *pair: asked.append(pair)))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    hardware.keep_memory()
    assert asked == []
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)
    hardware.keep_memory()
    assert asked == [(-3, 2**25), (-1, 2**29), (-8, 1)]
    monkeypatch.setattr(hardware.ctypes, "CDLL", lambda _: SimpleNamespace())
    hardware.keep_memory()
    monkeypatch.setattr(hardware.sys, "platform", "darwin")
    monkeypatch.setattr(hardware.ctypes, "CDLL", None)
    hardware.keep_memory()


def test_a_student_on_a_cpu_keeps_freed_memory(monkeypatch):
    asked = []
    monkeypatch.setattr("rota.student.nmt.keep_memory", lambda: asked.append(True))
    build_student(StudentConfig(preset="tiny", device="cpu"), vocabulary=20, steps=10, seed=1)
    assert asked == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_an_update_does_not_ask_for_its_memory_again():
    script = """
import resource
import numpy as np
from machine.work import make_student, random_batch
student, rng = make_student("tiny", 8000), np.random.default_rng(0)
batch = random_batch(rng, 8000, 3000)
for _ in range(3):
    student.update([batch])
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
student.update([batch])
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    kept["PYTHONPATH"] = os.pathsep.join(sys.path)  # pytest's, with benchmarks
    faults = [
        int(subprocess.run([sys.executable, "-c", script], env=kept | more, capture_output=True, check=True).stdout)
        for more in ({}, {"MALLOC_MMAP_THRESHOLD_": "131072", "OMP_NUM_THREADS": "1"})
    ]
    assert faults[0] < faults[1] / 5, faults
