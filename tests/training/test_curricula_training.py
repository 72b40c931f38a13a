"""Curricula in real training: what batches and weights they lead to, and that a run cut in two equals the whole."""

import numpy as np
import pytest

from rota import api
from rota.config import check_sharing, parse_config
from rota.runs import Run
from rota.settings import ConfigError
from rota.training.gauges.sentences import relative_losses
from rota.training.pacing import paced, steadiness
from rota.types import Pacing

DATA = {
    "corpus": "synthetic",
    "synthetic": {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 20, "test": 4},
    "subwords": {"size": 300},
}
STUDENT = {
    **{"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1},
    **{"lr_warmup": 2, "learning_rate": {"peak": 0.01}},
}
TRAINING = {"steps": 18, "tokens": 60, "checkpoint_every": 18, "validate_every": 9, "threads": 1, "tensorboard": False}
CURRICULA = {
    "competence": {"by": "rarity-sum", "until": 14, "start": 0.1, "least": 10},
    "norm": {
        "name": "norm",
        "check_every": 2,
        "refresh_every": 5,
        "growth": 0.05,
        "least": 10,
        "start": 0.1,
        "until": 17,
    },
    "relative-loss": {"name": "relative-loss", "every": 4, "until": 17, "least": 10},
    "dropout-variance": {"name": "dropout-variance", "samples": 2, "until": 12},
    "actor-critic": {"name": "actor-critic", "every": 2, "refresh_every": 7, "tokens": 60},
}


def config(folder, curriculum=None, teacher="uniform", **training):
    data = {**DATA, "folder": str(folder / "data")}
    named = {"name": teacher, "curriculum": curriculum}
    return parse_config({"data": data, "student": STUDENT, "teacher": named, "training": {**TRAINING, **training}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("curricula")


@pytest.fixture(scope="module")
def runs(folder):
    """A whole run with each curriculum, and one without."""
    found = {name: Run(folder / name) for name in (*CURRICULA, "none")}
    for name, run in found.items():
        api.train(config(folder, CURRICULA.get(name)), run.folder)
    return found


@pytest.mark.parametrize("cut", [5, 11])
@pytest.mark.parametrize("name", CURRICULA)
def test_a_run_that_is_cut_in_two_equals_the_whole(runs, folder, name, cut):
    halves = Run(folder / f"{name}-{cut}")
    api.train(config(folder, CURRICULA[name]), halves.folder, until=cut)
    api.train(config(folder, CURRICULA[name]), halves.folder)
    for record in ("steps", "observations", "validations"):
        whole = runs[name].find_record(record)
        again = halves.find_record(record)
        assert (whole and whole.read_bytes()) == (again and again.read_bytes())


def test_every_curriculum_changes_what_is_trained_and_none_of_them_which_language(runs):
    plain = list(runs["none"].read("steps"))
    for name in CURRICULA:
        steps = list(runs[name].read("steps"))
        assert [entry["arm"] for entry in steps] == [entry["arm"] for entry in plain]
        assert [entry["loss"] for entry in steps] != [entry["loss"] for entry in plain]


def test_selections_and_weights_are_recorded(runs):
    competence = list(runs["competence"].read("steps"))
    assert competence[0]["selection"] == {"by": "rarity-sum", "share": pytest.approx(0.1), "least": 10}
    assert "selection" not in competence[14]
    norm = list(runs["norm"].read("steps"))
    assert norm[0]["emphasis"] == {"by": "length", "competence": pytest.approx(0.1), "power": 0.5}
    assert norm[-1]["emphasis"]["by"] == "norm"
    relative = list(runs["relative-loss"].read("steps"))
    # Measured after 4 and 8 updates: the ninth is the first with a selection.
    assert next(entry["step"] for entry in relative if "selection" in entry) == 9
    paced_steps = list(runs["dropout-variance"].read("steps"))
    assert [("pacing" in entry) for entry in paced_steps] == [True] * 12 + [False] * 6


def test_the_means_of_what_was_measured_are_recorded(runs):
    norms = [entry["embedding_norm"] for entry in runs["norm"].read("observations") if "embedding_norm" in entry]
    assert len(norms) == 9
    assert len(set(norms)) == 9
    measured = [entry["train_set_loss"] for entry in runs["relative-loss"].read("observations")]
    assert [set(means) for means in measured] == [{"lala", "lato"}] * 4


def test_what_is_left_of_a_loss_is_the_score():
    before, now = np.array([4.0, 2.0, 0.0], np.float32), np.array([1.0, 3.0, 0.0], np.float32)
    assert relative_losses(before, now).tolist() == [0.25, 1.5, 0.0]


def test_the_sentences_that_fell_most_are_selected(folder):
    """The gauge against losses that the student is asked for directly."""
    loop = api.build_loop(config(folder, CURRICULA["relative-loss"]), api.prepare(config(folder)), folder / "looked-at")
    train, ranks = loop.probe.sets.train, loop.probe.sets.ranks
    everything = train.batch("mixed", np.arange(len(train)))

    def losses():
        found = loop.student.losses([everything])
        return found.sums / found.tokens

    loop.run(until=4)
    first = losses()
    loop.run(until=8)
    second = losses()
    loop.journal.close()
    for start, stop in train.ranges.values():
        order = np.argsort((second / first)[start:stop], kind="stable")
        by_rank = np.argsort(ranks["relative-loss"][start:stop], kind="stable")
        # Rounded to float32 before they are ranked, so neighbours may change places.
        assert np.abs(np.argsort(order) - np.argsort(by_rank)).max() <= 2


def test_steadiness_by_hand():
    # Two samples, two sentences of two tokens and one.
    logs = -np.array([[1.0, 2.0, 4.0], [2.0, 2.0, 0.0]])
    lowest = 4.0
    variance = [(0.25 - 0.5) ** 2 / 2, 0.0, 1.0**2 / 2]
    assert np.var(-logs / lowest, axis=0, ddof=1) == pytest.approx(variance)
    tokens = (1 - np.array(variance)) ** 2
    sums = np.array([[3.0, 4.0], [4.0, 0.0]]) / 4
    sentences = (1 - np.array([(0.25**2) / 2, 0.5])) ** 2
    assert np.var(sums, axis=0, ddof=1) == pytest.approx([0.25**2 / 2, 0.5])
    product = tokens * sentences[[0, 0, 1]]
    expected = 3 * np.exp(product) / np.exp(product).sum()
    found = steadiness(logs, np.array([2, 1]), power=2)
    assert found == pytest.approx(expected)
    assert found.sum() == pytest.approx(3)
    assert found[1] > found[0] > found[2]


def test_a_batch_that_is_paced_has_a_weight_for_each_token_and_the_same_ones_again(folder):
    loop = api.build_loop(config(folder), api.prepare(config(folder)), folder / "paced")
    loop.run(until=1)
    loop.journal.close()
    batch = next(loop.streams["lala"]) if "lala" in loop.streams else next(loop.streams["lato"])
    (weighted,) = paced(loop.student, [batch], Pacing(3, 2.0), step=5)
    assert weighted.weights.shape == (batch.tokens,)
    assert weighted.weights.sum() == pytest.approx(batch.tokens, rel=1e-5)
    (again,) = paced(loop.student, [batch], Pacing(3, 2.0), step=5)
    assert np.array_equal(weighted.weights, again.weights)
    (other,) = paced(loop.student, [batch], Pacing(3, 2.0), step=6)
    assert not np.array_equal(weighted.weights, other.weights)
    samples = loop.student.token_dropout_samples(batch, samples=3, seed=7)
    starts = np.cumsum(batch.target_lengths) - batch.target_lengths
    sums = loop.student.dropout_samples([batch], samples=3, seed=7)
    assert np.add.reduceat(samples, starts, axis=1) == pytest.approx(sums)


def test_weights_by_dropout_are_for_a_single_process(folder):
    loop = api.build_loop(config(folder, "dropout-variance"), api.prepare(config(folder)), folder / "two")
    loop.team.size = 2
    with pytest.raises(ValueError, match="2 processes train this run, and weights by dropout variance are for one"):
        loop._update(loop._decide(), until=5)
    one = "and weights by dropout variance are for one; train in one process, or leave teacher.curriculum out"
    with pytest.raises(ConfigError, match=one):  # with the config, before anything is prepared
        check_sharing(config(folder, "dropout-variance"), folder / "none", loop.team)
    loop.team.size = 1
    check_sharing(config(folder, "dropout-variance"), folder / "none", loop.team)
