"""The component configs put together: YAML in, checked settings out, mistakes named in one line."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from rota.data.corpora.sources import CorpusConfig, low_resource_by_name
from rota.data.preparation.cleaning import CleaningConfig
from rota.data.preparation.mess import MessConfig
from rota.data.subwords import SubwordsConfig
from rota.evaluation.config import EvaluationConfig
from rota.goal import ALL, GROUPS, Goal, GoalSetting, remedy_once_prepared, resolve
from rota.runs import Run
from rota.settings import (
    BEFORE,
    FREE,
    ConfigError,
    Count,
    Settings,
    explain,
    leaves,
    short,
    where_used,
    with_earlier,
    without_earlier,
)
from rota.student.config import OF_START, StudentConfig
from rota.teachers import AnyTeacherConfig, TeacherConfig
from rota.teachers.base import EXACT
from rota.teachers.static import UniformConfig
from rota.training.config import TrainingConfig

if TYPE_CHECKING:
    from rota.data.store import Store
    from rota.team import Team

logger = logging.getLogger(__name__)

LONGEST: Final = 256_000
"""Characters of a text; a config with patterns for a thousand languages has a third of that."""

DEEPEST: Final = 20
"""Levels of nesting; a config has about five."""

MOST_VALUES: Final = 50_000
"""Values of a text with its aliases written out."""


class DataConfig(CorpusConfig):
    """Which text, where its prepared form lies, and how it is cleaned and cut into subwords."""

    folder: Path | None = Field(None, description="prepared data; null: prepared/<name of the config>")
    seed: Count = Field(
        1, ge=0, description="chooses the lines the subwords are learned from; apart from the run's seed"
    )
    cleaning: CleaningConfig = CleaningConfig()
    subwords: SubwordsConfig = SubwordsConfig()
    mess: MessConfig | None = None  # training pairs degraded on purpose

    def _unused(self) -> set[str]:
        return super()._unused() | ({"mess"} if self.mess is None else set())

    @property
    def corpus_config(self) -> CorpusConfig:
        """The part that says which text, without where and how it is prepared."""
        return CorpusConfig(**{name: getattr(self, name) for name in CorpusConfig.model_fields})


class RunConfig(Settings):
    """Everything one run needs. Each component is handed its own part, never the whole."""

    # Not of dots alone: they would be a folder that is there already.
    name: str = Field(
        "run", pattern=r"^[\w.-]*[\w-][\w.-]*$", description="names the folders; by default that of the config file"
    )
    seed: Count = Field(1, ge=0, description="from which every random choice follows")
    goal: GoalSetting = Field(
        ALL, description="all, low-resource, high-resource, a language, a list, or weights by language"
    )
    data: DataConfig
    student: StudentConfig = StudentConfig()
    teacher: AnyTeacherConfig = UniformConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _select_for_the_goal(cls, values: Any) -> Any:
        """Who names a goal wants the checkpoints that are best at it, unless the config selects otherwise."""
        if not isinstance(values, dict) or values.get("goal", ALL) == ALL:
            return values
        evaluation = values.get("evaluation", {})
        return {**values, "evaluation": {"select": "goal", **evaluation}} if isinstance(evaluation, dict) else values

    @model_serializer(mode="wrap")
    def _goal_where_there_is_one(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return where_used(self, write(self), "goal")

    @model_validator(mode="after")
    def _fit_teacher(self) -> Self:
        """What is not written of a learned teacher follows from the length of the run, and from its goal."""
        fitted = self.teacher.fitted(self.training.steps, self.training.tokens)
        object.__setattr__(self, "teacher", fitted if self.goal == ALL else fitted.with_goal())
        return self

    @model_validator(mode="before")
    @classmethod
    def _tokenizer_of_the_start(cls, values: Any) -> Any:
        """A student that starts from a model reads text as that model did, unless the config gives a tokenizer."""
        student, data = (values.get(key) for key in ("student", "data")) if isinstance(values, dict) else (None, None)
        if not (isinstance(student, dict) and isinstance(data, dict) and isinstance(student.get("start"), str | Path)):
            return values
        subwords = data.get("subwords", {})
        if not isinstance(subwords, dict) or subwords.get("model") is not None:
            return values
        return {**values, "data": {**data, "subwords": {**subwords, "model": student["start"]}}}

    @property
    def data_folder(self) -> Path:
        return self.data.folder or Path("prepared") / self.name

    def dump(self) -> dict[str, Any]:
        """All settings, defaults included, as plain JSON values."""
        return self.model_dump(mode="json")

    @property
    def fingerprint(self) -> str:
        """A short name of all settings; that of a run with the settings of an earlier version is what it was then."""
        return hashlib.sha256(json.dumps(without_earlier(self.dump()), sort_keys=True).encode()).hexdigest()[:16]


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a YAML file, with ``key.path=value`` overrides put on top."""
    path = Path(path)
    values = read_yaml(path)
    if not values.keys().isdisjoint(("base", "rows")):
        raise ConfigError(f"{path} is a suite; use rota compare {path}")
    values.setdefault("name", path.stem)
    return parse_config(values, origin=str(path), overrides=overrides)


def parse_config(values: dict[str, Any], origin: str = "config", overrides: Sequence[str] = ()) -> RunConfig:
    """Plain values as settings, ``overrides`` on top; ``origin`` is where the values were written, for messages."""
    try:
        return RunConfig.model_validate(overridden(values, overrides))
    except ValidationError as error:
        if overrides and _is_right(values):
            origin = f"--set {', '.join(map(repr, overrides))}"
        raise ConfigError(f"{origin}: {explain(error, RunConfig)}") from None


def parse_recorded(dumped: dict[str, Any], origin: str = "run.json") -> RunConfig:
    """The config of a run as its ``run.json`` has it; of an older version, settings that came since are as it did."""
    return parse_config(with_earlier(dumped), origin=origin)


def as_begun(config: RunConfig, dumped: Mapping[str, Any]) -> RunConfig:
    """The config for resuming the run with the recorded config ``dumped``, which may be older than some settings.

    Those keep what the run did before they existed, unless the config names them.
    """
    changed: dict[str, Settings] = {}
    for key, value in BEFORE.items():
        section, name = key.split(".")
        part = changed.get(section, getattr(config, section))
        new = name in type(part).model_fields and name not in dumped.get(section, {})
        if new and name not in part.model_fields_set:
            changed[section] = part.model_copy(update={name: value})
    if config.student.start is not None and "start" in dumped.get("student", {}):
        recorded = StudentConfig.model_validate(dumped["student"])
        student = changed.get("student", config.student)
        assert isinstance(student, StudentConfig)
        changed["student"] = student.completed({name: getattr(recorded, name) for name in OF_START})
    teacher = changed.get("teacher", config.teacher)
    changed["teacher"] = _teacher_as_begun(teacher, dumped.get("teacher", {}))
    return config.model_copy(update=changed)


def _teacher_as_begun(teacher: Settings, dumped: Mapping[str, Any]) -> Settings:
    """Before settings followed the length of a run, they had one default: for a learned teacher, the paper's."""
    own = getattr(teacher, "variant", None)
    if isinstance(teacher, TeacherConfig) and (teacher.name, own) == (dumped.get("name"), dumped.get("variant", own)):
        kept = [name for name in teacher.follows_run if name in dumped and name not in teacher.model_fields_set]
        teacher = teacher.model_copy(update={name: dumped[name] for name in kept})
    exact = "variant" in type(teacher).model_fields and "variant" not in teacher.model_fields_set
    if not exact or dumped.get("variant") not in EXACT or dumped.get("name") != getattr(teacher, "name", None):
        return teacher
    written = {name: getattr(teacher, name) for name in teacher.model_fields_set}
    return type(teacher).model_validate({**written, "variant": dumped["variant"]})


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first setting that makes two dumped configs two runs, with both values; None if it is the same run."""
    old, new = leaves(_with_defaults(before)), leaves(now)
    for key in sorted({*old, *new} - FREE):
        if old.get(key) != new.get(key) and not key.startswith(("evaluation.", "data.")):
            return f"{key} was {_written(key, before, old)} and is {_written(key, now, new)}"
    return None


def _written(key: str, dumped: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """The value of a key that may be a mapping here and a mere value in the other config, or not written at all."""
    below: Any = dumped
    for part in key.split("."):
        below = below.get(part) if isinstance(below, Mapping) else None
    value = known.get(key, below)
    return "not set" if value is None else repr(value)


def _with_defaults(dumped: dict[str, Any]) -> dict[str, Any]:
    """A config as an older version wrote it, with the settings that came since; as it is, if one has gone since."""
    try:
        return parse_recorded(dumped).dump()
    except ConfigError:
        return dumped


def overridden(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of the values with each override put on top."""
    changed = dict(values)
    for override in overrides:
        apply_override(changed, override)
    return changed


def _is_right(values: dict[str, Any]) -> bool:
    try:
        RunConfig.model_validate(values)
    except ValidationError:
        return False
    return True


def teacher_config(name: str, overrides: Sequence[str] = (), *, steps: int, tokens: int = 8_000) -> TeacherConfig:
    """A teacher alone, with settings that follow from the length of a run."""
    values: dict[str, Any] = {"name": name}
    for override in overrides:
        apply_override(values, override)
    try:
        return Teaching.model_validate({"teacher": values}).teacher.fitted(steps, tokens)
    except ValidationError as error:
        raise ConfigError(f"{name}: {explain(error, Teaching)}") from None


class Teaching(Settings):
    """A config of nothing but a teacher."""

    teacher: AnyTeacherConfig


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping read as YAML 1.2: ``no`` is Norwegian, not false."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; give the path of a YAML file")
    if not path.is_file():
        raise ConfigError(f"no config {str(path)!r}; give the path of a YAML file")
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except YAMLMistakeError as mistake:
        line = "" if mistake.line is None else f", line {mistake.line}"
        raise ConfigError(f"{path}{line}: {mistake}; the file is not valid YAML") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a config is a mapping of keys such as data, teacher and training")
    return values


_SHORT_FOR = {"teacher": "name", "first": "name", "second": "name", "warmup": "until", "curriculum": "name"}
"""The key that a mere value stands for: ``teacher: uniform`` is short for ``teacher: {name: uniform}``."""


def apply_override(values: dict[str, Any], override: str) -> None:
    """``teacher.temperature=2`` sets one value; what is right of the ``=`` is read as YAML."""
    key, equals, written = override.partition("=")
    keys, shown = [part.strip() for part in key.split(".")], short(override)
    if not (equals and all(keys)):
        raise ConfigError(f"--set {shown} is not understood; write for example --set training.steps=10k")
    if len(keys) > DEEPEST:
        raise ConfigError(f"--set {shown} has {len(keys):,} keys; a config has about five levels")
    try:
        value = parse_yaml(written)
    except YAMLMistakeError as mistake:
        raise ConfigError(f"--set {shown}: {mistake}; what follows the = must be valid YAML") from None
    for place, parent in enumerate(keys[:-1], start=1):
        below = values.get(parent)
        if parent in _SHORT_FOR and isinstance(below, str | int | float):
            below = {_SHORT_FOR[parent]: below}
        if not isinstance(below, dict | None):
            above = ".".join(keys[:place])
            raise ConfigError(f"--set {shown}: {above} is {short(below)}, which has no keys; write --set {above}=...")
        values[parent] = dict(below or {})
        values = values[parent]
    values[keys[-1]] = value


class YAMLMistakeError(Exception):
    """What is wrong, in one line, and in which line of the text, if that is known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(" ".join(problem.split()))
        self.line = line


def parse_yaml(text: str) -> Any:
    """Plain values; a text that is too large, too deep or has tags is refused before anything is made of it."""
    if len(text) > LONGEST:
        raise YAMLMistakeError(f"{len(text):,} characters are too many; a config has at most {LONGEST:,}")
    try:
        _check_events(YAML(typ="safe", pure=True).parse(text))
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        raise YAMLMistakeError(_plainly(str(error.problem)), None if mark is None else mark.line + 1) from None
    except (YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-45
        raise YAMLMistakeError(str(error)) from None


def _plainly(problem: str) -> str:
    """The parser's message, or a remedy for what users of a config run into."""
    if found := re.match(r'found duplicate key "(.*?)" with', problem):
        return f"the key {found[1]!r} is there twice; rename or remove one"
    if found := re.match(r"found undefined alias '([-*].*)'", problem):
        return f'*{found[1]} is an alias in YAML; write it in quotes, "*{found[1]}"'
    return problem


def _check_events(events: Iterable[Any]) -> None:
    """Refuses tags, deep nesting, and aliases that repeat themselves or too much; the parser itself would recurse."""
    open_nodes: list[tuple[str | None, int]] = []  # anchor and first value of every list or mapping that is open
    sizes: dict[str, int] = {}  # values below each anchor, aliases counted as often as they are used
    count = 0
    for event in events:
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raise YAMLMistakeError(f"the tag {_untagged(event)} is not supported; write the plain value", line)
        if isinstance(event, AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise YAMLMistakeError(f"*{event.anchor} stands inside itself; write out what is meant", line)
            count += sizes.get(event.anchor, 0)
        elif isinstance(event, CollectionStartEvent):
            open_nodes.append((event.anchor, count))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        count += 1
        if len(open_nodes) > DEEPEST:
            raise YAMLMistakeError(f"more than {DEEPEST} levels of nesting; a config has about five", line)
        if count > MOST_VALUES:
            raise YAMLMistakeError(f"more than {MOST_VALUES:,} values, aliases written out; leave some out", line)


def _untagged(event: Any) -> str:
    tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
    return repr(tag if len(tag) <= 40 else tag[:37] + "...")


def check_before_preparing(config: RunConfig, run: Path, team: Team) -> None:
    """All of them, for the run in the folder ``run`` that ``team`` is about to train."""
    from rota.student.hardware import check_machine

    check_durations(config, begun=Run(run).exists)
    check_goal(config)
    instead = None if config.goal == ALL else config.teacher.instead_of_goal()
    if instead is not None and team.first:
        logger.warning("the teacher does not use the goal: %s", instead)
    check_machine(config.student)
    check_sharing(config, run, team)


def check_durations(config: RunConfig, *, begun: bool = False) -> None:
    """Warm-ups and phases that outlast a run are nearly always settings of a longer one.

    A run that has begun may go on with a teacher that would be refused today; it is said all the same.
    """
    steps = config.training.steps
    try:
        config.teacher.check(steps)
    except ConfigError as mistake:
        if not begun:
            raise
        logger.warning("%s", mistake)
    restart = config.student.learning_rate.restart
    if restart is not None and not 0 < restart.steps(steps) < steps:
        comes = f"student.learning_rate.restart is step {restart.steps(steps):,} and the run has {steps:,}"
        raise ConfigError(f"{comes}; write for example 50%")
    rising = config.student.lr_warmup.steps(steps)
    if rising >= steps and not config.student.awaits("lr_warmup"):
        lasts = f"student.lr_warmup lasts {rising:,} steps and the run {steps:,}"
        remedy = "" if begun else "; write for example --set student.lr_warmup=10%"
        logger.warning("%s: the rate never reaches its peak%s", lasts, remedy)


def check_goal(config: RunConfig) -> None:
    """Refuses a goal that the dev sets of the config cannot have.

    Which languages are low-resource is known only later, where that depends on how much text they have.
    """
    data = config.data
    sets, low = data.dev_sets, set[str]()
    if config.goal in GROUPS[1:] and data.all_languages:
        found = low_resource_by_name(data, data.ranked_languages)
        if found is None:
            return
        low = {name for name, route in sets.items() if route.source in found or route.target in found}
    elif config.goal in GROUPS or not data.known_languages:
        return
    else:
        for name in [config.goal] if isinstance(config.goal, str) else config.goal:
            if name not in sets and (measured := data.measured_by(name)):
                of = f"the goal names {name!r}, a source without dev and test text of its own"
                raise ConfigError(f"{of}; name what it is measured by ({', '.join(measured)}), or give it both")
    resolve(config.goal, list(sets), low, routes=sets)


def goal_of(config: RunConfig, store: Store) -> Goal:
    """The goal on these data, which need not be prepared again if it is refused."""
    remedy = remedy_once_prepared(config.goal, store.language_sizes, store.folder)
    return resolve(config.goal, store.languages, store.low_resource, store.manifest.routes, remedy)


def check_sharing(config: RunConfig, run: Path, team: Team) -> None:
    """A new run needs as many batches in an update for each process; one that resumes takes the processes it gets."""
    accumulate, size = config.training.accumulate, team.size
    if size > 1 and config.teacher.for_one_process is not None:
        raise ConfigError(f"{size} processes train this run, and {config.teacher.for_one_process}")
    started = team.share(lambda: Run(run).exists)
    if accumulate % size == 0:
        return
    found = f"training.accumulate is {accumulate} and there are {size} processes"
    if not started:
        even = size * (accumulate // size + 1)
        tokens = round(config.training.tokens * accumulate / even)
        remedy = f"write for example --set training.accumulate={even} --set training.tokens={tokens}"
        raise ConfigError(f"{found}, which share the batches of an update: {remedy}")
    if team.first:
        idle = f"{size - accumulate} without a batch" if size > accumulate else "some wait for others"
        logger.warning("%s: %s in each update", found, idle)
