import gzip
import lzma
import zlib
from contextlib import suppress

import pytest

from rota.runs.records import Lines, Record, last_entry, last_lines, read_record


def entries(path):
    return list(read_record(path))


def test_entries_come_back_in_order(tmp_path):
    record = Record(tmp_path / "lines.jsonl")
    record.write({"step": 1, "arm": "az"})
    record.write({"step": 2, "arm": "be"})
    record.flush()
    assert entries(record.path) == [{"step": 1, "arm": "az"}, {"step": 2, "arm": "be"}]
    record.close()
    assert entries(record.path) == [{"step": 1, "arm": "az"}, {"step": 2, "arm": "be"}]


def test_truncating_keeps_entries_up_to_the_step(tmp_path):
    record = Record(tmp_path / "lines.jsonl")
    for step in (1, 2, 3, 4):
        record.write({"step": step})
    record.truncate(2)
    assert [entry["step"] for entry in entries(record.path)] == [1, 2]


def test_a_half_written_last_line_is_neither_read_nor_kept(tmp_path):
    path = tmp_path / "lines.jsonl"
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
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    for read in (entries, lambda path: Record(path).truncate(3)):
        with pytest.raises(
            ValueError, match=r"lines\.jsonl, line 2 is damaged \(.*\); copy it again, or delete "
        ) as error:
            read(path)
        assert why in str(error.value)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b'{"step": 1}\n', mtime=0)[:-9], b"no gzip", gzip.compress(b"x" * 99, mtime=0)[:20]],
    ids=["cut at the end", "no gzip", "cut in the middle"],
)
def test_a_cut_gzip_record_is_named(tmp_path, content):
    (tmp_path / "lines.jsonl.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"lines\.jsonl\.gz is damaged \(.+\); copy it again"):
        entries(tmp_path / "lines.jsonl.gz")


def test_a_cut_xz_record_is_named(tmp_path):
    for content in (lzma.compress(b'{"step": 1}\n')[:-9], b"no xz"):
        (tmp_path / "lines.jsonl.xz").write_bytes(content)
        with pytest.raises(ValueError, match=r"lines\.jsonl\.xz is damaged \(.+\); copy it again"):
            entries(tmp_path / "lines.jsonl.xz")


def test_a_missing_record_is_empty(tmp_path):
    assert entries(tmp_path / "nothing.jsonl") == []


def test_the_last_entry_is_found_at_the_end_of_a_long_record(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert last_entry(path) is None
    path.write_text("".join(f'{{"step": {step}}}\n' for step in range(9999)) + "half a li\n" + '{"step": 10000')
    assert last_entry(path) == {"step": 9998}


def test_the_last_lines_of_a_log_come_last_one_first_and_without_blank_ones(tmp_path):
    path = tmp_path / "log.txt"
    assert list(last_lines(path)) == []
    path.write_bytes(b"one\n\n  two \n\xff\n\n")
    assert list(last_lines(path)) == ["\N{REPLACEMENT CHARACTER}", "two", "one"]


def written(path, count=4):
    record = Record(path)
    for step in range(1, count + 1):
        record.write({"step": step, "arm": "az", "loss": step / 8})
    record.close()
    return path.read_bytes().splitlines(keepends=True)


def test_a_line_ends_with_the_check_value_of_itself_and_of_all_before_it(tmp_path):
    first, second = written(tmp_path / "lines.jsonl", count=2)
    one = zlib.crc32(b'{"step": 1, "arm": "az", "loss": 0.125}')
    two = zlib.crc32(b'{"step": 2, "arm": "az", "loss": 0.25}', one)
    assert first == b'{"step": 1, "arm": "az", "loss": 0.125, "check": "%08x"}\n' % one
    assert second == b'{"step": 2, "arm": "az", "loss": 0.25, "check": "%08x"}\n' % two


def test_the_check_value_is_not_part_of_an_entry(tmp_path):
    written(tmp_path / "lines.jsonl", count=1)
    entry = {"step": 1, "arm": "az", "loss": 0.125}
    assert entries(tmp_path / "lines.jsonl") == [entry]
    assert last_entry(tmp_path / "lines.jsonl") == entry


def test_every_changed_bit_of_a_record_is_noticed(tmp_path):
    path = tmp_path / "lines.jsonl"
    whole, as_written = b"".join(written(path)), entries(path)
    for place in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with suppress(ValueError):
            # The last line may become one that is not finished, and is then left out; nothing may come back changed.
            assert entries(path) == as_written[:-1], f"bit {place % 8} of byte {place // 8}"


def test_a_line_that_was_taken_out_or_put_in_is_noticed(tmp_path):
    path = tmp_path / "lines.jsonl"
    one, two, three, four = written(path)
    for lines in ([one, three, four], [two, three, four], [one, two, two, three, four], [one, three, two, four]):
        path.write_bytes(b"".join(lines))
        with pytest.raises(ValueError, match=r"line [123] is damaged \(its check value is not that of its content, or"):
            entries(path)


def test_a_record_that_was_cut_back_goes_on_as_if_nothing_had_been_cut(tmp_path):
    whole = b"".join(written(tmp_path / "whole.jsonl"))
    written(tmp_path / "cut.jsonl", count=3)
    record = Record(tmp_path / "cut.jsonl")
    record.truncate(2)
    for step in (3, 4):
        record.write({"step": step, "arm": "az", "loss": step / 8})
    record.close()
    assert record.path.read_bytes() == whole


def test_lines_of_version_0_1_may_come_first_and_nowhere_else(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n')
    record = Record(path)
    record.write({"step": 3})
    record.close()
    assert [entry["step"] for entry in entries(path)] == [1, 2, 3]
    with path.open("ab") as file:
        file.write(b'{"step": 4}\n')
    with pytest.raises(ValueError, match=r"line 4 is damaged \(it has no check value, and the line before has one\)"):
        entries(path)


def test_a_line_whose_end_is_written_while_it_is_read_is_left_out(tmp_path, monkeypatch):
    path = tmp_path / "evals.jsonl"
    record = Record(path)
    record.write({"step": 1})
    record.write({"step": 2})
    record.close()
    text = path.read_bytes()
    path.write_bytes(text[:-10])
    is_whole = Lines.is_whole

    def whole_and_written_on(lines, line):
        found = is_whole(lines, line)
        if not found:
            with path.open("ab") as file:
                file.write(text[-10:])
        return found

    monkeypatch.setattr(Lines, "is_whole", whole_and_written_on)
    assert [entry["step"] for entry in entries(path)] == [1]
    assert path.read_bytes() == text
    assert [entry["step"] for entry in entries(path)] == [1, 2]
