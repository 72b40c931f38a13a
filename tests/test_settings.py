from typing import Literal

import pytest
from pydantic import ValidationError, model_validator

from rota.settings import Count, Duration, DurationField, Settings, explain, parse_count


class Inner(Settings):
    until: DurationField = Duration("16k")


class Outer(Settings):
    steps: Count = 100
    inner: Inner = Inner()
    languages: Literal["all", "none"] | tuple[str, ...] = "all"
    texts: str | dict[str, str | tuple[str, ...]] | None = None
    shares: dict[str, float] | None = None

    @model_validator(mode="after")
    def _check(self):
        if self.steps == 13:
            raise ValueError("steps 13 is unlucky; take 12")
        return self


def mistake(values):
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(values)
    return explain(caught.value, Outer)


@pytest.mark.parametrize(
    ("written", "value"),
    [("500", 500), ("16k", 16_000), ("1.5M", 1_500_000), ("8,000", 8_000), ("1_000", 1_000), (7, 7)],
)
def test_counts_may_be_written_short(written, value):
    assert parse_count(written) == value


@pytest.mark.parametrize("written", ["", "k", "1.0005k", "many", "-5", "1e3"])
def test_what_is_no_count_is_refused(written):
    with pytest.raises(ValueError, match=r"count|whole"):
        parse_count(written)


def test_a_duration_is_steps_or_a_share_of_the_run():
    assert Duration("16k").steps(total=150_000) == 16_000
    assert Duration(250).steps(total=10) == 250
    assert Duration("10%").steps(total=2_400) == 240
    assert Duration("2.5%").steps(total=1_000) == 25


@pytest.mark.parametrize("written", ["101%", "-1%", "x%", "%", "ten", True, 1.5, None])
def test_what_is_no_duration_is_refused(written):
    assert "inner.until" in mistake({"inner": {"until": written}})


def test_durations_are_written_as_they_were_read():
    assert Outer.model_validate({"inner": {"until": "10%"}}).model_dump(mode="json")["inner"] == {"until": "10%"}
    assert Outer.model_validate({"inner": {"until": "2k"}}).model_dump(mode="json")["inner"] == {"until": 2000}


def test_an_unknown_key_names_the_nearest_one():
    assert mistake({"stepps": 3}) == "unknown key 'stepps'; did you mean 'steps'?"
    assert mistake({"inner": {"untill": 3}}) == "unknown key 'inner.untill'; did you mean 'until'?"
    assert mistake({"inner": {"zzz": 3}}) == "unknown key 'inner.zzz'; known here: until"


def test_a_wrong_value_is_named_with_its_place():
    assert mistake({"steps": "soon"}) == "steps: 'soon' is not a count; write for example 500, 16k or 1.5M"


def test_a_value_of_none_of_the_allowed_forms_is_named_with_all_of_them():
    assert mistake({"languages": "zz"}) == "languages: 'zz' is not understood; it should be 'all' or 'none', or a list"
    assert mistake({"texts": 5}) == "texts: 5 is not understood; it should be a valid string, or a mapping"
    assert mistake({"texts": {"az": 5}}) == "texts.az: 5 is not understood; it should be a valid string, or a list"


def test_a_mistake_inside_an_allowed_form_is_named_with_its_place():
    assert mistake({"languages": ["az", 1]}) == "languages.1: Input should be a valid string (it is 1)"
    assert mistake({"texts": {"az": ["a", 5]}}) == "texts.az.1: Input should be a valid string (it is 5)"


def test_a_key_that_is_no_text_is_named():
    assert mistake({"texts": {1: "a"}}) == "texts.1: Input should be a valid string (it is 1)"
    assert mistake({"shares": {1: 1}}) == "shares.1: Input should be a valid string (it is 1)"


def test_a_message_about_all_settings_does_not_repeat_them():
    assert mistake({"steps": 13}) == "steps 13 is unlucky; take 12"
    assert mistake({"inner": 5}) == "inner: Input should be a mapping (it is 5)"


def test_the_pieces_of_a_mapping_may_be_called_like_types():
    message = "shares.str: Input should be a valid number, unable to parse string as a number (it is 'x')"
    assert mistake({"shares": {"str": "x"}}) == message


def test_a_count_beyond_all_numbers_is_refused():
    with pytest.raises(ValueError, match="is too large a number"):
        parse_count("9" * 400 + "k")
