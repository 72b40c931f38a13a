"""The picture of ``rota advise``: for each arm its effect on the goal, its epochs, its gain from the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from matplotlib.axes import Axes

from rota.report.figures.drawing import INK, Picture, canvas, finish
from rota.report.figures.helping import HELPS, HURTS
from rota.report.numbers.advice import ArmFacts, Facts

PALE, WARNING = "#8a8f96", "#B8480A"

GAIN: Final = 0.1
"""Nats per token that the axis of the source gain reaches at least: what is far below it is nothing."""


class Panel(NamedTuple):
    """One column of the picture."""

    title: str
    value: Callable[[ArmFacts], float | None]
    draw: Callable[[Axes, Sequence[ArmFacts]], None]


def advice_figure(facts: Facts) -> Picture:
    """Arms in rows; columns for what the run recorded, at the least the shares of the tokens."""
    panels = [panel for panel in PANELS if any(panel.value(each) is not None for each in facts.arms)]
    arms = sorted(facts.arms, key=lambda each: -(each.effect.mean if each.effect else each.share))
    with canvas(1.05 + 0.26 * len(arms), columns=len(panels)) as (figure, columns):
        for number, (axes, panel) in enumerate(zip(columns, panels, strict=True)):
            panel.draw(axes, arms)
            axes.set_title(panel.title, fontsize=8)
            labels = [each.arm + ("*" if each.weight else "") for each in arms] if number == 0 else []
            axes.set_yticks(range(len(arms)), labels=labels or [""] * len(arms))
            axes.set_ylim(len(arms) - 0.4, -0.6)
            axes.grid(visible=False, axis="y")
            axes.locator_params(axis="x", nbins=3)
            axes.tick_params(labelsize=7.5)
        return finish(figure, name="advice", title="What helped the goal", caption=_caption(), alt=_alt(arms))


def _draw_effects(axes: Axes, arms: Sequence[ArmFacts]) -> None:
    axes.axvline(0, color=INK, linewidth=0.8)
    for place, each in enumerate(arms):
        if each.effect is not None:
            mean, error = each.effect.mean, each.effect.error
            colour = PALE if each.effect.sure == "unclear" else HELPS if mean > 0 else HURTS
            axes.plot([mean - 2 * error, mean + 2 * error], [place, place], color=colour, linewidth=1.6)
            hollow = "white" if each.effect.sure != "clear" else colour
            axes.plot(mean, place, marker="o", markersize=5.5, color=colour, markerfacecolor=hollow)


def _bars(value: Callable[[ArmFacts], float | None], marked: Callable[[ArmFacts], bool]) -> Callable[..., None]:
    def draw(axes: Axes, arms: Sequence[ArmFacts]) -> None:
        found = [(place, value(each), marked(each)) for place, each in enumerate(arms)]
        for place, length, warned in found:
            if length is not None:
                axes.barh(place, length, height=0.55, color=WARNING if warned else PALE)

    return draw


def _draw_gains(axes: Axes, arms: Sequence[ArmFacts]) -> None:
    _bars(lambda each: each.source_gain, lambda each: each.unaligned)(axes, arms)
    axes.set_xlim(right=max(GAIN, axes.get_xlim()[1]))


def _percent(each: ArmFacts) -> float:
    return 100 * each.share


PANELS = (
    Panel("effect on\nthe goal", lambda each: None if each.effect is None else each.effect.mean, _draw_effects),
    Panel("% of the\ntokens", _percent, _bars(_percent, lambda _: False)),
    Panel("epochs", lambda each: each.epochs, _bars(lambda each: each.epochs, lambda each: each.by_heart)),
    Panel("source gain", lambda each: each.source_gain, _draw_gains),
)


def _caption() -> str:
    return (
        "For each arm (* has weight in the goal): how far an update on it lowers the goal's dev loss, to first order, "
        "with two standard errors (blue helps, red hurts, hollow: probably, grey: not certain); its share of the "
        "tokens; epochs, orange if it is learned by heart; and nats per token that the model takes from the source, "
        "orange if its lines may not be aligned."
    )


def _alt(arms: Sequence[ArmFacts]) -> str:
    known = [f"{each.arm} {each.effect.mean:+.2f}" for each in arms if each.effect is not None]
    if known:
        return f"Effects of the arms on the goal: {', '.join(known)}"
    return "Shares of the tokens: " + ", ".join(f"{each.arm} {each.share:.0%}" for each in arms)
