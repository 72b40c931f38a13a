from rota.records import Record, read_record, write_atomically


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


def test_a_missing_record_is_empty(tmp_path):
    assert entries(tmp_path / "nothing.jsonl") == []


def test_an_atomic_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "run.json"
    write_atomically(path, "old and long")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert [found.name for found in tmp_path.iterdir()] == ["run.json"]
