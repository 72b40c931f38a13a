"""Training and evaluation with a display: what ``rota train``, ``evaluate`` and ``demo`` share."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Literal, Unpack, cast

from rich.logging import RichHandler

from rota import api, show
from rota.checks import check_before_preparing
from rota.config import RunConfig, teacher_config
from rota.data.store import Store
from rota.evaluation.config import Changes
from rota.evaluation.evaluate import Evaluation
from rota.evaluation.policy import PolicyProbe, probe_checkpoint
from rota.evaluation.translator import find_checkpoint, read_run
from rota.report.figures.teachers import plot_policy
from rota.runs.records import read_record
from rota.student.hardware import TooLargeError
from rota.student.nmt import NotFiniteError
from rota.student.team import Team
from rota.training.display import Display
from rota.training.distributed import RankLostError, join_team
from rota.training.loop import Loop
from rota.training.scripted import make_world
from rota.training.simulate import SimulationResult, compare
from rota.training.stop import StopSignal, stop_on_signals


def train_with_display(config: RunConfig, run: Path, *, until: int | None, again: str) -> Loop:
    """Train under a live display; ``again`` is the command that goes on after an interruption."""
    log_to_console()
    try:
        with join_team(config.student.device) as team:
            show.console.quiet = not team.first
            check_before_preparing(config, run, team)
            with show.progress_bar() as progress:
                store = team.after_first(lambda: api.prepare(config, progress=progress))
            with api.locked(run, team):
                return _train(config, store, run, team, until=until, again=again)
    except RankLostError as error:
        if error.speaks:
            raise
        raise SystemExit(1) from None


def _train(config: RunConfig, store: Store, run: Path, team: Team, *, until: int | None, again: str) -> Loop:
    loop = api.build_loop(config, store, run, team)
    if loop.step >= loop.steps:
        show.say(f"{run} is trained: {_steps(loop)}. Next: {show.program()} evaluate {run}")
        return loop
    if until is not None and until > loop.steps:
        show.say(f"--until {until:,} is beyond the run, which ends at step {loop.steps:,} (training.steps)")
    together = f" with {team.size} processes" if team.size > 1 else ""
    if loop.step or together:
        show.say(f"{'going on from' if loop.step else 'starting at'} step {loop.step:,}{together}")
    title = f"{run.name} ({config.teacher.name})"
    display = Display(show.console, title=title, languages=store.languages, steps=loop.steps)
    display.resume(loop.step, loop.seen, (entry["dev_loss"] for entry in read_record(run / "validations.jsonl")))
    with stop_on_signals() as stop, display:
        try:
            api.run_loop(loop, config, run, until=until, listeners=[display], stop=stop)
        except (NotFiniteError, TooLargeError) as error:
            raise type(error)(f"{error} {_last_good(loop)}") from None
    _say_how_it_ended(loop, run, again, stop, reached=loop.step == until)
    return loop


def _steps(loop: Loop) -> str:
    return "1 step" if loop.step == 1 else f"{loop.step:,} steps"


def _last_good(loop: Loop) -> str:
    newest = loop.checkpoints.newest()
    return "No checkpoint was saved yet." if newest is None else f"The last good checkpoint is {newest.folder}."


def _say_how_it_ended(loop: Loop, run: Path, again: str, stop: StopSignal, *, reached: bool) -> None:
    """An interrupted command ends with the exit code of its signal, so that a script does not go on."""
    if loop.step >= loop.steps:
        show.say(f"trained {_steps(loop)}; next: {show.program()} evaluate {run}")
        return
    why = "reached --until" if reached else "stopped"
    command = again if loop.team.size == 1 else f"the same command, or in one process: {again}"
    show.say(f"{why} at step {loop.step:,} and saved; go on with: {command}")
    if stop.received is not None:
        raise SystemExit(128 + signal.Signals[stop.received])


def evaluate_with_display(
    run: Path, *, split: str = "test", step: int | None = None, **changes: Unpack[Changes]
) -> Evaluation:
    """Scores of a run under a progress bar; options that are given take the place of the config's."""
    if split not in ("dev", "test"):
        raise ValueError(f"--split is {split!r}; it is dev or test")
    log_to_console()
    try:
        with show.progress_bar() as progress:
            return api.evaluate(run, split=cast(Literal["dev", "test"], split), step=step, progress=progress, **changes)
    except KeyboardInterrupt:
        show.say("stopped; what has been translated is kept, and the same command goes on from there")
        raise SystemExit(128 + signal.SIGINT) from None


def simulate_teachers(
    names: list[str], world: str, steps: int, seed: int, overrides: list[str]
) -> dict[str, SimulationResult]:
    """Each teacher on the scripted student; durations of the paper's 150k steps become shares of the short run."""
    configs = {name: teacher_config(name, overrides) for name in names}
    return compare(configs, make_world(world, steps), steps, seed=seed)


def probe_policy(run: Path, step: int | None, factor: float) -> tuple[PolicyProbe, Path]:
    """The probe of a run's Q network, also written to its folder ``policy`` as JSON and as a picture."""
    read_run(run)
    probe = probe_checkpoint(find_checkpoint(run, step), factor=factor)
    saved = probe.write(run / "policy" / f"{probe.step}.json")
    return probe, plot_policy(saved, saved.with_suffix(".png"))


def log_to_console() -> None:
    """Messages go through the console, so that they do not tear a live display."""
    handler = RichHandler(console=show.console, show_path=False, show_time=False, show_level=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True, handlers=[handler])
