"""Many rows at once: the pooled model against statsmodels and by hand, Dunnett against scipy, regret, equal time."""

import numpy as np
import pytest

from rota.statistics import (
    common_time,
    largest_normals,
    many_to_one_p,
    many_to_one_quantile,
    paired_seeds,
    pooled_comparison,
    regrets,
    value_at,
)

# Dev losses with a seed missing in three of four rows.
LOSSES = {
    "uniform": {1: 2.31, 2: 2.36, 3: 2.29, 4: 2.40},
    "tscl": {1: 2.35, 2: 2.38, 3: 2.36},
    "dqn": {1: 2.28, 2: 2.39, 4: 2.37},
    "temperature": {2: 2.31, 3: 2.27, 4: 2.33},
}


def test_estimates_and_errors_with_missing_seeds_are_those_of_statsmodels():
    found = pooled_comparison(LOSSES, "uniform")
    # statsmodels 0.15.0: OLS(loss ~ C(row) + C(seed)), params and bse of the rows, df_resid.
    assert {row: each.difference for row, each in found.items()} == pytest.approx(
        {"tscl": 0.03806818, "dqn": -0.00318182, "temperature": -0.04943182}, abs=1e-8
    )
    for each in found.values():
        assert each.error == pytest.approx(0.01726899, abs=1e-8)
        assert each.freedom == pytest.approx(6)


def test_a_balanced_layout_is_worked_out_by_hand():
    # Seeds 10, 20 and 30; rows +0, +3 and +6; noise in the corners of two rows.
    values = {"a": {1: 11.0, 2: 20.0, 3: 29.0}, "b": {1: 12.0, 2: 23.0, 3: 34.0}, "c": {1: 16.0, 2: 26.0, 3: 36.0}}
    found = pooled_comparison(values, "a")
    # The residuals are 1, 0, -1 and -1, 0, 1 and 0: their squares sum to 4, over (3 - 1) * (3 - 1) degrees of freedom.
    assert (found["b"].difference, found["c"].difference) == pytest.approx((3, 6))
    assert found["b"].error == pytest.approx((1 * 2 / 3) ** 0.5)
    assert found["b"].freedom == pytest.approx(4)
    assert sum(found["c"].interval) / 2 == pytest.approx(6)


def test_two_rows_are_the_paired_t_test():
    baseline, system = {1: 3.0, 2: 5.0, 3: 4.0, 4: 6.0}, {1: 3.5, 2: 5.1, 3: 4.9, 4: 6.3}
    found = pooled_comparison({"a": baseline, "b": system}, "a")["b"]
    paired = paired_seeds(list(baseline.values()), list(system.values()))
    assert found.difference == pytest.approx(paired.mean)
    assert found.freedom == pytest.approx(3)
    assert found.p == pytest.approx(paired.p_t, abs=1e-3)
    assert found.interval == pytest.approx(paired.interval, abs=5e-3)
    # Which of two rows the noise belongs to cannot be told: the same error then, but Satterthwaite's freedom.
    own = pooled_comparison({"a": baseline, "b": system}, "a", own_variance=["b"])["b"]
    assert own.error == pytest.approx(found.error)


def test_a_noisy_row_does_not_blur_the_others_if_it_has_its_own_variance():
    rng = np.random.default_rng(1)
    seeds = range(200)
    spread = {"uniform": 1.0, "proportional": 1.0, "temperature": 1.0, "dqn": 5.0}
    values = {row: dict(zip(seeds, rng.normal(0, sd, size=200), strict=True)) for row, sd in spread.items()}
    pooled, own = pooled_comparison(values, "uniform"), pooled_comparison(values, "uniform", own_variance=["dqn"])
    assert pooled["dqn"].error == pytest.approx(pooled["proportional"].error)
    # The standard error of a difference of means of 200: sqrt((1 + 1) / 200), sqrt((25 + 1) / 200). Seed effects that
    # are estimated with the noisy row cancel in a balanced layout.
    assert own["proportional"].error == pytest.approx((2 / 200) ** 0.5, rel=0.05)
    assert own["dqn"].error == pytest.approx((26 / 200) ** 0.5, rel=0.1)


def test_rows_that_nothing_links_to_the_baseline_are_left_out():
    values = {"a": {1: 1.0, 2: 2.0}, "b": {1: 2.0, 2: 2.5}, "alone": {7: 1.0, 8: 2.0}, "empty": {}}
    assert list(pooled_comparison(values, "a")) == ["b"]
    assert pooled_comparison({"a": {1: 1.0}, "b": {1: 2.0}}, "a") == {}, "one seed leaves nothing for the noise"
    assert pooled_comparison({"a": {1: 1.0, 2: 3.0}}, "a") == {}
    with pytest.raises(ValueError, match="the baseline 'z' is not one of the rows a, b"):
        pooled_comparison({"a": {}, "b": {}}, "z")


def test_differences_without_noise_are_certain():
    values = {"a": {1: 1.0, 2: 2.0}, "b": {1: 1.5, 2: 2.5}, "c": {1: 1.0, 2: 2.0}}
    found = pooled_comparison(values, "a")
    assert found["b"].difference == pytest.approx(0.5)
    assert (found["b"].p, found["c"].p) == (0, 1)


def test_dunnett_of_the_printed_tables():
    # Two-sided 5 % points for equally large groups (correlation 0.5), as in every textbook: K rows, degrees of freedom.
    for rows, freedom, printed in ((2, 10, 2.57), (3, 20, 2.54), (9, 20, 2.95), (5, 60, 2.58)):
        correlation = np.full((rows, rows), 0.5) + 0.5 * np.eye(rows)
        assert many_to_one_quantile(0.05, largest_normals(correlation), freedom) == pytest.approx(printed, abs=0.01)


@pytest.mark.parametrize("sizes", [(4, 3), (5, 5, 5), (10, 4, 6, 3), (5,) * 8])
def test_dunnett_of_one_way_layouts_is_that_of_scipy(sizes):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    groups = [rng.normal(0.4 * index, 1, size=size) for index, size in enumerate(sizes)]
    theirs = stats.dunnett(*groups[1:], control=groups[0], random_state=np.random.default_rng(1))
    loadings = np.sqrt([size / (size + sizes[0]) for size in sizes[1:]])
    correlation = np.outer(loadings, loadings)
    np.fill_diagonal(correlation, 1)
    largest, freedom = largest_normals(correlation), sum(sizes) - len(sizes)
    ours = [many_to_one_p(abs(t), largest, freedom) for t in theirs.statistic]
    assert ours == pytest.approx(list(theirs.pvalue), abs=1e-3)


def test_regret_is_the_mean_distance_to_the_best_row_of_each_corpus():
    values = {
        "ted": {"uniform": {1: 20.0, 2: 22.0}, "dqn": {1: 24.0, 2: 26.0}, "tscl": {1: 23.0, 2: 23.0}},
        "debian": {"uniform": {1: 30.0, 2: 30.0}, "dqn": {1: 29.0, 2: 29.0}, "tscl": {1: 29.5, 2: 29.5, 9: 0.0}},
    }
    found = regrets(values, higher_is_better=True)
    # ted: means 21, 25, 23; debian: 30, 29, 29.5 (seed 9 has no partner).
    assert {row: each.mean for row, each in found.items()} == {"uniform": 2.0, "dqn": 0.5, "tscl": 1.25}
    assert found["tscl"].by_corpus == {"ted": 2.0, "debian": 0.5}
    # Resampled seeds of ted are 1 1, 1 2 or 2 2; uniform is always 4 behind there, tscl 1, 2 or 3.
    assert found["uniform"].interval == (2.0, 2.0)
    assert found["tscl"].interval == (0.75, 1.75)
    losses = regrets(values, higher_is_better=False)
    assert losses["dqn"].by_corpus == {"ted": 4.0, "debian": 0.0}
    with pytest.raises(ValueError, match="no row is in all of ted, debian"):
        regrets({"ted": {"a": {1: 1.0}}, "debian": {"b": {1: 1.0}}}, higher_is_better=True)
    with pytest.raises(ValueError, match="the rows of ted have no seed in common"):
        regrets({"ted": {"a": {1: 1.0}, "b": {2: 1.0}}}, higher_is_better=True)


def test_rows_with_few_seeds_are_compared_under_the_seeds_that_they_have():
    # Seed 2 is hard: the mean of b's one seed would put it ahead of a, which is better by 1 wherever both were run.
    values = {"one": {"a": {1: 3.0, 2: 5.0}, "b": {1: 4.0}, "c": {1: 5.0, 2: 7.0}}}
    found = regrets(values, higher_is_better=False)
    assert {row: each.mean for row, each in found.items()} == pytest.approx({"a": 0, "b": 1, "c": 2})
    assert all(each.adjusted for each in found.values())
    assert not any(
        each.adjusted for each in regrets({"one": {"a": {1: 1.0}, "b": {1: 2.0}}}, higher_is_better=True).values()
    )


def test_the_model_of_regret_is_that_of_the_pooled_comparison():
    found = regrets({"one": UNBALANCED}, higher_is_better=False)
    pooled = pooled_comparison(UNBALANCED, "uniform")
    for row, each in pooled.items():
        assert found[row].mean - found["uniform"].mean == pytest.approx(each.difference)
    # Two rows: the regret of the worse one is their difference, and its interval that of a normal.
    two = {"a": {1: 0.0, 2: 0.1, 3: 0.2, 4: 0.0}, "b": {1: 1.0, 2: 1.2, 3: 1.1}, "c": {4: 0.5, 3: 0.7}}
    each, theirs = regrets({"one": two}, higher_is_better=False)["b"], pooled_comparison(two, "a")["b"]
    reach = 1.96 * theirs.error
    assert each.interval == pytest.approx((theirs.difference - reach, theirs.difference + reach), abs=0.01)


def test_curves_are_read_at_a_time_that_all_reach():
    slow, fast = [10.0, 20.0, 40.0], [5.0, 10.0, 15.0]
    assert common_time([slow, fast]) == 15
    assert value_at(slow, [4.0, 3.0, 2.0], 15) == 3.5
    assert value_at(fast, [4.0, 3.0, 2.5], 15) == 2.5
    assert value_at(slow, [4.0, 3.0, 2.0], 9) is None
    assert value_at(fast, [4.0, 3.0, 2.5], 16) is None
    assert common_time([slow, [1.0, 2.0]]) is None, "it ended before the other had its first value"
    assert common_time([slow, []]) is None
    with pytest.raises(ValueError, match="2 times for 1 values"):
        value_at([1.0, 2.0], [1.0], 1)
    with pytest.raises(ValueError, match="must not fall"):
        value_at([2.0, 1.0], [1.0, 1.0], 1)


UNBALANCED = {
    "uniform": {1: 2.31, 2: 2.42, 3: 2.28, 4: 2.50},
    "t5": {1: 2.22, 2: 2.35, 3: 2.25},
    "dqn": {1: 2.40, 3: 2.21, 4: 2.66},
    "tscl": {1: 2.35, 2: 2.43, 3: 2.30, 4: 2.49},
}


def test_the_pooled_model_is_that_of_statsmodels_also_where_runs_are_missing():
    # statsmodels 0.15: ols("value ~ C(row, Treatment('uniform')) + C(seed)"), params, bse and df_resid.
    theirs = {"t5": (-0.05475, 0.0482033453), "dqn": (0.05775, 0.0482033453), "tscl": (0.015, 0.0435521034)}
    found = pooled_comparison(UNBALANCED, "uniform")
    for row, (difference, error) in theirs.items():
        assert (found[row].difference, found[row].error) == pytest.approx((difference, error), abs=1e-9)
        assert found[row].freedom == pytest.approx(7)


def test_dunnett_in_the_pooled_model_is_the_multivariate_t_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(5)
    values = {str(row): dict(enumerate(rng.normal(0.6 * row, 1, size=5))) for row in range(4)}
    table = np.array([list(by_seed.values()) for by_seed in values.values()])
    # The two-way layout by hand: mean square of the residuals over (4 - 1) * (5 - 1) degrees of freedom.
    residuals = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    error = (2 * (residuals**2).sum() / 12 / 5) ** 0.5
    shape = np.full((3, 3), 0.5) + 0.5 * np.eye(3)  # differences from one baseline share half of their variance
    for row, found in pooled_comparison(values, "0").items():
        t = (table[int(row)] - table[0]).mean() / error
        within = stats.multivariate_t.cdf([abs(t)] * 3, shape=shape, df=12, lower_limit=[-abs(t)] * 3, random_state=1)
        assert found.error == pytest.approx(error)
        assert found.p == pytest.approx(1 - within, abs=2e-3)


def test_rows_with_their_own_variance_have_satterthwaites_freedom():
    """Two static rows and a learned one under the same seeds, worked out from sums of squares."""
    rng = np.random.default_rng(2)
    table = np.array([rng.normal(0, 1, 6), rng.normal(0, 1, 6), rng.normal(0, 4, 6)])
    values = {name: dict(enumerate(row)) for name, row in zip(("a", "b", "learned"), table, strict=True)}
    found = pooled_comparison(values, "a", own_variance=["learned"])
    # The difference of the static rows has twice their variance; the learned row minus their mean, its own plus half.
    static = np.var(table[0] - table[1], ddof=1) / 2
    learned = np.var(table[2] - table[:2].mean(axis=0), ddof=1) - static / 2
    assert found["b"].error == pytest.approx((2 * static / 6) ** 0.5)
    assert found["learned"].error == pytest.approx(((static + learned) / 6) ** 0.5)
    assert found["learned"].freedom < found["b"].freedom * 2


@pytest.mark.slow
def test_the_chance_of_any_false_alarm_is_five_percent_with_a_noisy_learned_row():
    rng = np.random.default_rng(3)
    alarms = {True: 0, False: 0}
    for _ in range(400):
        seed = rng.normal(0, 2, size=6)
        spread = {"uniform": 1.0, "t2": 1.0, "t5": 1.0, "dqn": 3.0}
        values = {row: dict(enumerate(seed + rng.normal(0, sd, size=6))) for row, sd in spread.items()}
        for own in alarms:
            found = pooled_comparison(values, "uniform", own_variance=["dqn"] if own else [])
            alarms[own] += min(each.p for each in found.values()) < 0.05
    assert alarms[True] / 400 <= 0.07
    assert alarms[False] > alarms[True], "one variance for all is wrong about the noisy row"
