"""Prepared data notice that their settings or their text are no longer the same, and open without the text."""

import os
import shutil
from pathlib import Path

import pytest
from small_corpus import run, sentences, write_corpus

from rota.data.corpora.sources import CorpusConfig
from rota.data.subwords import SubwordsConfig


def test_preparing_again_does_nothing(corpus, tmp_path, monkeypatch):
    run(corpus, tmp_path / "data")
    before = (tmp_path / "data" / "manifest.json").stat()
    monkeypatch.setattr("rota.data.preparation.stages.open_corpus", None)  # calling it would fail
    assert run(corpus, tmp_path / "data").sizes == {"az": 30, "tr": 80}
    assert (tmp_path / "data" / "manifest.json").stat() == before


def test_a_touched_input_is_read_and_found_the_same(corpus, tmp_path):
    before = run(corpus, tmp_path / "data").fingerprint
    os.utime(tmp_path / "text" / "train.az.az", ns=(1, 1))
    assert run(corpus, tmp_path / "data").fingerprint == before


@pytest.mark.parametrize("content", ["other\n", None], ids=["of another size", "of the same size"])
def test_a_changed_input_is_noticed_and_named(corpus, tmp_path, content):
    run(corpus, tmp_path / "data")
    path = tmp_path / "text" / "train.az.az"
    path.write_text(content or path.read_text().swapcase())
    os.utime(path, ns=(1, 1))
    with pytest.raises(ValueError, match=r"train\.az\.az changed; use --again"):
        run(corpus, tmp_path / "data")


def test_data_outlive_their_input(corpus, tmp_path, caplog):
    run(corpus, tmp_path / "data")
    (tmp_path / "text" / "train.az.az").unlink()
    assert run(corpus, tmp_path / "data").sizes["az"] == 30
    assert "train.az.az is gone: cannot tell" in caplog.text


def test_the_loss_of_all_input_is_told_in_one_line(corpus, tmp_path, caplog):
    run(corpus, tmp_path / "data")
    shutil.rmtree(tmp_path / "text")
    assert run(corpus, tmp_path / "data").sizes["az"] == 30
    assert len(caplog.records) == 1
    assert "train.az.az is gone (so are 11 other files)" in caplog.text


def point(link, target):
    link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory=target.is_dir())


@pytest.fixture
def linked(tmp_path):
    """A corpus whose folder is a link, which a test may point elsewhere."""
    write_corpus(tmp_path / "first")
    corpus = write_corpus(tmp_path / "text")
    (tmp_path / "text").rename(tmp_path / "second")
    point(tmp_path / "text", tmp_path / "first")
    return corpus


def test_a_link_to_other_text_is_a_change(linked, tmp_path):
    run(linked, tmp_path / "data")
    changed = tmp_path / "second" / "train.tr.en"
    changed.write_text(changed.read_text().swapcase())
    dates = (tmp_path / "first" / "train.tr.en").stat()
    os.utime(changed, ns=(dates.st_atime_ns, dates.st_mtime_ns))  # neither size nor date gives it away
    point(tmp_path / "text", tmp_path / "second")
    with pytest.raises(ValueError, match=r"text/train\.tr\.en changed; use --again"):
        run(linked, tmp_path / "data")
    assert run(linked, tmp_path / "data", again=True).sizes["az"] == 30
    run(linked, tmp_path / "data")


def test_links_that_change_places_are_a_change(corpus, tmp_path):
    one, other = tmp_path / "text" / "dev.az.az", tmp_path / "text" / "dev.tr.tr"
    for path in (one, other):
        path.rename(tmp_path / path.name)
        point(path, tmp_path / path.name)
    run(corpus, tmp_path / "data")
    point(one, tmp_path / other.name)
    point(other, tmp_path / one.name)
    with pytest.raises(ValueError, match=r"text/dev\.az\.az changed"):
        run(corpus, tmp_path / "data")


def test_a_link_to_a_copy_is_no_change(linked, tmp_path, caplog):
    run(linked, tmp_path / "data")
    point(tmp_path / "text", tmp_path / "second")
    run(linked, tmp_path / "data")
    assert not caplog.records


def test_a_project_that_moves_takes_its_data_along(tmp_path, monkeypatch, caplog):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    corpus = write_corpus(Path("text"))
    run(corpus, Path("data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").rename(tmp_path / "there")
    monkeypatch.chdir(tmp_path / "there")
    run(corpus, Path("data"))
    assert not caplog.records
    Path("text/dev.tr.tr").write_text("other\n")
    with pytest.raises(ValueError, match=r"the content of text/dev\.tr\.tr changed"):
        run(corpus, Path("data"))


def test_another_archive_behind_the_same_path_is_a_change(tmp_path):
    header = "talk_name\taz\ten\n"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for number, split in enumerate(("train", "dev", "test")):
            rows = [f"{name}\t{text.upper()}\t{text}\n" for text in sentences(20, 100 * number + len(name))]
            (tmp_path / name / f"all_talks_{split}.tsv").write_text(header + "".join(rows))
    point(tmp_path / "ted", tmp_path / "first")
    corpus = CorpusConfig(corpus="ted8", languages=("az",), path=tmp_path / "ted")
    run(corpus, tmp_path / "data")
    run(corpus, tmp_path / "data")
    point(tmp_path / "ted", tmp_path / "second")
    with pytest.raises(ValueError, match=r"the content of .*ted/all_talks_train\.tsv changed"):
        run(corpus, tmp_path / "data")


def test_a_changed_setting_is_noticed_and_named(corpus, tmp_path):
    run(corpus, tmp_path / "data")
    with pytest.raises(ValueError, match=r"data\.subwords\.size changed from 400 to 500; use --again"):
        run(corpus, tmp_path / "data", subwords=SubwordsConfig(size=500, lines=50))
    with pytest.raises(ValueError, match=r"data\.seed changed from 1 to 2"):
        run(corpus, tmp_path / "data", seed=2)
