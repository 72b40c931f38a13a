"""What follows a run while it trains: a panel on a terminal, or a line at every validation elsewhere; TensorBoard."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rota.goal import ALL, Goal, goal_mean, is_alike, resolve
from rota.runs.arms import ArmLine, dev_sets_of, is_grouped
from rota.training.spot_checks import SpotCheck
from rota.types import Alarm, Arm, Decision

SMOOTHING = 0.98  # of the training loss shown
SHOWN_ALARMS = 3  # the last ones
LABELS = {"bleu": "BLEU", "chrf": "chrF"}


DevScores = Mapping[str, Mapping[Arm, float]]
"""``bleu`` and ``chrf`` of sampled dev sentences by language, 0 to 100."""


class Listener(Protocol):
    """Follows a run: the display, TensorBoard."""

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> None:
        """After each update; ``seen`` are the real target tokens by language since step 0."""
        ...

    def scored(self, step: int, scores: DevScores) -> None:
        """Before :meth:`validated`, if dev sentences are translated (``training.dev_sentences``)."""
        ...

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> None: ...

    def checked(self, step: int, check: SpotCheck) -> None:
        """After :meth:`validated`, if a spot check was made."""
        ...

    def saved(self, step: int) -> None: ...

    def alarmed(self, alarm: Alarm) -> None:
        """Once for each kind and arm, or at every change of state; the log has said it already."""
        ...


class Display:
    """A listener of the loop and a context manager."""

    def __init__(
        self,
        console: Console,
        *,
        title: str,
        languages: Sequence[Arm],
        steps: int,
        goal: Goal | None = None,
        language_of: Mapping[Arm, Arm] | None = None,
        corpus_tokens: Mapping[Arm, int] | None = None,
        lines: Sequence[ArmLine] = (),
    ) -> None:
        self.console, self.title, self.languages, self.steps = console, title, languages, steps
        self.language_of = language_of or {language: language for language in languages}
        self.arms = tuple(self.language_of)
        self.goal = goal or resolve(ALL, languages)
        self.corpus_tokens = corpus_tokens or {}  # target tokens of an epoch
        self.lines = tuple(lines) if is_grouped(lines) else tuple(ArmLine(0, arm, (arm,)) for arm in self.arms)
        self._dev_sets = dev_sets_of(self.lines, self.language_of)
        self.step = 0
        self.loss: float | None = None
        self.seen = dict.fromkeys(self.arms, 0)
        self.dev_loss: dict[Arm, float] = {}
        self.best: dict[Arm, float] = {}
        self.scores: dict[str, float] = {}  # the last ones, as the goal weighs them
        self.note = ""
        self.alarms: list[str] = []
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=200)  # (time, step, tokens so far)
        self._live = Live(get_renderable=self.render, console=console, refresh_per_second=2, transient=False)

    def resume(self, step: int, seen: Mapping[Arm, int], dev_losses: Iterable[Mapping[Arm, float]] = ()) -> None:
        """Start from what an earlier part of the run has done: tokens seen, and the dev losses of its validations."""
        self.step = step
        self.seen = {arm: seen.get(arm, 0) for arm in self.arms}
        for dev_loss in dev_losses:
            self._remember(dev_loss)

    def __enter__(self) -> Display:
        self._recent.append((time.perf_counter(), self.step, sum(self.seen.values())))
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> None:
        self.step = step
        self.loss = loss if self.loss is None else SMOOTHING * self.loss + (1 - SMOOTHING) * loss
        self.seen = {arm: seen.get(arm, 0) for arm in self.arms}
        self._recent.append((time.perf_counter(), step, sum(self.seen.values())))
        self.note = f"now {decision.arm} ({decision.why})"

    def scored(self, step: int, scores: DevScores) -> None:  # noqa: ARG002
        self.scores = {metric: goal_mean(values, self.goal) for metric, values in scores.items()}

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> None:
        self._remember(dev_loss)
        if not self.console.is_terminal:
            line = f"step {step:,}/{self.steps:,} | {self._summary()} | {self._mean()}"
            self.console.print(line, soft_wrap=True)

    def checked(self, step: int, check: SpotCheck) -> None:
        """Its alarms say what matters."""

    def _mean(self) -> str:
        """The number that the goal makes of the last dev losses."""
        kind = "mean" if is_alike(self.goal, self.languages) else "goal's"
        scores = "".join(f", {LABELS[metric]} {value:.1f}" for metric, value in self.scores.items())
        return f"{kind} dev loss {goal_mean(self.dev_loss, self.goal):.3f}{scores}"

    def _remember(self, dev_loss: Mapping[Arm, float]) -> None:
        self.dev_loss = dict(dev_loss)
        self.best = {arm: min(loss, self.best.get(arm, loss)) for arm, loss in dev_loss.items()}

    def saved(self, step: int) -> None:
        self.note = f"saved at step {step:,}"

    def alarmed(self, alarm: Alarm) -> None:
        """It stays in the panel; elsewhere the line of the log is enough."""
        self.alarms.append(f"step {alarm.step:,}: {alarm.text}")

    def render(self) -> Group:
        head = Table.grid(padding=(0, 2))
        head.add_column(overflow="fold")  # a long path takes several lines
        bar = ProgressBar(total=self.steps, completed=self.step, width=40)
        head.add_row(Text(self.title, style="bold"), bar, f"{self.step:,}/{self.steps:,}")
        alarms = [Text(text, style="yellow") for text in self.alarms[-SHOWN_ALARMS:]]
        summary = f"{self._summary()} | {self._mean()}" if self.dev_loss else self._summary()
        return Group(head, Text(summary), self._languages(), *alarms, Text(self.note, style="dim"))

    def _summary(self) -> str:
        if len(self._recent) < 2:
            return "starting"
        (start, first, before), (now, last, after) = self._recent[0], self._recent[-1]
        seconds = max(now - start, 1e-9)
        left = (self.steps - last) * seconds / (last - first)
        loss = "-" if self.loss is None else f"{self.loss:.3f}"
        return f"loss {loss} | {(after - before) / seconds:,.0f} tokens/s | {_clock(left)} left"

    def _languages(self) -> Table:
        """Of each arm its tokens, their share, epochs, and the dev loss of its language; arms of one language below it.

        Of more than 24 lines, the 24 languages that were trained most.
        """
        table = Table(box=None, padding=(0, 1), show_edge=False)
        for name in ("language", "tokens", "share", "", "epochs", "dev loss", "lowest"):
            if name == "language":
                table.add_column(name, style="cyan", overflow="fold")
            else:
                table.add_column(name, justify="left" if not name else "right", no_wrap=bool(name))
        total = max(1, sum(self.seen.values()))
        largest = max(1, *map(self._tokens, self.lines))
        for line in self._shown():
            tokens, measured = self._tokens(line), self._dev_sets.get(line)
            losses = [
                "" if measured is None else _number(losses.get(measured)) for losses in (self.dev_loss, self.best)
            ]
            bar = ProgressBar(total=largest, completed=tokens, width=12)
            table.add_row(line.indented, f"{tokens:,}", f"{tokens / total:.1%}", bar, self._epochs(line), *losses)
        return table

    def _shown(self) -> Sequence[ArmLine]:
        if len(self.lines) <= 24:
            return self.lines
        languages = [line for line in self.lines if line.depth == 0]
        return sorted(languages, key=lambda line: -self._tokens(line))[:24]

    def _tokens(self, line: ArmLine) -> int:
        return sum(self.seen[arm] for arm in line.arms)

    def _epochs(self, line: ArmLine) -> str:
        """How often the text of the arms has been gone through, as one text."""
        size = sum(self.corpus_tokens.get(arm, 0) for arm in line.arms)
        return f"{self._tokens(line) / size:.1f}" if size else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class TensorBoard:
    """Training loss, language shares and dev losses as TensorBoard events; no figure is made from them."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a second, which not every run spends

        self._writer = SummaryWriter(str(folder), purge_step=step + 1)
        self._seen: Mapping[Arm, int] = {}

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> None:
        self._seen = seen
        self._scalar("loss/train", loss, step)
        self._scalar(f"loss/train/{decision.arm}", loss, step)

    def scored(self, step: int, scores: DevScores) -> None:
        for metric, values in scores.items():
            for language, value in values.items():
                self._scalar(f"{LABELS[metric]}/dev/{language}", value, step)

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> None:
        total = sum(self._seen.values())
        for language, loss in dev_loss.items():
            self._scalar(f"loss/dev/{language}", loss, step)
        unseen = dict.fromkeys(dev_loss, 0) if self._seen.keys() <= dev_loss.keys() else {}  # languages are the arms
        for arm, tokens in {**unseen, **self._seen}.items() if total else ():
            self._scalar(f"share/{arm}", tokens / total, step)

    def checked(self, step: int, check: SpotCheck) -> None:
        for name, estimates in (("dev", check.dev_source_gain), ("train", check.source_gain)):
            for arm, gain in estimates.items():
                self._scalar(f"source gain/{name}/{arm}", gain.value, step)
        for arm, epochs in check.epochs.items():
            self._scalar(f"epochs/{arm}", epochs, step)

    def saved(self, step: int) -> None:  # noqa: ARG002
        self._writer.flush()

    def alarmed(self, alarm: Alarm) -> None:
        self._writer.add_text("alarms", alarm.text, alarm.step)

    def close(self) -> None:
        self._writer.close()

    def _scalar(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)
