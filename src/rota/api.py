"""From a config to a prepared folder, a trained run, scores: what the commands do, for use from Python too.

torch and what needs it are imported inside functions: preparing, and whatever only reads files, starts without them.
"""

from __future__ import annotations

import os
import platform
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import numpy as np

from rota.config import RunConfig, as_begun, check_before_preparing, check_goal, difference, goal_of, parse_config
from rota.data.preparation.stages import Progress
from rota.data.preparation.stages import prepare as prepare_data
from rota.data.store import SUBWORDS, Store
from rota.evaluation.config import Changes, EvaluationConfig
from rota.runs import Run
from rota.settings import ConfigError
from rota.start.extension import as_extended, extend
from rota.start.points import with_start

if TYPE_CHECKING:
    from rota.evaluation.evaluate import Evaluation
    from rota.student.nmt import NMT
    from rota.teachers import Classroom
    from rota.team import Team
    from rota.training.alarms import Detector
    from rota.training.config import TrainingConfig
    from rota.training.devsets import DevSets
    from rota.training.listeners import Listener
    from rota.training.loop import Loop
    from rota.training.spot_checks import SpotChecks
    from rota.types import Arm, BatchStream, Mixture, ProbedStudent

Listeners: TypeAlias = "Sequence[Listener | Callable[[Loop], Listener]]"
"""Objects that follow a run; a function is called with the loop when training begins, and returns the listener."""


def cache_folder() -> Path:
    """Where downloads are kept: ``ROTA_CACHE``, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rota"
    return Path(os.environ.get("ROTA_CACHE", default))


def prepare(
    config: RunConfig, *, again: bool = False, processes: int | None = None, progress: Progress | None = None
) -> Store:
    """The encoded data of a config; if they exist already, they are only opened.

    ``processes``: by default one for each core if the corpus is large, else this one alone.
    """
    check_goal(config)
    return prepare_data(
        config.data.corpus_config,
        config.data.cleaning,
        config.data.subwords,
        config.data_folder,
        cache=cache_folder(),
        seed=config.data.seed,
        mess=config.data.mess,
        again=again,
        processes=processes,
        progress=progress,
    )


def build_loop(
    config: RunConfig,
    store: Store,
    run: Path,
    team: Team | None = None,
    *,
    stem: Path | None = None,
    plan: str | None = None,
) -> Loop:
    """All parts of a run, put together and resumed from its newest checkpoint; ``team`` trains it together.

    ``stem``, ``plan``: as in :func:`train`.
    """
    import torch

    from rota.data.batches import make_stream
    from rota.data.selection import Ranks
    from rota.runs import Record
    from rota.runs.earlier import mixture_named
    from rota.start.vectors import first_weights
    from rota.student.nmt import build_student
    from rota.teachers import build_teacher
    from rota.team import Team
    from rota.training.alarms.by_heart import ByHeart
    from rota.training.alarms.guard import watch_over
    from rota.training.alarms.unaligned import Unaligned
    from rota.training.branching import about_stem, branch
    from rota.training.devsets import DevSets
    from rota.training.distributed import NoRecord
    from rota.training.journal import Journal
    from rota.training.loop import Loop
    from rota.training.probe import Probe
    from rota.training.progress.stopping import Stopping
    from rota.training.streams import Streams
    from rota.training.turns import Turns

    if Run(run).exists:
        config = as_begun(config, Run(run).about["config"])
    training, team = config.training, team or Team()
    store.check()
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    classroom = classroom_of(config, store)
    student = build_student(
        config.student,
        vocabulary=store.manifest.vocabulary,
        steps=training.steps,
        restart=config.teacher.restarts_learning_rate_at(classroom),
        seed=seed_for(config.seed, "student"),
        team=team,
    )
    ranks = Ranks(store.split("train"))
    sets = DevSets(
        store,
        teacher_share=training.teacher_dev,
        division=training.dev_division,
        validate_tokens=training.validate_tokens,
        ranks=ranks,
        goal=classroom.goal,
    )
    teacher = build_teacher(config.teacher, classroom, np.random.default_rng(seed_for(config.seed, "teacher")))
    teacher, alarms = watch_over(
        teacher,
        classroom,
        listens=config.teacher.listens,
        guard=config.teacher.guarded if training.guard is None else training.guard,
        decide_every=config.teacher.decide_every,
        rng=np.random.default_rng(seed_for(config.seed, "guard")),
        more=(Unaligned(), ByHeart(store.language_of), *_forgetting(config, store)),
    )
    turns = Turns(
        teacher,
        decide_every=config.teacher.decide_every,
        observe_every=config.teacher.observes_every(training.steps),
        listens=config.teacher.listens,
        broadcast=team.share,
    )
    budget = {store.arms[-1]: training.last_arm_tokens or training.tokens}
    streams_seed = seed_for(config.seed, "streams")

    def stream(arm: Arm, mixture: Mixture | None) -> BatchStream:
        mixture = mixture or mixture_named(arm, store.sizes, store.low_resource_arms)
        tokens, mixing = budget.get(arm, training.tokens), training.mixed_batches
        return make_stream(store, arm, tokens, streams_seed, mixture=mixture, ranks=ranks, mixing=mixing)

    loop = Loop(
        student,
        turns,
        Streams(stream, streams_seed),
        Probe(student, sets, config.teacher.gauges(), averaged=config.student.average is not None),
        Journal(run, Record if team.first else NoRecord),
        Run(run).checkpoints(training.keep),
        training,
        team,
        alarms,
        _spot_checks(student, sets, training),
        None if training.early_stopping is None else Stopping(training.early_stopping, sets.goal),
        _dev_scores(student, store, sets, training),
    )

    def begin() -> None:
        more: dict[str, Any] = {} if plan is None else {"plan": plan}
        ends = None if stem is None or Run(run).exists else _check_stem(config, store, Run(stem))
        restart = config.teacher.restarts_learning_rate_at(classroom)
        if ends is not None and restart is not None and restart < ends:
            raise ConfigError(
                f"the learning rate restarts at step {restart:,}, before the warm-up ends; leave --stem out"
            )
        if stem is not None and ends is not None:
            more["stem"] = about_stem(Run(stem), ends)
        start_run(config, store, sets.sizes(turns.watches), run, more)
        if stem is not None and "stem" in Run(run).about:
            branch(loop, Run(stem), Run(run).about["stem"])

    team.after_first(begin)
    loop.validates_first = config.student.start is not None
    if loop.resume() is None and config.student.start is not None:
        student.begin_with(first_weights(config.student, store.subwords))
    return loop


def classroom_of(config: RunConfig, store: Store) -> Classroom:
    """What the teacher of a run may know before training starts."""
    from rota.teachers import Classroom

    training = config.training
    return Classroom(
        store.sizes,
        store.low_resource_arms,
        training.steps,
        tokens=store.target_tokens,
        update_tokens=training.tokens * training.accumulate,
        lr_warmup=config.student.lr_warmup.steps(training.steps),
        goal=goal_of(config, store),
        language_of=store.language_of,
        groups=config.data.groups({arm: store.route(arm) for arm in store.arms}),
    )


def stem_of(config: RunConfig) -> RunConfig | None:
    """The run that trains as this one does until its warm-up ends, whatever its teacher does later; None if none does.

    Stopped there, it is a stem: all runs that have the same one may begin from its last checkpoint.
    """
    teacher = config.teacher.stem(config.training.steps)
    return None if teacher is None else parse_config(config.dump() | {"teacher": teacher})


def warmup_steps(config: RunConfig) -> int:
    """Updates until the warm-up ends, which is where runs branch from their stem; 0 without one."""
    warmup = config.teacher.warmup
    return 0 if warmup is None else warmup.until.steps(config.training.steps)


def _check_stem(config: RunConfig, store: Store, stem: Run) -> int:
    """The step at which the run begins; it must be treated as if it had trained the stem itself."""
    expected = stem_of(config)
    if expected is None:
        name = config.teacher.name
        raise ConfigError(f"teacher {name!r} has no warm-up that it is not told of (inform: none); leave --stem out")
    if stem.about["data"]["fingerprint"] != store.fingerprint:
        raise ConfigError(f"{stem} was trained on other data than this run has; give another --stem")
    change = difference(stem.about["config"], expected.dump())
    if change is not None:
        raise ConfigError(f"{stem} is not a stem of this run: {change}; give another --stem")
    return warmup_steps(config)


def _forgetting(config: RunConfig, store: Store) -> list[Detector]:
    """Where a student can lose what it had learned, or a language is measured without being trained on."""
    from rota.training.alarms.forgetting import Forgetting

    untrained = set(store.languages) - set(store.language_of.values())
    return [Forgetting(store.language_of)] if config.student.start is not None or untrained else []


def _spot_checks(student: ProbedStudent, sets: DevSets, training: TrainingConfig) -> SpotChecks | None:
    from rota.training.spot_checks import SpotChecks

    between = max(1, training.validate_every.steps(training.steps)) * training.tokens * training.accumulate
    return SpotChecks(student, sets, share=training.spot_checks, tokens=between) if training.spot_checks else None


def _dev_scores(student: NMT, store: Store, sets: DevSets, training: TrainingConfig) -> Callable[[], Any] | None:
    if not training.dev_sentences:
        return None
    from rota.evaluation.dev_scores import DevScores  # sacreBLEU takes memory, and most runs do without it

    dev = store.split("dev")
    parts = {arm: sets.selection_part(arm) - dev.range(arm)[0] for arm in store.languages}
    targets = tuple(dict.fromkeys(store.route(arm).target for arm in store.languages))
    scores = DevScores(student.network, store, parts, sentences=training.dev_sentences, targets=targets)
    return scores.take


def train(
    config: RunConfig,
    run: Path | str,
    *,
    until: int | None = None,
    listeners: Listeners = (),
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
    stem: Path | str | None = None,
    plan: str | None = None,
    steps: int | None = None,
) -> Loop:
    """Train, or resume training, the run in the folder ``run``; the data are prepared first if necessary.

    ``progress`` is told how far preparing is, ``listeners`` how training goes; it ends, and saves, at step ``until``,
    at the end of the run, or when ``stop()`` is true after an update. Each of them that is a context manager is entered
    for as long as it is used: a progress bar while data are prepared, a display and signal handlers during training.

    ``stem``: the folder of a run of :func:`stem_of` that was stopped where the warm-up ends; a new run begins there
    instead of training the warm-up itself, and is the same bit for bit. ``plan``: the fingerprint of the plan under
    which a new run begins, for its records. ``steps``: a run that has begun goes on to this step, further than its
    config says; a message tells whether the learning rate is made for that.

    Under ``torchrun`` its processes train the run together; the first one alone has listeners.
    """
    from rota.training.distributed import join_team

    run = Path(run)
    with join_team(config.student.device) as team:
        config = config.model_copy(update={"student": with_start(config.student, run)})
        check_before_preparing(config, run, team)
        with _alone(Run(run)) if team.first else nullcontext():
            if steps is not None:
                team.after_first(lambda: extend(config, Run(run), steps))
            config = as_extended(config, Run(run))
            with _entered(progress):
                store = team.after_first(lambda: prepare(config, progress=progress))
            loop = build_loop(config, store, run, team, stem=None if stem is None else Path(stem), plan=plan)
            if not loop.is_over:
                if Run(run).stop is not None:
                    loop.journal.stop({"step": loop.step, "why": "continued"})
                run_loop(loop, config, run, until=until, listeners=listeners, stop=stop)
    return loop


def run_loop(
    loop: Loop,
    config: RunConfig,
    run: Path,
    *,
    until: int | None = None,
    listeners: Listeners = (),
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train with a loop that :func:`build_loop` made, as :func:`train` does, with TensorBoard beside the listeners."""
    from rota.student.hardware import TooLargeError
    from rota.student.optimiser import NotFiniteError
    from rota.training.listeners import TensorBoard

    with ExitStack() as stack:
        stack.callback(loop.journal.close)
        stack.enter_context(_entered(stop))
        if loop.team.first:
            loop.listeners = [listener(loop) if callable(listener) else listener for listener in listeners]
            for listener in loop.listeners:
                stack.enter_context(_entered(listener))
            if config.training.tensorboard:
                board = stack.enter_context(closing(TensorBoard(Run(run).tensorboard_folder, loop.step)))
                loop.listeners = [*loop.listeners, board]
        try:
            loop.run(until, stop)
        except (NotFiniteError, TooLargeError) as error:
            newest = loop.checkpoints.newest()
            good = "No checkpoint was saved yet." if newest is None else f"The last good checkpoint is {newest.folder}."
            raise type(error)(f"{error} {good}") from None


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """Only one process, or one team, trains a run; a new folder is removed if a mistake kept the run from beginning."""
    new = not run.folder.exists()
    with run.locked():
        try:
            yield
        finally:
            if new and not run.exists:
                shutil.rmtree(run.folder, ignore_errors=True)


def _entered(thing: object) -> AbstractContextManager[object]:
    return thing if isinstance(thing, AbstractContextManager) else nullcontext()


def evaluate(
    run: Path | str,
    *,
    split: Literal["dev", "test"] = "test",
    step: int | None = None,
    progress: Progress = lambda *_: None,
    processes: int = 1,
    **changes: Unpack[Changes],
) -> Evaluation:
    """Translate and score a run's test (or dev) sets; ``changes`` take the place of the settings in its config.

    ``select``: low-resource, macro, high-resource, goal, loss or none. ``combine``: last, average or ensemble.
    ``processes`` translate at the same time if the model is on a CPU, with the same result; ``rota evaluate`` takes one
    for each thread of torch.
    """
    from rota.evaluation.evaluate import evaluate as evaluate_run
    from rota.evaluation.evaluate import open_data

    found = Run(run)
    store = open_data(found)
    written = EvaluationConfig.model_validate(found.setting("config.evaluation"))
    config = written.changed(step=step, **changes)
    return evaluate_run(found.folder, store, config, split=split, step=step, progress=progress, processes=processes)


def start_run(
    config: RunConfig, store: Store, measured: dict[str, Any], run: Path, more: Mapping[str, Any] | None = None
) -> None:
    """Write what the run is, and ``more`` about how it began, or make sure that the folder holds this very run."""
    folder, about = Run(run), describe(config, store) | {"measured": measured} | dict(more or {})
    if folder.is_published:
        raise ConfigError(f"{run} holds published records, without models to resume from; choose another folder")
    if folder.exists:
        _same_run(folder.about, about, run)
        return
    run.mkdir(parents=True, exist_ok=True)
    for name in (SUBWORDS, "sentencepiece.bpe.model"):  # the latter only of a tokenizer that came with one
        if (store.folder / name).is_file():
            shutil.copyfile(store.folder / name, run / name)
    folder.write_about(about)


def describe(config: RunConfig, store: Store) -> dict[str, Any]:
    """What ``run.json`` says: resolved config, data, versions, hardware."""
    import torch

    data = {"folder": str(store.folder.resolve()), "fingerprint": store.fingerprint}
    data["subwords"] = store.manifest.files[SUBWORDS].sha256
    names = ("rota-nmt", "torch", "numpy", "tokenizers", "sacrebleu")
    hardware = {"machine": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return {
        "config": config.dump(),
        "config_fingerprint": config.fingerprint,
        "seed": config.seed,
        "data": data | about_languages(store),
        "versions": {name: version(name) for name in names} | {"python": platform.python_version()},
        "hardware": hardware,
    }


def about_languages(store: Store) -> dict[str, Any]:
    """Languages and their sizes; with several arms a language also those, and what each translates."""
    found: dict[str, Any] = {"low_resource": list(store.low_resource), "sizes": dict(store.language_sizes)}
    if store.manifest.routes:
        found["arms"] = dict(store.sizes)
        found["routes"] = {name: asdict(store.route(name)) for name in dict.fromkeys((*store.languages, *store.arms))}
    return found


def _same_run(before: dict[str, Any], now: dict[str, Any], run: Path) -> None:
    if before["data"]["fingerprint"] != now["data"]["fingerprint"]:
        raise ConfigError(f"{run} was trained on other data; choose another folder with --run, or delete this one")
    change = difference(before["config"], now["config"])
    if change is not None:
        longer = f"go on with --steps {before['config']['training']['steps']}, extend it with a larger count, "
        remedy = (longer if change.startswith("training.steps ") else "") + "choose another folder with --run"
        raise ConfigError(f"{run} holds another run: {change}; {remedy}, or delete it")


def seed_for(seed: int, component: str) -> int:
    """A seed of its own for each component, so that adding one changes no other."""
    return int(np.random.SeedSequence([seed, zlib.crc32(component.encode())]).generate_state(1)[0])
