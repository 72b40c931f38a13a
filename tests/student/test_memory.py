"""Memory that runs out, wherever it does, ends in one line that says what was too large and what helps."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from student_cases import batch_of, make_network, make_student, random_pairs

from rota.evaluation import comet, translator
from rota.runs.records import read_record
from rota.student import nmt, search
from rota.student.config import StudentConfig
from rota.student.hardware import OTHER_DEVICE, TooLargeError, is_out_of_memory, memory_for
from rota.student.nmt import NMT, build_student
from rota.student.search import EncoderCache
from rota.team import Team

MANY = random_pairs(*[(3 + number % 5, 2 + number % 4) for number in range(24)])  # 84 target tokens
CONFIG = """
data: {corpus: synthetic, synthetic: {families: {la: {lala: 60}}, dev: 5, test: 5}, subwords: {size: 300}}
student: {preset: tiny, width: 16, feedforward: 16, layers: 1, lr_warmup: 2, dropout: 0}
training: {steps: 6, tokens: 50, checkpoint_every: 2, threads: 1, tensorboard: false}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(CONFIG)
    return tmp_path


def run_out_of_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines.")


def test_memory_that_runs_out_is_recognised_on_cpu_and_gpu():
    with pytest.raises(RuntimeError) as found:
        torch.empty(2**52)
    assert is_out_of_memory(found.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "MPS backend out of memory (MPS allocated: 9.05 GB, other allocations: 1 MB, max allowed: 9.07 GB)",
    ],
)
def test_so_is_what_drivers_and_libraries_say_of_it(message):
    assert is_out_of_memory(RuntimeError(message))
    assert not is_out_of_memory(ConnectionError(message)), "the last words of another process"


def test_the_context_nearest_to_the_cause_says_what_helps():
    with (
        pytest.raises(TooLargeError, match="^out of memory reading; read less$"),
        memory_for(lambda: "doing much; do less"),
        memory_for(lambda: "reading; read less"),
    ):
        raise MemoryError


def test_an_update_without_enough_memory_says_what_was_too_large(monkeypatch):
    student = make_student()
    before = {name: tensor.clone() for name, tensor in student.network.state_dict().items()}
    monkeypatch.setattr(student.network, "forward", run_out_of_memory)
    batches = [batch_of(random_pairs((3, 3))), batch_of(MANY)]
    with pytest.raises(TooLargeError) as found:
        student.update(batches)
    assert str(found.value) == (
        "out of memory training on 84 target tokens at once; continue the run with --set student.piece_tokens=42, "
        f"which takes less at once; a single sentence needs {OTHER_DEVICE}."
    )
    with pytest.raises(TooLargeError) as found:
        student.losses(batches)
    assert str(found.value) == (
        "out of memory measuring 87 target tokens at once; continue the run with --set student.piece_tokens=43, "
        f"which takes less at once; a single sentence needs {OTHER_DEVICE}."
    )
    assert student.step == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in student.network.state_dict().items())


def test_the_setting_it_names_halves_the_tokens_until_sentences_are_alone(monkeypatch):
    student, sizes = make_student(), []
    monkeypatch.setattr(student.network, "forward", run_out_of_memory)
    for _ in range(8):
        with pytest.raises(TooLargeError) as found:
            student.update([batch_of(MANY)])
        sizes.append(int(re.search(r"training on (\d+) target tokens", str(found.value))[1]))
        setting = re.search(r"--set student\.piece_tokens=(\d+)", str(found.value))
        student = make_student(student.network, piece_tokens=int(setting[1]))
    assert sizes == [84, 42, 21, 10, 5, 2, 1, 1]


def test_losses_are_measured_in_packs_that_the_setting_makes_smaller(monkeypatch):
    student, small = make_student(), make_student(piece_tokens=20)
    sizes = []
    lay_out = NMT._lay_out
    monkeypatch.setattr(
        NMT, "_lay_out", lambda self, pack, **how: sizes.append(pack.tokens) or lay_out(self, pack, **how)
    )
    whole = student.losses([batch_of(MANY)]).per_token
    assert sizes == [84]
    assert small.losses([batch_of(MANY)]).per_token == pytest.approx(whole, rel=1e-6)
    assert len(sizes) > 4
    assert max(sizes[1:]) <= 20


@pytest.mark.parametrize("method", ["_optimiser.step", "_forward"])
def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch, method):
    student = make_student()
    owner, name = (student._optimiser, "step") if "." in method else (student, method)
    monkeypatch.setattr(owner, name, lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        student.update([batch_of(random_pairs((3, 3)))])


def test_the_next_batch_is_named_if_it_is_the_one_that_does_not_fit(monkeypatch):
    student = make_student()
    monkeypatch.setattr(
        student, "_backward", lambda *given, _usual=student._backward, **how: patch(_usual(*given, **how))
    )

    def patch(loss):
        monkeypatch.setattr(student, "_lay_out", run_out_of_memory)
        return loss

    small, large = batch_of(random_pairs((3, 3))), batch_of(MANY)
    with pytest.raises(TooLargeError, match=f"training on {large.tokens} target tokens at once"):
        student.update([small], lambda: [large])


def test_after_the_gradients_smaller_pieces_are_not_recommended(monkeypatch):
    student = make_student()
    monkeypatch.setattr(student._optimiser, "step", run_out_of_memory)
    with pytest.raises(TooLargeError, match="clipping gradients or changing weights; this needs a device with more"):
        student.update([batch_of(MANY)])


@pytest.mark.parametrize("place", [(torch.nn.Module, "to"), (Team, "replicate"), (nmt, "Optimiser")])
def test_a_student_that_does_not_fit_needs_another_device(monkeypatch, place):
    monkeypatch.setattr(*place, run_out_of_memory)
    with pytest.raises(
        TooLargeError, match="^out of memory building the student; this needs a device with more memory"
    ):
        build_student(StudentConfig(preset="tiny"), vocabulary=100, steps=10, seed=1)


SOURCES = [np.array(source) for source, _ in random_pairs(*((length, 1) for length in (4, 9, 4, 2, 7, 3, 5, 8)))]


def fit(monkeypatch, most):
    """The memory holds a search of so many sentences; returns the numbers of sentences that were tried."""
    tried, plain = [], search.batches._search

    def attempt(networks, sources, *rest):
        tried.append(len(sources))
        return plain(networks, sources, *rest) if len(sources) <= most else run_out_of_memory()

    monkeypatch.setattr(search.batches, "_search", attempt)
    return tried


def test_a_batch_that_does_not_fit_is_translated_in_halves(monkeypatch, caplog):
    whole = search.translate([make_network()], SOURCES, beam=2)
    tried, finished = fit(monkeypatch, 3), []
    with caplog.at_level(logging.WARNING):
        found = search.translate([make_network()], SOURCES, beam=2, progress=finished.append)
    # Lengths 9 8 7 5 4 4 3 2. 72 padded tokens fail, then 36; with 18 four sentences of 4 fail again, which leaves 8.
    assert tried == [8, 4, 2, 2, 4, 2, 2]
    assert finished == [2, 2, 2, 2]
    assert [each.ids.tolist() for each in found] == [each.ids.tolist() for each in whole]
    assert "8 sentences at once do not fit into memory; continuing with half as many" in caplog.text


def test_what_encoders_said_is_forgotten_to_make_room(monkeypatch):
    network, cache = make_network(), EncoderCache()
    search.translate([network], SOURCES, beam=2, cache=cache)
    tried = fit(monkeypatch, 7)
    search.translate([network], SOURCES, beam=2, cache=cache)
    assert tried == [8, 4, 4]
    assert len(cache._states[network]) == 2, "the two halves, and no longer the whole"


def test_a_sentence_that_does_not_fit_is_told_of_with_the_beam(monkeypatch):
    fit(monkeypatch, 0)
    with pytest.raises(
        TooLargeError, match="translating one sentence of 9 subwords with beam 2; lower the beam, split"
    ):
        search.translate([make_network()], SOURCES, beam=2)


def test_other_errors_of_a_search_are_passed_on(monkeypatch):
    monkeypatch.setattr(search.batches, "_search", lambda *_: torch.zeros(2, 3) @ torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        search.translate([make_network()], SOURCES)


def test_on_the_command_line_it_is_one_line_with_the_last_checkpoint(rota, project, monkeypatch):
    backward = NMT._backward

    def run_out_at_step_5(self, *arguments, **settings):
        return run_out_of_memory() if self.step == 4 else backward(self, *arguments, **settings)

    monkeypatch.setattr(NMT, "_backward", run_out_at_step_5)
    code, _, error = rota("train", "run.yaml")
    assert code == 1
    assert error.count("\n") == 1
    assert error.startswith("error: out of memory training on ")
    assert error.endswith("The last good checkpoint is runs/run/checkpoints/4.\n")


def test_a_run_goes_on_in_smaller_pieces_with_the_same_losses(rota, project):
    assert rota("train", "run.yaml", "--run", "whole")[0] == 0
    assert rota("train", "run.yaml", "--run", "divided", "--until", "3")[0] == 0
    code, _, error = rota("train", "run.yaml", "--run", "divided", "--set", "student.piece_tokens=15")
    assert (code, error) == (0, "")
    losses = [[step["loss"] for step in read_record(project / run / "steps.jsonl")] for run in ("whole", "divided")]
    assert len(losses[0]) == 6
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[1] != losses[0], "it was divided"


@pytest.mark.parametrize("command", [["evaluate", "runs/run"], ["translate", "runs/run", "--language", "lala"]])
def test_loading_and_translating_without_enough_memory_is_one_line(rota, project, monkeypatch, command):
    assert rota("train", "run.yaml")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(translator.Transformer, "to", run_out_of_memory)
        code, _, error = rota(*command, stdin="lala\n")
        assert (code, error.count("\n")) == (1, 1)
        assert "out of memory loading 1 of the checkpoints in runs/run; use fewer" in error
    fit(monkeypatch, 0)
    code, _, error = rota(*command, stdin="lala\n")
    assert code == 1
    assert error.splitlines()[-1].startswith("error: out of memory translating one sentence of")


def test_memory_that_runs_out_unexpectedly_is_one_line_too(rota, project, monkeypatch):
    monkeypatch.setattr(nmt.NMT, "load_state_dict", run_out_of_memory)
    assert rota("train", "run.yaml", "--until", "2")[0] == 0
    code, _, error = rota("train", "run.yaml")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith(
        "error: out of memory (CUDA out of memory. Tried to allocate 2.00 GiB); free some, or leave"
    )
    monkeypatch.setattr(nmt.NMT, "load_state_dict", lambda *_: torch.zeros(2, 3) @ torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        rota("train", "run.yaml")


def test_comet_without_enough_memory_says_what_helps():
    model = SimpleNamespace(prepare_for_inference=run_out_of_memory)
    with pytest.raises(TooLargeError, match="scoring 2 sentences with COMET; leave the GPU out with CUDA_VISIBLE"):
        comet.Comet(model, "wmt", "signature").score(["a", "b"], ["a", "b"], ["a", "b"])
