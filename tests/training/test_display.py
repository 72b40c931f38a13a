import io

from rich.console import Console

from rota.training.listeners import Display
from rota.types import Decision


def shown(display):
    console = Console(file=io.StringIO(), width=100)
    console.print(display.render())
    return console.file.getvalue()


def make(terminal=False, languages=("az", "tr")):
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    return Display(console, title="run (uniform)", languages=languages, steps=200)


def test_it_shows_step_loss_shares_and_dev_losses():
    display = make()
    with display:
        display.updated(50, Decision("az", "sampled"), 4.5, {"az": 250, "tr": 750})
        display.validated(50, {"az": 3.25, "tr": 2.5})
    text = shown(display)
    for words in ("run (uniform)", "50/200", "loss 4.500", "tokens/s", "left", "25.0%", "75.0%", "3.250", "2.500"):
        assert words in text


def test_the_best_dev_loss_stays_while_the_last_one_changes():
    display = make()
    display.validated(1, {"az": 2.0, "tr": 3.0})
    display.validated(2, {"az": 2.5, "tr": 2.75})
    row = next(line for line in shown(display).splitlines() if line.strip().startswith("az"))
    assert row.split()[-2:] == ["2.500", "2.000"]


def test_a_resumed_run_keeps_its_shares():
    display = make()
    display.resume(100, {"az": 10, "tr": 30})
    assert "100/200" in shown(display)
    assert "75.0%" in shown(display)


def test_a_resumed_run_keeps_its_best_dev_losses():
    display = make()
    display.resume(100, {}, [{"az": 2.0, "tr": 3.0}, {"az": 2.5, "tr": 2.75}])
    assert next(line for line in shown(display).splitlines() if "az" in line).split()[-2:] == ["2.500", "2.000"]
    display.validated(150, {"az": 2.25, "tr": 2.0})
    assert next(line for line in shown(display).splitlines() if "az" in line).split()[-2:] == ["2.250", "2.000"]


def test_without_a_terminal_every_validation_is_a_line():
    display = make()
    with display:
        display.updated(50, Decision("az", "sampled"), 4.5, {"az": 250})
        display.validated(50, {"az": 3.0, "tr": 2.0})
    lines = display.console.file.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("step 50/200 | loss 4.500")
    assert lines[0].endswith("mean dev loss 2.500")


def test_many_languages_do_not_fill_the_screen():
    display = make(languages=[f"l{number}" for number in range(100)])
    display.updated(1, Decision("l7", "sampled"), 1.0, {"l7": 5})
    assert shown(display).count("%") == 24
    assert "l7" in shown(display)
