"""The list of ``rota teachers``: every teacher of the registry has a card, and the list fits a screen."""

from dataclasses import replace

import pytest

from rota.cli import views
from rota.teachers import TEACHERS
from rota.teachers.card import FAMILIES, Card
from rota.teachers.curricula import CURRICULA
from rota.teachers.static import UniformConfig

CARD = Card("static", "every language equally", "nothing", ("0", "0"), "Wu '21", "Wu et al. 2021")


@pytest.mark.parametrize("name", TEACHERS)
def test_every_teacher_of_the_registry_has_a_card_of_its_own(name):
    """Inherited ones would describe another teacher; write ``card = Card(...)`` in the config's class."""
    assert isinstance(vars(TEACHERS[name]).get("card"), Card)
    assert TEACHERS[name].__doc__


def test_no_two_teachers_have_the_same_line():
    lines = [config.card.line for config in TEACHERS.values()]
    assert sorted(lines) == sorted(set(lines))


def test_the_list_has_one_line_for_each_teacher_in_80_columns_and_the_advice_first():
    lines = views.teacher_list(TEACHERS).plain.splitlines()
    assert lines[0].startswith("Which one?")
    assert max(map(len, lines)) <= 80
    first = [line.split(" ")[0] for line in lines]
    assert all(first.count(name) == 1 for name in TEACHERS)
    listed = {title for title in FAMILIES.values() if title in lines}
    assert listed == {FAMILIES[config.card.family] for config in TEACHERS.values()}
    assert len(lines) == 5 + len(listed) + len(TEACHERS)


def test_the_details_of_a_teacher_say_where_it_comes_from(rota):
    code, output, _ = rota("teachers", "temperature")
    assert code == 0
    for words in ("Arivazhagan et al. 2019", "Static: the same shares", "decide_every", "1 is proportional"):
        assert words in " ".join(output.split())


def test_the_details_mark_the_defaults_that_the_length_of_the_run_replaces(rota):
    lines = rota("teachers", "dqn")[1].splitlines()
    marked = {line.split()[0]: line.split()[1] for line in lines if line.startswith("  ") and " * " in line}
    assert (marked["warmup"], marked["epsilon_steps"]) == ("16000", "50000")
    assert "decide_every" not in marked, "10, as in the paper, in a shorter run too"
    assert "* for a run of the paper's length; variant scaled" in " ".join(lines)
    assert " * " not in rota("teachers", "uniform")[1]


@pytest.mark.parametrize("name", [*TEACHERS, *CURRICULA])
def test_every_default_in_the_details_is_one_that_a_config_could_have(rota, name):
    """``PydanticUndefined`` stood where a default is made by a function."""
    code, output, _ = rota("teachers", name)
    assert code == 0
    assert "Undefined" not in output


def test_a_default_that_is_made_by_a_function_is_shown(rota):
    _, output, _ = rota("teachers", "ccl-m")
    (line,) = [line for line in output.splitlines() if line.strip().startswith("relatives")]
    assert line.split()[1] == "{}"


UNCERTAIN = (
    *("two-phase", "jean-explicit", "jean-implicit", "zaremoodi", "dynamix-sft", "kumar", "ccl-m", "weight-change"),
    *("norm", "relative-loss", "actor-critic", "dropout-variance"),
)
"""Schedules of which we read an abstract, notes or a review, and whose formulas are therefore partly ours."""


@pytest.mark.parametrize("name", UNCERTAIN)
def test_the_details_say_where_the_formulas_are_our_reading_of_a_source(rota, name):
    _, output, _ = rota("teachers", name)
    source = " ".join(output.split()).partition(" source ")[2].partition(" parameter default meaning ")[0]
    assert "our reading" in source


def test_the_details_of_an_unknown_teacher_name_the_nearest(rota):
    code, _, error = rota("teachers", "temprature")
    assert code == 2
    assert "did you mean 'temperature'?" in " ".join(error.split())


def test_a_teacher_without_a_card_is_shown_without_one_and_is_not_in_the_list():
    class Mine(UniformConfig):
        """Mine."""

        card = None

    assert "mine" not in views.teacher_list({**TEACHERS, "mine": Mine}).plain
    with views.console.capture() as shown:
        views.console.print(views.teacher_table("mine", Mine))
    assert "Mine." in shown.get()
    assert "family" not in shown.get()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "stastic"}, "unknown family 'stastic'; there are static, scripted"),
        ({"line": "x" * 26}, "26 characters; 1 to 25 fit"),
        ({"observes": ""}, "observes is '', 0 characters"),
        ({"source": "Arivazhagan 2019"}, "1 to 12 fit"),
        ({"cost": ("0", "+100 %")}, r"the cost '\+100 %' has 6 characters"),
        ({"reference": ""}, "no reference"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CARD, **change)
