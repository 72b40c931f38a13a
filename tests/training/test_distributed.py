"""Two processes do what one does: the same losses, the same decisions, one set of files; and what if one dies."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rota.config import parse_config
from rota.data.batches import make_stream
from rota.runs import Run
from rota.runs.records import read_record
from rota.student.config import StudentConfig
from rota.student.nmt import build_student
from rota.team import Team
from rota.training import distributed as processes
from rota.training.distributed import choose_backend, join_team, stop_without_parent
from rota.types import Mixture

CONFIG = """
data:
  corpus: synthetic
  folder: data
  synthetic: {families: {la: {lala: 300, lato: 60}}, dev: 20, test: 20}
  subwords: {size: 400}
student: {preset: tiny, width: 32, feedforward: 64, layers: 1, lr_warmup: 10, learning_rate: {peak: 0.005}}
teacher: {name: temperature, temperature: 2, warmup: 6}
training:
  {steps: 18, tokens: 100, accumulate: 4, checkpoint_every: 5, validate_every: 9, tensorboard: false, threads: 1}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    (folder / "run.yaml").write_text(CONFIG)
    script = Path(__file__).with_name("two_processes.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script, folder], env=environment, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return folder


def said(folder, case, rank):
    return (folder / f"{case}.{rank}").read_text()


def codes(folder, case):
    return json.loads((folder / f"{case}.codes").read_text())


def steps_of(folder, case):
    return list(read_record(folder / "runs" / case / "steps.jsonl"))


@pytest.mark.parametrize(
    ("alone", "together"),
    [
        ("one", "two"),
        ("one-dqn", "two-dqn"),
        ("one-align", "two-align"),
        ("one-dds", "two-dds"),
        ("one", "parts"),
        ("one-dqn", "branch-dqn"),
    ],
)
def test_two_processes_train_as_one(folder, alone, together):
    assert codes(folder, together) == [0, 0], said(folder, together, 0) + said(folder, together, 1)
    expected, found = steps_of(folder, alone), steps_of(folder, together)
    assert [entry["step"] for entry in found] == list(range(1, 19))
    assert [(entry["arm"], entry["why"], entry["tokens"]) for entry in found] == [
        (entry["arm"], entry["why"], entry["tokens"]) for entry in expected
    ]
    assert [entry["loss"] for entry in found] == pytest.approx([entry["loss"] for entry in expected], abs=1e-4)
    one, two = (list(read_record(folder / "runs" / name / "validations.jsonl")) for name in (alone, together))
    assert [entry["dev_loss"] for entry in two] == [pytest.approx(entry["dev_loss"], abs=1e-4) for entry in one]
    assert found[0]["loss"] - found[-1]["loss"] > 0.5, "a run that learns nothing would be equal too"


def test_two_processes_stop_early_together_where_one_does(folder):
    """Nothing falls by five nats: over at the second validation."""
    assert codes(folder, "two-stop") == codes(folder, "two-stop-again") == [0, 0], said(folder, "two-stop", 0)
    one, two = (Run(folder / "runs" / name) for name in ("one-stop", "two-stop"))
    assert [entry["step"] for entry in two.read("steps")] == list(range(1, 7))
    assert (one.end, two.end, two.is_trained) == (6, 6, True)
    assert len(list(two.read("stops"))) == 1
    assert two.stop["best"] == pytest.approx(one.stop["best"], abs=1e-4)
    assert "stopped early at step 6 of 18" in said(folder, "two-stop", 0)
    assert said(folder, "two-stop", 1) == ""


def test_two_processes_stop_by_the_translations_of_the_first(folder):
    """No chrF rises by a hundred points: over at the third validation, the run cut in two between them."""
    assert codes(folder, "two-stop-chrf") == codes(folder, "two-stop-chrf-on") == [0, 0]
    run = Run(folder / "runs" / "two-stop-chrf")
    assert (run.end, run.stop["best_step"], run.is_trained) == (12, 4, True)
    scored = list(run.read("validations"))
    assert [entry["step"] for entry in scored] == [4, 8, 12]
    assert run.stop["best"] == pytest.approx(np.mean(list(scored[0]["chrf"].values())))


def test_two_processes_that_begin_from_a_stem_take_all_of_it(folder):
    stem, branch, whole = (folder / "runs" / name for name in ("stem", "branch-dqn", "two-dqn"))
    assert codes(folder, "stem") == [0, 0]
    assert "resuming from step 6 with 2 processes" in said(folder, "branch-dqn", 0)
    assert said(folder, "branch-dqn", 1) == ""
    weights = "checkpoints/5/student.network.safetensors"
    assert (branch / weights).read_bytes() == (stem / weights).read_bytes()
    told = [list(read_record(run / "observations.jsonl")) for run in (branch, whole)]
    assert len(told[0]) == len(told[1]) > 5
    assert [each["joint_loss"] for each in told[0]] == pytest.approx([each["joint_loss"] for each in told[1]], abs=1e-4)


def test_two_processes_refuse_a_stem_of_another_run_once(folder):
    assert codes(folder, "branch-refused")[0] == 2
    assert said(folder, "branch-refused", 0).startswith("error: runs/stem is not a stem of this run: seed was 1 and is")
    assert said(folder, "branch-refused", 1) == ""
    assert not (folder / "runs" / "branch-refused").exists()


def test_a_process_that_is_killed_while_a_run_begins_from_its_stem_leaves_nothing_half_done(folder):
    assert codes(folder, "branch-killed")[0] == -9
    assert codes(folder, "branch-killed")[1] != 0, "the other one does not wait for ever"
    assert codes(folder, "branch-on") == [0, 0], said(folder, "branch-on", 0)
    killed, branch = (folder / "runs" / name for name in ("branch-killed", "branch-dqn"))
    for name in (
        "steps.jsonl",
        "observations.jsonl",
        "validations.jsonl",
        "checkpoints/18/student.network.safetensors",
    ):
        assert (killed / name).read_bytes() == (branch / name).read_bytes(), name
    assert not list(killed.rglob(".*.partial"))


def test_the_teacher_of_two_processes_is_told_the_same(folder):
    one, two = (list(read_record(folder / "runs" / name / "observations.jsonl")) for name in ("one-dqn", "two-dqn"))
    assert len(one) == len(two) > 5
    assert [told["joint_loss"] for told in two] == pytest.approx([told["joint_loss"] for told in one], abs=1e-4)


def test_the_gradients_of_two_processes_lead_where_those_of_one_do(folder):
    one, two = (list(read_record(folder / "runs" / name / "observations.jsonl")) for name in ("one-align", "two-align"))
    assert len(one) == len(two) == 6
    for alone, together in zip(one, two, strict=True):
        assert list(together["alignment"]) == list(alone["alignment"])
        for arm, sums in together["alignment"].items():
            assert sums == pytest.approx(alone["alignment"][arm], rel=1e-2)


def test_the_cosines_of_two_processes_are_those_of_one(folder):
    one, two = (list(read_record(folder / "runs" / name / "observations.jsonl")) for name in ("one-dds", "two-dds"))
    assert len(one) == len(two) == 6
    for alone, together in zip(one, two, strict=True):
        assert set(alone["gradient_products"]) == {"lala", "lato"}
        for arm, cosines in together["gradient_products"].items():
            assert cosines == pytest.approx(alone["gradient_products"][arm], rel=1e-2)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("case", ["two", "parts", "interrupted"])
def test_no_thread_of_gloo_outlives_a_run(folder, case):
    """One that still holds a tensor when the interpreter ends wants its lock, and aborts a process that did well."""
    for rank in (0, 1):
        left = json.loads(said(folder, case, f"{rank}.threads"))
        assert len(left) >= 1
        assert not [name for name in left if name.startswith("pt_gloo")]


def test_only_the_first_process_speaks(folder):
    assert "starting at step 0 with 2 processes" in said(folder, "two", 0)
    assert "trained 18 steps" in said(folder, "two", 0)
    assert said(folder, "two", 1) == ""


def test_a_run_goes_on_with_another_number_of_processes(folder):
    # test_two_processes_train_as_one holds the losses of its five parts to those of one process.
    assert "continue with: the same command, or in one process:" in said(folder, "parts", 0)
    assert "resuming from step 7" in said(folder, "parts-on", 0)
    assert "resuming from step 12 with 3 processes" in said(folder, "parts-three", 0)
    assert "resuming from step 14 with 5 processes" in said(folder, "parts-five", 0)
    assert "resuming from step 16 with 2 processes" in said(folder, "parts-end", 0)


def test_a_run_that_goes_on_says_when_processes_have_too_little_to_do(folder):
    assert codes(folder, "parts-three") == [0, 0, 0]
    three, five = (" ".join(said(folder, f"parts-{number}", 0).split()) for number in ("three", "five"))
    assert "training.accumulate is 4 and there are 3 processes: some wait for others in each update" in three
    assert "training.accumulate is 4 and there are 5 processes: 1 without a batch in each update" in five
    assert said(folder, "parts-five", 4) == ""


def test_batches_that_cannot_be_shared_evenly_are_refused_once(folder):
    assert codes(folder, "uneven") == [2, 2]
    remedy = (
        "training.accumulate is 3 and there are 2 processes, which share the batches of an update: write for example"
    )
    assert said(folder, "uneven", 0) == f"error: {remedy} --set training.accumulate=4 --set training.tokens=75\n"
    assert said(folder, "uneven", 1) == ""


def test_a_mistake_is_named_once(folder):
    assert codes(folder, "mistake") == [2, 2]
    assert said(folder, "mistake", 0).startswith("error: --set 'training.step=3': unknown key 'training.step'")
    assert said(folder, "mistake", 1) == ""


def test_a_signal_to_one_process_stops_all_after_the_same_step(folder):
    assert codes(folder, "interrupted") == [0, 143]
    (step,) = re.findall(r"stopped at step (\d+) and saved", said(folder, "interrupted", 0))
    assert [entry["step"] for entry in steps_of(folder, "interrupted")] == list(range(1, int(step) + 1))
    assert (folder / "runs" / "interrupted" / "checkpoints" / step).exists()


@pytest.mark.parametrize("killed", [0, 1])
def test_when_a_process_is_killed_the_other_one_says_so_and_ends(folder, killed):
    left = 1 - killed
    assert codes(folder, f"killed-{killed}")[killed] == -9
    assert codes(folder, f"killed-{killed}")[left] == 2
    said_last = said(folder, f"killed-{killed}", left).splitlines()[-1]
    lost = "another process of this run has ended or hangs"
    assert said_last == f"error: {lost}; the same command resumes from the last checkpoint"


def test_a_run_goes_on_after_a_process_was_killed(folder):
    assert codes(folder, "killed-on") == [0]
    assert re.search(r"resuming from step \d*[05]\n", said(folder, "killed-on", 0))
    assert [entry["step"] for entry in steps_of(folder, "killed-1")] == list(range(1, 16))
    losses = [[entry["loss"] for entry in steps_of(folder, name)[:15]] for name in ("killed-1", "one")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


class Half(Team):
    """One of two processes whose partner never answers: what it adds up is its own share."""

    size = 2

    def __init__(self, rank):
        self.rank = rank


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    from rota import api

    data = {"corpus": "synthetic", "folder": str(tmp_path_factory.mktemp("shares") / "data"), "subwords": {"size": 400}}
    data["synthetic"] = {"families": {"la": {"lala": 120, "lato": 60}}, "dev": 30, "test": 5}
    return api.prepare(parse_config({"data": data}))


@pytest.mark.parametrize("arm", ["lato", "mixed"])
def test_together_the_processes_read_every_sentence_once(store, arm):
    mixture = Mixture(store.sizes, "sentence") if arm == "mixed" else None
    whole, *halves = (make_stream(store, arm, 50, seed=1, mixture=mixture) for _ in range(3))
    for number in range(3 * whole.batches_per_epoch):
        expected = next(whole)
        drawn = [next(half) if Half(rank).owns(number) else half.skip() for rank, half in enumerate(halves)]
        read, skipped = drawn if number % 2 == 0 else reversed(drawn)
        assert read.target.tolist() == expected.target.tolist()
        assert skipped.tokens == expected.tokens
        assert skipped.tokens_by_language == expected.tokens_by_language
        assert skipped.target_lengths.tolist() == expected.target_lengths.tolist()
        assert skipped.source.any() == skipped.target.any() == False, "placeholders"  # noqa: E712
    assert [half.state_dict() for half in halves] == [whole.state_dict()] * 2


def test_each_process_measures_its_half_and_both_make_the_whole(store):
    batch = store.split("dev").batch("lala", np.arange(*store.split("dev").range("lala")))
    config = StudentConfig(preset="tiny", width=32, feedforward=32, layers=1)
    whole, *halves = (
        build_student(config, vocabulary=store.manifest.vocabulary, steps=10, seed=1, team=team).losses([batch]).sums
        for team in (Team(), Half(0), Half(1))
    )
    assert not (halves[0] * halves[1]).any(), "no sentence is measured twice"
    np.testing.assert_allclose(halves[0] + halves[1], whole, rtol=1e-6)
    measured = [batch.target_lengths[half > 0].sum() for half in halves]
    assert max(measured) < 0.6 * batch.tokens


def test_every_process_needs_a_gpu_of_its_own_or_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: chosen.append(number))
    chosen = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_backend("auto") == "cpu:gloo,cuda:nccl"
    assert chosen == [1]
    for local, size in (("2", "1"), ("0", "3")):
        monkeypatch.setenv("LOCAL_RANK", local)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", size)
        assert choose_backend("cpu") == "gloo"
        with pytest.raises(ValueError, match="3 processes on this machine want a GPU each, and it has 2; start 2 with"):
            choose_backend("auto")


def test_the_first_process_says_that_there_are_too_few_gpus(monkeypatch, tmp_path, rota):
    (tmp_path / "run.yaml").write_text(CONFIG)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in {"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 4, "RANK": 0, "LOCAL_RANK": 0}.items():
        monkeypatch.setenv(name, str(value))
    code, _, error = rota("train", tmp_path / "run.yaml", "--run", tmp_path / "run", "--set", "student.device=auto")
    assert code == 2
    assert error.startswith("error: 4 processes on this machine want a GPU each, and it has 2; start 2 with")


@pytest.mark.parametrize(
    ("backend", "error", "left"),
    [
        ("gloo", None, True),
        ("gloo", MemoryError, True),
        ("cpu:gloo,cuda:nccl", None, True),
        ("cpu:gloo,cuda:nccl", SystemExit, True),  # all have stopped together
        ("cpu:gloo,cuda:nccl", MemoryError, False),
    ],
)
def test_a_process_that_failed_does_not_wait_for_nccl(monkeypatch, backend, error, left):
    """Its last kernels wait for the others, and the message would never be read."""
    calls = []
    team = SimpleNamespace(say_once=lambda _: calls.append("say"))
    store = torch.distributed.HashStore()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(processes, "choose_backend", lambda _: backend)
    monkeypatch.setattr(processes, "rendezvous", lambda *_, **__: iter([(store, 0, 2)]))
    monkeypatch.setattr(processes, "Processes", lambda *_: team)
    monkeypatch.setattr(processes, "_groups", [])
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: calls.append("destroy"))
    with pytest.raises(error) if error else nullcontext(), join_team():
        if error:
            raise error
    assert calls == [*(["say"] if error is MemoryError else []), *(["destroy"] if left else [])]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_failure_is_told_and_the_others_end_in_silence(monkeypatch, rank):
    store = torch.distributed.HashStore()
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)
    first, second = (processes.Processes(store, number, 2) for number in (rank, 1 - rank))
    if rank == 0:
        first.say_once(MemoryError("out of memory"))  # goes on as it is: the first process speaks anyway
    else:
        with pytest.raises(processes.RankLostError, match="rank 1: out of memory"):
            first.say_once(MemoryError("out of memory"))
    with pytest.raises(SystemExit):
        second.say_once(RuntimeError("[gloo/transport] Connection closed by peer"))


def test_the_last_word_of_a_process_that_has_ended_is_passed_on(monkeypatch):
    store = torch.distributed.HashStore()
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)
    processes.Processes(store, 1, 2).leave_word(ValueError("no such file"))
    with pytest.raises(processes.RankLostError, match="rank 1: no such file; the same command resumes"):
        processes.Processes(store, 0, 2).say_once(RuntimeError("[gloo/transport] Connection closed by peer"))


def torchrun(folder):
    """The command for two processes in the folder, and what :mod:`subprocess` needs to know beside it."""
    (folder / "run.yaml").write_text(CONFIG.replace("steps: 18", "steps: 60"))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
        "rota",
        "train",
        "run.yaml",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return command, {"cwd": folder, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, **pipes}


def wait_for_a_checkpoint(folder):
    deadline = time.monotonic() + 120
    while not (folder / "runs" / "run" / "checkpoints" / "5").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def go_on_to_the_end(folder, command, settings):
    again = subprocess.run(command, timeout=200, **settings)
    assert again.returncode == 0, again.stdout
    assert re.search(r"resuming from step \d+ with 2 processes", again.stdout)
    steps = list(read_record(folder / "runs" / "run" / "steps.jsonl"))
    assert [entry["step"] for entry in steps] == list(range(1, 61))


@pytest.mark.slow
def test_torchrun_stops_when_a_process_is_killed_and_the_same_command_goes_on(tmp_path):
    command, settings = torchrun(tmp_path)
    first = subprocess.Popen(command, **settings)
    wait_for_a_checkpoint(tmp_path)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first.pid)], capture_output=True, text=True).stdout
    os.kill(max(map(int, children.split())), signal.SIGKILL)
    output = first.communicate(timeout=60)[0]
    assert first.returncode != 0
    assert "error: another process of this run has ended or hangs; the same command resumes" in output
    assert output.count("has ended or hangs") == 1
    assert "rank      : 1" in output, "torchrun names it"
    go_on_to_the_end(tmp_path, command, settings)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_itself_saves_and_the_same_command_goes_on(tmp_path, number):
    command, settings = torchrun(tmp_path)
    first = subprocess.Popen(command, **settings)
    wait_for_a_checkpoint(tmp_path)
    first.send_signal(number)
    output = first.communicate(timeout=60)[0]
    assert first.returncode != 0
    (step,) = re.findall(r"stopped at step (\d+) and saved", output)
    assert (tmp_path / "runs" / "run" / "checkpoints" / step).exists()
    go_on_to_the_end(tmp_path, command, settings)


def test_a_process_whose_parent_is_gone_is_asked_to_stop_and_then_ended(monkeypatch):
    parents, sent, ended = iter([7, 7, 1]), [], []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    watch = stop_without_parent(lambda: next(parents), every=0.0, grace=0.0, end=ended.append)
    watch.join(timeout=10)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert ended == [1]


def test_a_process_that_has_not_joined_the_others_has_nothing_to_save_and_is_ended_at_once(monkeypatch, caplog):
    parents, sent, ended = iter([7, 7, 1]), [], []
    monkeypatch.setattr(os, "kill", lambda *call: sent.append(call))
    stop_without_parent(lambda: next(parents), every=0.0, end=ended.append, joined=threading.Event()).join(timeout=10)
    assert (sent, ended) == ([], [1])
    assert "has ended before they were connected; start it again" in caplog.text


@pytest.mark.parametrize(("rank", "error"), [("0", processes.RankLostError), ("1", SystemExit)])
def test_a_process_whose_torchrun_is_gone_does_not_wait_for_its_store(monkeypatch, rank, error):
    monkeypatch.setattr(processes.time, "sleep", lambda _: None)
    monkeypatch.setattr(processes, "stop_without_parent", lambda **_: None)
    with socket.socket() as bound:  # and not listening: refused
        bound.bind(("127.0.0.1", 0))
        environment = {"WORLD_SIZE": 2, "RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": bound.getsockname()[1]}
        for name, value in {**environment, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(processes, "rendezvous", lambda *_, **__: pytest.fail("would wait ten minutes"))
        with pytest.raises(error), join_team("cpu"):
            pytest.fail("joined without a store")


def ranks_of(launcher):
    """The ids of the two processes that torchrun has started, as soon as there are two."""
    deadline = time.monotonic() + 120
    ranks = []
    while len(ranks) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher.pid)], capture_output=True, text=True)
        ranks = list(map(int, listed.stdout.split()))
    assert len(ranks) == 2
    return ranks


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 3])
def test_the_processes_end_when_torchrun_is_killed_while_they_start(tmp_path, seconds):
    command, settings = torchrun(tmp_path)
    first = subprocess.Popen(command, **settings)
    ranks = ranks_of(first)
    time.sleep(seconds)
    first.kill()
    try:
        first.communicate(timeout=60)  # ends when the ranks have closed their ends of the pipe
    finally:
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)


@pytest.mark.slow
def test_the_processes_save_and_end_when_torchrun_itself_is_killed(tmp_path):
    command, settings = torchrun(tmp_path)
    first = subprocess.Popen(command, **settings)
    wait_for_a_checkpoint(tmp_path)
    ranks = ranks_of(first)
    first.kill()
    first.communicate(timeout=60)  # ends when the ranks have closed their ends of the pipe
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{rank}").exists() for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]
    go_on_to_the_end(tmp_path, command, settings)
