"""``rota advise``: what the facts of one run mean for people who collect text and choose shares, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Final, Literal

from rota.goal import Goal, is_alike
from rota.report.numbers.advice import ALPHA, ArmFacts, Facts, Helper, Sure
from rota.report.sentences import and_list, plural

Kind = Literal[
    "trend",
    "helps",
    "helper",
    "turned",
    "hurts",
    "no-effect",
    "unaligned",
    "by-heart",
    "forgotten",
    "collect",
    "more",
    "less",
]

REPEATED: Final = 4.0
"""Epochs from which on more text is worth more than more updates: up to about four epochs, repeated text served
language models nearly as well as new text (Muennighoff et al. 2023). For translation this is our reading."""

MANY: Final = 8
"""Findings of the same kind; more of them share a line, so that sixty languages do not fill the screen twice."""


@dataclass(frozen=True)
class Finding:
    """One thing that the records show, or that follows from them."""

    kind: Kind
    arms: tuple[str, ...]
    sure: Sure
    text: str


@dataclass(frozen=True)
class Unknown:
    """What the records cannot say, and the setting that would have recorded it."""

    what: str
    option: str


@dataclass(frozen=True)
class Advice:
    """Findings in the order in which they are read."""

    facts: Facts
    findings: tuple[Finding, ...]
    certainty: tuple[str, ...]
    unknown: tuple[Unknown, ...]

    def of(self, *kinds: Kind) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in kinds]

    def as_json(self) -> dict[str, Any]:
        facts = self.facts
        return {
            "run": facts.run,
            "teacher": facts.teacher,
            "updates": facts.updates,
            "finished": facts.finished,
            "goal": dict(facts.goal),
            "trend": None if facts.trend is None else {**facts.trend._asdict(), "direction": facts.trend.direction},
            "arms": {each.arm: each.as_json() for each in facts.arms},
            "helpers": [helper._asdict() for helper in facts.helpers],
            "findings": [asdict(finding) for finding in self.findings],
            "certainty": list(self.certainty),
            "unknown": [asdict(each) for each in self.unknown],
        }


def advise(facts: Facts) -> Advice:
    learned = (_unaligned, _by_heart, _forgotten)
    rules = (_trend, _helps, _helpers, _hurts, _no_effect, _turned, *learned, _collect, _shares)
    found = tuple(finding for rule in rules for finding in rule(facts))
    return Advice(facts, found, tuple(_certainty(facts)), tuple(_unknown(facts)))


def _trend(facts: Facts) -> Iterator[Finding]:
    found = facts.trend
    if found is None:
        return
    by = f"{abs(found.change):.3f} ± {found.error:.3f} nats between steps {found.first:,} and {found.last:,}"
    if found.direction == "falling":
        yield Finding("trend", (), "likely", f"Its dev loss was still falling ({by}): a longer run would be better.")
    elif found.direction == "rising":
        best = f"it was best at step {found.best_step:,} ({found.best:.3f})"
        yield Finding("trend", (), "likely", f"Its dev loss was rising ({by}); {best}: use that checkpoint.")
    else:
        since = f"from step {found.first:,} to {found.last:,}"
        text = f"Its dev loss hardly changed {since}; it was best at step {found.best_step:,} ({found.best:.3f})."
        yield Finding("trend", (), "likely", f"{text} More of the same updates would gain little.")


def _strongest(facts: Facts, wanted: Callable[[float], bool]) -> list[ArmFacts]:
    """Arms whose effect is not unclear, the strongest first."""
    known = [
        each
        for each in facts.arms
        if each.effect is not None and each.effect.sure != "unclear" and wanted(each.effect.mean)
    ]
    return sorted(known, key=lambda each: -abs(each.effect.mean if each.effect else 0.0))


def _number(each: ArmFacts) -> str:
    assert each.effect is not None
    return f"{each.effect.mean:+.2f} ± {each.effect.error:.2f} in {plural(each.effect.updates, 'measurement')}"


def _effects(facts: Facts, kind: Literal["helps", "hurts"], wanted: Callable[[float], bool]) -> Iterator[Finding]:
    for each in _strongest(facts, wanted):
        assert each.effect is not None
        own = ", its own text" if each.weight else ""
        verb = kind if each.effect.sure == "clear" else f"probably {kind}"
        yield Finding(kind, (each.arm,), each.effect.sure, f"{each.arm} {verb} the goal ({_number(each)}{own}).")


def _helps(facts: Facts) -> Iterator[Finding]:
    yield from _effects(facts, "helps", lambda mean: mean > 0)


def _helpers(facts: Facts) -> Iterator[Finding]:
    """A line for each language; of many, one for each arm that helps some of them most."""
    by_arm: dict[str, list[Helper]] = {}
    for each in facts.helpers:
        by_arm.setdefault(each.arm if len(facts.helpers) > MANY else each.language, []).append(each)
    for helped in by_arm.values():
        languages = ", ".join(each.language for each in helped)
        text = f"Of the text of other languages, {helped[0].arm} helps {languages} most"
        low, high = min(helped, key=_mean), max(helped, key=_mean)
        up_to = f" to {high.mean:+.2f} ± {high.error:.2f}" if low != high else ""
        number = f"{low.mean:+.2f} ± {low.error:.2f}{up_to}"
        yield Finding("helper", (helped[0].arm,), "likely", f"{text} ({number} in the map of who helps whom).")


def _mean(helper: Helper) -> float:
    return helper.mean


def _hurts(facts: Facts) -> Iterator[Finding]:
    yield from _effects(facts, "hurts", lambda mean: mean < 0)


def _no_effect(facts: Facts) -> Iterator[Finding]:
    unclear = [each for each in facts.arms if each.effect is not None and each.effect.sure == "unclear"]
    if len(unclear) > MANY:
        names = tuple(each.arm for each in unclear)
        counts = [each.effect.updates for each in unclear if each.effect is not None]
        measured = f"{min(counts):,} to {max(counts):,} measurements of each"
        text = f"{', '.join(names)}: neither help nor harm can be seen ({measured})."
        yield Finding("no-effect", names, "unclear", text)
        return
    for each in unclear:
        text = f"{each.arm}: neither help nor harm can be seen ({_number(each)})."
        yield Finding("no-effect", (each.arm,), "unclear", text)


def _turned(facts: Facts) -> Iterator[Finding]:
    for each in facts.arms:
        effect = each.effect
        if effect is not None and effect.sure != "unclear" and (effect.turned or effect.faded):
            first, second = (value or 0.0 for value in effect.halves)
            change = "helped first and hurt later" if first > 0 else "hurt first and helped later"
            change = "helped at first and hardly later" if effect.faded else change
            text = f"{each.arm} {change} ({first:+.2f} in the first half of the run, {second:+.2f} in the second)."
            yield Finding("turned", (each.arm,), "likely", text)


def _unaligned(facts: Facts) -> Iterator[Finding]:
    others = [each.source_gain for each in facts.arms if each.source_gain is not None and not each.unaligned]
    for each in facts.arms:
        if each.unaligned:
            usual = f" against {sum(others) / len(others):.2f} in the others" if others else ""
            gain = "" if each.source_gain is None else f" ({each.source_gain:.2f} nats per token{usual})"
            text = f"{each.arm}: the model finds next to nothing of the source in the target{gain}."
            text = f"{text} Look whether its lines are aligned before you use more of it."
            yield Finding("unaligned", (each.arm,), "likely", text)


def _by_heart(facts: Facts) -> Iterator[Finding]:
    for each in facts.arms:
        if each.by_heart:
            times = "" if each.epochs is None else f" after {each.epochs:.1f} epochs"
            gap = "" if each.gap is None else f", with a dev loss {each.gap:.2f} nats above that of its training text"
            text = f"{each.arm} is learned by heart{times}{gap}."
            yield Finding("by-heart", (each.arm,), "likely", text)


def _forgotten(facts: Facts) -> Iterator[Finding]:
    for each in facts.forgotten:
        losses = f"its dev loss was {each.lowest:.3f} at its lowest and ended at {each.last:.3f}"
        text = f"{each.language} was being forgotten while nothing of it was trained on: {losses}."
        text = f"{text} If it matters, train on some of its text too, freeze more, or lower the learning rate."
        yield Finding("forgotten", (each.language,), "likely", text)


def _collect(facts: Facts) -> Iterator[Finding]:
    """Text of arms that serve the goal and have been repeated often; the most useful first."""
    wanted = [each for each in _useful(facts) if not each.unaligned and (each.by_heart or _repeated(each))]
    for each in wanted:
        why = "helps the goal" if each.effect is not None else "belongs to the goal"
        seen = "is learned by heart" if each.by_heart else f"was gone through {each.epochs:.1f} times"
        sure: Sure = "likely" if each.by_heart else "unclear"
        pairs = plural(each.pairs, "pair")
        text = f"Collect more text like {each.arm}: it {why}, and what there is ({pairs}) {seen}."
        yield Finding("collect", (each.arm,), sure, text)


def _useful(facts: Facts) -> list[ArmFacts]:
    """Arms that help as measured; where nothing was measured, the goal's own."""
    if facts.has_effects:
        return _strongest(facts, lambda mean: mean > 0)
    return sorted((each for each in facts.arms if each.weight), key=lambda each: -(each.epochs or 0.0))


def _repeated(each: ArmFacts) -> bool:
    return each.epochs is not None and each.epochs >= REPEATED


def _shares(facts: Facts) -> Iterator[Finding]:
    for each in _strongest(facts, lambda mean: mean > 0):
        if each.epochs is not None and each.epochs < 1 and not each.unaligned:
            text = f"{each.arm} has text that was never trained on ({each.epochs:.1f} epochs, {each.share:.0%} of the"
            text = f"{text} tokens) and helps: give it a larger share before you collect more."
            yield Finding("more", (each.arm,), "likely", text)
    for each in facts.arms:
        hurts = each.effect is not None and each.effect.sure != "unclear" and each.effect.mean < 0
        if hurts and not each.weight:
            text = f"Give {each.arm} a smaller share than its {each.share:.0%} of the tokens, or leave it out."
            sure: Sure = "likely" if each.effect is not None and each.effect.sure == "clear" else "unclear"
            yield Finding("less", (each.arm,), sure, text)


def _certainty(facts: Facts) -> Iterator[str]:
    yield "This is one run with one seed."
    if facts.has_effects:
        yield (
            f"Effects on the goal are dot products of gradients ({facts.measured:,} were recorded), in units of a"
            " typical one, ± a standard error: what one more update does, to first order. What an arm is worth in the"
            " end only a run without it shows (rota compare)."
        )
        count = len([each for each in facts.arms if each.effect is not None])
        yield (
            f"'Helps' and 'hurts' hold at {ALPHA:.0%} for all {plural(count, 'arm')} together, 'probably' for one arm"
            f" alone: of {count} without any effect, {ALPHA * count:.1f} would be called probable by chance."
        )
    if facts.checks:
        yield (
            f"Epochs are counted. Learned by heart and not aligned were seen on sampled sentences"
            f" ({plural(facts.checks, 'check')}); an arm of which nothing is said here may still be either."
        )
    if not facts.finished:
        yield f"The run is not finished: it has had {plural(facts.updates, 'update')}."


def _unknown(facts: Facts) -> Iterator[Unknown]:
    if not facts.has_effects:
        option = "teacher: {name: align, map: true}"
        yield Unknown("which arms helped or hurt the goal: gradients were not compared", option)
    elif any(each.effect is None for each in facts.arms):
        arms = [each.arm for each in facts.arms if each.effect is None]
        count = f"{len(arms)} of the {len(facts.arms)} arms" if len(arms) > MANY else and_list(arms)
        names = f" ({', '.join(arms)})" if len(arms) > MANY else ""
        what = f"whether {count} helped or hurt the goal: updates on"
        what = f"{what} {'it' if len(arms) == 1 else 'them'} were too rare to be measured twice{names}"
        yield Unknown(what, "more training.steps, or a larger teacher.floor, the least share that an arm gets")
    if not facts.checks:
        epochs = "" if any(each.epochs is not None for each in facts.arms) else "epochs, "
        what = f"{epochs}what was learned by heart, and whether lines are aligned: no sampled sentences were looked at"
        yield Unknown(what, "training.spot_checks: 0.01")
    if facts.trend is None:
        what = "whether the goal's dev loss was still falling: there are fewer than six validations"
        yield Unknown(what, "training.validate_every: 5%")


SECTIONS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "The goal": ("trend",),
    "What helped": ("helps", "helper", "turned"),
    "What hurt": ("hurts",),
    "What made no difference that can be seen": ("no-effect",),
    "Lines that may not be aligned": ("unaligned",),
    "Learned by heart": ("by-heart",),
    "Forgotten": ("forgotten",),
    "What to do": ("collect", "more", "less"),
}


def written(advice: Advice, width: int = 80) -> str:
    """The advice as text for a terminal of so many columns; a section without findings is left out."""
    facts = advice.facts
    done = "" if facts.finished else " so far"
    parts = [f"{facts.run}: {facts.teacher}, {plural(facts.updates, 'update')}{done}; goal: {goal_words(facts)}"]
    for title, kinds in SECTIONS.items():
        parts += _section(title, [finding.text for finding in advice.of(*kinds)])
    parts += _section("How sure this is", advice.certainty)
    unknown = [f"{each.what[0].upper()}{each.what[1:]}. For the next run: {each.option}" for each in advice.unknown]
    parts += _section("What the records do not say", unknown)
    lines = (
        wrap(part, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) for part in parts
    )
    return "\n".join("\n".join(line) for line in lines)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"- {line}" for line in lines)] if lines else []


def goal_words(facts: Facts) -> str:
    goal: Goal = facts.goal
    if is_alike(goal, {each.language for each in facts.arms} | set(goal)):
        return "all languages alike"
    if len(goal) == 1:
        return next(iter(goal))
    return ", ".join(f"{language} {weight:.0%}" for language, weight in goal.items())
