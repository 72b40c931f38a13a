"""Two systems compared on the same test sets: run against run, or several runs of each, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rota.data.store import Store
from rota.evaluation.evaluate import open_data, read_comet, read_translations
from rota.evaluation.losses import read_losses
from rota.evaluation.metrics import OF_SUMS, directions, groups, score
from rota.evaluation.significance import (
    BOOTSTRAPS,
    TRIALS,
    Bootstrap,
    Paired,
    paired_bootstrap,
    paired_randomisation,
)
from rota.evaluation.translator import Progress
from rota.goal import is_alike
from rota.runs import Run
from rota.runs.standing import Model, Scores, Split, standing_scores
from rota.statistics import SeedComparison, holm, paired_seeds
from rota.types import Arm, FloatArray


@dataclass(frozen=True)
class Compared:
    """A run with the scores of the model that stands for it, and the data that it was trained on."""

    run: Run
    scores: Scores
    data: Store

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def model(self) -> Model:
        return self.scores.model


@dataclass(frozen=True)
class Row:
    """One language, or the average over a group of languages. Differences are system minus baseline."""

    name: str
    low_resource: bool
    is_group: bool
    baseline: FloatArray  # scores, one for each seed
    system: FloatArray
    bootstrap: Bootstrap  # over sentences, scores averaged over the seeds
    p_randomisation: float  # over sentences, two-sided
    seeds: SeedComparison | None  # of two seeds or more
    p_holm: float | None = None  # adjusted for the number of languages; groups are not

    @property
    def difference(self) -> float:
        return self.bootstrap.difference

    @property
    def p(self) -> float:
        """The p value that is corrected and marked: over seeds where there are several, else over sentences."""
        return self.seeds.p_t if self.seeds else self.p_randomisation


@dataclass(frozen=True)
class Comparison:
    """What a table needs."""

    metric: str
    split: Split
    baseline: list[Compared]
    system: list[Compared]
    rows: list[Row]
    sentences: dict[Arm, int]
    resamples: int
    trials: int
    signatures: list[str]
    notes: list[str]  # what a reader must know before trusting the comparison

    @property
    def averages(self) -> list[str]:
        return [row.name for row in self.rows if row.is_group]


def compare_runs(
    baseline: Sequence[Path],
    system: Sequence[Path],
    *,
    metric: str = "bleu",
    split: Split = "test",
    resamples: int = BOOTSTRAPS,
    trials: int = TRIALS,
    progress: Progress = lambda *_: None,
) -> Comparison:
    """Compare what two runs, or the runs of two systems with the same seeds, made of the same test sets."""
    if metric not in OF_SUMS:
        raise ValueError(f"unknown metric {metric!r}; it is {', '.join(OF_SUMS)}")
    sides, notes = _pair(*([_open(folder, split) for folder in folders] for folders in (baseline, system)))
    everyone = [run for side in sides for run in side]
    _check_test_sets(everyone, split)
    notes += _differences_of_models(everyone) + _alone(sides)
    store = everyone[0].data
    references = {arm: [text for _, text in store.text(split, arm)] for arm in store.languages}
    notes += _shared(references)
    outputs = {
        arm: [[_read(run, arm, len(texts), metric) for run in side] for side in sides]
        for arm, texts in references.items()
    }
    paired = {}
    for done, (arm, texts) in enumerate(references.items(), start=1):
        paired[arm] = _pair_sentences(metric, outputs[arm], texts)
        progress("testing languages", done, len(references))
    rows = _rows(paired, metric, store, _goal_group(everyone), resamples, trials)
    sentences = {arm: len(texts) for arm, texts in references.items()}
    signatures = _signatures(everyone, metric)
    return Comparison(metric, split, *sides, rows, sentences, resamples, trials, signatures, notes)


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Run folders as they are; of any other folder its runs ``seed-*``, as a suite lays them out."""
    found = []
    for folder in folders:
        inside = sorted(path for path in folder.glob("seed-*") if Run(path).exists)
        if not Run(folder).exists and not inside:
            lacks = "is not a run folder (no run.json) and has no runs seed-* in it"
            raise ValueError(f"{folder} {lacks}; give one of these")
        found += [folder] if Run(folder).exists else inside
    return found


def _open(folder: Path, split: Split) -> Compared:
    """A run whose model was scored in every language."""
    run = Run(folder)
    scores = standing_scores(run, split)
    if scores is None or not set(run.sizes) <= set(scores.languages):
        found = "none" if scores is None else f"only of {', '.join(scores.languages)}"
        raise ValueError(f"{run} has no scores of its {split} sets ({found}); run rota evaluate {run} first")
    return Compared(run, scores, open_data(run))


def _pair(baseline: list[Compared], system: list[Compared]) -> tuple[tuple[list[Compared], list[Compared]], list[str]]:
    """One run of each are a pair; several are paired by their seeds."""
    if len(baseline) == len(system) == 1:
        return (baseline, system), []
    by_seed = [_by_seed(side) for side in (baseline, system)]
    common = sorted(by_seed[0].keys() & by_seed[1].keys())
    if not common:
        seeds = " and ".join(", ".join(map(str, sorted(side))) for side in by_seed)
        raise ValueError(f"no seed is in both systems (they are {seeds}); train both with the same seeds")
    alone = sorted(by_seed[0].keys() ^ by_seed[1].keys())
    notes = [f"seeds without a partner are left out: {', '.join(map(str, alone))}"] if alone else []
    return ([by_seed[0][seed] for seed in common], [by_seed[1][seed] for seed in common]), notes


def _by_seed(runs: list[Compared]) -> dict[int, Compared]:
    found: dict[int, Compared] = {}
    for run in runs:
        if run.seed in found:
            raise ValueError(
                f"{run.folder} and {found[run.seed].folder} both have seed {run.seed}; give one run a seed"
            )
        found[run.seed] = run
    return found


def _check_test_sets(runs: list[Compared], split: Split) -> None:
    """Equal data have equal test sets; of others (another vocabulary, say) the texts must be the same."""
    first = runs[0]
    for run in runs[1:]:
        if run.data.fingerprint == first.data.fingerprint:
            continue
        which = f"of {first.folder} and {run.folder}"
        remedy = "compare runs on the same prepared data"
        if set(run.data.languages) != set(first.data.languages):
            languages = " against ".join(", ".join(each.data.languages) for each in (first, run))
            raise ValueError(f"the languages {which} differ ({languages}); {remedy}")
        for arm in first.data.languages:
            ours, theirs = first.data.text(split, arm), run.data.text(split, arm)
            if ours != theirs:
                sizes = f"{len(ours)} and {len(theirs)} sentences"
                data = f"data {first.data.fingerprint} and {run.data.fingerprint}"
                raise ValueError(f"the {split} sets {which} differ in {arm} ({sizes}; {data}); {remedy}")


def _differences_of_models(runs: list[Compared]) -> list[str]:
    notes = []
    searches = {", ".join(f"{name} {value}" for name, value in run.scores.search.items()) for run in runs}
    if len(searches) > 1:
        notes.append(f"the runs were translated with different searches: {'; '.join(sorted(searches))}")
    kinds = {run.model.kind for run in runs}
    if len(kinds) > 1:
        notes.append(f"the models were made differently: {'; '.join(sorted(kinds))}")
    return notes


def _alone(sides: tuple[list[Compared], list[Compared]]) -> list[str]:
    if len(sides[0]) > 1:
        return []
    return ["one run of each: the tests compare these two models, not the schedules that made them"]


def _shared(references: Mapping[Arm, list[str]]) -> list[str]:
    """How many texts the languages have in common: what averages are tested on."""
    by_language = [set(texts) for texts in references.values()]
    distinct = len(set().union(*by_language))
    if distinct == sum(map(len, by_language)):
        return []
    sentences = sum(map(len, references.values()))
    return [
        f"averages are tested on {distinct:,} distinct references; the languages share them ({sentences:,} sentences)"
    ]


def _read(run: Compared, arm: Arm, sentences: int, metric: str) -> list[Any]:
    """What the metric needs of a run: translations, or the scores of sentences."""
    if metric == "loss":
        entry = run.scores.entries.get((arm, "loss"))
        if entry is None:
            lacks = f"{run.run} has no losses of {arm}, {run.model}"
            raise ValueError(f"{lacks}; run rota evaluate {run.run} --metrics loss first")
        return list(read_losses(run.run, entry, sentences))
    read = read_comet if metric == "comet" else read_translations
    return list(read(run.run, run.scores, arm, sentences))


def _pair_sentences(metric: str, sides: list[list[Any]], references: list[str]) -> Paired:
    if metric == "comet":
        baseline, system = (np.stack([side, np.ones_like(side)], axis=-1) for side in map(np.array, sides))
        return Paired(baseline, system, references)
    if metric == "loss":
        return Paired(np.array(sides[0]), np.array(sides[1]), references)
    return Paired.of(metric, sides[0], sides[1], references)


def _goal_group(runs: list[Compared]) -> dict[str, list[Arm]]:
    """The languages of a goal that all runs share, if they count alike among themselves."""
    goals = [run.run.goal for run in runs]
    same = all(goal == goals[0] for goal in goals) and is_alike(goals[0], goals[0])
    return {"goal": list(goals[0])} if same and not is_alike(goals[0], runs[0].data.languages) else {}


def _rows(
    paired: Mapping[Arm, Paired],
    metric: str,
    store: Store,
    goal: dict[str, list[Arm]],
    resamples: int,
    trials: int,
) -> list[Row]:
    everyone = {arm: [arm] for arm in paired} | groups(paired, store.low_resource)
    everyone |= directions(paired, store.manifest.routes) | goal
    bootstraps = paired_bootstrap(paired, metric, everyone, resamples=resamples)
    p_values = paired_randomisation(paired, metric, everyone, trials=trials)
    rows = []
    for name, arms in everyone.items():
        scores = [np.mean([paired[arm].scores(metric)[side] for arm in arms], axis=0) for side in (0, 1)]
        rows.append(
            Row(
                name,
                low_resource=name in store.low_resource,
                is_group=name not in paired,
                baseline=scores[0],
                system=scores[1],
                bootstrap=bootstraps[name],
                p_randomisation=p_values[name],
                seeds=paired_seeds(scores[0].tolist(), scores[1].tolist()) if len(scores[0]) > 1 else None,
            )
        )
    return _with_holm(rows)


def _with_holm(rows: list[Row]) -> list[Row]:
    adjusted = holm({row.name: row.p for row in rows if not row.is_group})
    return [row if row.is_group else replace(row, p_holm=adjusted[row.name]) for row in rows]


def _signatures(runs: list[Compared], metric: str) -> list[str]:
    """That of sacreBLEU; those of COMET and of losses must be the same for all runs."""
    if metric not in ("comet", "loss"):
        return [score([""], [""], metrics=[metric])[0].signature]
    found = sorted({str(entry["signature"]) for run in runs for entry in run.scores.of(metric).values()})
    if len(found) > 1 and metric == "loss":
        raise ValueError(
            f"losses per token of different vocabularies cannot be compared ({'; '.join(found)}); use --metric chrf"
        )
    if len(found) > 1:
        raise ValueError(
            f"the COMET scores were made by several models ({'; '.join(found)}); evaluate all runs with one"
        )
    return found
