import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rota.files import (
    fingerprint,
    folder_atomically,
    is_locked,
    locked,
    open_atomically,
    read_json,
    read_json_if_whole,
    sha256_of,
    write_atomically,
    write_json,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_atomic_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "run.json"
    write_atomically(path, "old and long")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["run.json"]


def test_json_keeps_its_letters_and_ends_with_a_newline(tmp_path):
    write_json(tmp_path / "new" / "a.json", {"b": "ə"})
    assert (tmp_path / "new" / "a.json").read_text(encoding="utf-8") == '{\n "b": "ə"\n}\n'


def test_files_written_in_parts_appear_together_at_the_end(tmp_path):
    with open_atomically(tmp_path / "a", tmp_path / "b") as (a, b):
        a.write(b"1")
        b.write(b"2")
        assert all(name.endswith(".part") for name in names(tmp_path))
    assert names(tmp_path) == ["a", "b"]


def test_of_files_that_fail_nothing_is_left(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(TypeError), open_atomically(tmp_path / "a") as (file,):
        file.write("not bytes")
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_folder_takes_the_place_of_an_older_one_only_when_it_is_complete(tmp_path):
    for name in ("old", "new"):
        with folder_atomically(tmp_path / "model") as folder:
            (folder / name).write_text(name)
            (folder / "inner").mkdir()
    assert names(tmp_path / "model") == ["inner", "new"]
    with pytest.raises(TypeError), folder_atomically(tmp_path / "model") as folder:
        (folder / "newer").write_text(b"not a text")
    assert names(tmp_path / "model") == ["inner", "new"]
    with folder_atomically(tmp_path / "model") as folder:
        assert names(folder) == []  # not what the one that failed has left
    assert names(tmp_path) == ["model"]


def test_what_an_error_leaves_unfinished_is_removed_because_a_full_disk_would_stay_full(tmp_path):
    with pytest.raises(TypeError), folder_atomically(tmp_path / "model") as folder:
        (folder / "large").write_text(b"not a text")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "run.json", "\ud800")
    assert names(tmp_path) == []


class KilledError(BaseException):
    """Stands for SIGKILL: nothing is cleaned up after it."""


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_folder_is_whole_or_comes_back_whichever_change_was_the_last(tmp_path, monkeypatch, moment):
    model = tmp_path / "model"
    with folder_atomically(model) as folder:
        (folder / "old").write_text("old")
    changes = []

    def stopping(change):
        def change_or_die(*arguments, **settings):
            changes.append(change)
            if len(changes) == moment:
                raise KilledError
            return change(*arguments, **settings)

        return change_or_die

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", stopping(Path.rename))
        patched.setattr(shutil, "rmtree", stopping(shutil.rmtree))
        with pytest.raises(KilledError), folder_atomically(model) as folder:
            (folder / "new").write_text("new")
    assert not model.exists() or names(model) in (["old"], ["new"])
    with folder_atomically(model):
        assert names(model) in (["old"], ["new"])
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b"\xff", "'utf-8' codec can't decode"),
        (b"5", "not a JSON object"),
        (b"{}", "it has no data.sizes"),
        (b'{"data": 5}', "it has no data.sizes"),
    ],
)
def test_json_that_cannot_be_used_is_named_with_the_reason_and_the_remedy(tmp_path, content, why):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json is damaged \(.*\); train it again$") as error:
        read_json(path, "data.sizes", remedy="train it again")
    assert why in str(error.value)


def test_json_with_what_is_needed_is_read(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"data": {"sizes": {}}}')
    assert read_json(path, "data.sizes", remedy="") == {"data": {"sizes": {}}}
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "other.json", remedy="")


def test_json_that_can_be_made_again_may_be_missing_or_cut(tmp_path):
    assert read_json_if_whole(tmp_path / "a.json") is None
    (tmp_path / "a.json").write_text('{"a": ')
    assert read_json_if_whole(tmp_path / "a.json") is None
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_json_if_whole(tmp_path / "a.json") == {"a": 1}


def test_hashes_are_those_of_sha256sum(tmp_path):
    (tmp_path / "abc").write_text("abc")
    assert sha256_of(tmp_path / "abc").startswith("ba7816bf8f01cfea")  # FIPS 180-2, appendix B.1
    assert fingerprint({"b": 1, "a": 2}) == fingerprint(json.loads('{"a": 2, "b": 1}'))
    assert fingerprint({}) != fingerprint([])
    assert len(fingerprint({})) == 16


def test_a_held_lock_refuses_the_next_one_and_a_released_one_does_not(tmp_path):
    lock = tmp_path / "run" / ".lock"
    assert not is_locked(lock)
    with locked(lock, refusal="someone else is here"):
        assert is_locked(lock)
        with pytest.raises(ValueError, match="someone else is here"):
            locked(lock, refusal="someone else is here").__enter__()
        assert is_locked(lock)  # the refused one has not released it
    assert not is_locked(lock)
    with locked(lock, refusal="someone else is here"):
        assert is_locked(lock)


def test_without_a_refusal_one_waits_and_says_so_once(tmp_path):
    lock, said, inside = tmp_path / ".lock", threading.Event(), threading.Event()

    def wait():
        with locked(lock, waiting=said.set, keep=False):
            inside.set()

    second = threading.Thread(target=wait)
    with locked(lock, keep=False):
        second.start()
        assert said.wait(timeout=60)
        assert not inside.is_set()
    second.join(timeout=60)
    assert inside.is_set()
    assert names(tmp_path) == []


def test_a_lock_file_that_its_holder_removes_protects_the_next_holder_too(tmp_path):
    lock, inside, leave = tmp_path / ".lock", threading.Event(), threading.Event()

    def wait_and_stay():
        with locked(lock, keep=False):
            inside.set()
            leave.wait(timeout=60)

    second = threading.Thread(target=wait_and_stay)
    with locked(lock, keep=False):
        second.start()
    assert inside.wait(timeout=60)
    assert is_locked(lock)
    leave.set()
    second.join()


def test_a_killed_process_leaves_no_lock(tmp_path):
    lock = tmp_path / ".lock"
    code = f"""
from pathlib import Path
from rota.files import locked
with locked(Path({str(lock)!r})):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        assert is_locked(lock)
        process.kill()
    assert not is_locked(lock)


def test_json_that_is_nested_deeper_than_the_parser_follows_is_damaged(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match=r"deep.json is damaged \(nested too deeply\); make it again"):
        read_json(path, remedy="make it again")
