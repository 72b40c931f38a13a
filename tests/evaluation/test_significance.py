"""Resampling checked by hand where the test set is small, and against sacreBLEU where it is not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from rota.evaluation.metrics import bleu_of_sums, chrf_of_sums, make_metric, score, sentence_counts
from rota.evaluation.significance import (
    Paired,
    paired_bootstrap,
    paired_randomisation,
)

WORDS = ["the", "a", "cat", "dog", "mat", "hill", "sat", "ran", "on", "over", "and", "under", "red", "small", "house"]
AZ = {"az": ["az"]}
BOTH = {"az": ["az"], "both": ["az", "be"]}


def sentences(number, seed=1):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(4, 12))) for _ in range(number)]


def spoiled(lines, share, seed):
    """Each word is replaced with a probability."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < share else word for word in line.split()) for line in lines]


def means(baseline, system, references=()):
    """Counts of a metric that is a mean over sentences, for one pair of runs."""
    counts = (np.stack([[values], np.ones((1, len(values)))], axis=-1) for values in (baseline, system))
    return Paired(*counts, references)


def test_counts_of_a_sentence_are_those_of_bleu():
    counts = sentence_counts("bleu", ["a b c d e"], ["a b c d f g"])
    assert counts.tolist() == [[5, 6, 4, 3, 2, 1, 5, 4, 3, 2]]


def test_bleu_of_sums_is_what_the_formula_gives():
    # Precisions 4/5, 3/4, 2/3, 1/2 and a brevity penalty of exp(1 - 6/5).
    found = bleu_of_sums(np.array([5.0, 6, 4, 3, 2, 1, 5, 4, 3, 2]))
    assert found == pytest.approx(100 * np.exp(-0.2) * 0.2**0.25)


def test_orders_without_a_match_are_halved_each_time():
    # Precisions 2/4, then 1/2 of 1/3, 1/4 of 1/2, 1/8 of 1/1.
    found = bleu_of_sums(np.array([4.0, 4, 2, 0, 0, 0, 4, 3, 2, 1]))
    assert found == pytest.approx(100 * (1 / 2 * 1 / 6 * 1 / 8 * 1 / 8) ** 0.25)


def test_nothing_in_common_scores_nothing():
    assert bleu_of_sums(np.array([4.0, 4, 0, 0, 0, 0, 4, 3, 2, 1])) == 0
    assert bleu_of_sums(np.array([2.0, 2, 2, 1, 0, 0, 2, 1, 0, 0])) == 0, "no four words anywhere"
    assert bleu_of_sums(np.zeros(10)) == 0
    assert chrf_of_sums(np.zeros(18)) == 0


LINES = st.lists(st.lists(st.sampled_from(["a", "b", "c", "dd"]), max_size=7).map(" ".join), min_size=1, max_size=4)


@given(hypotheses=LINES, references=LINES)
@settings(max_examples=50)
@pytest.mark.parametrize(("metric", "of_sums"), [("bleu", bleu_of_sums), ("chrf", chrf_of_sums)])
def test_scores_of_sums_are_those_of_sacrebleu(metric, of_sums, hypotheses, references):
    shorter = min(len(hypotheses), len(references))
    texts = hypotheses[:shorter], references[:shorter]
    expected = make_metric(metric).corpus_score(texts[0], [texts[1]]).score
    assert of_sums(sentence_counts(metric, *texts).sum(axis=0)) == pytest.approx(expected, abs=1e-9)


def sacrebleu_p(metric, test, samples, baseline, system, references):
    """The p value of sacreBLEU's own paired test: ``bs`` or ``ar``."""
    systems = [("baseline", baseline), ("system", system)]
    test = PairedTest(systems, {metric: make_metric(metric)}, [references], test, n_samples=samples, n_jobs=1)
    signatures, scores = test()
    return scores[next(iter(signatures))][1].p_value


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_one_language_is_resampled_as_by_sacrebleu(metric):
    references = sentences(60)
    baseline, system = spoiled(references, 0.3, seed=2), spoiled(references, 0.2, seed=3)
    texts = baseline, system, references
    paired = {"az": Paired.of(metric, [baseline], [system], references)}
    ours = paired_bootstrap(paired, metric, AZ, resamples=300)["az"]
    values = [found.value for text in (baseline, system) for found in score(text, references, metrics=[metric])]
    assert ours.difference == pytest.approx(values[1] - values[0])
    # Its p counts absolute differences beyond their mean, without a second direction.
    distances = np.abs(ours.samples) - np.abs(ours.samples).mean()
    expected = (np.sum(distances > abs(ours.difference)) + 1) / 301
    assert sacrebleu_p(metric, "bs", 300, *texts) == pytest.approx(expected)
    swapped = paired_randomisation(paired, metric, AZ, trials=1000)["az"]
    assert swapped == pytest.approx(sacrebleu_p(metric, "ar", 1000, *texts), abs=0.04)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_a_system_does_not_differ_from_itself(metric):
    references = sentences(30)
    text = spoiled(references, 0.3, seed=2)
    paired = {"az": Paired.of(metric, [text], [text], references)}
    found = paired_bootstrap(paired, metric, AZ, resamples=200)["az"]
    assert (found.difference, found.interval, found.p) == (0, (0, 0), 1)
    assert paired_randomisation(paired, metric, AZ, trials=200) == {"az": 1}


def test_a_clearly_better_system_is_recognised():
    references = sentences(80)
    bad, good = spoiled(references, 0.6, seed=2), spoiled(references, 0.05, seed=3)
    paired = {"az": Paired.of("bleu", [bad], [good], references)}
    found = paired_bootstrap(paired, "bleu", AZ, resamples=400)["az"]
    assert found.difference > 30
    assert 0 < found.interval[0] < found.difference < found.interval[1]
    assert found.p == pytest.approx(1 / 401)
    assert paired_randomisation(paired, "bleu", AZ, trials=400)["az"] == pytest.approx(1 / 401)


def test_the_interval_contains_the_true_difference_nearly_always():
    rng = np.random.default_rng(7)
    contains = 0
    for _ in range(100):
        baseline = rng.normal(50, 10, size=60)
        system = baseline + rng.normal(2, 5, size=60)  # the true difference is 2
        low, high = paired_bootstrap({"az": means(baseline, system)}, "comet", AZ, resamples=300)["az"].interval
        contains += low <= 2 <= high
    assert 89 <= contains <= 99


def test_swaps_are_counted_by_hand():
    # Each of three sentences is better by 1. Swapped or not, the mean is as far from 0 in two of eight cases.
    paired = {"az": means([0.0, 0, 0], [1.0, 1, 1])}
    assert paired_randomisation(paired, "comet", AZ, trials=8000)["az"] == pytest.approx(0.25, abs=0.02)


def test_the_average_over_languages_resamples_each_by_itself():
    rng = np.random.default_rng(3)
    baseline = rng.normal(size=400)
    system = baseline + rng.normal(0.08, 1, size=400)
    one = means(baseline, system)
    found = paired_bootstrap({"az": one, "be": one}, "comet", BOTH, resamples=2000)
    both = found["both"]
    assert both.difference == pytest.approx(found["az"].difference)
    # The mean of two independent languages has 1 / sqrt(2) of the spread; drawn alike it would have all of it.
    assert both.samples.std() / found["az"].samples.std() == pytest.approx(2**-0.5, abs=0.05)
    p = paired_randomisation({"az": one, "be": one}, "comet", BOTH, trials=4000)
    assert p["both"] < p["az"]


def test_languages_that_cancel_out_leave_an_average_without_difference():
    better, worse = means(np.zeros(50), np.ones(50)), means(np.ones(50), np.zeros(50))
    paired = {"az": better, "be": worse}
    found = paired_bootstrap(paired, "comet", BOTH | {"be": ["be"]}, resamples=200)
    assert {name: bootstrap.difference for name, bootstrap in found.items()} == {"az": 1, "be": -1, "both": 0}
    p = paired_randomisation(paired, "comet", BOTH, trials=200)
    assert p["az"] < 0.01
    assert p["both"] == 1


def test_several_runs_of_a_system_are_averaged_over_the_same_resamples():
    values = [np.array([1.0, 2, 3, 4]), np.array([2.0, 2, 2, 6])]
    zeros = means(np.zeros(4), np.zeros(4)).baseline
    both = Paired(np.concatenate([zeros, zeros]), np.concatenate([means(v, v).system for v in values]))
    assert both.difference("comet") == pytest.approx((2.5 + 3) / 2)
    mean = means(np.zeros(4), (values[0] + values[1]) / 2)
    ours, theirs = (paired_bootstrap({"az": each}, "comet", AZ, resamples=50)["az"].samples for each in (both, mean))
    np.testing.assert_allclose(ours, theirs)


def paired_languages(numbers, seed=5):
    """Languages whose sentences have the references with these numbers; scores depend on the reference and chance."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(size=1000)
    found = {}
    for arm, chosen in numbers.items():
        system = effects[list(chosen)] + rng.normal(0, 0.1, size=len(chosen))
        found[arm] = means(np.zeros(len(chosen)), system, [f"reference {number}" for number in chosen])
    return found


def without_references(languages):
    return {arm: Paired(paired.baseline, paired.system) for arm, paired in languages.items()}


def test_languages_without_a_common_reference_are_resampled_as_if_they_had_none():
    languages = paired_languages({"az": range(50), "be": range(50, 90)})
    plain = without_references(languages)
    ours, theirs = (paired_bootstrap(each, "comet", BOTH, resamples=700) for each in (languages, plain))
    for name in BOTH:
        np.testing.assert_array_equal(ours[name].samples, theirs[name].samples)
    ours, theirs = (paired_randomisation(each, "comet", BOTH, trials=700) for each in (languages, plain))
    assert ours == theirs


def test_what_a_language_shares_does_not_change_the_test_of_the_language_itself():
    languages = paired_languages({"az": range(50), "be": range(50)})
    plain = without_references(languages)
    ours, theirs = (paired_bootstrap(each, "comet", AZ, resamples=300)["az"] for each in (languages, plain))
    np.testing.assert_array_equal(ours.samples, theirs.samples)
    ours, theirs = (paired_randomisation(each, "comet", AZ, trials=300) for each in (languages, plain))
    assert ours == theirs


def test_an_average_of_languages_with_the_same_references_is_no_surer_than_one_of_them():
    one = paired_languages({"az": range(200)})["az"]
    found = paired_bootstrap({"az": one, "be": one}, "comet", BOTH, resamples=4000)
    # Drawn by themselves the two would have 1 / sqrt(2) of the spread, as above.
    assert found["both"].samples.std() / found["az"].samples.std() == pytest.approx(1, abs=0.04)


def test_one_coin_decides_about_a_reference_in_all_languages():
    # Two references, each better by 1 in both languages: the mean is 1 or -1 in two of four cases. With a coin for each
    # of the four sentences it would be so in two of sixteen.
    one = means([0.0, 0], [1.0, 1], ["this", "that"])
    found = paired_randomisation({"az": one, "be": one}, "comet", BOTH, trials=8000)
    assert found["both"] == pytest.approx(0.5, abs=0.02)
    plain = paired_randomisation(without_references({"az": one, "be": one}), "comet", BOTH, trials=8000)
    assert plain["both"] == pytest.approx(0.125, abs=0.02)


def test_languages_are_linked_by_a_chain_of_references_and_others_stay_apart():
    languages = paired_languages({"az": range(30), "sk": range(500, 540), "be": range(60, 90), "gl": range(20, 70)})
    everyone = {"all": list(languages)}
    found = paired_bootstrap(languages, "comet", everyone, resamples=300)["all"]
    # Slovak shares nothing: without its references nothing changes.
    apart = languages | {"sk": Paired(languages["sk"].baseline, languages["sk"].system)}
    np.testing.assert_array_equal(
        found.samples, paired_bootstrap(apart, "comet", everyone, resamples=300)["all"].samples
    )


def test_a_language_that_a_resample_misses_keeps_its_test_set():
    languages = paired_languages({"az": range(2), "be": range(400)})
    found = paired_bootstrap(languages, "comet", {"both": ["az", "be"]}, resamples=300)["both"]
    assert np.isfinite(found.samples).all(), "about 0.02 of the resamples have neither of two references"


def shared_effects(rng, *, references=60, languages=4):
    """Two systems without a true difference: what is easier for one of them is so in all languages."""
    texts = [f"reference {number}" for number in range(references)]
    effects = rng.normal(0, 1, size=references)
    return {
        f"l{number}": means(np.zeros(references), effects + rng.normal(0, 1, size=references), texts)
        for number in range(languages)
    }


def test_equal_systems_differ_in_one_comparison_of_twenty():
    rng = np.random.default_rng(11)
    falsely = {"bootstrap": 0, "randomisation": 0, "bootstrap before": 0}
    for _ in range(200):
        languages = shared_effects(rng)
        everyone = {"all": list(languages)}
        falsely["bootstrap"] += paired_bootstrap(languages, "comet", everyone, resamples=200)["all"].p < 0.05
        falsely["randomisation"] += paired_randomisation(languages, "comet", everyone, trials=200)["all"] < 0.05
        plain = without_references(languages)
        falsely["bootstrap before"] += paired_bootstrap(plain, "comet", everyone, resamples=200)["all"].p < 0.05
    assert max(falsely["bootstrap"], falsely["randomisation"]) <= 0.07 * 200
    assert falsely["bootstrap before"] >= 0.15 * 200, (
        "the test can tell: half of the variance is shared by the languages"
    )
