"""Every preset of the teacher ``weights`` beside a trace from its formula, value for value."""

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
    "jean-explicit": (traces.Jean, {"baseline": traces.Jean.baseline}),
    "loss-softmax": (traces.LossSoftmax, {}),
    "loss-softmax, as published": (traces.LossSoftmaxAsPublished, {"variant": "source"}),
    "relative-decrease": (traces.RelativeDecrease, {}),
    "skill-it": (traces.SkillIt, {"related": [["az", "tr"]]}),
    "skill-it, as published": (traces.SkillItAsPublished, {"variant": "source", "related": [["az", "tr"]]}),
    "multidds-s": (traces.Drift, {}),
    "multidds-s, as published": (traces.Adam, {"variant": "source", "reweight_every": 4}),
    "multiuat": (traces.Uncertain, {}),
    "multiuat, as published": (traces.UncertainAdam, {"variant": "source", "reweight_every": 4}),
    "zaremoodi": (traces.Zaremoodi, {}),
    "pike": (traces.PiKE, {}),
    "pike, as published": (traces.PiKEAsPublished, {"variant": "source"}),
    "doge": (traces.DoGE, {}),
    "doge, as published": (traces.DoGEAsPublished, {"variant": "source"}),
    "dynamix-sft": (traces.DynamixSFT, {}),
}


def test_every_preset_has_a_trace():
    assert {case.partition(",")[0] for case in CASES} | {"jean-implicit"} == set(PRESETS)


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


class ImplicitJean(traces.Jean):
    def prior(self):
        return dict(self.sizes)

    def change(self, decision):
        super().change(decision)
        self.q = traces.normalised({arm: self.q[arm] * self.sizes[arm] for arm in self.arms})
