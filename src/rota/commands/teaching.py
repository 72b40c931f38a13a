"""``rota teachers``, ``simulate`` and ``policy``. Heavy imports wait until they are needed."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.commands.app import RunPath, app


@app.command()
def teachers() -> None:
    """List the teachers with their parameters, defaults and sources.

    Example: rota teachers | less
    """
    from rota import show
    from rota.teachers import TEACHERS

    for name, config in TEACHERS.items():
        show.console.print(show.teacher_table(name, config))


@app.command()
def simulate(
    names: Annotated[
        list[str] | None, typer.Argument(help="Teachers; by default uniform, tscl and dqn.", metavar="TEACHER")
    ] = None,
    world: Annotated[str, typer.Option(help="stationary, switch or transfer.")] = "transfer",
    steps: Annotated[int, typer.Option(help="Updates of the scripted student.", min=1)] = 3000,
    seed: Annotated[int, typer.Option(help="The seed of teachers and noise.")] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of every teacher named, such as epsilon=0.3; may be repeated.", metavar="KEY=VALUE"
        ),
    ] = None,
) -> None:
    """Try teachers in seconds on a scripted student with known learning curves. For understanding, not for results.

    Example: rota simulate tscl --world switch --set epsilon=0.3
    """
    from rota import show
    from rota.runner import simulate_teachers

    results = simulate_teachers(names or ["uniform", "tscl", "dqn"], world, steps, seed, set_ or [])
    show.console.print(show.simulation_table(results, f"world {world}, {steps:,} updates of a scripted student"))


@app.command()
def policy(
    run: RunPath,
    step: Annotated[int | None, typer.Option(help="Which checkpoint; by default the last.")] = None,
    factor: Annotated[float, typer.Option(help="By which the losses of one language are multiplied.", min=0)] = 5.0,
) -> None:
    """Show what the Q network of a DQN run would do if one language were poorly learned (Section 5.5 of the paper).

    Example: rota policy runs/dqn --step 28000
    """
    from rota import show
    from rota.runner import probe_policy

    probe, picture = probe_policy(run, step, factor)
    show.console.print(show.policy_table(probe))
    show.console.print(f"drawn in {picture}")
