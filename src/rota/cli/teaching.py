"""``rota teachers``, ``simulate``, ``policy`` and ``advise``."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import views
from rota.cli.application import RunPath, app

if TYPE_CHECKING:
    from rota.runs import Run


@app.command()
def teachers(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A teacher, for its settings, defaults and source.", metavar="NAME", show_default="all, one line each"
        ),
    ] = None,
) -> None:
    """List the teachers: what each does, observes and takes of a run's time, its source; with NAME, one in detail.

    Example: rota teachers temperature
    """
    from rota.teachers import TEACHERS
    from rota.teachers.curricula import CURRICULA
    from rota.teachers.lookup import find_kind

    if name is None:
        views.console.print(views.teacher_list({**TEACHERS, **CURRICULA}), soft_wrap=True)
    else:
        kind = CURRICULA[name] if name in CURRICULA else find_kind(name, TEACHERS)
        views.console.print(views.teacher_table(name, kind))


@app.command()
def simulate(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Teachers, by name.", metavar="TEACHER", show_default="uniform, tscl and dqn"),
    ] = None,
    world: Annotated[
        str, typer.Option(help="stationary, switch, transfer, noisy, useless, repeated or forgetting.")
    ] = "transfer",
    steps: Annotated[int, typer.Option(help="Updates of the scripted student.", min=1)] = 3000,
    seed: Annotated[int, typer.Option(help="The seed of teachers and noise.")] = 1,
    all_: Annotated[
        bool, typer.Option("--all", help="The league: every teacher, or those named, in five worlds, as Markdown.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Seeds of the league.", min=1)] = 20,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of every teacher named, such as epsilon=0.3; may be repeated.",
            metavar="KEY=VALUE",
            show_default="each teacher's own",
        ),
    ] = None,
    guard: Annotated[
        bool | None,
        typer.Option(
            "--guard/--no-guard",
            help="With or without the guard of learned teachers.",
            show_default="as in training: not for variant paper or released",
        ),
    ] = None,
) -> None:
    """Try teachers in seconds on a scripted student with known learning curves. For intuition, not for results.

    Example: rota simulate tscl --world switch --set epsilon=0.3
    """
    from rota.config import teacher_config
    from rota.simulation.simulate import compare
    from rota.simulation.worlds import make_world

    if all_:
        _league(names, steps, seeds, set_ or [])
        return
    configs = {name: teacher_config(name, set_ or [], steps=steps) for name in names or ["uniform", "tscl", "dqn"]}
    results = compare(configs, make_world(world, steps), steps, seed=seed, guard=guard)
    views.console.print(views.simulation_table(results, f"world {world}, {steps:,} updates of a scripted student"))
    for name, result in results.items():
        for alarm in result.alarms:
            views.say(f"{name}, {alarm}")


def _league(names: list[str] | None, steps: int, seeds: int, overrides: list[str]) -> None:
    from rota.config import teacher_config
    from rota.simulation.league import entrants, play, player

    make = partial(teacher_config, steps=steps)
    with views.ProgressBar() as progress:
        named = {name: player(name, make, overrides) for name in names or []}
        players, left_out = (named, {}) if names else entrants(make)
        league = play(players, seeds=seeds, steps=steps, left_out=left_out, progress=progress)
    said = f"{steps:,} updates, {seeds} seeds, mean ± standard error"
    views.say(f"gain over equal shares in thousandths of a nat, {said}\n")
    views.say(league.markdown())
    for name, why in league.left_out.items():
        views.say(f"\nnot simulated: {name} ({why})")


@app.command()
def policy(
    run: RunPath,
    step: Annotated[int | None, typer.Option(help="Which checkpoint.", show_default="the last")] = None,
    factor: Annotated[float, typer.Option(help="By which the losses of one language are multiplied.", min=0)] = 5.0,
) -> None:
    """Show what a teacher has learned: what the Q network of a DQN run would do if one language were poorly learned
    (Section 5.5 of the paper), or who helps whom in a run of align with map: true.

    Example: rota policy runs/dqn --step 28000
    """
    from rota.runs import Run

    folder = Run(run)
    if folder.setting("config.teacher.name") == "align":  # raises an error if this is not a run
        _show_help(folder)
        return
    from rota.report.figures.teachers import plot_policy
    from rota.teachers.dqn.policy import probe_checkpoint

    probe = probe_checkpoint(folder.checkpoint(step), factor=factor)
    saved = probe.write(folder.policy_folder / f"{probe.step}.json")
    picture = plot_policy(saved, saved.with_suffix(".png"))
    views.console.print(views.policy_table(probe))
    views.console.print(f"drawn in {picture}")


def _show_help(run: Run) -> None:
    """Who helps whom: the map of the whole run as a table and as JSON, and both halves of it as a picture."""
    from rota.files import write_json
    from rota.report.figures.helping import plot_maps
    from rota.report.numbers.helping import help_maps

    observations, arms = list(run.read("observations")), list(run.arms)
    whole = help_maps(observations, arms)
    if not whole:
        raise ValueError(f"{run} has recorded no map of who helps whom; train with map: true in its teacher")
    saved = run.policy_folder / "who-helps-whom.json"
    saved.parent.mkdir(exist_ok=True)
    write_json(saved, whole[0].as_json(), checked=True)
    halves = help_maps(observations, arms, 2, run.language_of)
    picture = plot_maps(halves, saved.with_suffix(".png"), "Who helps whom")
    views.console.print(views.help_table(whole[0]))
    views.console.print(f"drawn in {picture}")


@app.command()
def advise(
    run: RunPath,
    json_: Annotated[bool, typer.Option("--json", help="Everything as JSON, numbers included.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Where the picture goes, a PNG.", show_default="advice.png in the run folder")
    ] = None,
) -> None:
    """Say in plain words what the records of a run show: which arms helped the goal, which hurt, which are learned by
    heart, what to collect more of, and how sure this is.

    Example: rota advise runs/my
    """
    from rota.report.advice import advise as advise_on
    from rota.report.advice import written
    from rota.report.figures.advice import advice_figure
    from rota.report.numbers.advice import read_facts
    from rota.report.study import StudyRun

    if picture is not None and picture.suffix.lower() != ".png":
        raise ValueError(f"--picture {picture}: the picture is a PNG; write for example --picture advice.png")
    facts = read_facts(StudyRun(run, run.name))
    advice, drawn = advise_on(facts), picture or run / "advice.png"
    drawn.parent.mkdir(parents=True, exist_ok=True)
    drawn.write_bytes(advice_figure(facts).png)
    if json_:
        sys.stdout.write(json.dumps({**advice.as_json(), "picture": str(drawn)}, indent=2, ensure_ascii=False) + "\n")
        return
    views.say(written(advice, views.console.width))
    goal = "; * counts in the goal" if any(each.weight for each in facts.arms) else ""
    views.say(f"\ndrawn in {drawn}{goal}")
