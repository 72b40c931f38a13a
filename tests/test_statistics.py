import numpy as np
import pytest

from rota.statistics import (
    holm,
    paired_seeds,
    seeds_to_detect,
    sign_flip_p,
    smallest_detectable,
    student_t_quantile,
    student_t_within,
)

# Hours of sleep gained with each of two drugs by the same ten patients, from Student's paper of 1908.
FIRST_DRUG = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND_DRUG = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_students_own_example_comes_out_as_in_the_textbooks():
    found = paired_seeds(FIRST_DRUG, SECOND_DRUG)
    assert found.seeds == 10
    assert found.mean == pytest.approx(1.58)
    assert found.spread == pytest.approx(1.23, abs=0.001)
    assert found.interval == pytest.approx((0.7001, 2.4599), abs=1e-4)
    assert found.p_t == pytest.approx(0.002833, abs=1e-6)


@pytest.mark.parametrize(("freedom", "printed"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_t_quantiles_are_those_of_the_printed_tables(freedom, printed):
    assert student_t_quantile(0.05, freedom) == pytest.approx(printed, abs=5e-4)
    assert student_t_within(printed, freedom) == pytest.approx(0.95, abs=1e-4)


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_smallest_p_of_sign_flips_is_that_of_differences_of_one_sign(seeds):
    found = paired_seeds([10.0] * seeds, [10.0 + 0.1 * (seed + 1) for seed in range(seeds)])
    assert found.p_permutation == 2 / 2**seeds
    assert found.smallest_p == 2 / 2**seeds


def test_sign_flips_are_counted_by_hand():
    # 3, -1, 2 sum to 4. With the 3 kept positive: 3+1+2 = 6, 3+1-2 = 2, 3-1+2 = 4, 3-1-2 = 0; two of four reach 4.
    assert sign_flip_p([3.0, -1.0, 2.0]) == 0.5


def test_sign_flips_of_tenths_are_not_lost_to_rounding():
    # Sums with the first kept positive: 0.4, 0.2, 0, -0.2. Three reach 0.2, but 0.1 + 0.2 - 0.1 is 0.20000000000000004.
    assert sign_flip_p([0.1, 0.2, -0.1]) == 0.75


def test_many_seeds_are_flipped_at_random():
    assert sign_flip_p([1.0] * 20) == pytest.approx(1 / 100_001)
    mixed = np.array([1.0, -1.0] * 9 + [1.0, 1.0])  # 20 of +-1, sum 2: only a sum of 0 is nearer
    none_at_zero = 1 - 184_756 / 2**20  # 20 over 10
    assert sign_flip_p(mixed, rng=np.random.default_rng(1)) == pytest.approx(none_at_zero, abs=0.005)


def test_equal_systems_do_not_differ():
    found = paired_seeds([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (found.mean, found.spread, found.interval) == (0, 0, (0, 0))
    assert (found.p_t, found.p_permutation) == (1, 1)


def test_a_difference_without_spread_is_certain_for_the_t_test_alone():
    found = paired_seeds([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])
    assert found.p_t == 0
    assert found.p_permutation == 0.25


def test_what_could_have_been_seen_agrees_with_the_usual_sample_sizes():
    # A paired t test (two-sided, 0.05, power 0.8) needs 34 pairs for half a standard deviation and 10 for a whole one.
    assert smallest_detectable(1, 34) < 0.5 < smallest_detectable(1, 33)
    assert smallest_detectable(1, 10) < 1 < smallest_detectable(1, 9)
    assert smallest_detectable(3, 10) == pytest.approx(3 * smallest_detectable(1, 10))


@pytest.mark.parametrize(("effect", "seeds"), [(1.0, 10), (0.5, 34), (1.5, 6), (0.1, None)])
def test_seeds_are_those_of_tables_of_the_paired_t_test(effect, seeds):
    # two-sided 5 %, power 0.8: n of a paired t test by its standardised difference; 0.1 needs 787
    assert seeds_to_detect(effect, 1.0, most=200) == seeds
    assert seeds_to_detect(effect / 2, 0.5, most=200) == seeds


def test_a_correction_for_several_rows_needs_more_seeds():
    assert seeds_to_detect(1.0, 1.0, most=200, alpha=0.05 / 9) > seeds_to_detect(1.0, 1.0, most=200)


def test_holm_on_the_usual_example():
    # 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1, raised to what came before it.
    adjusted = holm({"az": 0.01, "be": 0.04, "gl": 0.03, "sk": 0.005})
    assert adjusted == pytest.approx({"az": 0.03, "be": 0.06, "gl": 0.06, "sk": 0.02})
    assert list(adjusted) == ["az", "be", "gl", "sk"]
    assert holm({"az": 0.9, "be": 0.8}) == {"az": 1.0, "be": 1.0}


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="2 scores against 1: give one of each"):
        paired_seeds([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="1 pair of runs; a test over seeds needs at least 2"):
        paired_seeds([1.0], [2.0])
    with pytest.raises(ValueError, match="needs at least 2"):
        smallest_detectable(1, 1)
    with pytest.raises(ValueError, match="alpha is 0"):
        student_t_quantile(0, 3)


def test_scipy_agrees():
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 3, 8, 25):
        for t in (0.0, 0.4, 2.5, 30.0):
            assert student_t_within(t, freedom) == pytest.approx(1 - 2 * stats.t.sf(t, freedom), abs=1e-12)
        critical = stats.t.ppf(0.975, freedom)
        assert student_t_quantile(0.05, freedom) == pytest.approx(critical)
        shift = smallest_detectable(1, freedom + 1) * (freedom + 1) ** 0.5
        assert stats.nct.cdf(critical, freedom, shift) == pytest.approx(0.2, abs=1e-4), "the other tail is nothing"
