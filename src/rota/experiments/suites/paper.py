"""The paper's experiments at full size: every row of every results table, from one base, each value with its place.

Table 2 has the low-resource languages, 3 the high-resource ones, 4 the averages, 5 the ablation of TSCL, 6 that of DQN,
7 and 8 the steps to convergence. docs/paper.md lists where the text leaves a choice, and which one we made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.experiments.scale import Values, merged
from rota.experiments.suite import Row, Suite, Table


class Setting(NamedTuple):
    """One value of a config and the place in the paper it comes from."""

    key: str
    value: Any
    place: str


BASE = (
    Setting("data.corpus", "ted8", "Section 4, Data; Table 1"),
    Setting("data.subwords.size", "32k", "Section 4, Preprocessing"),
    Setting("data.subwords.lines", "10k", "Section 4, Preprocessing"),
    Setting("data.subwords.text", "tokenised", "Section 4, Preprocessing"),
    Setting("student.preset", "base", "Section 4, NMT Models"),
    Setting("student.dropout", 0.3, "Section 4, NMT Models"),
    Setting("student.label_smoothing", 0.1, "Section 4, NMT Models"),
    Setting("student.learning_rate.scale", 10, "Section 4, NMT Models"),
    # "In experiments with warm-up"; rows without one keep that of the learning rate, so that they differ in one thing.
    Setting("student.lr_warmup", "16k", "Section 4, NMT Models"),
    Setting("student.clip_norm", 5.0, "Section 4, NMT Models"),
    Setting("training.steps", "150k", "Section 4, NMT Models"),
    Setting("training.tokens", "8k", "Section 4, NMT Models"),
    Setting("training.checkpoint_every", "4k", "Tables 7 and 8: all steps are multiples of 4k"),
    Setting("evaluation.select", "low-resource", "Section 4, Evaluation Metrics; Appendix A.2"),
    Setting("evaluation.combine", "ensemble", "Section 4, Evaluation Metrics"),
    Setting("evaluation.window", 4, "Section 4, Evaluation Metrics"),
    Setting("evaluation.beam", 5, "not given"),
)

WARMUP = Setting("teacher.warmup", "16k", "Section 5.1 and Section 4, RL Agents")

TSCL = (
    Setting("teacher.name", "tscl", "Section 3.1; Algorithm 1"),
    Setting("teacher.variant", "paper", "the plain algorithm, without a guard"),
    WARMUP,
    Setting("teacher.alpha", 0.1, "Section 4, RL Agents"),
    Setting("teacher.epsilon", 0.1, "Section 4, RL Agents"),
    Setting("teacher.decide_every", 1, "Section 4, RL Agents: at every step"),
    Setting("teacher.reward_tokens", "8k", "Section 3.1"),
)

DQN = (
    Setting("teacher.name", "dqn", "Section 3.2; Algorithm 2"),
    Setting("teacher.variant", "paper", "the plain algorithm, without a guard"),
    WARMUP,
    Setting("teacher.decide_every", 10, "Section 4, RL Agents"),
    Setting("teacher.hidden", [512, 512], "Section 4, RL Agents"),
    Setting("teacher.groups", 25, "Sections 3.2 and 5.5: 200 losses, 25 of each language"),
    Setting("teacher.group_sentences", 10, "Section 4, RL Agents"),
    Setting("teacher.learning_rate", 2.5e-4, "Section 4, RL Agents"),
    Setting("teacher.tau", 0.005, "Section 4, RL Agents"),
    Setting("teacher.gamma", 0.99, "Section 4, RL Agents"),
    Setting("teacher.replay_minimum", "1k", "Section 4, RL Agents"),
    Setting("teacher.replay_capacity", "10k", "Section 4, RL Agents"),
    Setting("teacher.replay_batch", "1k", "not given; that of the released code"),
    Setting("teacher.epsilon_steps", "50k", "Section 3.2; Appendix A.1"),
    Setting("teacher.epsilon_floor", 0.01, "Section 3.2; Appendix A.1"),
    Setting("teacher.reward_tokens", "8k", "not given for DQN; as TSCL"),
)


def written(settings: tuple[Setting, ...]) -> Values:
    """The settings as a config, later ones over earlier ones."""
    values: Values = {}
    for setting in settings:
        nested: Any = setting.value
        for key in reversed(setting.key.split(".")[1:]):
            nested = {key: nested}
        section = setting.key.split(".")[0]
        values[section] = merged(values.get(section, {}), nested)
    return values


def _row(label: str, table: Table, paper: str | None, place: str, *settings: Setting, warmup: str | None = None) -> Row:
    return Row(**written(settings), label=label, warmup=warmup, table=table, paper=paper, place=place)


def _static(name: str) -> Setting:
    return Setting("teacher.name", name, "Section 5.1")


MAIN_TABLES = "Tables 2, 3, 4 and 7"

MAIN = {
    "uniform": _row("Uniform", "main", "uniform/0", MAIN_TABLES, _static("uniform")),
    "proportional": _row("Proportional", "main", "proportional/0", MAIN_TABLES, _static("proportional")),
    "uniform-warmup": _row("Uniform", "main", "uniform/16000", MAIN_TABLES, _static("uniform"), WARMUP),
    "proportional-warmup": _row(
        "Proportional", "main", "proportional/16000", MAIN_TABLES, _static("proportional"), WARMUP
    ),
    "shuffled": _row("Shuffled batch", "main", "shuffled/16000", MAIN_TABLES, _static("mixed"), WARMUP),
    "tscl": _row("TSCL", "main", "tscl/16000", f"{MAIN_TABLES}; Table 5, line 1", *TSCL),
    "dqn": _row("DQN", "main", "dqn/16000", f"{MAIN_TABLES}; Table 6, line 1", *DQN),
}


def _tscl(label: str, line: int, paper: str, key: str, value: Any) -> Row:
    place = f"Table 5, line {line}"
    return _row(label, "tscl", f"tscl/{paper}", place, *TSCL, Setting(f"teacher.{key}", value, place))


def _dqn(label: str, line: int, paper: str, key: str, value: Any) -> Row:
    place = f"Table 6, line {line}"
    return _row(label, "dqn", f"dqn/{paper}", f"{place}; Table 8", *DQN, Setting(f"teacher.{key}", value, place))


ALL_LANGUAGES = {"until": "16k", "languages": "all"}

TSCL_ABLATION = {
    "tscl-warmup-all": _tscl("Warm-up LRL+HRL", 2, "warmup-lrl+hrl", "warmup", ALL_LANGUAGES),
    "tscl-no-warmup": _tscl("No warm-up", 3, "no-warmup", "warmup", None),
    "tscl-alpha-0.3": _tscl("alpha = 0.3", 4, "alpha-0.3", "alpha", 0.3),
    "tscl-epsilon-0.3": _tscl("epsilon = 0.3", 5, "epsilon-0.3", "epsilon", 0.3),
    "tscl-n-10": _tscl("n = 10", 6, "n-10", "decide_every", 10),
}

DQN_ABLATION = {
    "dqn-hidden-128": _dqn("Hidden size = 128", 2, "hidden-128", "hidden", [128, 128]),
    "dqn-tau-0.5": _dqn("tau = 0.5", 3, "tau-0.5", "tau", 0.5),
    "dqn-tau-0.995": _dqn("tau = 0.995", 4, "tau-0.995", "tau", 0.995),
    "dqn-gamma-0.5": _dqn("gamma = 0.5", 5, "gamma-0.5", "gamma", 0.5),
    "dqn-gamma-0.01": _dqn("gamma = 0.01", 6, "gamma-0.01", "gamma", 0.01),
}

OURS = "not in the paper"


def _control(label: str, *settings: Setting, warmup: str | None = None) -> Row:
    return _row(label, "control", None, OURS, *settings, warmup=warmup)


def temperature(value: float) -> Row:
    """A static schedule between proportional (1) and uniform (infinity), with the warm-up of the others."""
    return _control(
        f"Temperature {value:g}", _static("temperature"), WARMUP, Setting("teacher.temperature", value, OURS)
    )


def _replay(label: str, name: str, *settings: Setting, warmup: str | None = None) -> Row:
    """A control that reads the DQN run of the same seed, and chooses as often as that did."""
    other = (Setting("teacher.run", "{runs}/dqn/seed-{seed}", OURS), Setting("teacher.decide_every", 10, OURS))
    return _control(label, Setting("teacher.name", name, OURS), *other, *settings, warmup=warmup)


CONTROLS = {
    "proportional-tokens": _control(
        "Proportional to tokens", _static("proportional"), WARMUP, Setting("teacher.by", "tokens", OURS)
    ),
    "temperature-2": temperature(2),
    "temperature-5": temperature(5),
    "replay-proportions": _replay("DQN's proportions", "replay-proportions", WARMUP),
    # It replays the warm-up of the other run too.
    "replay-shuffled": _replay("DQN, order shuffled", "replay-shuffled", warmup="as DQN"),
    "replay-exact": _replay("DQN's choices, shuffled", "replay-exact", warmup="as DQN"),
    "dqn-random": _control("DQN, random Q network", *DQN, Setting("teacher.learn", False, OURS)),
    "dqn-gamma-0": _control("DQN, gamma = 0", *DQN, Setting("teacher.gamma", 0.0, OURS)),
}


def paper() -> Suite:
    """All rows; one seed, as the paper seems to have used: ask for more."""
    rows = MAIN | TSCL_ABLATION | DQN_ABLATION | CONTROLS
    return Suite(name="paper", base=written(BASE), seeds=(1,), rows=rows)
