"""Preparing in several processes and after interruptions: the same data to the byte, and nothing done twice."""

import signal

import pytest
from small_corpus import run, write_corpus
from test_prepare_together import another_process

from rota.data.preparation import workers
from rota.data.preparation.units import Executor, Partial, Recipe, Unit, read_piece
from rota.data.subwords import SubwordsConfig
from rota.files import locked


@pytest.fixture
def pieces(monkeypatch):
    """Seven pairs a piece: 5 of az in training, 12 of tr, 4 of dev and test together."""
    monkeypatch.setattr("rota.data.preparation.stages.PIECE", 7)


@pytest.fixture
def started(monkeypatch):
    """The processes that a preparation has started."""
    processes, start = [], workers._start

    def record():
        processes.append(start())
        return processes[-1]

    monkeypatch.setattr("rota.data.preparation.workers._start", record)
    return processes


@pytest.fixture
def done(monkeypatch):
    """The names of the units that this process has done."""
    names, do = [], Executor.do

    def record(self, unit, advance):
        do(self, unit, advance)
        names.append(unit.name)

    monkeypatch.setattr(Executor, "do", record)
    return names


def interrupt_at(stage_to_interrupt, calls=1):
    left = [calls]

    def progress(stage, done, total):
        left[0] -= stage == stage_to_interrupt
        if left[0] <= 0:
            raise KeyboardInterrupt

    return progress


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_number_of_processes_changes_no_byte(corpus, tmp_path, pieces, started):
    alone = content(run(corpus, tmp_path / "alone", processes=1).folder)
    assert not started
    together = content(run(corpus, tmp_path / "together", processes=2).folder)
    assert len(started) == 2
    assert together == alone


def test_the_length_of_a_piece_changes_no_byte(corpus, tmp_path, monkeypatch):
    whole = content(run(corpus, tmp_path / "whole").folder)
    monkeypatch.setattr("rota.data.preparation.stages.PIECE", 7)
    assert content(run(corpus, tmp_path / "pieces").folder) == whole


def test_a_small_corpus_starts_no_process_and_a_large_one_as_many_as_there_are_cores(
    corpus, tmp_path, monkeypatch, started
):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2})
    run(corpus, tmp_path / "small")
    assert len(started) == 0
    monkeypatch.setattr("rota.data.preparation.stages.WORTH_PROCESSES", 1_000)
    run(corpus, tmp_path / "large")
    assert len(started) == 3


STAGES = [("cleaning", 3), ("learning subwords", 1), ("encoding", 5), ("assembling", 4)]


@pytest.mark.parametrize(("stage", "calls"), STAGES)
def test_an_interrupted_preparation_goes_on(corpus, tmp_path, pieces, done, caplog, stage, calls):
    expected = content(run(corpus, tmp_path / "data").folder)
    every = sorted(done)
    assert len(every) == 6 + 21  # two languages with three splits to clean; 5 + 12 pieces of train, 1 each of the rest
    done.clear()
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "data", again=True, progress=interrupt_at(stage, calls))
    before = len(done)
    assert "stopped; what is complete is kept" in caplog.text
    assert content(tmp_path / "data") == expected  # the old data stay until the new are complete
    assert content(run(corpus, tmp_path / "data", again=True).folder) == expected
    assert sorted(done) == every
    assert before > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text"]


def test_what_is_done_already_counts_as_progress(corpus, tmp_path, pieces):
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "data", progress=interrupt_at("encoding", 5))
    seen = []
    run(corpus, tmp_path / "data", progress=lambda *report: seen.append(report))
    assert seen[0] == ("cleaning", 22, None)  # dev and test
    assert seen[1] == ("cleaning", 132, None)
    assert next(report for report in seen if report[0] == "encoding") == ("encoding", 21, 132)  # three pieces of az


@pytest.mark.parametrize("change", ["a setting", "a file"])
def test_another_preparation_starts_anew(corpus, tmp_path, done, change):
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "data", progress=interrupt_at("assembling"))
    if change == "a file":
        write_corpus(tmp_path / "text", train={"az": lambda texts: [text.replace("sea", "bay") for text in texts]})
    subwords = SubwordsConfig(size=390 if change == "a setting" else 400, lines=50)
    done.clear()
    data = content(run(corpus, tmp_path / "data", subwords=subwords).folder)
    assert len(done) == 12
    assert data == content(run(corpus, tmp_path / "other", subwords=subwords).folder)


def test_a_unit_whose_file_is_not_as_it_was_left_is_done_again(corpus, tmp_path, pieces, done):
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "data", progress=interrupt_at("assembling"))
    encoded = tmp_path / ".data.partial" / "encoded"
    (encoded / "encode.train.az.1").write_bytes(b"short")
    (encoded / "encode.train.az.2").unlink()
    done.clear()
    store = run(corpus, tmp_path / "data")
    store.check()
    assert done == ["encode.train.az.1", "encode.train.az.2"]


def test_what_a_killed_process_left_half_written_goes(corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "data", progress=interrupt_at("encoding"))
    (tmp_path / ".data.partial" / "text" / "train.az-en.az.4711.part").write_text("half")
    run(corpus, tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*.part"))


def test_ctrl_c_stops_the_workers_and_another_number_of_them_goes_on(corpus, tmp_path, pieces, started):
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "data", processes=2, progress=interrupt_at("encoding", 4))
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2
    resumed = content(run(corpus, tmp_path / "data", processes=1).folder)
    assert resumed == content(run(corpus, tmp_path / "new", processes=1).folder)


def test_the_mistake_that_a_worker_found_is_told_in_its_words(corpus, tmp_path, started):
    with (tmp_path / "text" / "train.tr.en").open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(ValueError, match=r"train\.tr\.en, line 81: byte 0xff is not UTF-8; convert it, for"):
        run(corpus, tmp_path / "data", processes=2)
    assert all(process.poll() is not None for process in started)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_worker_that_is_killed_is_named_and_its_work_is_not_lost(corpus, tmp_path, pieces, started):
    def kill(stage, done, total):
        if stage == "encoding" and done:
            for process in started:
                process.kill()

    ended = r"was killed by SIGKILL.*\(perhaps out of memory\); the same command resumes"
    with pytest.raises(ChildProcessError, match=ended):
        run(corpus, tmp_path / "data", processes=2, progress=kill)
    run(corpus, tmp_path / "data", processes=1).check()


def test_a_worker_ends_with_its_parent():
    worker = workers._start()
    worker.stdin.close()
    assert worker.wait(timeout=60) == 1
    worker.stdout.close()


def test_sigterm_says_that_what_is_complete_is_kept(corpus, tmp_path):
    with another_process(corpus, tmp_path / "data", pauses=True) as process:
        assert process.stdout.readline() == "paused\n"
        process.send_signal(signal.SIGTERM)
        assert "stopped; what is complete is kept" in process.stdout.readline()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    run(corpus, tmp_path / "data").check()


def test_processes_below_one_are_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match="processes is 0; it must be 1 or more"):
        run(corpus, tmp_path / "data", processes=0)


def test_a_byte_order_mark_is_dropped_at_the_beginning_of_a_file_alone(tmp_path):
    path = tmp_path / "text"
    path.write_text("\ufeffa\n\ufeffb\nc\n", encoding="utf-8")
    assert list(read_piece(path, 0, 2)) == ["a", "\ufeffb"]
    assert list(read_piece(path, 5, 2)) == ["\ufeffb", "c"]  # a mark has three bytes


def test_names_of_units_cannot_be_confused(corpus, tmp_path):
    recipe = Recipe(corpus, None, None, 1)
    units = [Unit("encode", "train", "az", 1), Unit("encode", "train", "az.1", 0), Unit("clean", "train", "az.1")]
    names = {unit.name for unit in units}
    assert names == {"encode.train.az.1", "encode.train.az.1.0", "clean.train.az.1"}
    assert Partial(tmp_path, recipe).result(units[0]) is None


def kill_at_the_end(monkeypatch, corpus, folder, **options):
    """A process that is killed when the data are there, and before it has removed what it made them from."""
    monkeypatch.setattr("rota.data.preparation.folders.remove", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(corpus, folder, **options)
    monkeypatch.undo()
    folder.with_name(f".{folder.name}.lock").touch()  # which only a living process removes


def test_the_next_call_removes_what_a_killed_preparation_left_beside_finished_data(corpus, tmp_path, monkeypatch):
    kill_at_the_end(monkeypatch, corpus, tmp_path / "data")
    partial = tmp_path / ".data.partial"
    # Killed while its own folder was moved away, too.
    if not (tmp_path / "data").exists():
        (partial / "ready").rename(tmp_path / "data")
    (tmp_path / ".data.replaced").mkdir()
    assert partial.exists()
    before = content(tmp_path / "data")
    run(corpus, tmp_path / "data").check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text"]
    assert content(tmp_path / "data") == before


def test_unfinished_work_for_other_settings_is_not_removed_by_a_call_that_has_nothing_to_do(
    corpus, tmp_path, pieces, done
):
    run(corpus, tmp_path / "data")
    other = {"subwords": SubwordsConfig(size=300, lines=50), "again": True}
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "data", progress=interrupt_at("encoding", 5), **other)
    run(corpus, tmp_path / "data")
    assert (tmp_path / ".data.partial").exists()
    done.clear()
    assert run(corpus, tmp_path / "data", **other).manifest.vocabulary == 300
    assert not [name for name in done if name.startswith("clean")], "its cleaning was done before"


def test_a_preparation_at_work_is_not_disturbed_by_a_call_that_has_nothing_to_do(corpus, tmp_path):
    run(corpus, tmp_path / "data")
    partial = tmp_path / ".data.partial"
    partial.mkdir()
    with locked(tmp_path / ".data.lock"):
        run(corpus, tmp_path / "data")
    assert partial.exists()
