import math
from collections import Counter

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from rota.teachers import TEACHERS, AnyTeacherConfig, Classroom, build_teacher
from rota.teachers.scripted.two_phase import TwoPhase
from rota.teachers.static import Mixed, Proportional, Static, Temperature, Uniform
from rota.types import Decision, Mixture

SIZES = {"az": 100, "be": 300, "tr": 600}
CLASSROOM = Classroom(SIZES, low_resource=("az", "be"), steps=1000)


def rng(seed=1):
    return np.random.default_rng(seed)


def config(values):
    return TypeAdapter(AnyTeacherConfig).validate_python(values)


def arms(teacher, steps):
    return [teacher.ask(step).arm for step in steps]


def test_uniform_gives_every_language_the_same_probability():
    assert Uniform(SIZES, rng()).shares == {"az": 1 / 3, "be": 1 / 3, "tr": 1 / 3}


def test_proportional_follows_the_sizes():
    assert Proportional(SIZES, rng()).shares == {"az": 0.1, "be": 0.3, "tr": 0.6}


def test_proportional_shares_are_of_sentences_or_of_tokens():
    # Sentences of 20, 10 and 5 tokens: by tokens 2,000, 3,000 and 3,000 of 8,000.
    tokens = {"az": 2_000, "be": 3_000, "tr": 3_000}
    classroom = Classroom({"az": 100, "be": 300, "tr": 600}, low_resource=("az",), steps=10, tokens=tokens)

    def shares(**options):
        config = TypeAdapter(AnyTeacherConfig).validate_python({"name": "proportional", **options})
        return build_teacher(config, classroom, rng()).shares

    assert shares() == {"az": 0.1, "be": 0.3, "tr": 0.6}
    assert shares(by="tokens") == {"az": 0.25, "be": 0.375, "tr": 0.375}
    assert shares(by="tokens", languages=["az", "be"]) == {"az": 0.4, "be": 0.6}


def test_without_counted_tokens_there_are_no_shares_of_them():
    config = TypeAdapter(AnyTeacherConfig).validate_python({"name": "proportional", "by": "tokens"})
    with pytest.raises(ValueError, match=r"teacher\.by is 'tokens', but no tokens are counted here; use by: sentences"):
        build_teacher(config, Classroom(SIZES, low_resource=("az",), steps=10), rng())


def test_what_is_written_of_proportional_names_its_shares_only_where_they_are_of_tokens():
    config = TypeAdapter(AnyTeacherConfig)
    assert "by" not in config.validate_python("proportional").model_dump()
    by_tokens = config.validate_python({"name": "proportional", "by": "tokens"})
    assert by_tokens.model_dump()["by"] == "tokens"
    assert config.validate_python(by_tokens.model_dump(mode="json")) == by_tokens


def test_temperature_one_is_proportional_and_a_large_one_nearly_uniform():
    assert Temperature(SIZES, rng(), temperature=1).shares == pytest.approx({"az": 0.1, "be": 0.3, "tr": 0.6})
    assert Temperature(SIZES, rng(), temperature=1e6).shares == pytest.approx(dict.fromkeys(SIZES, 1 / 3), abs=1e-4)


def test_temperature_two_takes_square_roots():
    # 4, 16 and 100 sentences: square roots 2, 4, 10, together 16.
    shares = Temperature({"a": 4, "b": 16, "c": 100}, rng(), temperature=2).shares
    assert shares == pytest.approx({"a": 2 / 16, "b": 4 / 16, "c": 10 / 16})


def test_a_temperature_of_tokens_draws_as_if_sentences_were_drawn_with_it():
    # Square roots 2, 4 and 10; sentences of 8, 2 and 4 tokens: 16, 8 and 40 of 64.
    tokens = {"a": 32, "b": 32, "c": 400}
    classroom = Classroom({"a": 4, "b": 16, "c": 100}, low_resource=("a",), steps=10, tokens=tokens)

    def shares(**options):
        return build_teacher(config({"name": "temperature", "temperature": 2, **options}), classroom, rng()).shares

    assert shares() == pytest.approx({"a": 2 / 16, "b": 4 / 16, "c": 10 / 16})
    assert shares(by="tokens") == pytest.approx({"a": 16 / 64, "b": 8 / 64, "c": 40 / 64})
    assert shares(by="tokens", temperature=1) == pytest.approx({"a": 32 / 464, "b": 32 / 464, "c": 400 / 464})
    assert shares(by="tokens", languages=["a", "b"]) == pytest.approx({"a": 16 / 24, "b": 8 / 24})
    with pytest.raises(ValueError, match="no target tokens are counted here"):
        build_teacher(config({"name": "temperature", "by": "tokens"}), CLASSROOM, rng())


def test_a_temperature_that_changes_may_be_of_tokens_too():
    classroom = Classroom({"a": 4, "b": 16}, low_resource=("a",), steps=10, tokens={"a": 32, "b": 32})
    schedule = {"from": 2, "to": 1, "at": "50%"}
    teacher = build_teacher(config({"name": "temperature", "by": "tokens", "schedule": schedule}), classroom, rng())
    assert teacher.shares(0) == pytest.approx({"a": 16 / 24, "b": 8 / 24})
    assert teacher.shares(9) == pytest.approx({"a": 1 / 2, "b": 1 / 2})


def test_what_is_written_of_a_temperature_names_its_shares_only_where_they_are_of_tokens():
    assert "by" not in config("temperature").model_dump()
    assert config({"name": "temperature", "by": "tokens"}).model_dump()["by"] == "tokens"


def test_choices_are_drawn_with_their_shares():
    drawn = Counter(arms(Proportional(SIZES, rng()), range(20_000)))
    for arm, share in {"az": 0.1, "be": 0.3, "tr": 0.6}.items():
        deviation = math.sqrt(share * (1 - share) / 20_000)
        assert drawn[arm] / 20_000 == pytest.approx(share, abs=4 * deviation)


def test_a_choice_says_how_probable_it_was():
    decision = Proportional(SIZES, rng()).ask(0)
    assert decision.why == "sampled"
    assert decision.probability == SIZES[decision.arm] / 1000


def test_a_share_of_zero_is_never_drawn():
    assert set(arms(Static({"az": 0, "be": 1, "tr": 0}, rng()), range(500))) == {"be"}


@pytest.mark.parametrize("shares", [{"az": -1.0, "be": 2.0}, {"az": math.nan}, {"az": math.inf}, {"az": 0.0}, {}])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match="share"):
        Static(shares, rng())


def test_mixed_always_plays_all_arms_in_proportion_to_their_sizes():
    teacher = Mixed({"az": 5, "tr": 90}, rng())
    mixture = Mixture({"az": 5, "tr": 90}, "sentence", fixed=True)
    assert {decision.arm for decision in map(teacher.ask, range(50))} == {"mixed"}
    assert teacher.ask(50) == Decision("mixed", why="sampled", probability=1.0, mixture=mixture)


def test_two_phase_switches_at_the_step_it_says():
    teacher = TwoPhase(Static({"tr": 1}, rng()), Static({"az": 1}, rng()), switch=20)
    assert arms(teacher, (0, 19, 20, 21)) == ["tr", "tr", "az", "az"]


def test_static_teachers_watch_nothing():
    assert Uniform(SIZES, rng()).watches == ()


def test_the_two_phase_config_starts_with_the_high_resource_languages():
    teacher = build_teacher(config({"name": "two-phase", "switch": "50%"}), CLASSROOM, rng())
    assert set(arms(teacher, range(500))) == {"tr"}
    assert set(arms(teacher, range(500, 1000))) == {"az", "be", "tr"}


@pytest.mark.parametrize(("name", "value"), [("warmup", "1k"), ("decide_every", 5), ("observe_every", 5)])
@pytest.mark.parametrize("place", ["first", "second"])
def test_a_phase_has_no_pace_of_its_own(place, name, value):
    with pytest.raises(ValidationError, match=f"'{place}' has '{name}', .* on the two-phase teacher itself"):
        config({"name": "two-phase", place: {"name": "uniform", name: value}})
    assert config({"name": "two-phase", place: "uniform", name: value}).name == "two-phase"


def test_a_resolved_two_phase_config_reads_back_as_itself():
    resolved = config({"name": "two-phase", "decide_every": 5})
    assert config(resolved.model_dump(mode="json")) == resolved


def test_fixed_shares_must_name_languages_of_the_corpus():
    with pytest.raises(ValueError, match="unknown language 'xx'; the corpus has az, be, tr"):
        build_teacher(config({"name": "fixed", "shares": {"xx": 1}}), CLASSROOM, rng())


def test_shares_may_name_languages_directions_and_sources():
    sizes = {"gl-en.ted": 100, "gl-en.web.1": 200, "gl-en.web.2": 100, "en-gl.ted": 400, "pt-en": 900}
    classroom = Classroom(
        sizes,
        low_resource=(),
        steps=10,
        language_of={arm: arm.partition(".")[0] for arm in sizes},
        groups={"gl": list(sizes)[:4], "web": ["gl-en.web.1", "gl-en.web.2"]},
    )

    def shares(**given):
        return build_teacher(config({"name": "fixed", "shares": given}), classroom, rng()).shares

    assert shares(**{"gl": 4, "pt-en": 1}) == pytest.approx(dict(zip(sizes, (0.1, 0.2, 0.1, 0.4, 0.2), strict=True)))
    assert shares(**{"web": 1, "en-gl": 1}) == pytest.approx(
        {"gl-en.web.1": 1 / 3, "gl-en.web.2": 1 / 6, "en-gl.ted": 1 / 2}
    )
    assert shares(**{"gl-en": 1, "gl-en.ted": 1})["gl-en.ted"] == pytest.approx((0.25 + 1) / 2)
    with pytest.raises(ValueError, match="unknown language 'wed'; did you mean 'web'[?] the corpus has gl-en.ted, "):
        shares(wed=1)


def test_a_group_without_languages_is_an_error():
    alone = Classroom(SIZES, low_resource=(), steps=10)
    with pytest.raises(ValueError, match="no low-resource language"):
        build_teacher(config({"name": "uniform", "languages": "low-resource"}), alone, rng())


def test_a_name_alone_is_a_teacher():
    assert config("uniform").name == "uniform"


def test_the_registry_and_the_config_know_the_same_teachers():
    for name, kind in TEACHERS.items():
        required = {"shares": {"az": 1.0}} if name == "fixed" else {}
        if name == "ccl-m":
            required = {"baseline": "somewhere"}
        if name == "sb3":
            required = {"model": "somewhere"}
        if name.startswith("replay"):
            required = {"run": "somewhere"}
        assert type(config({"name": name, **required})) is kind
    with pytest.raises(ValidationError, match="unknown name 'unifrom'; did you mean 'uniform'"):
        config("unifrom")
