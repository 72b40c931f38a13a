"""Whatever bytes the files of a corpus hold, preparing ends well or with one line, and takes little memory."""

import gzip
import json
import random
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpora
from rota.data.corpora import parallel
from rota.data.corpora.parallel import read_lines, read_parallel, read_tsv, text_of_files, unreadable

odd = st.sampled_from((*corpora.CHARACTERS, *corpora.WORDS, " ", "\n", "\t")).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
contents = st.lists(st.one_of(odd, st.sampled_from(corpora.BYTES)), max_size=30).map(b"".join)


def read_or_refused(read):
    """The pairs, or the message of a ValueError."""
    try:
        return list(read()), None
    except ValueError as error:
        return [], str(error)


@settings(max_examples=150)
@given(source=contents, english=contents, packed=st.sampled_from(["no", "yes", "cut"]), seed=st.integers(0, 1 << 16))
def test_bytes_of_any_kind_give_tidy_pairs_or_one_line(tmp_path_factory, source, english, packed, seed):
    folder, rng = tmp_path_factory.mktemp("text"), random.Random(seed)
    suffix = "" if packed == "no" else ".gz"
    for name, data in (("source", source), ("english", english)):
        whole = data if packed == "no" else gzip.compress(data, mtime=0)
        (folder / f"{name}{suffix}").write_bytes(whole[: rng.randrange(len(whole))] if packed == "cut" else whole)
    for read in (
        lambda: read_parallel(folder / f"source{suffix}", folder / f"english{suffix}"),
        lambda: read_tsv(folder / f"source{suffix}"),
    ):
        pairs, refusal = read_or_refused(read)
        assert refusal is None or ("\n" not in refusal and str(folder) in refusal)
        for text in (side for pair in pairs for side in pair):
            assert text == text.strip()
            assert not any(character in text for character in "\x00\n\r\t\x0b\x0c\x85\u2028\u2029")


@pytest.mark.parametrize("seed", range(16))
def test_a_mutated_corpus_is_prepared_or_refused_in_one_line(tmp_path, monkeypatch, rota, seed):
    corpora.write_corpus(tmp_path, random.Random(seed), bombs=False)
    monkeypatch.chdir(tmp_path)
    code, _, err = rota("prepare", "corpus.yaml", "--processes", "1")
    if code != 0:
        assert code == 2
        assert err.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in err


@pytest.mark.parametrize(
    "name", ["../xa", "a/b", "<script>alert(1)</script>", "", " ", "x\x00", ".", "..", "{side}", "x\n", "\u202exa"]
)
def test_names_that_could_not_be_files_or_would_be_markup_are_refused(tmp_path, monkeypatch, rota, name):
    corpora.write_corpus(tmp_path, random.Random(7), bombs=False)
    config = json.loads((tmp_path / "corpus.yaml").read_text())
    config["data"]["languages"] = ["xa", name]
    (tmp_path / "corpus.yaml").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    code, _, err = rota("prepare", "corpus.yaml", "--processes", "1")
    assert code == 2
    assert err.startswith("error: corpus.yaml: ")
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.parent.glob("xa*"))


def test_a_line_longer_than_any_sentence_is_refused_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "LONGEST_LINE", 100)
    path = tmp_path / "long.txt"
    path.write_text("a" * 99 + "\n" + "b" * 101 + "\n")
    with pytest.raises(ValueError, match=r"long.txt, line 2: it has more than 100 bytes; check that this is text"):
        list(read_lines(path))


def test_a_gzip_file_that_swells_as_no_text_does_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "SURELY_SMALL", 1_000_000)
    bomb, text = tmp_path / "bomb.gz", tmp_path / "text.gz"
    bomb.write_bytes(gzip.compress(b"a\n" * 2_000_000))  # about 1,000 bytes in each of its own
    with pytest.raises(ValueError, match=r"holds more than 200 bytes in each of its [\d,]+, which text does not"):
        list(read_lines(bomb))
    rng = random.Random(1)
    lines = [" ".join(rng.choice(corpora.WORDS) for _ in range(20)) for _ in range(20_000)]
    text.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert list(read_lines(text)) == lines


def test_such_a_file_is_refused_before_many_of_its_lines_are_read(tmp_path):
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(b"\n" * 10_000_000))
    begin = list(islice(lines := read_lines(bomb), 1_000_000))
    assert begin == [""] * 1_000_000, "as many as a file may have that is not looked at as a whole"
    with pytest.raises(ValueError, match=r"holds more than 200 bytes"):
        next(lines)


def test_a_text_that_is_known_to_be_wrong_is_not_read_again(tmp_path):
    files = [tmp_path / "a.tsv", tmp_path / "a.tsv.old"]
    for path in files:
        path.write_text("one column\n")
    known, other = (text_of_files(str(path), "xa", "en") for path in files)
    with pytest.raises(ValueError, match="1 column") as found:
        list(known.read())
    read_again = replace(known, read=lambda: pytest.fail("read again"))
    assert unreadable([read_again, other], str(found.value)) == [
        f"{files[1]}, line 1: 1 column; a line must be source TAB English"
    ]


def test_a_small_file_may_be_compressed_as_far_as_it_goes(tmp_path):
    path = tmp_path / "same.gz"
    path.write_bytes(gzip.compress(b"a\n" * 1_000_000))
    assert sum(1 for _ in read_lines(path)) == 1_000_000
