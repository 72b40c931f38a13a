"""``rota advise``: effects worked out by hand from recorded sums, what follows from them, and what is not known."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from made_runs import LOW_RESOURCE, SIZES, everywhere, make_run
from matplotlib.text import Text

from rota.report.advice import advise, written
from rota.report.figures import advice as pictures
from rota.report.figures.advice import advice_figure
from rota.report.figures.drawing import finish
from rota.report.numbers.advice import Effect, Helper, Product, effects, goal_products, read_facts, trend
from rota.report.study import StudyRun

ARMS = list(SIZES)


def observation(step, **arms):
    """``arms``: the dot products of the updates of each with the goal's direction."""
    sums = {arm: [sum(values), sum(value**2 for value in values), len(values)] for arm, values in arms.items()}
    return {"step": step, "arm": "az", "alignment": sums}


def spot_check(step, epochs, gain=None, loss=None):
    gains = gain or dict.fromkeys(SIZES, 0.5)
    losses = loss or dict.fromkeys(SIZES, 2.0)
    return {
        "step": step,
        "source_gain": {arm: [value, 0.01] for arm, value in gains.items()},
        "train_loss": {arm: [value, 0.01] for arm, value in losses.items()},
        "dev_source_gain": {},
        "epochs": epochs,
    }


def alarm(kind, arm, step=10):
    return {"step": step, "kind": kind, "arm": arm, "text": "as training said it"}


# az helps always, tr hurts always, be is noise, ru was measured once.
MEASURED = [
    observation(step, az=[1.0 + 0.1 * (-1) ** step], tr=[-1.0 + 0.1 * (-1) ** step], be=[(-1.0) ** step])
    for step in range(1, 20)
] + [observation(20, ru=[5.0], az=[1.1])]
EPOCHS = {"az": 6.0, "be": 1.5, "tr": 0.5, "ru": 0.5}
FALLING = {step: dict.fromkeys(SIZES, 5 - 0.1 * step) for step in range(1, 13)}


def facts_of(tmp_path, name="run", **records):
    folder = make_run(tmp_path / name, **{"teacher": "align", "goal": "low-resource", **records})
    return read_facts(StudyRun(folder, name))


@pytest.fixture
def full(tmp_path):
    """A run that recorded everything."""
    gains = {"az": 0.5, "be": 0.5, "tr": 0.5, "ru": 0.0}
    return {
        "observations": MEASURED,
        "spot_checks": [spot_check(20, EPOCHS, gains)],
        "alarms": [alarm("by-heart", "az"), alarm("unaligned", "ru")],
        "dev_losses": FALLING,
    }


def test_an_effect_has_the_error_between_parts_of_the_run():
    # Ten steps, so that each is a part of its own: 1, 2, 1, 2, ...; the unit is the root mean square, sqrt(2.5).
    products = [Product(step, "az", value, value**2, 1) for step, value in enumerate([1.0, 2.0] * 5)]
    effect = effects(products, ["az"])["az"]
    unit = math.sqrt(2.5)
    assert effect.mean == pytest.approx(1.5 / unit)
    assert effect.error == pytest.approx(math.sqrt(10 * 0.25 * 10 / 9) / 10 / unit)
    assert effect.updates == 10
    assert effect.halves == pytest.approx((7 / 5 / unit, 8 / 5 / unit))
    assert effect.sure == "clear"


def test_updates_that_share_a_direction_do_not_count_as_many():
    """A hundred equal products in each of two parts are two measurements, not two hundred."""
    products = [Product(0, "az", 100.0, 100.0, 100), Product(9, "az", -50.0, 25.0, 100)]
    effect = effects(products, ["az"])["az"]
    # Part sums 100 and -50 around a mean of 0.25 a product: deviations of 75 each.
    unit = math.sqrt(125 / 200)
    assert effect.error == pytest.approx(math.sqrt(2 * 75**2 * 2) / 200 / unit)
    assert effect.sure == "unclear"
    assert not effect.turned, "the halves differ by less than their errors"


def test_what_is_likely_for_one_arm_need_not_be_for_many():
    """t = 2.5 with nine degrees of freedom: p = 0.034 for one arm, four times that for four."""
    shape = [1.0, -1.0] * 5
    spread = math.sqrt(10 / 9) / math.sqrt(10)  # standard error of the mean of the shape
    values = [each + 2.5 * spread for each in shape]
    one = [Product(step, "az", value, value**2, 1) for step, value in enumerate(values)]
    noise = [Product(s, arm, v, v**2, 1) for s, v in enumerate(shape) for arm in ("be", "tr", "ru")]
    assert effects(one, ["az"])["az"].p == pytest.approx(0.0339, abs=2e-4)
    assert effects(one, ["az"])["az"].sure == "clear"
    together = sorted(one + noise, key=lambda product: product.step)
    assert effects(together, ARMS)["az"].sure == "likely"


def test_products_of_other_teachers_count_by_the_goal():
    entries = [
        {"step": 10, "gradient_products": {"az": 0.5, "tr": {"az": 0.2, "be": 0.8, "tr": 99.0}}},
        {"step": 20, "gradient_products": {"tr": {"ru": 1.0}}},
    ]
    found = list(goal_products(entries, {"az": 0.75, "be": 0.25}))
    assert [(each.step, each.arm, each.updates) for each in found] == [(10, "az", 1), (10, "tr", 1)]
    assert found[1].total == pytest.approx(0.75 * 0.2 + 0.25 * 0.8)


def test_the_trend_is_the_line_through_the_last_third():
    losses = [9.0] * 8 + [2.0, 1.9, 1.8, 1.7]
    entries = [{"step": 10 * i, "dev_loss": {"az": loss}} for i, loss in enumerate(losses, start=1)]
    found = trend(entries, {"az": 1.0})
    assert (found.first, found.last, found.best_step) == (90, 120, 120)
    assert found.change == pytest.approx(-0.3)
    assert found.direction == "falling"
    rising = [{**entry, "dev_loss": {"az": -entry["dev_loss"]["az"]}} for entry in entries]
    assert trend(rising, {"az": 1.0}).direction == "rising"
    level = [{**entry, "dev_loss": {"az": 1.0}} for entry in entries]
    assert trend(level, {"az": 1.0}).direction == "level"
    assert trend(entries[:5], {"az": 1.0}) is None


def test_a_run_that_recorded_everything_is_told_what_to_do(tmp_path, full):
    facts = facts_of(tmp_path, **full)
    advice = advise(facts)
    found = {finding.kind: finding for finding in advice.findings}
    assert found["helps"].arms == ("az",)
    assert found["helps"].sure == "clear"
    assert found["hurts"].arms == ("tr",)
    assert found["no-effect"].arms == ("be",)
    assert found["by-heart"].arms == ("az",)
    assert "after 6.0 epochs" in found["by-heart"].text
    assert found["unaligned"].arms == ("ru",)
    assert "(0.00 nats per token against 0.50 in the others)" in found["unaligned"].text
    assert [finding.arms for finding in advice.of("collect")] == [("az",)]
    assert "Give tr a smaller share than its 25% of the tokens" in found["less"].text
    assert found["trend"].text.startswith("Its dev loss was still falling")
    (unknown,) = advice.unknown
    assert unknown.what == "whether ru helped or hurt the goal: updates on it were too rare to be measured twice"
    assert unknown.option.startswith("more training.steps, or a larger teacher.floor")


def test_many_arms_that_were_hardly_trained_on_are_counted_before_they_are_named(tmp_path, full):
    facts = facts_of(tmp_path, **full)
    rare = [replace(facts.arms[-1], arm=f"x{number}", effect=None) for number in range(9)]
    many = advise(replace(facts, arms=(facts.arms[0], *rare)))
    assert many.unknown[0].what == (
        "whether 9 of the 10 arms helped or hurt the goal: updates on them were too rare to be measured twice"
        f" ({', '.join(each.arm for each in rare)})"
    )


def test_text_that_helps_and_was_not_used_up_gets_a_larger_share_first(tmp_path, full):
    swapped = [{**entry, "alignment": {}} for entry in MEASURED]
    for before, entry in zip(MEASURED, swapped, strict=True):
        entry["alignment"] = {{"az": "tr", "tr": "az"}.get(arm, arm): sums for arm, sums in before["alignment"].items()}
    advice = advise(facts_of(tmp_path, **{**full, "observations": swapped}))
    assert [finding.arms for finding in advice.of("more")] == [("tr",)]
    assert not advice.of("collect"), "az is learned by heart but does not help"
    assert not advice.of("less"), "az hurts, but the goal is az: it must not be left out"


def test_text_whose_lines_are_not_aligned_is_not_to_be_collected(tmp_path, full):
    alarms = [alarm("by-heart", "az"), alarm("closed", "az")]
    advice = advise(facts_of(tmp_path, **{**full, "alarms": alarms}))
    assert not advice.of("collect")
    assert [finding.arms for finding in advice.of("unaligned")] == [("az",)]


def test_an_arm_that_caps_put_into_maintenance_is_learned_by_heart_too(tmp_path, full):
    advice = advise(facts_of(tmp_path, **{**full, "alarms": [alarm("maintenance", "az")]}))
    assert [finding.arms for finding in advice.of("by-heart")] == [("az",)]


def test_a_language_that_is_forgotten_is_named_with_its_dev_losses(tmp_path, full):
    losses = {step: {**losses, "az": 2.0 + abs(step - 3) / 10} for step, losses in FALLING.items()}
    records = {**full, "dev_losses": losses, "alarms": [alarm("forgetting", "az"), alarm("forgetting", "be")]}
    advice = advise(facts_of(tmp_path, **records))
    (finding,) = advice.of("forgotten")  # the dev loss of be fell to its lowest again
    assert finding.arms == ("az",)
    assert "its dev loss was 2.000 at its lowest and ended at 2.900" in finding.text
    assert "Forgotten\n- az was being forgotten" in written(advice)


def test_an_arm_that_helped_first_and_hurt_later_is_named(tmp_path, full):
    faded = [observation(step, az=[3.0 if step < 11 else -0.2], tr=[1.0]) for step in range(1, 21)]
    (finding,) = advise(facts_of(tmp_path, "faded", **{**full, "observations": faded})).of("turned")
    assert "az helped at first and hardly later" in finding.text, "-0.2 is within the error"
    facts = facts_of(tmp_path, **full)
    az = facts.arms[0]
    turned = replace(az, effect=az.effect._replace(mean=0.5, error=0.1, halves=(1.2, -0.2)))
    advice = advise(replace(facts, arms=(turned,)))
    (finding,) = advice.of("turned")
    assert finding.arms == ("az",)
    assert "helped first and hurt later" in finding.text


def test_a_run_that_recorded_little_says_what_would_have_recorded_it(tmp_path):
    advice = advise(facts_of(tmp_path, teacher="uniform", dev_losses={20: dict.fromkeys(SIZES, 4.0)}))
    assert not advice.findings
    options = [each.option for each in advice.unknown]
    assert options == ["teacher: {name: align, map: true}", "training.spot_checks: 0.01", "training.validate_every: 5%"]
    text = written(advice)
    assert "What helped" not in text
    assert "- Epochs, what was learned by heart, and whether lines are aligned: no sampled" in text
    assert "For the next run: training.spot_checks: 0.01" in text
    counted = facts_of(tmp_path, "counted", dev_losses={20: everywhere(4.0)}, epochs=everywhere(1.0))
    assert "- What was learned by heart, and whether lines are aligned: no sampled" in written(advise(counted))


def test_without_gradients_the_goals_own_text_is_to_be_collected_if_it_is_used_up(tmp_path, full):
    quiet = {key: value for key, value in full.items() if key != "observations"}
    checks = [spot_check(20, {"az": 2.0, "be": 5.0, "tr": 9.0, "ru": 0.1})]
    advice = advise(facts_of(tmp_path, **{**quiet, "spot_checks": checks}))
    collect = {finding.arms[0]: finding for finding in advice.of("collect")}
    assert list(collect) == ["be", "az"], "tr has no weight in the goal"
    assert collect["az"].sure == "likely", "it raised an alarm"
    assert collect["be"].sure == "unclear", "it has only epochs"
    assert set(collect) == set(LOW_RESOURCE)


def test_the_best_helper_of_each_language_of_the_goal(tmp_path):
    def mapped(step, sign):
        pairs = {"az": [[2.0, 2.0]], "tr": [[2.0 + sign, 5.0]], "ru": [[-2.0, 2.0]]}
        return {
            "step": step,
            "arm": "az",
            "alignment": {arm: [0.0, 0.0, 2, {"az": sums[0], "tr": [0.0, 0.0]}] for arm, sums in pairs.items()},
        }

    facts = facts_of(tmp_path, observations=[mapped(step, 0.1 * (-1) ** step) for step in range(1, 21)])
    assert [(helper.language, helper.arm) for helper in facts.helpers] == [("az", "tr")], "tr is not in the goal"
    assert "tr helps az most" in advise(facts).of("helper")[0].text


def test_the_best_of_several_arms_must_be_clear_after_correction(tmp_path):
    def mapped(step):
        values = {"tr": 1.0 + 0.1 * (-1) ** step, "ru": -1.0 + 0.1 * (-1) ** step}
        sums = {arm: [0.0, 0.0, 1, {"az": [value, value**2]}] for arm, value in values.items()}
        return {"step": step, "arm": "tr", "alignment": sums}

    few = facts_of(tmp_path, "few", observations=[mapped(step) for step in (1, 2)])
    assert not few.helpers, "of two measurements, 1.1 and 0.9, t is 10 and p 0.06, twice that for the better of two"
    enough = facts_of(tmp_path, "enough", observations=[mapped(step) for step in (1, 2, 3, 4)])
    assert [helper.arm for helper in enough.helpers] == ["tr"]


def test_many_languages_with_the_same_helper_share_a_line(tmp_path, full):
    facts = facts_of(tmp_path, **full)
    names = [f"l{number}" for number in range(12)]
    helpers = tuple(Helper(name, "be" if name == "l3" else "tr", 0.1 * n, 0.05) for n, name in enumerate(names, 1))
    lines = [finding.text for finding in advise(replace(facts, helpers=helpers)).of("helper")]
    most = "l0, l1, l2, l4, l5, l6, l7, l8, l9, l10, l11"
    assert lines == [
        f"Of the text of other languages, tr helps {most} most "
        "(+0.10 ± 0.05 to +1.20 ± 0.05 in the map of who helps whom).",
        "Of the text of other languages, be helps l3 most (+0.40 ± 0.05 in the map of who helps whom).",
    ]
    assert len(advise(replace(facts, helpers=helpers[:8])).of("helper")) == 8


def test_many_arms_without_an_effect_share_a_line(tmp_path, full):
    facts = facts_of(tmp_path, **full)
    effect = Effect(0.1, 0.2, 7, 0.6, "unclear", (0.1, 0.1))
    arms = tuple(replace(facts.arms[0], arm=f"l{n}", effect=effect._replace(updates=7 + n)) for n in range(9))
    (only,) = advise(replace(facts, arms=arms)).of("no-effect")
    assert only.arms == tuple(f"l{n}" for n in range(9))
    assert only.text == (
        "l0, l1, l2, l3, l4, l5, l6, l7, l8: neither help nor harm can be seen (7 to 15 measurements of each)."
    )


def test_a_run_that_is_not_finished_is_called_so(tmp_path, full):
    facts = facts_of(tmp_path, **full)
    assert "updates so far" in " ".join(written(advise(replace(facts, finished=False))).split())
    assert "updates so far" not in written(advise(facts))


def test_the_picture_shows_what_was_recorded(tmp_path, full):
    picture = advice_figure(facts_of(tmp_path, **full))
    for words in ("effect on", "the goal", "epochs", "source gain", "az*"):
        assert words in picture.svg
    assert "az +" in picture.alt
    plain = advice_figure(facts_of(tmp_path, "plain", teacher="uniform"))
    assert "effect on" not in plain.svg
    assert "% of the" in plain.svg
    assert "az 25%" in plain.alt


def test_titles_and_numbers_of_panels_do_not_run_together(tmp_path, full, monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "finish", lambda figure, **words: drawn.append(figure) or finish(figure, **words))
    nothing = {"az": -0.006, "be": 0.005, "tr": 0.0, "ru": 0.0}
    facts = facts_of(tmp_path, **{**full, "spot_checks": [spot_check(20, EPOCHS, nothing)]})
    advice_figure(replace(facts, arms=[replace(each, arm=f"{each.arm}-en.subtitles") for each in facts.arms]))
    (figure,) = drawn
    assert len(figure.axes) == 4
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
    boxes = [box_of(figure, lambda text, title=title: text.get_text() == title) for title in titles]
    gaps = [after.x0 - before.x1 for before, after in pairwise(boxes)]
    numbers = [label.get_window_extent() for label in figure.axes[-1].get_xticklabels()]
    gaps += [after.x0 - before.x1 for before, after in pairwise(numbers)]
    assert min(gaps) > 0


def box_of(figure, wanted):
    """Where the only text like this is."""
    (text,) = figure.findobj(lambda artist: isinstance(artist, Text) and wanted(artist))
    return text.get_window_extent()


def test_the_command_prints_words_or_json(tmp_path, rota, full):
    run = make_run(tmp_path / "run", teacher="align", goal="low-resource", **full)
    code, output, _ = rota("advise", run)
    assert code == 0
    assert "goal: az 50%, be 50%" in output
    assert "Collect more text like az" in output
    assert "advice.png; * counts in the goal" in " ".join(output.split())
    assert (run / "advice.png").read_bytes().startswith(b"\x89PNG")
    code, output, _ = rota("advise", run, "--json", "--picture", tmp_path / "new" / "picture.png")
    said = json.loads(output)
    assert code == 0
    assert said["picture"] == str(tmp_path / "new" / "picture.png")
    assert said["arms"]["tr"]["effect"]["sure"] == "clear"
    assert said["arms"]["ru"]["effect"] is None
    assert {finding["kind"] for finding in said["findings"]} >= {"helps", "hurts", "collect"}


def test_a_picture_of_another_kind_is_refused(tmp_path, rota, full):
    code, _, error = rota("advise", make_run(tmp_path / "run", **full), "--picture", tmp_path / "a.pdf")
    assert code == 2
    assert f"--picture {tmp_path}/a.pdf: the picture is a PNG; write for example --picture advice.png" in error
    assert not (tmp_path / "a.pdf").exists()


def test_a_run_that_has_not_begun_is_refused(tmp_path, rota):
    run = make_run(tmp_path / "run", done=0)
    code, _, error = rota("advise", run)
    assert code == 2
    assert "has no records of updates (steps.jsonl); train it first" in error
