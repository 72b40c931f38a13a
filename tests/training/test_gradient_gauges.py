"""Gauges of gradients and of uncertainty: their arithmetic on vectors made by hand, and beside a real student."""

import math
import statistics

import numpy as np
import pytest

from rota import api
from rota.config import parse_config
from rota.measures import GradientMoments, GradientProducts, Uncertainty
from rota.student.nmt import build_student
from rota.training.devsets import DevSets
from rota.training.gauges.gradients import GradientMomentsGauge, GradientProductsGauge
from rota.training.gauges.uncertainty import UncertaintyGauge, uncertainty
from rota.training.probe import Probe
from rota.training.turns import Window
from rota.types import SentenceLosses
from rota.types import Uncertainty as Predictions

VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 120, "lato": 60}, "ki": {"kiki": 40}}, "dev": 60, "test": 5},
        "low_resource": ["lato", "kiki"],
        "subwords": {"size": 400},
    },
    "student": {"preset": "tiny", "width": 32, "heads": 2, "feedforward": 32, "layers": 1, "dropout": 0.3},
}
WINDOW = Window((), {"lala": (0.0, 1)})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gradients") / "data"
    return api.prepare(parse_config({**VALUES, "data": {**VALUES["data"], "folder": str(folder)}}))


@pytest.fixture
def student(store):
    return build_student(parse_config(VALUES).student, vocabulary=store.manifest.vocabulary, steps=100, seed=1)


def sets_of(store, goal=None):
    return DevSets(store, teacher_share=0.5, division="text", validate_tokens=500, goal=goal)


class Vector(list):
    """A gradient whose numbers one can read."""

    def dot(self, other):
        return math.fsum(a * b for a, b in zip(self, other, strict=True))

    def norm(self):
        return math.sqrt(self.dot(self))

    def plus(self, other):
        return Vector(a + b for a, b in zip(self, other, strict=True))

    def minus(self, other):
        return self.plus(other.scaled(-1))

    def scaled(self, factor):
        return Vector(factor * a for a in self)


class ReadableStudent:
    """Its gradient is the mean of its sentences' vectors: numbers that a hash of the target decides."""

    def keep_average(self, decay):
        """It has no weights to average."""

    def gradient(self, batches, *, weights):
        (batch,) = batches
        vectors = [Vector(np.random.default_rng(list(target)).normal(size=3)) for target in targets_of(batch)]
        return Vector(statistics.fmean(column) for column in zip(*vectors, strict=True))

    def losses(self, batches, *, weights):
        count = sum(batch.sentences for batch in batches)
        return SentenceLosses(np.full(count, 6.0), np.full(count, 3))


def targets_of(batch):
    return np.split(batch.target, np.cumsum(batch.target_lengths)[:-1])


def gradients(sets, part, arms, tokens=60, turn=0):
    return {
        arm: ReadableStudent().gradient([sets.sample(part, arm, tokens, turn).batch()], weights="raw") for arm in arms
    }


def test_products_of_gradients_are_cosines_weighted_by_the_goal(store):
    goal = {"lato": 0.75, "kiki": 0.25}
    sets = sets_of(store, goal)
    gauge = GradientProductsGauge(GradientProducts(tokens=60, languages=True), ReadableStudent(), sets)
    train, dev = gradients(sets, "train", store.languages), gradients(sets, "teacher", goal)
    found = gauge.read(WINDOW)
    assert list(found) == list(store.languages)
    for arm, products in found.items():
        cosines = {name: train[arm].dot(each) / (train[arm].norm() * each.norm()) for name, each in dev.items()}
        assert products.languages == pytest.approx(cosines)
        assert products.mean == pytest.approx(0.75 * cosines["lato"] + 0.25 * cosines["kiki"])


@pytest.mark.parametrize("divided_by", ["mean-norm", "nothing"])
def test_products_can_keep_the_size_of_gradients(store, divided_by):
    sets = sets_of(store)
    measure = GradientProducts(divided_by=divided_by, tokens=60, targets=("lala", "kiki"))
    found = GradientProductsGauge(measure, ReadableStudent(), sets).read(WINDOW)
    train, dev = gradients(sets, "train", store.languages), gradients(sets, "teacher", ("lala", "kiki"))
    divisor = statistics.fmean(each.norm() for each in train.values()) if divided_by == "mean-norm" else 1.0
    for arm, products in found.items():
        dots = [train[arm].dot(each) for each in dev.values()]
        assert products.mean == pytest.approx(statistics.fmean(dots) / divisor)
        assert products.languages == {}


def test_without_a_map_the_mean_is_the_same_with_less_memory(store):
    found = [
        GradientProductsGauge(GradientProducts(tokens=60, languages=languages), ReadableStudent(), sets_of(store)).read(
            WINDOW
        )
        for languages in (False, True)
    ]
    for arm in store.languages:
        assert found[0][arm].mean == pytest.approx(found[1][arm].mean)


def test_moments_come_from_two_halves_of_the_sentences(store):
    sets = sets_of(store)
    sample = sets.sample("train", "lala", 80, 0)
    halves = [sample._replace(indices=sample.indices[part::2]).batch() for part in (0, 1)]
    g, h = (ReadableStudent().gradient([half], weights="raw") for half in halves)
    moments = GradientMomentsGauge(GradientMoments(tokens=80), ReadableStudent(), sets).read(WINDOW)["lala"]
    each = (halves[0].sentences + halves[1].sentences) / 2
    assert moments.squared_norm == pytest.approx(g.dot(h))
    assert moments.variance == pytest.approx(each / 2 * sum((a - b) ** 2 for a, b in zip(g, h, strict=True)))
    assert moments.loss == 2.0


def test_moments_are_right_on_average(store):
    """The vectors of the sentences are standard normal in 3 dimensions: no mean, a variance of 3."""
    gauge = GradientMomentsGauge(GradientMoments(tokens=60), ReadableStudent(), sets_of(store))
    found = [moments for _ in range(60) for moments in gauge.read(WINDOW).values()]
    assert statistics.fmean(each.variance for each in found) == pytest.approx(3, abs=0.6)
    assert statistics.fmean(each.squared_norm for each in found) == pytest.approx(0, abs=0.15)


@pytest.mark.parametrize(
    ("kind", "measure"),
    [
        (GradientProductsGauge, GradientProducts(tokens=60)),
        (GradientMomentsGauge, GradientMoments(tokens=60)),
    ],
)
def test_the_sentences_rotate_and_the_turn_is_saved(store, kind, measure):
    gauge = kind(measure, ReadableStudent(), sets_of(store))
    first, second = gauge.read(WINDOW), gauge.read(WINDOW)
    assert first != second
    resumed = kind(measure, ReadableStudent(), sets_of(store))
    resumed.load_state_dict({**gauge.state_dict(), "turn": 1})
    assert resumed.read(WINDOW) == second
    assert gauge.state_dict() == {"turn": 2}


def predictions(seed, samples=3, lengths=(1, 4, 7)):
    """Numbers of single tokens, and their sums as a student gives them."""
    rng = np.random.default_rng(seed)
    tokens = [
        [(-rng.exponential(size=length), rng.exponential(size=length)) for length in lengths] for _ in range(samples)
    ]
    best = np.array([[each.sum() for each, _ in row] for row in tokens])
    squares = np.array([[(each**2).sum() for each, _ in row] for row in tokens])
    entropies = np.array([[each.sum() for _, each in row] for row in tokens])
    ends = np.array([[each[-1] for _, each in row] for row in tokens])
    return tokens, Predictions(np.array(lengths), best, best, entropies, ends, best, squares)


def variance(values):
    return statistics.variance(values) if len(values) > 1 else 0.0


BY_HAND = {
    "entropy": lambda row: sum(e.sum() for _, e in row) / sum(len(e) for _, e in row),
    "end-entropy": lambda row: statistics.fmean(e[-1] for _, e in row),
    "probability": lambda row: 1 - statistics.fmean(math.exp(b.sum()) for b, _ in row),
    "mean-probability": lambda row: 1 - statistics.fmean(math.exp(b.mean()) for b, _ in row),
    "variance": lambda row: statistics.fmean(variance(b) for b, _ in row),
    "combined": lambda row: statistics.fmean(math.exp(variance(b) / b.mean()) for b, _ in row),
}


@pytest.mark.parametrize("kind", BY_HAND)
@pytest.mark.parametrize("seed", range(3))
def test_each_uncertainty_is_the_mean_of_its_definition_over_the_samples(kind, seed):
    tokens, found = predictions(seed)
    assert uncertainty(kind, found) == pytest.approx(statistics.fmean(BY_HAND[kind](row) for row in tokens))


@pytest.mark.parametrize("weights", ["raw", "average"])
def test_a_real_student_shows_them_all_and_keeps_no_trace(store, student, weights):
    sets = sets_of(store)
    measures = [
        GradientProducts(tokens=40, weights=weights, languages=True),
        GradientMoments(tokens=40, weights=weights),
        *(Uncertainty(kind, samples=2, tokens=40, weights=weights) for kind in (*BY_HAND, "cross-entropy")),
    ]
    probe = Probe(student, sets)
    probe.prepare(measures)
    before = {name: tensor.clone() for name, tensor in student.state_dict()["network"].items()}
    found = probe.read(1, measures, WINDOW)
    assert all(tensor.equal(before[name]) for name, tensor in student.state_dict()["network"].items())
    products, moments, entropy, *_, loss = (found[measure] for measure in measures)
    for arm in store.languages:
        assert -1 <= products[arm].mean <= 1
        assert moments[arm].variance > 0
        assert moments[arm].loss == pytest.approx(math.log(store.manifest.vocabulary), rel=0.2), (
            "it has learned nothing"
        )
        assert entropy[arm] == pytest.approx(loss[arm], rel=0.2)
    own = student.gradient([sets.sample("train", "lala", 40, 0).batch()], weights=weights)
    dev = student.gradient([sets.sample("teacher", "kiki", 40, 0).batch()], weights=weights)
    assert products["lala"].languages["kiki"] == pytest.approx(own.cosine(dev), rel=1e-4)


def test_arms_of_one_language_are_as_uncertain_as_its_dev_sentences(store, student):
    sets = sets_of(store)
    sets.arms, sets.language_of = ("lala", "lala-web", "kiki"), {"lala": "lala", "lala-web": "lala", "kiki": "kiki"}
    found = UncertaintyGauge(Uncertainty(tokens=40, samples=2), student, sets).read(WINDOW)
    assert list(found) == ["lala", "lala-web", "kiki"]
    assert found["lala"] == found["lala-web"] != found["kiki"]


def test_uncertainty_rotates_its_sentences_and_its_dropout(store, student):
    gauge = UncertaintyGauge(Uncertainty(tokens=40, samples=2), student, sets_of(store))
    first, second = gauge.read(WINDOW), gauge.read(WINDOW)
    gauge.load_state_dict({"turn": 0})
    assert gauge.read(WINDOW) == first != second
