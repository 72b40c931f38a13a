"""Gradients along the goal's: the gauge against plain autograd on a tiny network, its cadence, and a real run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from rota import api
from rota.config import parse_config
from rota.data.batches import make_stream
from rota.measures import Aligned, Alignment, Scene
from rota.runs.records import read_record
from rota.student.config import StudentConfig
from rota.student.nmt import build_student
from rota.training.devsets import DevSets
from rota.training.gauges.source import other_sources
from rota.training.probe import Probe
from rota.training.turns import Window
from rota.types import Decision, Projection

NOTHING = Window((), {})
STUDENT = {"preset": "tiny", "width": 32, "heads": 2, "feedforward": 32, "layers": 1, "dropout": 0.3}
VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 120, "lato": 60}}, "dev": 40, "test": 5},
        "subwords": {"size": 300},
    },
    "student": {**STUDENT, "learning_rate": {"peak": 0.005}, "lr_warmup": 4},
    "training": {"steps": 24, "tokens": 100, "validate_every": 12, "checkpoint_every": 12, "tensorboard": False},
    "teacher": {"name": "align", "refresh": 5, "tokens": 60, "observe_every": 3, "gate_every": 6},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("alignment")


@pytest.fixture(scope="module")
def store(folder):
    return api.prepare(config_in(folder))


def config_in(folder, **teacher):
    data = {**VALUES["data"], "folder": str(folder / "data")}
    return parse_config({**VALUES, "data": data, "teacher": {**VALUES["teacher"], **teacher}})


@pytest.fixture
def sets(store):
    return DevSets(store, teacher_share=0.5, division="text", validate_tokens=500)


def student_of(store, updates=3):
    """With averaged weights that differ from the others, and moments of Adam."""
    student = build_student(StudentConfig(**VALUES["student"]), vocabulary=store.manifest.vocabulary, steps=24, seed=1)
    student.keep_average(0.9)
    stream = make_stream(store, "lala", 100, seed=1)
    for _ in range(updates):
        student.update([next(stream)])
    return student


def mean_loss(network, student, batch):
    """Per token, differentiable, by a plain softmax over one sentence after the other."""
    total = 0.0
    sources = np.split(batch.source, np.cumsum(batch.source_lengths)[:-1])
    targets = np.split(batch.target, np.cumsum(batch.target_lengths)[:-1])
    for source, target in zip(sources, targets, strict=True):
        one = replace(
            batch,
            source=source,
            source_lengths=np.array([len(source)]),
            target=target,
            target_lengths=np.array([len(target)]),
        )
        piece = student._lay_out(one, training=False)
        states = network(piece.source_N, piece.source, piece.target_N, piece.target, None)
        logits = states @ network.output_matrix.T
        total = total + torch.nn.functional.cross_entropy(logits, piece.target_N, reduction="sum")
    return total / batch.tokens


def direction_by_hand(store, sets, student, kind, tokens, turn=0, languages=None):
    """Of the mean of the two languages, at the averaged weights, divided by Adam's denominators; of length one."""
    network, dev = student._average.network, store.split("dev")
    loss = wrong = 0.0
    for language in languages or store.languages:
        sample = sets.sample("teacher", language, tokens, turn)
        right = sample.batch()
        lent = other_sources(sample, sets.teacher_part(language))
        source, lengths = dev.source.gather(lent)
        loss = loss + mean_loss(network, student, right)
        wrong = wrong + mean_loss(network, student, replace(right, source=source, source_lengths=lengths))
    return divided_by_adam(student, network, loss if kind == "loss" else loss - wrong)


def divided_by_adam(student, network, falls):
    gradients = torch.autograd.grad(falls, list(network.parameters()), retain_graph=True)
    divided = []
    for gradient, parameter in zip(gradients, student.network.parameters(), strict=True):
        square = student._optimiser._adam.state[parameter]["exp_avg_sq"] / (1 - 0.998**student.step)
        divided.append(torch.where(square > 0, gradient / (square.sqrt() + 1e-9), torch.zeros(())))
    return unit(divided)


def unit(tensors):
    length = torch.sqrt(sum(tensor.double().square().sum() for tensor in tensors))
    return [tensor / length for tensor in tensors]


@pytest.mark.parametrize("kind", ["loss", "source-gain", "both"])
def test_the_dot_product_is_that_of_plain_autograd(store, sets, kind):
    student = student_of(store)
    measure = Alignment(tokens=60, memory=0, direction=kind, decay=0.9)
    kinds = ["loss", "source-gain"] if kind == "both" else [kind]
    expected = [direction_by_hand(store, sets, student, each, 60) for each in kinds]
    probe, decision = Probe(student, sets), Decision("lato", "told")
    probe.begin([measure], decision)
    batch = next(make_stream(store, "lato", 100, seed=1))
    student.update([batch])
    gradients = [parameter.grad for parameter in student.network.parameters()]
    clipped = min(1.0, 5.0 / student.gradient_norm)
    product, *source = (
        sum(float((d * g).sum()) for d, g in zip(direction, gradients, strict=True)) / clipped for direction in expected
    )
    probe.updated([measure], decision)
    found = probe.read(4, [measure], NOTHING)[measure]["lato"]
    assert found[:3] == (pytest.approx(product, rel=1e-3), pytest.approx(product**2, rel=2e-3), 1)
    dot = source[0] if source else 0.0
    assert found.source == (pytest.approx(dot, rel=1e-3), pytest.approx(dot**2, rel=2e-3))
    assert product != 0


def test_without_adams_metric_and_at_the_raw_weights(store, sets):
    student = student_of(store)
    measure = Alignment(tokens=60, memory=0, weights="raw", metric="none", direction="loss")
    losses = [mean_loss(student.network, student, sets.sample("teacher", arm, 60).batch()) for arm in store.languages]
    expected = unit(torch.autograd.grad(sum(losses), list(student.network.parameters())))
    Probe(student, sets).begin([measure], Decision("lala", "told"))
    for ours, theirs in zip(student._directions[0].tensors, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


def test_a_direction_is_averaged_with_those_before_it(store, sets):
    student, measure = student_of(store), Alignment(refresh=1, tokens=60, memory=0.75, direction="both", decay=0.9)
    probe, stream, expected = Probe(student, sets), make_stream(store, "lala", 100, seed=1), None
    for turn in range(3):
        tokens = 60 if turn else 240
        kinds = [direction_by_hand(store, sets, student, kind, tokens, turn) for kind in ("loss", "source-gain")]
        if expected is None:
            expected = kinds
        else:
            expected = [
                unit([0.75 * old + 0.25 * new for old, new in zip(before, now, strict=True)])
                for before, now in zip(expected, kinds, strict=True)
            ]
        probe.begin([measure], Decision("lala", "told"))
        for direction, by_hand in zip(student._directions, expected, strict=True):
            pairs = zip(direction.tensors, by_hand, strict=True)
            assert sum(float((ours * theirs).sum()) for ours, theirs in pairs) == pytest.approx(1, abs=1e-3)
        student.update([next(stream)])
        probe.updated([measure], Decision("lala", "told"))


@pytest.mark.parametrize("kind", ["loss", "source-gain"])
def test_every_language_can_have_a_direction_of_its_own(store, sets, kind):
    student, measure = student_of(store), Alignment(tokens=60, memory=0, decay=0.9, direction=kind, languages=True)
    expected = {
        language: direction_by_hand(store, sets, student, "loss", 60, languages=[language])
        for language in store.languages
    }
    together = direction_by_hand(store, sets, student, kind, 60)
    probe, decision = Probe(student, sets), Decision("lala", "told")
    probe.begin([measure], decision)
    student.update([next(make_stream(store, "lala", 100, seed=1))])
    probe.updated([measure], decision)
    gradients = [parameter.grad / min(1.0, 5.0 / student.gradient_norm) for parameter in student.network.parameters()]

    def product(direction):
        return pytest.approx(sum(float((d * g).sum()) for d, g in zip(direction, gradients, strict=True)), rel=1e-3)

    found = probe.read(4, [measure], NOTHING)[measure]["lala"]
    assert found.total == product(together)
    assert {name: total for name, (total, _) in found.languages.items()} == {
        name: product(direction) for name, direction in expected.items()
    }
    assert all(squares == pytest.approx(total**2) for total, squares in found.languages.values())


def test_a_language_is_served_as_far_as_the_gradients_of_the_others_lead_its_way(store, sets):
    student, measure = student_of(store), Alignment(tokens=60, memory=0, metric="none", weights="raw", direction="loss")
    lala, lato = (
        torch.autograd.grad(
            mean_loss(student.network, student, sets.sample("teacher", language, 60).batch()),
            list(student.network.parameters()),
        )
        for language in store.languages
    )
    product, first, second = (
        sum(float((a * b).sum()) for a, b in zip(one, other, strict=True))
        for one, other in ((lala, lato), (lala, lala), (lato, lato))
    )
    probe = Probe(student, sets)
    for number in range(4):
        probe.begin([measure], Decision("lala", "told"))
        found = probe.read(number, [measure], NOTHING)[measure].served
        if number == 0:
            # Each counts half: what is left without the language itself is half of the other one's gradient.
            expected = {"lala": product / 2 / first**0.5, "lato": product / 2 / second**0.5}
            assert found == pytest.approx(expected, rel=1e-3)
        else:
            assert found == {}, "until the next directions"


def test_languages_are_written_rounded_and_only_where_they_were_asked_for():
    found = {"az": Aligned(0.123456789, 2.0, 3, {"be": (0.123456789, 4.0)}, (5.0, 6.0))}
    loss = {"direction": "loss"}
    assert Alignment(languages=True, **loss).written(found) == {"az": [0.123456789, 2.0, 3, {"be": [0.1235, 4.0]}]}
    assert Alignment(**loss).written(found) == {"az": [0.123456789, 2.0, 3]}
    assert Alignment(direction="both").written(found) == {"az": [0.123456789, 2.0, 3, 5.0, 6.0]}


def test_a_language_whose_dev_sources_are_all_alike_has_no_contrast(store, sets, monkeypatch):
    monkeypatch.setattr("rota.training.gauges.alignment.mismatched_pairs", lambda *_: {})
    with pytest.raises(ValueError, match="the dev sentences of lala have only one source text; use teacher.direction"):
        Probe(student_of(store), sets).begin([Alignment(direction="both")], Decision("lala", "told"))


class Follower:
    """A student without a network: its projections are the numbers 1, 2, 3, ..., its directions what it was shown.

    All its gradients are alike, and of length 2 in every metric.
    """

    def __init__(self):
        self.projection, self.directions, self.count, self.decay = None, [], 0, None

    def keep_average(self, decay):
        self.decay = self.decay or decay

    def gradient(self, batches, *, weights):
        assert weights == "average"
        self.directions.append([(batch.arm, batch.target.tolist(), batch.weights.tolist()) for batch in batches])
        return self

    def in_adams_metric(self):
        return self

    def scaled(self, factor):
        return self

    def plus(self, other):
        return self

    def dot(self, other):
        return 4.0

    def norm(self):
        return 2.0

    def follow(self, direction, others=(), memory=0.0):
        assert direction is self
        assert not others

    def update(self):
        self.count += 1
        self.projection = Projection(float(self.count), norm=1.0)


def play(probe, student, measure, arms):
    for arm in arms:
        decision = Decision(arm, "told")
        probe.begin([measure], decision)
        student.update()
        probe.updated([measure], decision)


def test_sums_are_kept_by_arm_until_they_are_read(sets):
    student, measure = Follower(), Alignment(direction="loss")
    probe = Probe(student, sets)
    play(probe, student, measure, ["lala", "lato", "lala"])
    assert probe.read(3, [measure], NOTHING)[measure] == {"lala": Aligned(4.0, 10.0, 2), "lato": Aligned(2.0, 4.0, 1)}
    play(probe, student, measure, ["lato"])
    assert probe.read(4, [measure], NOTHING)[measure] == {"lato": Aligned(4.0, 16.0, 1)}
    assert student.decay == 0.98


def test_a_new_direction_is_taken_from_other_sentences_every_so_many_updates(sets):
    student, measure = Follower(), Alignment(refresh=5, tokens=60, memory=0.5, direction="loss")
    play(Probe(student, sets), student, measure, ["lala"] * 31)
    # Before the updates 1, 6, 11, 16, 21, 26 and 31; the first and the seventh time language by language.
    one, other, *between, last, last_other = student.directions
    shown = [one + other, *between, last + last_other]
    assert len(shown) == 7
    assert shown[0] != shown[1]
    for turn, sentences in enumerate(shown):
        for (arm, target, _), language in zip(sentences, sets.languages, strict=True):
            assert arm == language
            tokens = 60 if turn else 120  # nothing is there yet with which the first could be averaged
            assert target == sets.sample("teacher", language, tokens, turn).batch().target.tolist()


def test_all_languages_count_alike_however_many_tokens_they_have(sets):
    student, measure = Follower(), Alignment(tokens=60, refresh=1, direction="loss")
    play(Probe(student, sets), student, measure, ["lala", "lala"])
    ((_, first, first_weights), (_, second, second_weights)) = student.directions[2]
    total = len(first) + len(second)
    assert set(first_weights) == {total / 2 / len(first)}
    assert set(second_weights) == {total / 2 / len(second)}


def test_only_languages_of_the_goal_have_a_say(store):
    sets = DevSets(store, teacher_share=0.5, division="text", validate_tokens=500, goal={"lato": 1.0})
    student = Follower()
    play(Probe(student, sets), student, Alignment(tokens=60, direction="loss"), ["lala"])
    assert [(arm, set(weights)) for arm, _, weights in student.directions[0]] == [("lato", {1.0})]


def test_the_gauge_goes_on_after_a_checkpoint(sets):
    measure = Alignment(refresh=5, tokens=60, direction="loss")

    def shown(cut):
        student = Follower()
        probe = Probe(student, sets)
        for number in range(13):
            if number == cut:
                state = json.loads(json.dumps(probe.state_dict()))
                probe = Probe(student, sets)
                probe.load_state_dict(state)
            play(probe, student, measure, ["lala" if number % 3 else "lato"])
        return student.directions, probe.read(13, [measure], NOTHING)

    assert [shown(cut) for cut in (3, 5, 12)] == [shown(None)] * 3


def records(run):
    return {path.name: path.read_bytes() for path in sorted(run.glob("*.jsonl")) if path.name != "timings.jsonl"}


def checkpoint(run):
    return {path.name: path.read_bytes() for path in sorted((run / "checkpoints" / "24").iterdir())}


def test_a_run_cut_in_two_equals_a_run_in_one_piece(store, folder):
    config = config_in(folder)
    api.train(config, folder / "whole")
    for until in (7, 14, 24):
        api.train(config, folder / "parts", until=until)
    assert records(folder / "parts") == records(folder / "whole")
    assert checkpoint(folder / "parts") == checkpoint(folder / "whole")
    told = list(read_record(folder / "whole" / "observations.jsonl"))
    assert [entry["step"] for entry in told] == [6, 9, 12, 15, 18, 21, 24]
    assert [entry["step"] for entry in told if "source_gain" in entry] == [9, 15, 21]
    assert sum(updates for entry in told for _, _, updates, *_ in entry["alignment"].values()) == 20


def test_the_measure_changes_nothing_in_training(store, sets):
    watched, alone = student_of(store), student_of(store)
    probe, measure, decision = Probe(watched, sets), Alignment(refresh=2, tokens=60), Decision("lala", "told")
    stream = make_stream(store, "lala", 100, seed=2)
    for _ in range(4):
        batch = next(stream)
        probe.begin([measure], decision)
        losses = [student.update([batch]) for student in (watched, alone)]
        probe.updated([measure], decision)
        assert losses[0] == losses[1], "dropout is on: any draw for the direction would show"


def test_a_scripted_student_shows_the_effect_of_each_update():
    effects = {"az": {"az": 0.4, "be": 0.2}, "be": {"az": 0.0, "be": 0.1}}
    scene = Scene({}, {}, {"az": (9.0, 3)}, effects)
    sums = pytest.approx(0.9), pytest.approx(0.27)
    assert Alignment(direction="loss").imagine(scene) == {"az": Aligned(*sums, 3)}
    assert Alignment(direction="both").imagine(scene) == {"az": Aligned(*sums, 3, source=sums)}
