"""The alarm of a language that is measured, not trained on any more, and forgotten."""

from rota.training.alarms.forgetting import Forgetting
from rota.types import Decision


def play(detector, step, seen, **losses):
    detector.updated(step, Decision("az", why="sampled"), 1.0, seen)
    return [alarm.arm for alarm in detector.validated(step, losses)]


def test_two_validations_in_a_row_a_tenth_above_the_lowest_raise_it():
    detector = Forgetting()
    assert list(detector.validated(0, {"az": 3.0, "tr": 2.0})) == []
    assert play(detector, 10, {"az": 50}, az=2.9, tr=2.2) == []
    [alarm] = detector.validated(20, {"az": 2.8, "tr": 2.3})
    assert alarm.text.startswith("tr is being forgotten: its dev loss has risen from 2.000 at step 0 to 2.300;")


def test_a_small_rise_or_a_recovery_raises_nothing():
    detector = Forgetting()
    losses = [2.0, 2.05, 2.09, 2.2, 2.05, 2.2, 2.05]
    found = [play(detector, 10 * number, {"az": 50}, tr=loss) for number, loss in enumerate(losses)]
    assert found == [[]] * len(losses)


def test_a_language_that_is_trained_on_is_not_forgotten():
    detector = Forgetting({"tr-web": "tr"})
    found = [
        play(detector, 10 * number, {"tr-web": 50 * number}, tr=loss)
        for number, loss in enumerate([1.0, 2.0, 3.0, 4.0])
    ]
    assert found == [[]] * 4
    assert play(detector, 50, {"tr-web": 150}, tr=4.0) == []
    assert play(detector, 60, {"tr-web": 150}, tr=4.0) == ["tr"]


def test_a_resumed_run_raises_what_a_whole_one_does():
    whole, first, second = Forgetting(), Forgetting(), Forgetting()
    for detector in (whole, first):
        play(detector, 0, {}, az=3.0, tr=2.0)
        play(detector, 10, {"az": 50}, az=3.0, tr=2.5)
    second.load_state_dict(first.state_dict())
    assert play(whole, 20, {"az": 90}, az=3.5, tr=2.5) == ["tr"]
    assert play(second, 20, {"az": 90}, az=3.5, tr=2.5) == ["tr"]
