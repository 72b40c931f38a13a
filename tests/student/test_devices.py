"""A device that cannot be used is refused with the reason, before the data are prepared."""

from __future__ import annotations

import logging

import pytest
import torch

from rota import api
from rota.config import parse_config
from rota.student.config import StudentConfig
from rota.student.hardware import check_machine, find_device
from rota.student.transformer import Transformer
from rota.training.distributed import choose_backend

CONFIG = {"data": {"corpus": "synthetic"}, "training": {"steps": 20}, "student": {"lr_warmup": 1}}


@pytest.fixture
def gpus(monkeypatch):
    """Pretends that torch was built with CUDA and finds so many GPUs."""

    def pretend(count: int) -> None:
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)

    return pretend


def test_cuda_with_a_torch_for_cpus_alone_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(ValueError, match=r"device 'cuda' cannot be used: this PyTorch \(.*\) was built without CUDA; "):
        find_device("cuda")


def test_a_gpu_that_is_not_there_is_refused_with_their_number(gpus):
    gpus(0)
    with pytest.raises(ValueError, match="'cuda:0' cannot be used: PyTorch has CUDA but finds no GPU; look at nvidia"):
        find_device("cuda:0")
    gpus(1)
    with pytest.raises(ValueError, match="'cuda:1' cannot be used: 1 GPU found; write cuda:0$"):
        find_device("cuda:1")
    gpus(2)
    with pytest.raises(ValueError, match="'cuda:2' cannot be used: 2 GPUs found; write cuda:0 to cuda:1$"):
        find_device("cuda:2")


def test_a_gpu_that_is_there_is_tried(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setattr(torch, "empty", lambda *_, device: device)
    assert find_device("cuda:1") == torch.device("cuda", 1)

    def busy(*_, device):
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable.\nMore lines.")

    monkeypatch.setattr(torch, "empty", busy)
    with pytest.raises(ValueError, match=r"'cuda' cannot be used here \(CUDA error: all .* unavailable\); write auto"):
        find_device("cuda")


@pytest.mark.parametrize(("name", "reason"), [("meta", "holds no numbers"), ("mps", r"has no 64-bit numbers")])
def test_devices_that_cannot_train_are_refused_with_the_reason(name, reason):
    with pytest.raises(ValueError, match=f"device '{name}' cannot be used: it {reason}.*; write auto or cpu"):
        find_device(name)


def test_several_processes_do_not_share_a_numbered_gpu(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    assert choose_backend("cuda") == "cpu:gloo,cuda:nccl"
    with pytest.raises(ValueError, match="student.device is 'cuda:1', and each of several .*student.device=cuda;"):
        choose_backend("cuda:1")


@pytest.mark.parametrize("size", [{"width": 10**6, "heads": 4}, {"feedforward": 10**9}, {"layers": 10**7}])
def test_a_student_larger_than_the_machine_is_refused_before_it_takes_memory(tmp_path, rota, size):
    (tmp_path / "my.yaml").write_text("data: {corpus: synthetic}")
    options = [part for key, value in size.items() for part in ("--set", f"student.{key}={value}")]
    code, _, error = rota("train", tmp_path / "my.yaml", "--run", tmp_path / "run", *options)
    assert code == 2
    assert error.startswith("error: a student of width ")
    assert error.endswith(" GB; write a smaller one, such as student.preset: small\n")
    assert f"{next(iter(size.values())):,}" in error
    assert not (tmp_path / "run").exists()


def test_the_number_of_parameters_is_that_of_the_matrices():
    for settings in ({"preset": "tiny"}, {"preset": "small", "tie_embeddings": False, "encoder_layers": 5}):
        shape = StudentConfig(**settings).shape(vocabulary=50)
        matrices = [each for each in Transformer(shape).parameters() if each.dim() > 1]
        assert shape.parameters == sum(each.numel() for each in matrices)


@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_a_gpu_without_bf16_is_told_of(gpus, monkeypatch, caplog, precision):
    gpus(1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    with caplog.at_level(logging.WARNING):
        check_machine(StudentConfig(precision=precision))
    assert ("bf16, which this GPU only emulates" in caplog.text) == (precision == "bf16")


def test_what_this_machine_lacks_is_said_before_the_data_are_prepared(tmp_path, monkeypatch, rota):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "prepare", lambda *_, **__: pytest.fail("the data are prepared already"))
    with pytest.raises(ValueError, match="holds no numbers"):
        api.train(parse_config(CONFIG | {"student": {"lr_warmup": 1, "device": "meta"}}), tmp_path / "run")
    (tmp_path / "run.yaml").write_text("data: {corpus: synthetic}\ntraining: {steps: 20}\nstudent: {lr_warmup: 1}")
    code, _, error = rota("train", "run.yaml", "--set", "student.device=meta")
    assert (code, error.count("\n")) == (2, 1)
