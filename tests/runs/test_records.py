import gzip

import pytest

from rota.runs.records import Record, last_entry, last_lines, read_record


def entries(path):
    return list(read_record(path))


def test_entries_come_back_in_order(tmp_path):
    record = Record(tmp_path / "steps.jsonl")
    record.write({"step": 1, "arm": "az"})
    record.write({"step": 2, "arm": "be"})
    record.flush()
    assert entries(record.path) == [{"step": 1, "arm": "az"}, {"step": 2, "arm": "be"}]
    record.close()
    assert entries(record.path) == [{"step": 1, "arm": "az"}, {"step": 2, "arm": "be"}]


def test_truncating_keeps_entries_up_to_the_step(tmp_path):
    record = Record(tmp_path / "steps.jsonl")
    for step in (1, 2, 3, 4):
        record.write({"step": step})
    record.truncate(2)
    assert [entry["step"] for entry in entries(record.path)] == [1, 2]


def test_a_half_written_last_line_is_neither_read_nor_kept(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    assert entries(path) == [{"step": 1}]
    record = Record(path)
    record.write({"step": 2})
    record.close()
    assert entries(path) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize(
    ("line", "why"), [(b"{,}", "Expecting property name"), (b"\xff\xff", "can't decode"), (b"5", "not a JSON object")]
)
def test_a_line_that_cannot_be_read_is_named_with_its_file_and_the_remedy(tmp_path, line, why):
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    for read in (entries, lambda path: Record(path).truncate(3)):
        with pytest.raises(
            ValueError, match=r"steps\.jsonl, line 2 is damaged \(.*\); copy it again, or delete "
        ) as error:
            read(path)
        assert why in str(error.value)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b'{"step": 1}\n', mtime=0)[:-9], b"no gzip", gzip.compress(b"x" * 99, mtime=0)[:20]],
    ids=["cut at the end", "no gzip", "cut in the middle"],
)
def test_a_cut_gzip_record_is_named(tmp_path, content):
    (tmp_path / "steps.jsonl.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"steps\.jsonl\.gz is damaged \(.+\); copy it again"):
        entries(tmp_path / "steps.jsonl.gz")


def test_a_missing_record_is_empty(tmp_path):
    assert entries(tmp_path / "nothing.jsonl") == []


def test_the_last_entry_is_found_at_the_end_of_a_long_record(tmp_path):
    path = tmp_path / "steps.jsonl"
    assert last_entry(path) is None
    path.write_text("".join(f'{{"step": {step}}}\n' for step in range(9999)) + "half a li\n" + '{"step": 10000')
    assert last_entry(path) == {"step": 9998}


def test_the_last_lines_of_a_log_come_last_one_first_and_without_blank_ones(tmp_path):
    path = tmp_path / "log.txt"
    assert list(last_lines(path)) == []
    path.write_bytes(b"one\n\n  two \n\xff\n\n")
    assert list(last_lines(path)) == ["\N{REPLACEMENT CHARACTER}", "two", "one"]
