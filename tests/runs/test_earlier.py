"""What earlier versions meant by what they saved; runs that go on from such checkpoints are in test_earlier_runs.py."""

import pytest

from rota.runs.earlier import mixture_named, plays_and_losses
from rota.types import Decision, Mixture

SIZES = {"az": 5, "tr": 90, "ru": 80}


@pytest.mark.parametrize(
    ("arm", "shares"), [("mixed", SIZES), ("mixed-high-resource", {"tr": 90, "ru": 80}), ("tr", None), ("blend", None)]
)
def test_two_mixtures_were_known_by_their_names(arm, shares):
    expected = None if shares is None else Mixture(shares, "sentence", fixed=True)
    assert mixture_named(arm, SIZES, ("az",)) == expected


def test_the_updates_of_version_01_are_divided_among_earlier_decisions_and_the_one_in_progress():
    decision = Decision("tr", "exploit")
    state = {"played": {"tr": 5, "az": 4}, "train_loss": 27.0, "step": 11}
    plays, losses = plays_and_losses(decision, state, decide_every=4)  # 11 is 3 after the last decision
    assert [(play.arm, play.why, updates) for play, updates in plays] == [
        ("tr", "not recorded", 2),
        ("az", "not recorded", 4),
        ("tr", "exploit", 3),
    ]
    assert losses == {"tr": (15.0, 5), "az": (12.0, 4)}


def test_before_the_first_update_there_is_nothing_to_divide():
    assert plays_and_losses(None, {"played": {}, "train_loss": 0.0, "step": 0}, 1) == ([], {})
