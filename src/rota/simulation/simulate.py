"""Any teacher in a scripted world, in seconds, beside the best fixed mixture. For understanding, not for results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from rota.simulation.worlds import ScriptedStudent, World, played_arm
from rota.teachers import TeacherConfig, build_teacher
from rota.training.alarms import Alarm, Alarms
from rota.training.alarms.guard import watch_over
from rota.training.turns import Turns
from rota.types import Arm, FloatArray, Teacher

POINTS = 100
"""Points of the loss curves that a simulation keeps."""

VALIDATIONS = 20
"""How often it looks for alarms of the dev loss, as a run does by default."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a teacher did and where the student ended; plain values, ready for JSON."""

    shares: dict[Arm, float]  # of the updates
    steps: list[int]  # at which the losses were written down
    losses: dict[Arm, list[float]]  # dev losses without noise, nats per token
    played: dict[Arm, list[int]]  # updates since the step before
    final_losses: dict[Arm, float]
    macro_loss: float  # mean of the final losses of the languages
    alarms: list[str] = field(default_factory=list)  # what a run would have said meanwhile

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _Curves:
    """Losses and counts at some steps along the way."""

    def __init__(self, world: World, losses: FloatArray) -> None:
        self.world, self.arms, self.steps = world, world.arms, [0]
        self.losses, self.played = [losses], [Counter[Arm]()]

    def point(self, step: int, losses: FloatArray, played: Counter[Arm]) -> None:
        """Write down the losses now and move the counts since the last point here."""
        self.steps.append(step)
        self.losses.append(losses)
        self.played.append(Counter(played))
        played.clear()

    def result(self) -> SimulationResult:
        total: Counter[Arm] = sum(self.played, Counter())
        final = self.losses[-1]
        return SimulationResult(
            shares={arm: total[arm] / max(1, total.total()) for arm in self.arms},
            steps=self.steps,
            losses={arm: [float(losses[i]) for losses in self.losses] for i, arm in enumerate(self.arms)},
            played={arm: [played[arm] for played in self.played] for arm in self.arms},
            final_losses={arm: float(loss) for arm, loss in zip(self.arms, final, strict=True)},
            macro_loss=float(self.world.macro(final)),
        )


def simulate(
    teacher: Teacher,
    world: World,
    steps: int,
    *,
    decide_every: int = 1,
    observe_every: int | None = None,
    rng: np.random.Generator | None = None,
    alarms: Alarms | None = None,
) -> SimulationResult:
    """The training loop with a scripted student; ``rng`` is for the noise of its losses."""
    alarms, raised = alarms or Alarms(), list[Alarm]()
    turns = Turns(teacher, decide_every=decide_every, observe_every=observe_every)
    rng = np.random.default_rng(0) if rng is None else rng
    student, (mixture_rng,) = ScriptedStudent(world, rng), rng.spawn(1)
    curves = _Curves(world, student.losses())
    since_point, every = Counter[Arm](), max(1, steps // POINTS)
    while student.step < steps:
        decision = turns.decide(student.step)
        arm = played_arm(decision, mixture_rng)
        loss = student.update(arm)
        turns.played(loss, {arm: 1})
        since_point[arm] += 1
        raised += alarms.updated(student.step, decision, loss, turns.seen)
        measures = turns.due(student.step)
        if measures is not None:
            # Many schedules watch nothing; making the scene would be most of their time.
            scene = student.scene(turns.window()) if measures else None
            measured = {measure: measure.imagine(scene) for measure in measures} if scene else {}
            rewards = turns.tell(student.step, measured)
            raised += alarms.told(student.step, rewards, teacher)
        if student.step % max(1, steps // VALIDATIONS) == 0:
            raised += alarms.validated(student.step, dict(zip(world.arms, student.losses().tolist(), strict=True)))
        if student.step % every == 0 or student.step == steps:
            curves.point(student.step, student.losses(), since_point)
    return replace(curves.result(), alarms=[f"step {alarm.step:,}: {alarm.text}" for alarm in raised])


def simulate_config(
    config: TeacherConfig, world: World, steps: int, *, seed: int = 1, guard: bool | None = None
) -> SimulationResult:
    """The teacher of a config, deciding and observing as often as it says; under the guard as in a run."""
    teacher_rng, noise_rng, guard_rng = np.random.default_rng(seed).spawn(3)
    classroom = world.classroom(steps)
    every, observe = config.decide_every, config.observes_every(steps)
    teacher, alarms = watch_over(
        build_teacher(config, classroom, teacher_rng),
        classroom,
        listens=config.listens,
        guard=config.guarded if guard is None else guard,
        decide_every=every,
        rng=guard_rng,
    )
    return simulate(teacher, world, steps, decide_every=every, observe_every=observe, rng=noise_rng, alarms=alarms)


def fixed_mixture(world: World, shares: Mapping[Arm, float], steps: int) -> SimulationResult:
    """Exactly these shares at every moment, which need not sum to one: no teacher and no chance."""
    row = np.array([shares.get(arm, 0.0) for arm in world.arms], dtype=float)
    if not row.sum() > 0:
        raise ValueError(f"the shares {dict(shares)} give nothing to {', '.join(world.arms)}; give one of them a share")
    row /= row.sum()
    curves = _Curves(world, world.final_losses(row, 0))
    curves.point(steps, world.final_losses(row, steps), Counter())
    return replace(curves.result(), shares=dict(zip(world.arms, row.tolist(), strict=True)))


def best_mixture(world: World, steps: int, *, seed: int = 1, rounds: int = 40, tries: int = 500) -> dict[Arm, float]:
    """The fixed shares of the lowest macro loss: random ones first, then closer and closer to the best so far."""
    rng = np.random.default_rng(seed)
    languages = len(world.arms)
    candidates = np.vstack(
        [np.eye(languages), np.full(languages, 1 / languages), rng.dirichlet(np.ones(languages), tries)]
    )
    best, lowest = candidates[0], np.inf
    for number in range(rounds):
        macro = world.macro(world.final_losses(candidates, steps))
        if macro.min() < lowest:
            best, lowest = candidates[int(macro.argmin())], float(macro.min())
        spread = 0.5 * 0.85**number
        moved = (1 - spread) * best + spread * rng.dirichlet(np.full(languages, 0.5), tries)
        shrunk = best * np.exp(spread * rng.standard_normal((tries, languages)))
        candidates = np.vstack([moved, shrunk / shrunk.sum(axis=1, keepdims=True)])
    return dict(zip(world.arms, best.tolist(), strict=True))


def compare(
    configs: Mapping[str, TeacherConfig], world: World, steps: int, *, seed: int = 1, guard: bool | None = None
) -> dict[str, SimulationResult]:
    """Each teacher by its name, beside ``uniform mixture`` and ``best fixed mixture``."""
    results = {name: simulate_config(config, world, steps, seed=seed, guard=guard) for name, config in configs.items()}
    results["uniform mixture"] = fixed_mixture(world, dict.fromkeys(world.arms, 1.0), steps)
    results["best fixed mixture"] = fixed_mixture(world, best_mixture(world, steps, seed=seed), steps)
    return results
