from pathlib import Path

import pytest

from rota.config import apply_override, load_config, parse_config
from rota.settings import ConfigError, Duration

SYNTHETIC = {"data": {"corpus": "synthetic"}}


def written(tmp_path, text):
    path = tmp_path / "norwegian.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_no_is_norwegian(tmp_path):
    text = "data: {languages: [no, tr], low_resource: [no], train: 'a.{side}', dev: 'b.{side}', test: 'c.{side}'}"
    assert load_config(written(tmp_path, text)).data.languages == ("no", "tr")


def test_a_config_is_named_after_its_file(tmp_path):
    config = load_config(written(tmp_path, "data: {corpus: synthetic}"))
    assert config.name == "norwegian"
    assert config.data_folder == Path("prepared/norwegian")


def test_defaults_are_those_of_the_paper():
    config = parse_config(SYNTHETIC)
    assert (config.training.steps, config.training.tokens) == (150_000, 8_000)
    assert config.student.lr_warmup == Duration("16k")
    assert (config.student.dropout, config.student.label_smoothing, config.student.clip_norm) == (0.3, 0.1, 5.0)
    assert (config.data.subwords.size, config.data.subwords.lines) == (32_000, 10_000)
    assert config.evaluation.beam == 5


def test_overrides_reach_any_depth(tmp_path):
    path = written(tmp_path, "data: {corpus: synthetic}\nteacher: uniform")
    config = load_config(path, ["training.steps=2k", "teacher.warmup=10%", "data.subwords.size=4k", "seed=7"])
    assert config.training.steps == 2000
    assert config.teacher.name == "uniform"
    assert config.teacher.warmup.until.steps(2000) == 200
    assert config.data.subwords.size == 4000
    assert config.seed == 7


def test_an_override_leaves_its_neighbours_alone():
    values = {"training": {"steps": 1, "tokens": 2}}
    apply_override(values, "training.steps=5")
    assert values == {"training": {"steps": 5, "tokens": 2}}


@pytest.mark.parametrize("short", ["16k", 16_000])
def test_an_override_completes_what_is_written_short(short):
    values = {"teacher": {"name": "uniform", "warmup": short}}
    apply_override(values, "teacher.warmup.inform=all")
    assert values == {"teacher": {"name": "uniform", "warmup": {"until": short, "inform": "all"}}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.steps.x=1", "--set 'training.steps.x=1': training.steps is 5, which has no keys; write --set tr"),
        ("name.x=1", "--set 'name.x=1': name is 'mine', which has no keys"),
        ("data.languages.0=az", r"data\.languages is \['tr'\], which has no keys; write --set data\.languages="),
        ("teacher=[1", r"--set 'teacher=\[1': expected ',' or '\]', .*; what follows the = must be valid YAML"),
        ("seed=2024-13-45", "--set 'seed=2024-13-45': month must be in 1..12; .* must be valid YAML"),
        ("teacher={a: 1, a: 2}", "must be valid YAML"),
        ("training..steps=1", "write for example"),
        (" =1", "write for example"),
    ],
)
def test_an_override_that_cannot_be_is_named_in_one_line(override, message):
    values = {"name": "mine", "training": {"steps": 5}, "data": {"languages": ["tr"]}}
    with pytest.raises(ConfigError, match=message) as error:
        apply_override(values, override)
    assert "\n" not in str(error.value)


def test_a_path_may_be_a_string(tmp_path):
    path = written(tmp_path, "data: {corpus: synthetic}")
    assert load_config(str(path)) == load_config(path)


def test_the_resolved_config_reads_back_as_itself():
    config = parse_config({**SYNTHETIC, "teacher": {"name": "two-phase", "switch": "30%", "warmup": "1k"}})
    assert parse_config(config.dump()) == config
    assert parse_config(config.dump()).fingerprint == config.fingerprint


def test_any_changed_setting_changes_the_fingerprint():
    assert parse_config(SYNTHETIC).fingerprint != parse_config({**SYNTHETIC, "seed": 2}).fingerprint


def test_a_suite_is_no_config_and_the_command_for_it_is_named(tmp_path):
    path = written(tmp_path, "base: my.yaml\nrows: {u: {teacher: uniform}}")
    with pytest.raises(ConfigError, match=rf"^{path} is a suite; use rota compare {path}$"):
        load_config(path)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_run_is_not_named_like_the_folder_above(name):
    with pytest.raises(ConfigError, match="name: "):
        parse_config({**SYNTHETIC, "name": name})
    assert parse_config({**SYNTHETIC, "name": f"{name}x"}).name == f"{name}x"


def test_a_list_is_no_config(tmp_path):
    with pytest.raises(ConfigError, match="mapping of keys"):
        load_config(written(tmp_path, "- data"))


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: Bahçe".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml: byte 9 is not UTF-8"):
        load_config(path)


def test_a_group_of_languages_that_does_not_exist_is_named_as_the_user_wrote_it():
    with pytest.raises(ConfigError) as error:
        parse_config({**SYNTHETIC, "teacher": {"name": "two-phase", "first": {"name": "uniform", "languages": "zz"}}})
    expected = "'all', 'high-resource' or 'low-resource', or a list"
    assert str(error.value) == f"config: teacher.first.languages: 'zz' is not understood; it should be {expected}"


def test_a_teacher_without_a_name_is_incomplete():
    with pytest.raises(ConfigError, match="config: teacher: 'name' is missing; write for example name: uniform"):
        parse_config({**SYNTHETIC, "teacher": {"decide_every": 5}})
