import os
import signal

import pytest

from rota.training.loop import StopSignal


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_a_ctrl_c_after_it_stops_at_once(first):
    with StopSignal() as stop:
        assert not stop()
        os.kill(os.getpid(), first)
        assert stop()
        assert stop.received == first.name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_sigterm_that_comes_again_does_not_end_a_run_that_is_saving(first):
    with StopSignal() as stop:
        os.kill(os.getpid(), first)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == first.name


def test_afterwards_signals_do_what_they_did_before():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
