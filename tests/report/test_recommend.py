"""Which schedule a report recommends, how sure it is, and what it says when it cannot tell."""

import pytest
from made_runs import everywhere, make_run, make_suite

from rota.report.assemble import make_report
from rota.report.recommend import recommendation
from rota.report.study import read_study


def study_of(folder, losses, chrf=None, learned=(), baseline="uniform"):
    """Rows by name, with the dev loss (and chrF) of each seed; learned ones have scores of the languages."""
    make_suite(folder, {name: {"label": name} for name in losses}, seeds=[])
    for name, by_seed in losses.items():
        for seed, loss in enumerate(by_seed, start=1):
            scores = {} if chrf is None else {"chrf": everywhere(chrf[name][seed - 1])}
            decisions = {step: {"scores": everywhere(1.0)} for step in range(1, 21)} if name in learned else {}
            make_run(
                folder / name / f"seed-{seed}",
                seed=seed,
                teacher=name.partition("-")[0],
                dev_losses={20: everywhere(loss)},
                scores=scores,
                decisions=decisions,
            )
    found = read_study([folder])
    return found, found.baseline(baseline)


UNIFORM = (4.0, 4.1, 3.9, 4.05)
BETTER = (3.51, 3.6, 3.42, 3.55)  # by 0.5, 0.01 more or less
NOISY = (3.7, 4.3, 3.6, 4.2)  # by -0.3, 0.2, -0.3, 0.15: no one knows
WORSE = (4.51, 4.6, 4.42, 4.55)


def test_a_schedule_that_is_shown_to_be_better_is_named_with_its_evidence(tmp_path):
    first, *_, limits = recommendation(*study_of(tmp_path, {"uniform": UNIFORM, "late": BETTER, "tscl": NOISY}))
    assert first.startswith(
        "Use late (warm-up 10%): its dev loss minus that of uniform (warm-up 10%) is \N{MINUS SIGN}0.49"
    )
    assert "4 seeds, p " in first
    assert "after Holm's correction for 2 other schedules" in first
    assert limits.startswith("This is about the corpus synthetic, preset tiny and 20 updates")


def test_equals_are_named_and_the_simple_one_among_them(tmp_path):
    also = tuple(loss + 0.004 * (seed % 2) for seed, loss in enumerate(BETTER))
    losses = {"uniform": UNIFORM, "dqn": BETTER, "late": also}
    answer = recommendation(*study_of(tmp_path, losses, learned=["dqn"]))
    assert answer[1] == (
        "late (warm-up 10%) is also shown to be better, and cannot be told apart from it; the simplest of them is late "
        "(warm-up 10%)."
    )


def test_it_says_when_it_cannot_tell_and_how_many_seeds_would(tmp_path):
    first, second, *_ = recommendation(*study_of(tmp_path, {"uniform": UNIFORM, "tscl": NOISY}))
    assert first == (
        "Cannot tell which is best: no other schedule is shown to be better than uniform (warm-up 10%) (1 compared, by "
        "dev loss). Use uniform (warm-up 10%): there is no reason yet to prefer another."
    )
    # differences -0.3, 0.2, -0.3, 0.15: mean -0.0625, standard deviation 0.276; n for d = 0.227 is about 155
    assert second.startswith("The one furthest ahead is tscl (warm-up 10%): \N{MINUS SIGN}0.062 [")
    assert "it would take about 15" in second
    assert "more than there are" in second


def test_a_difference_that_is_next_to_nothing_needs_too_many_seeds(tmp_path):
    barely = tuple(loss - 0.001 + 0.3 * (-1) ** seed for seed, loss in enumerate(UNIFORM))
    answer = recommendation(*study_of(tmp_path, {"uniform": UNIFORM, "tscl": barely}))
    assert "it would take more than 200 seeds to show it with probability 0.8." in answer[1]


def test_what_is_worse_is_named(tmp_path):
    answer = recommendation(*study_of(tmp_path, {"uniform": UNIFORM, "late": WORSE}))
    assert "No other schedule was even ahead of it on average." in answer
    [worse] = [
        sentence for sentence in answer if sentence.startswith("Shown to be worse than uniform (warm-up 10%): late")
    ]
    assert "+0.5" in worse


def test_numbers_that_say_the_opposite_are_not_kept_back(tmp_path):
    chrf = {"uniform": (30.0, 31.0, 29.0, 30.5), "late": (25.1, 26.0, 24.0, 25.4)}
    answer = recommendation(*study_of(tmp_path, {"uniform": UNIFORM, "late": BETTER}, chrf))
    [other] = [sentence for sentence in answer if sentence.startswith("But other numbers of late")]
    assert "chrF \N{MINUS SIGN}5.00" in other


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds_are_not_enough(tmp_path, seeds):
    losses = {"uniform": UNIFORM[:seeds], "late": BETTER[:seeds]}
    [answer] = recommendation(*study_of(tmp_path, losses))
    assert answer.startswith(f"Cannot tell yet: with {seeds} seed")
    assert "Use uniform (warm-up 10%)" in answer


def test_one_schedule_is_nothing_to_choose_from(tmp_path):
    [answer] = recommendation(*study_of(tmp_path, {"uniform": UNIFORM}))
    assert answer == "There is nothing to recommend yet: it takes finished runs of two schedules."


def test_when_in_doubt_it_does_not_fall_back_on_a_learned_baseline(tmp_path):
    found, baseline = study_of(
        tmp_path, {"dqn": NOISY, "late": UNIFORM, "uniform": UNIFORM}, learned=["dqn"], baseline="dqn"
    )
    assert "Use uniform (warm-up 10%)" in recommendation(found, baseline)[0]


def test_the_report_ends_with_it(tmp_path, rota):
    study_of(tmp_path / "suite", {"uniform": UNIFORM, "late": BETTER})
    made = make_report([tmp_path / "suite"], tmp_path / "report")
    assert made.recommendation[0].startswith("Use late")
    page = made.page.read_text(encoding="utf-8")
    assert (
        page.index('<section id="costs">')
        < page.index('<section id="recommendation">')
        < page.index('<section id="making">')
    )
    code, output, _ = rota("report", str(tmp_path / "suite"), "--out", str(tmp_path / "again"))
    assert code == 0
    assert output.index("Use late") > output.index("late (warm-up 10%) minus uniform")
