"""The TED corpus: read as Qi et al. made it, fetched in pieces if need be, from archives that may be hostile."""

import io
import random
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rota.data.corpora import ted
from rota.data.corpora.download import DownloadError, download
from rota.data.corpora.ted import ted_corpus

ROWS = (
    ("talk_name", "en", "pt-br", "az", "pt"),
    ("one_talk", "Hello .", "Oi .", "Salam .", "Olá ."),
    ("one_talk", 'He said "yes .', "x", '"Hə dedi .', "__NULL__"),
    ("one_talk", "Half a row .", "x", "__NULL__ Yarım .", "Meia linha ."),
    ("two_talk", "__NULL__", "x", "Heç nə .", "Nada ."),
    ("two_talk", "Nothing .", "x", "", "Nada ."),
)
AZ = [("Salam .", "Hello ."), ('"Hə dedi .', 'He said "yes .')]
PT = [("Olá .", "Hello ."), ("Meia linha .", "Half a row ."), ("Nada .", "Nothing .")]


def table(rows=ROWS) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def members(**changes: bytes) -> dict[str, bytes]:
    return {f"all_talks_{split}.tsv": changes.get(split, table()) for split in ("train", "dev", "test")}


def pack(path: Path, files: dict[str, bytes], *others: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for other in others:
            archive.addfile(other)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_a_row_with_anything_missing_is_dropped_whole(tmp_path):
    corpus = ted_corpus(("az", "pt"), tmp_path / "cache", pack(tmp_path / "ted.tar.gz", members()))
    for split in ("train", "dev", "test"):
        assert list(corpus["az"][split].read()) == AZ
        assert list(corpus["pt"][split].read()) == PT


def test_a_folder_with_the_three_tables_will_do(tmp_path):
    for name, data in members().items():
        (tmp_path / name).write_bytes(data)
    corpus = ted_corpus(("az",), tmp_path / "cache", tmp_path)
    assert list(corpus["az"]["dev"].read()) == AZ
    (tmp_path / "all_talks_dev.tsv").unlink()
    with pytest.raises(ValueError, match=r"no file all_talks_dev\.tsv in"):
        ted_corpus(("az",), tmp_path / "cache", tmp_path)


def test_the_tables_may_lie_in_a_folder_of_the_archive(tmp_path):
    files = {f"ted/{name}": data for name, data in members().items()}
    corpus = ted_corpus(("az",), tmp_path / "cache", pack(tmp_path / "ted.tar.gz", files))
    assert list(corpus["az"]["test"].read()) == AZ


def test_a_second_opening_reads_the_archive_only_for_new_languages(tmp_path):
    archive = pack(tmp_path / "ted.tar.gz", members())
    first = ted_corpus(("az",), tmp_path / "cache", archive)["az"]["train"].files[0]
    stamp = first.stat().st_mtime_ns
    corpus = ted_corpus(("az", "pt"), tmp_path / "cache", archive)
    assert corpus["az"]["train"].files == (first, archive)
    assert first.stat().st_mtime_ns == stamp
    assert list(corpus["pt"]["train"].read()) == PT


def test_a_changed_archive_is_read_again(tmp_path):
    archive = pack(tmp_path / "ted.tar.gz", members())
    ted_corpus(("az",), tmp_path / "cache", archive)
    pack(archive, members(train=table(ROWS[:2])))
    assert list(ted_corpus(("az",), tmp_path / "cache", archive)["az"]["train"].read()) == AZ[:1]


def test_nothing_of_a_hostile_archive_is_written(tmp_path):
    evil, link, sneaky = (tarfile.TarInfo(name) for name in ("../evil", "link", "all_talks_dev.tsv"))
    link.type = sneaky.type = tarfile.SYMTYPE
    link.linkname = sneaky.linkname = "/etc/passwd"
    files = {**members(), "../all_talks_extra.tsv": b"x", "/all_talks_absolute.tsv": b"x"}
    cache = tmp_path / "inner" / "cache"
    corpus = ted_corpus(("az",), cache, pack(tmp_path / "ted.tar.gz", files, evil, link, sneaky))
    assert list(corpus["az"]["dev"].read()) == AZ
    written = {path.name for path in tmp_path.rglob("*") if not path.is_dir()}
    assert written == {"ted.tar.gz", "train.az-en.tsv", "dev.az-en.tsv", "test.az-en.tsv"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"all_talks_train.tsv": table()}, r"no file all_talks_dev\.tsv in"),
        (members(dev=table((*ROWS, ("talk", "short")))), r"all_talks_dev\.tsv, line 7: 2 columns, not 5"),
        (members(train=table() + b"t\tx\tx\t\xff\tx\n"), r"all_talks_train\.tsv, line 7: byte 0xff is not UTF-8"),
        (members(test=b""), "unknown language"),
    ],
)
def test_an_archive_of_another_kind_is_refused_and_leaves_nothing(tmp_path, files, message):
    with pytest.raises(ValueError, match=message) as error:
        ted_corpus(("az",), tmp_path / "cache", pack(tmp_path / "ted.tar.gz", files))
    assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_an_unknown_language_is_named_with_those_of_the_table(tmp_path):
    with pytest.raises(ValueError, match="'pt_br'; did you mean 'pt-br'\\? known: en, pt-br, az, pt"):
        ted_corpus(("pt_br",), tmp_path / "cache", pack(tmp_path / "ted.tar.gz", members()))


@pytest.mark.parametrize("missing", [1, 60, 200])
def test_a_cut_archive_is_damaged(tmp_path, missing):
    noise = random.Random(1).choices("abcdefghij ", k=30_000)  # so that compressed blocks end inside the tables
    rows = (*ROWS, ("talk", "".join(noise[:10_000]), "x", "".join(noise[10_000:20_000]), "".join(noise[20_000:])))
    archive = pack(tmp_path / "ted.tar.gz", members(test=table(rows)))
    archive.write_bytes(archive.read_bytes()[:-missing])
    with pytest.raises(ValueError, match=r"ted\.tar\.gz is damaged or not a tar\.gz"):
        ted_corpus(("az",), tmp_path / "cache", archive)


def test_another_file_under_the_name_of_the_archive_is_damaged(tmp_path):
    (tmp_path / "ted.tar.gz").write_text("talk_name\ten\n")
    with pytest.raises(ValueError, match=r"ted\.tar\.gz is damaged or not a tar\.gz"):
        ted_corpus(("az",), tmp_path / "cache", tmp_path / "ted.tar.gz")


def test_a_path_to_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no file or folder .*nowhere; set data\.path"):
        ted_corpus(("az",), tmp_path, tmp_path / "nowhere")


class Host(ThreadingHTTPServer):
    """Serves one file with ranges; ``cut`` lists after how many bytes each of the next answers breaks off."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.content = content
        self.tag: str | None = '"first"'
        self.cut: list[int] = []
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/ted_talks.tar.gz"


class _Answer(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        host, wanted = self.server, self.headers["Range"]
        host.asked.append(wanted)
        resumes = wanted is not None and self.headers["If-Range"] == host.tag
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if resumes else 0
        if resumes and start >= len(host.content):
            self.send_error(416)
            return
        self.send_response(206 if resumes else 200)
        self.send_header("Content-Length", str(len(host.content) - start))
        if host.tag is not None:
            self.send_header("ETag", host.tag)
        self.end_headers()
        self.wfile.write(host.content[start:][: host.cut.pop(0) if host.cut else None])

    def log_message(self, *_: object) -> None:
        """Silence: the test output is not a server log."""


@pytest.fixture
def host() -> Iterator[Host]:
    server = Host(bytes(range(256)) * 40)  # 10,240 bytes
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join(timeout=10)
    server.server_close()


def test_an_interrupted_download_goes_on_where_it_stopped(host, tmp_path):
    host.cut = [1000, 3000]
    seen: list[tuple[int, int | None]] = []
    download(host.url, tmp_path / "file", progress=lambda done, total: seen.append((done, total)), timeout=10)
    assert (tmp_path / "file").read_bytes() == host.content
    assert host.asked == [None, "bytes=1000-", "bytes=4000-"]
    assert seen[-1] == (10_240, 10_240)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_later_call_resumes_what_an_earlier_one_left(host, tmp_path):
    host.cut = [1000]
    with pytest.raises(DownloadError, match=r"1000 of 10240 bytes arrived\); run the command again to resume"):
        download(host.url, tmp_path / "file", attempts=1, timeout=10)
    assert not (tmp_path / "file").exists()
    download(host.url, tmp_path / "file", attempts=1, timeout=10)
    assert host.asked == [None, "bytes=1000-"]
    assert (tmp_path / "file").read_bytes() == host.content


@pytest.mark.parametrize("tag", ['"second"', None])
def test_halves_of_two_versions_are_never_joined(host, tmp_path, tag):
    host.cut = [1000]
    with pytest.raises(DownloadError):
        download(host.url, tmp_path / "file", attempts=1, timeout=10)
    host.content, host.tag = b"new" * 1000, tag
    download(host.url, tmp_path / "file", attempts=1, timeout=10)
    assert (tmp_path / "file").read_bytes() == b"new" * 1000


def test_a_part_that_is_longer_than_the_file_is_thrown_away(host, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * 20_000)
    (tmp_path / "file.part.validator").write_text('"first"')
    download(host.url, tmp_path / "file", attempts=2, timeout=10)
    assert (tmp_path / "file").read_bytes() == host.content


def test_a_host_that_does_not_answer_is_named(tmp_path):
    with pytest.raises(DownloadError, match=r"cannot fetch http://127\.0\.0\.1:9/x") as error:
        download("http://127.0.0.1:9/x", tmp_path / "file", attempts=2, timeout=5)
    assert "\n" not in str(error.value)


def test_the_corpus_is_fetched_once_and_its_checksum_is_kept(host, tmp_path):
    host.content = pack(tmp_path / "made.tar.gz", members()).read_bytes()
    cache = tmp_path / "cache"
    for _ in range(2):
        assert list(ted_corpus(("az",), cache, url=host.url)["az"]["train"].read()) == AZ
    assert host.asked == [None]
    assert (cache / "ted_talks.tar.gz.sha256").read_text().endswith("  ted_talks.tar.gz\n")


def test_an_archive_that_changed_after_its_download_is_noticed(host, tmp_path):
    host.content = pack(tmp_path / "made.tar.gz", members()).read_bytes()
    archive = ted.fetch(tmp_path / "cache", host.url)
    archive.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"has changed since its first download .* delete it and"):
        ted.fetch(tmp_path / "cache", host.url)
    archive.unlink()
    host.content += b"x"
    with pytest.raises(ValueError, match="has changed since its first download"):
        ted.fetch(tmp_path / "cache", host.url)


def test_a_web_page_in_place_of_the_archive_is_refused(host, tmp_path):
    host.content = b"<html>moved</html>"
    with pytest.raises(DownloadError, match=r"no longer sends a gzip archive; .* set data\.path"):
        ted.fetch(tmp_path, host.url)
    assert list(tmp_path.iterdir()) == []


def test_of_several_who_want_the_archive_one_fetches_it(host, tmp_path, monkeypatch):
    # So slow that the others ask for it meanwhile.
    monkeypatch.setattr(ted, "download", lambda *given, **how: time.sleep(0.2) or download(*given, **how))
    host.content = pack(tmp_path / "made.tar.gz", members()).read_bytes()
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: ted.fetch(tmp_path / "cache", host.url), range(4)))
    assert {path.name for path in found} == {"ted_talks.tar.gz"}
    assert host.asked == [None]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [
        "ted_talks.tar.gz",
        "ted_talks.tar.gz.sha256",
    ]
