"""Configs come from people: whatever a file or a value of ``--set`` holds, the answer is values or one line."""

import random
import re

import pytest

from rota.config import DEEPEST, LONGEST, MOST_VALUES, YAMLMistakeError, apply_override, load_config, parse_yaml
from rota.settings import ConfigError

CONFIG = """
data:
  languages: [az, be, gl]
  train: corpora/{language}-en/train.{side}.gz
  dev: corpora/{language}-en/dev.{side}.gz
  test: corpora/{language}-en/test.{side}.gz
  subwords: {size: 8k}
student: {preset: tiny, learning_rate: {peak: 0.002}, lr_warmup: 10%}
teacher: {name: temperature, temperature: 5, warmup: 10%}
training: {steps: 20k, tokens: 4k}
"""


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_as_deep_as_the_parser_could_not_bear_is_refused(opening):
    with pytest.raises(YAMLMistakeError, match=f"more than {DEEPEST} levels of nesting"):
        parse_yaml("a: " + opening * 5_000 if opening in ("[", "{a: ") else opening * 5_000)


def test_the_deepest_nesting_that_is_allowed_is_read():
    value = parse_yaml("[" * DEEPEST + "]" * DEEPEST)
    for _ in range(DEEPEST - 1):
        (value,) = value
    assert value == []


@pytest.mark.parametrize("tag", ["!!bool 3", "!!int x", "!!python/object:os.system x", "!mine 1", "!!str 3"])
def test_tags_are_refused_with_their_line(tag):
    with pytest.raises(YAMLMistakeError, match=r"the tag '!.*' is not supported; write the plain value") as caught:
        parse_yaml(f"a: 1\nb: {tag}")
    assert caught.value.line == 2


def test_aliases_may_repeat_a_value():
    assert parse_yaml("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}


def test_aliases_that_grow_beyond_measure_are_refused():
    lines = ["a0: &a0 [1, 2, 3]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 8))]
    with pytest.raises(YAMLMistakeError, match=f"more than {MOST_VALUES:,} values") as caught:
        parse_yaml("\n".join(lines))
    assert caught.value.line == 6  # 9 ** 5 times three numbers


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("sources:\n  gl: {a: 1}\n  gl: {b: 2}", 3, "the key 'gl' is there twice; rename or remove one"),
        ("directions: [*-en, en-gl]", 1, r'\*-en is an alias in YAML; write it in quotes, "\*-en"'),
        ("directions:\n- *-*", 2, r'write it in quotes, "\*-\*"'),
    ],
)
def test_what_users_write_and_yaml_does_not_know_has_a_remedy(text, line, message):
    with pytest.raises(YAMLMistakeError, match=message) as caught:
        parse_yaml(text)
    assert caught.value.line == line


def test_an_alias_inside_itself_is_refused():
    with pytest.raises(YAMLMistakeError, match=r"\*x stands inside itself"):
        parse_yaml("a: &x [1, *x]")


def test_a_text_that_is_no_config_by_its_size_is_refused_at_once():
    with pytest.raises(YAMLMistakeError, match=f"{LONGEST + 1:,} characters are too many"):
        parse_yaml("x" * (LONGEST + 1))


def test_a_path_of_keys_that_is_too_long_is_refused():
    with pytest.raises(ConfigError, match="has 3,000 keys"):
        apply_override({}, ".".join(["a"] * 3_000) + "=1")


def test_a_whole_file_as_a_value_gives_a_short_message():
    with pytest.raises(ConfigError) as caught:
        apply_override({}, "data.train=[" + "x" * 100_000)
    assert len(str(caught.value)) < 800


PIECES = (
    *(
        "[",
        "]",
        "{",
        "}",
        ":",
        ": ",
        "- ",
        "!!bool ",
        "!",
        "&a ",
        "*a",
        '"',
        "'",
        "|",
        ">",
        "%",
        "@",
        "`",
        "\x00",
        "\t",
    ),
    *("\r", "\ufeff", "\ud800", "null", "true", "-1", "1e999", "nan", ".inf", "9" * 50, "9" * 5_000, "2024-13-45"),
    *("~", "<<: ", "? ", "#", "{language}", "{0}", "{x", "101%", "mixed", "name", "dqn", "../..", "/", "a" * 300, "\n"),
    *("  ", "\n  ", "---", "...", "[[]]", "{a: {b: c}}", "\u202e"),
)


def mutated(rng):
    text = CONFIG
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text) + 1)
        stop = min(len(text), start + rng.choice((0, 0, 1, 12)))
        if rng.random() < 0.3:
            value = rng.choice(list(re.finditer(r"(?<=: )[^,}\n]+", text)) or [re.search("", text)])
            start, stop = value.span()
        text = text[:start] + rng.choice((*PIECES, "")) + text[stop:]
    return text


@pytest.mark.parametrize("seed", range(4))
def test_mutated_configs_are_read_or_refused_in_one_line(tmp_path, seed):
    rng, path, messages = random.Random(seed), tmp_path / "mutated.yaml", []
    for _ in range(150):
        path.write_bytes(mutated(rng).encode("utf-8", "surrogatepass"))
        try:
            load_config(path).dump()
        except ConfigError as error:
            messages.append(str(error))
    assert len(messages) > 75
    assert not [message for message in messages if "\n" in message or len(message) > 900]
