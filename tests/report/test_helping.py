"""Who helps whom: means and errors worked out by hand from recorded sums, the picture, and the command."""

import json
import math
import re

import numpy as np
import pytest
from made_runs import make_run

from rota.report.figures.helping import _relatives_together, draw_maps, help_figure
from rota.report.numbers.helping import HelpMap, effects_on_others, help_maps
from rota.report.study import StudyRun


def entry(step, **arms):
    """Dot products of each arm's updates with the directions of az and tr."""
    alignment = {}
    for arm, pairs in arms.items():
        az, tr = zip(*pairs, strict=True)
        both = {"az": [sum(az), sum(u * u for u in az)], "tr": [sum(tr), sum(u * u for u in tr)]}
        alignment[arm] = [0.0, 0.0, len(pairs), both]
    return {"step": step, "arm": "az", "alignment": alignment}


OBSERVATIONS = [
    {"step": 5, "arm": "az", "dev_loss": {"az": 3.0}},
    entry(10, az=[(3.0, -1.0), (1.0, 1.0)], tr=[(-1.0, 2.0)]),
    entry(20, az=[(2.0, 0.0)], tr=[(-1.0, 2.0)], be=[(9.0, 9.0)]),
    entry(30, tr=[(0.0, 4.0), (-2.0, 4.0)]),
]


def test_means_and_errors_in_units_of_a_typical_product():
    (found,) = help_maps(OBSERVATIONS, ["az", "be", "tr", "ru"])
    assert (found.first, found.last) == (10, 30)
    assert (found.arms, found.languages) == (("az", "be", "tr", "ru"), ("az", "tr"))
    # Products with az: 3, 1, 2 of az, 9 of be, -1, -1, 0, -2 of tr: eight, whose squares sum to 14 + 81 + 6 = 101.
    unit = math.sqrt(101 / 8)
    assert found.means[0, 0] == pytest.approx(2 / unit)
    assert found.errors[0, 0] == pytest.approx(1 / math.sqrt(3) / unit)
    assert found.means[2, 0] == pytest.approx(-1 / unit)
    assert found.errors[2, 0] == pytest.approx(math.sqrt(2 / 3 / 4) / unit)
    assert np.isnan(found.means[1]).all(), "a single update has no error"
    assert np.isnan(found.means[3]).all(), "never played"
    assert found.sure.tolist() == [[True, False], [False, False], [True, True], [False, False]]


def test_effects_on_others_are_the_certain_ones_the_largest_first():
    (found,) = help_maps(OBSERVATIONS, ["az", "be", "tr", "ru"])
    # Of the certain ones above, az on az and tr on tr are effects on the own language.
    assert [(arm, language) for _, arm, language in effects_on_others(found)] == [("tr", "az")]
    means = np.array([[0.0, 0.5, 0.2], [-0.3, 0.0, np.nan], [0.1, 0.4, 0.0]])
    several = HelpMap(1, 2, ("a", "b", "c"), ("a", "b", "c"), ("a", "b", "c"), means, np.full((3, 3), 0.1), np.ones(3))
    assert effects_on_others(several) == [(0.5, "a", "b"), (0.4, "c", "b"), (0.2, "a", "c"), (-0.3, "b", "a")]


def test_a_run_is_divided_into_spans_of_equal_length():
    first, second = help_maps(OBSERVATIONS, ["az", "tr"], parts=2)
    assert (first.first, first.last, second.first, second.last) == (10, 20, 30, 30)
    assert second.means[1, 1] == pytest.approx(1.0), "the only arm: 4, 4 in units of 4"


def test_a_run_without_directions_of_languages_has_no_map():
    plain = {"step": 10, "arm": "az", "alignment": {"az": [1.0, 1.0, 1]}}
    assert help_maps([plain, OBSERVATIONS[0]], ["az"]) == []


def test_columns_have_the_order_of_the_rows():
    (found,) = help_maps(OBSERVATIONS, ["tr", "az"])
    assert found.languages == ("tr", "az")


def test_plain_values_have_null_where_nothing_is_known():
    (found,) = help_maps(OBSERVATIONS, ["be", "tr"])
    written = json.loads(json.dumps(found.as_json()))
    assert written["means"][0] == [None, None]
    assert written["languages"] == ["tr", "az"]


def test_the_picture_says_who_helps_most():
    picture = draw_maps(help_maps(OBSERVATIONS, ["az", "be", "tr"], parts=2), "map", "Who helps whom")
    assert "az by tr" in picture.alt, "in the second half only tr was played"
    shown = (
        "helps or hurts the dev loss of",
        "training on",
        "helps:",
        "it falls",
        "hurts:",
        "it rises",
        "steps 10 to 20",
    )
    for words in (*shown, "own text", "may be chance", "what happens"):
        assert words in picture.svg
    assert picture.png.startswith(b"\x89PNG")


def map_of(count):
    """Arms that help their own language by 1 and that of the next but ``count // 2`` by 0.5; all else is 0 ± 0.1."""
    names = tuple(f"x{number}" for number in range(count))
    means = np.eye(count) + 0.5 * np.roll(np.eye(count), count // 2, axis=1)
    return HelpMap(1, 9, names, names, names, means, np.full((count, count), 0.1), np.full(count, 5.0))


def test_sixty_languages_have_a_larger_picture_without_numbers():
    many, few = (draw_maps([map_of(count)], "map", "Who helps whom") for count in (60, 20))
    assert "+0.50" in few.svg
    assert "+0.50" not in many.svg
    assert "white: may be chance" in many.svg
    assert "Arms with similar effects are beside each other" in many.caption
    width, height = (float(size) for size in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', many.svg).groups())
    assert width > 60 * 8, "a column is wider than its label of 7 points is high"
    assert height > 60 * 8
    assert all(f">x{number}<" in many.svg for number in range(60))


def test_in_a_large_picture_arms_with_similar_effects_are_beside_each_other_and_cells_keep_their_names():
    """x0 and x30 help both of their languages, x1 and x31 too, and so on."""
    before = map_of(60)
    after = _relatives_together(before, before)
    assert after.arms[:4] == ("x0", "x30", "x1", "x31")
    assert after.languages == after.arms == after.own
    for arm, language in (("x0", "x30"), ("x30", "x0"), ("x7", "x7"), ("x7", "x8")):
        cell = after.arms.index(arm), after.languages.index(language)
        assert after.means[cell] == before.means[before.arms.index(arm), before.languages.index(language)]


def test_a_report_draws_the_first_seed_that_has_a_map(tmp_path):
    class Rows:
        name, short = "align", "align"

    folders = {seed: make_run(tmp_path / str(seed), seed=seed, teacher="align") for seed in (1, 2)}
    (folders[2] / "observations.jsonl").write_text("".join(json.dumps(each) + "\n" for each in OBSERVATIONS))
    row = Rows()
    row.runs = {seed: StudyRun(folder, "align") for seed, folder in folders.items()}
    assert "(seed 2)" in help_figure(row).caption
    row.runs = {1: row.runs[1]}
    assert help_figure(row) is None


def test_the_command_shows_the_map_of_a_run(tmp_path, rota):
    run = make_run(tmp_path / "run", teacher="align", observations=OBSERVATIONS)
    code, output, _ = rota("policy", run)
    assert code == 0
    assert "who helps (+) or hurts (-) whose dev loss, steps 10 to 30" in output
    assert (run / "policy" / "who-helps-whom.png").is_file()
    assert json.loads((run / "policy" / "who-helps-whom.json").read_text())["last"] == 30
    code, _, error = rota("report", run, "--out", tmp_path / "report")
    assert code == 0, f"the map is not a probe of a Q network: {error}"


def test_a_run_without_a_map_says_how_to_get_one(tmp_path, rota):
    run = make_run(tmp_path / "run", teacher="align")
    code, _, error = rota("policy", run)
    assert code == 2
    assert "has recorded no map of who helps whom; train with map: true in its teacher" in error
