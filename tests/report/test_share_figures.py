"""Which languages were trained on: which runs count, what the figures say, whether colours can be told apart."""

from itertools import combinations

import numpy as np
import pytest
from made_runs import make_run

from rota.report.figures.drawing import FAMILIES, NAMED, language_colours, line_colours
from rota.report.figures.shares import _joined, evolution, mean_shares, proportions
from rota.report.study import read_study

PAGES = ("#ffffff", "#13171c")  # light and dark, as in page.css


@pytest.fixture
def study(tmp_path):
    """Finished runs on az alone and half and half; one that began with tr; a row of which no run is finished."""
    make_run(tmp_path / "mine" / "seed-1", seed=1, arms=["az"])
    make_run(tmp_path / "mine" / "seed-2", seed=2, arms=["az", "be"])
    make_run(tmp_path / "mine" / "seed-3", seed=3, arms=["tr"], done=10)
    make_run(tmp_path / "begun" / "seed-1", seed=1, arms=["ru"], done=5)
    make_run(tmp_path / "begun" / "seed-2", seed=2, done=0)
    return read_study([tmp_path])


def test_shares_are_means_over_finished_runs_and_over_what_there_is_where_none_is(study):
    assert mean_shares(study.rows["mine"]) == {"az": 0.75, "be": 0.25, "tr": 0.0, "ru": 0.0}
    assert mean_shares(study.rows["begun"]) == {"az": 0.0, "be": 0.0, "tr": 0.0, "ru": 1.0}


def test_the_figure_of_proportions_says_which_runs_it_shows(study):
    picture = proportions(study, list(study.rows.values()))
    said = "Of begun (10%) no run is finished, so that what there is counts."
    assert "mean over the finished runs" in picture.caption
    assert said in picture.caption
    assert said in picture.alt
    assert "mine (10%): az 75%, be 25%, tr 0%, ru 0%" in picture.alt
    assert "no run is finished" not in proportions(study, [study.rows["mine"]]).caption


def test_the_legend_of_an_evolution_has_the_shares_of_the_whole_run(study):
    picture = evolution(study.rows["mine"])
    for label in ("az 75.0%", "be 25.0%", "tr 0.0%"):
        assert f">{label}</text>" in picture.svg
    assert "mean over 2 finished runs." in picture.caption
    assert "mean over 1 unfinished run." in evolution(study.rows["begun"]).caption


def test_an_evolution_can_be_drawn_in_fewer_windows(study):
    row = study.rows["mine"]
    assert "in windows of 1 steps" in evolution(row).caption
    fewer = evolution(row, 5)
    assert "in windows of 4 steps" in fewer.caption
    assert ">az 75.0%</text>" in fewer.svg
    assert _joined(np.array([1.0, 0.0, 0.5, 0.5, 0.9]), 2) == pytest.approx([0.5, 0.7])


def linear(colour):
    """Red, green and blue as light, 0 to 1, from sRGB."""
    written = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(written <= 0.04045, written / 12.92, ((written + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return linear(colour) @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def lab(light):
    """CIELAB under daylight (D65), where the distance of two colours is about how different they look."""
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ np.clip(light, 0, 1) / [0.9505, 1.0, 1.0888], 216 / 24389))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# How light looks to those who lack one kind of cone (Machado, Oliveira and Fernandes, 2009, severity 1).
EYES = {
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}


@pytest.mark.parametrize("eyes", EYES)
def test_colour_blind_readers_can_tell_all_languages_apart(eyes):
    seen = {arm: lab(np.array(EYES[eyes]) @ linear(colour)) for arm, colour in NAMED.items()}
    apart = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(seen, 2)}
    assert min(apart.values()) > 15, min(apart, key=apart.get)


def test_the_low_resource_language_is_the_dark_one_of_its_family_as_in_the_paper():
    assert list(FAMILIES) == [("az", "tr"), ("be", "ru"), ("gl", "pt"), ("sk", "cs")]
    colours = language_colours([arm for family in FAMILIES for arm in family])
    for low, high in FAMILIES:
        assert contrast(colours[low], colours[high]) > 2
        assert luminance(colours[low]) < luminance(colours[high])
    red, _, blue = linear(colours["az"])
    assert red > 5 * blue, "Section 5.3: az dark orange"


def test_lines_of_languages_stand_out_from_both_pages():
    for colour in line_colours(list(NAMED)).values():
        assert all(contrast(colour, page) >= 3 for page in PAGES), colour


def test_a_language_without_a_family_takes_no_colour_of_those_that_have_one():
    colours = language_colours(["be", "ru", "cs", "de", "fr"])
    assert len(set(colours.values())) == 5
