"""Every preset of the teacher ``weights`` beside a trace from its formula, value for value."""

import published_traces as published
import pytest
import weight_traces as traces

from rota.teachers.weights.presets import PRESETS
from rota.testing import Rehearsal

CASES = {
    "exp3": (traces.EXP3, {}),
    "exp3, as published": (traces.EXP3AsPublished, {"variant": "source"}),
    "exp3-s": (traces.EXP3S, {}),
    "exp3-s, as published": (traces.EXP3SAsPublished, {"variant": "source"}),
    "odm": (traces.ODM, {}),
    "odm, as published": (traces.ODMAsPublished, {"variant": "source", "start": 10}),
    "chi-ibr": (traces.ChiIBR, {"baseline": traces.ChiIBR.baseline}),
    "chi-ibr, as published": (published.ChiIBR, {"variant": "source", "baseline": published.ChiIBR.baseline}),
    "jean-explicit": (traces.Jean, {"baseline": traces.Jean.baseline}),
    "jean-explicit, as published": (
        published.JeanExplicit,
        {"variant": "source", "baseline": published.JeanExplicit.baseline},
    ),
    "loss-softmax": (traces.LossSoftmax, {}),
    "loss-softmax, as published": (traces.LossSoftmaxAsPublished, {"variant": "source"}),
    "relative-decrease": (traces.RelativeDecrease, {}),
    "relative-decrease, as published": (published.RelativeDecrease, {"variant": "source"}),
    "skill-it": (traces.SkillIt, {"related": [["az", "tr"]]}),
    "skill-it, as published": (traces.SkillItAsPublished, {"variant": "source", "related": [["az", "tr"]]}),
    "multidds-s": (traces.Drift, {}),
    "multidds-s, as published": (traces.Adam, {"variant": "source", "reweight_every": 4}),
    "multiuat": (traces.Uncertain, {}),
    "multiuat, as published": (traces.UncertainAdam, {"variant": "source", "reweight_every": 4}),
    "multiuat, from temperature 5": (
        published.MultiUATFromTemperature5,
        {"variant": "source", "reweight_every": 4, "prior": {"name": "temperature", "temperature": 5}},
    ),
    "zaremoodi": (traces.Zaremoodi, {}),
    "zaremoodi, as published": (published.Zaremoodi, {"variant": "source"}),
    "pike": (traces.PiKE, {}),
    "pike, as published": (traces.PiKEAsPublished, {"variant": "source"}),
    "doge": (traces.DoGE, {}),
    "doge, as published": (traces.DoGEAsPublished, {"variant": "source"}),
    "dynamix-sft": (traces.DynamixSFT, {}),
    "dynamix-sft, as published": (published.DynamixSFT, {"variant": "source"}),
    "dynamix-sft, with the paper's constants": (
        published.DynamixSFTOfThePaper,
        {"variant": "source", "smoothing": 0.05, "temperature": 0.25, "floor": 0.075, "reweight_every": 10},
    ),
}


def test_every_preset_has_a_trace_and_one_as_published():
    ours = {case for case in CASES if "," not in case}
    theirs = {case.partition(",")[0] for case in CASES if case.endswith(", as published")}
    assert ours | {"jean-implicit"} == theirs | {"jean-implicit"} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_as_published_a_preset_measures_the_weights_after_the_last_update(name):
    measures = Rehearsal({"name": name, "variant": "source"}).teacher.watches
    assert {getattr(measure, "weights", "raw") for measure in measures} == {"raw"}


def beside_its_trace(name, trace, settings, turns=60):
    """The distributions before every choice; the room's scripted student gives both the same numbers."""
    room = Rehearsal({"name": name, **settings})
    expected = trace(room)
    for _ in range(turns):
        decision = room.ask()
        assert decision.scores == pytest.approx(expected.p, rel=1e-9), f"at step {room.step}"
        yield decision
        begun = room.step
        room.play()
        expected.after(decision, [room.loss(decision.arm, step) for step in range(begun, room.step)])
        room.tell()


@pytest.mark.parametrize("case", CASES)
def test_a_preset_equals_its_formula(case):
    trace, settings = CASES[case]
    decisions = list(beside_its_trace(case.partition(",")[0], trace, settings))
    assert len({tuple(decision.scores.values()) for decision in decisions}) > 3, "the weights hardly ever changed"
    assert all(decision.probability == decision.scores[decision.arm] for decision in decisions)


def test_jeans_implicit_weights_scale_the_loss_and_leave_the_sampling_alone():
    settings = {"baseline": traces.Jean.baseline, "prior": "proportional"}
    prior = {arm: size / 179 for arm, size in {"az": 5, "be": 4, "tr": 90, "ru": 80}.items()}
    for decision in beside_its_trace("jean-implicit", ImplicitJean, settings):
        assert decision.probability == pytest.approx(prior[decision.arm])
        wanted = {arm: min(5.0, max(0.2, decision.scores[arm] / share)) for arm, share in prior.items()}
        assert decision.weights == pytest.approx(wanted)


def test_jeans_implicit_weights_as_published():
    settings = {"variant": "source", "baseline": published.JeanImplicit.baseline}
    room = Rehearsal({"name": "jean-implicit", **settings})
    expected = published.JeanImplicit(room)
    found = []
    for _ in range(60):
        decision = room.ask()
        assert decision.probability == pytest.approx(1 / 4)
        assert decision.weights == pytest.approx(expected.weights(), rel=1e-9)
        found.append(tuple(decision.weights.values()))
        room.play()
        expected.after(decision, [])
        room.tell()
    assert len(set(found)) > 3, "the weights hardly ever changed"


class ImplicitJean(traces.Jean):
    def prior(self):
        return dict(self.sizes)

    def change(self, decision):
        super().change(decision)
        self.q = traces.normalised({arm: self.q[arm] * self.sizes[arm] for arm in self.arms})
