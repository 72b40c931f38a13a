"""Gymnasium environments in which a reinforcement learner is the teacher: an episode is a training run.

A step is ``decide_every`` updates on what the action names. The learner sees what a teacher of Rota is told (the dev
loss of every arm, :class:`rota.teachers.sb3.Outlook`) and is rewarded as one (``rota/teachers/rewards.py``).
"""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import gymnasium
import numpy as np
from gymnasium import spaces

from rota.measures import Measure
from rota.simulation.worlds import ScriptedStudent, World, make_world, played_arm, varied
from rota.teachers.base import Classroom
from rota.teachers.rewards import REWARDS, SCALES, RewardName, ScaleName
from rota.teachers.sb3 import MIXTURE, Actions, Outlook
from rota.training.turns import Turns
from rota.types import Arm, Decision, FloatArray, Mixture, Observation, State

if TYPE_CHECKING:
    from rota.config import RunConfig
    from rota.training.loop import Loop


class Obedient:
    """A teacher that decides what it was ordered to, and keeps what it is told."""

    def __init__(self, watches: Sequence[Measure]) -> None:
        self.watches: Sequence[Measure] = tuple(watches)
        self.order: Decision | None = None
        self.told: Observation | None = None

    def ask(self, step: int) -> Decision:
        assert self.order is not None, f"nothing was ordered for step {step}"
        return self.order

    def tell(self, observation: Observation) -> None:
        self.told = observation

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """It remembers nothing from one step to the next."""


class TeachingEnv(gymnasium.Env[FloatArray, Any]):
    """What both environments are: a learner chooses, a student is trained, the goal's dev loss falls or does not.

    ``actions``: ``arm``, one of the arms by its number; ``mixture``, an entry from -1 to 1 for each arm, from which
    shares are made (:meth:`rota.teachers.sb3.Outlook.shares`) that every update is drawn from. ``reward``:
    ``step-gain`` of the goal's loss, which sums up to how far it falls in an episode; ``gain-over-mean`` of it; or
    ``same-arm-gain`` of the loss of the arm that was chosen.
    """

    def __init__(
        self,
        classroom: Classroom,
        *,
        decide_every: int,
        actions: Actions,
        reward: RewardName,
        reward_scale: ScaleName,
        tokens: int,
    ) -> None:
        _check_choice("actions", actions, get_args(Actions))
        _check_choice("reward", reward, tuple(REWARDS))
        _check_choice("reward_scale", reward_scale, tuple(SCALES))
        if reward == "same-arm-gain" and actions == "mixture":
            raise ValueError("same-arm-gain is the reward of a single arm; use actions='arm', or reward='step-gain'")
        if decide_every < 1 or classroom.steps % decide_every:
            remedy = f"choose a divisor of {classroom.steps:,}"
            raise ValueError(f"decide_every is {decide_every}, and an episode has {classroom.steps:,} steps; {remedy}")
        self.outlook, self.decide_every, self.actions = Outlook(classroom, tokens), decide_every, actions
        self._reward_name, self._reward_scale = reward, reward_scale
        arms = len(classroom.arms)
        self.observation_space = spaces.Box(np.zeros(self.outlook.size, np.float32), self.outlook.highest)
        one: spaces.Space[Any] = spaces.Discrete(arms)
        self.action_space = one if actions == "arm" else spaces.Box(-1.0, 1.0, (arms,), np.float32)
        self._teacher = Obedient([self.outlook.measure])

    @property
    def arms(self) -> tuple[Arm, ...]:
        return self.outlook.arms

    @abstractmethod
    def _begin(self, turns: Turns) -> Observation:
        """A new student; what can be seen of it before any update."""

    @abstractmethod
    def _train(self) -> bool:
        """So many updates as a step has; returns whether the run is over. The teacher has then been told."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._reward = SCALES[self._reward_scale](REWARDS[self._reward_name]())
        first = self._begin(Turns(self._teacher, decide_every=self.decide_every))
        losses = self.outlook.losses(first)
        for arm in self.arms if self._reward_name == "same-arm-gain" else self.arms[:1]:
            self._reward(arm, self._rewarded(arm, losses))
        return self.outlook.seen(first), self._info(first, losses)

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Observation, reward, whether the run is over, False (no episode is cut short), and losses by arm."""
        self._teacher.order = decision = self._decision(action)
        over = self._train()
        observation = self._teacher.told
        assert observation is not None, "the teacher is told after every choice"
        losses = self.outlook.losses(observation)
        gain = self._reward(decision.arm, self._rewarded(decision.arm, losses))
        return self.outlook.seen(observation), gain or 0.0, over, False, self._info(observation, losses)

    def _decision(self, action: Any) -> Decision:
        if self.actions == "arm":
            return Decision(self.arms[int(action)], "action")
        shares = self.outlook.shares(action)
        return Decision(MIXTURE, "action", scores=shares, mixture=Mixture(shares, "batch"))

    def _rewarded(self, arm: Arm, losses: Mapping[Arm, float]) -> float:
        """The loss that the reward is made of."""
        return losses[arm] if self._reward_name == "same-arm-gain" else self.outlook.goal_loss(losses)

    def _info(self, observation: Observation, losses: Mapping[Arm, float]) -> dict[str, Any]:
        return {"step": observation.step, "losses": dict(losses), "loss": self.outlook.goal_loss(losses)}


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(known)}")


class ClassroomEnv(TeachingEnv):
    """A scripted student: a run of 3,000 updates takes a tenth of a second.

    ``world``: a name of ``rota simulate``, or a :class:`~rota.simulation.worlds.World` of your own. ``vary``: every
    episode has learning speeds and transfer that differ from the world's by a factor of e to this power times a normal
    deviate, so that a policy cannot learn the answers of one world by heart.
    """

    def __init__(
        self,
        world: str | World = "transfer",
        *,
        steps: int = 3_000,
        decide_every: int = 10,
        actions: Actions = "arm",
        reward: RewardName = "step-gain",
        reward_scale: ScaleName = "none",
        vary: float = 0.0,
    ) -> None:
        self.world, self.vary = make_world(world, steps) if isinstance(world, str) else world, vary
        self.student: ScriptedStudent | None = None
        super().__init__(
            self.world.classroom(steps),
            decide_every=decide_every,
            actions=actions,
            reward=reward,
            reward_scale=reward_scale,
            tokens=500,
        )

    def _begin(self, turns: Turns) -> Observation:
        world = varied(self.world, self.np_random, self.vary) if self.vary else self.world
        self.student, self._turns = ScriptedStudent(world, self.np_random), turns
        return Observation(0, (), self._measured(turns.watches))

    def _measured(self, measures: Sequence[Measure]) -> dict[Measure, Any]:
        assert self.student is not None
        scene = self.student.scene(self._turns.window())
        return {measure: measure.imagine(scene) for measure in measures}

    def _train(self) -> bool:
        if self.student is None:
            raise ValueError("the episode has not begun; call reset first")
        student, turns = self.student, self._turns
        for _ in range(self.decide_every):
            decision = turns.decide(student.step)
            arm = played_arm(decision, self.np_random)
            turns.played(student.update(arm), {arm: 1})
        turns.tell(student.step, self._measured(turns.watches))
        return student.step >= self.outlook.steps


class StudentEnv(TeachingEnv):
    """A real student: an episode is a run of ``rota train`` with this config, whose teacher is left out.

    Every episode has a seed of its own, for the student and the order of its sentences. With
    ``training.early_stopping`` it is over where the run is, which may be in the middle of a step. ``folder``: runs are
    kept there, as ``episode-1`` and so on, with all their records; otherwise each is deleted when the next one begins.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        decide_every: int = 10,
        actions: Actions = "arm",
        reward: RewardName = "step-gain",
        reward_scale: ScaleName = "none",
        tokens: int = 500,
        folder: Path | str | None = None,
    ) -> None:
        from rota import api

        self.config, self._store = config, api.prepare(config)
        self.folder = None if folder is None else Path(folder)
        self._temporary: Path | None = None
        self.episodes, self.loop = 0, None
        super().__init__(
            api.classroom_of(config, self._store),
            decide_every=decide_every,
            actions=actions,
            reward=reward,
            reward_scale=reward_scale,
            tokens=tokens,
        )

    loop: Loop | None
    """The run of the present episode."""

    def _begin(self, turns: Turns) -> Observation:
        from rota import api
        from rota.config import parse_config

        self._end()
        self.episodes += 1
        values = self.config.dump()
        teacher = {"name": "uniform", "decide_every": self.decide_every}
        training = values["training"] | {"checkpoint_every": "100%", "tensorboard": False}
        seed = int(self.np_random.integers(2**31))
        config = parse_config(values | {"teacher": teacher, "training": training, "seed": seed})
        self.loop = loop = api.build_loop(config, self._store, self._run_folder())
        loop.turns = turns
        loop.probe.prepare(turns.watches)
        return Observation(0, (), loop.probe.read(0, turns.watches, turns.window()))

    def _run_folder(self) -> Path:
        if self.folder is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="rota-episode-"))
            return self._temporary / "run"
        run = self.folder / f"episode-{self.episodes}"
        if run.exists():
            raise ValueError(f"{run} exists already; give another folder, or delete it")
        return run

    def _train(self) -> bool:
        if self.loop is None:
            raise ValueError("the episode has not begun; call reset first")
        loop, until = self.loop, self.loop.step + self.decide_every
        while loop.step < until and not loop.stopped_early:
            loop.advance(until)
        if loop.stopped_early and loop.step < loop.steps:
            if loop.step < until:
                loop.tell(loop.turns.watches)  # the rule ended the run before the teacher was to be told
            loop.save()
        return loop.is_over

    def _end(self) -> None:
        if self.loop is not None:
            self.loop.journal.close()
            self.loop = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def close(self) -> None:
        self._end()


__all__ = ["ClassroomEnv", "StudentEnv", "TeachingEnv"]
