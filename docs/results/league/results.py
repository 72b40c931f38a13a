"""The results on this page, from the records of the league: python docs/results/league/results.py runs/league

Copies the records to ``runs``, makes the report in ``report``, and writes what the plan asked into README.md, all
beside this file. Those of the longer runs (runs/league-bleu) go to ``bleu/runs`` and ``bleu/report``. Refuses while
planned runs are missing: results are read once, when the plan is done.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from rota.experiments.suites import open_suite
from rota.plan import Plan, find_plan
from rota.report.folders import copy_all, corpora_of
from rota.report.several import report_on
from rota.runs import Run

HERE: Final = Path(__file__).parent
BEGIN: Final = "<!-- made by results.py from the records: change neither this line nor those below it -->"
LONGER: Final = "<!-- made by results.py from the longer runs: change neither this line nor those below it -->"
END: Final = "<!-- written by hand from here on -->"
ROW: Final = "align"
REPLAY: Final = "align-replayed"
NAMES: Final = {"bleu": "BLEU", "chrf": "chrF"}

Line = Mapping[str, str]


def missing(runs: Path, plan: Plan) -> list[str]:
    """The runs of the planned contrasts that have not been trained and scored."""
    rows = open_suite(str(HERE / "plan.yaml")).rows
    wanted = {
        f"{corpus}/{row}/seed-{seed}"
        for test in plan.tests()
        for corpus, row in product(test.corpora, test.contrast.rows)
        for seed in set(plan.seeds or ()) & set(rows[row].seeds or plan.seeds or ())
    }
    return [folder for folder in sorted(wanted) if not _is_done(Run(runs / folder))]


def missing_longer(runs: Path) -> list[str]:
    """The longer runs that have not been trained and scored."""
    suite = open_suite(str(HERE / "bleu.yaml"))
    wanted = product(suite.corpora, suite.rows, suite.seeds)
    folders = [f"{corpus}/{row}/seed-{seed}" for corpus, row, seed in wanted]
    return [folder for folder in folders if not _is_done(Run(runs / folder))]


def _is_done(run: Run) -> bool:
    return run.exists and run.is_trained and any(True for _ in run.read("evals"))


def read(report: Path, table: str) -> list[Line]:
    with (report / "tables" / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def results(report: Path) -> str:
    """The part of the page that is made from the tables of the report."""
    planned, regrets = read(report, "planned"), read(report, "regret-test-loss")
    parts = [
        "Differences are in nats per token: below zero, the first schedule has the lower loss.",
        "\n".join(_planned_table(planned)),
        "What we hoped for:",
        "\n".join([_messy(planned), _clean(planned), _regret(regrets)]),
        f"![{_spoken(regrets)}](report/figures/regret-test-loss.png)",
        "The whole report: [plan, regret, and a page for each corpus](report/report.md).",
    ]
    return "\n\n".join(parts)


def _planned_table(planned: Sequence[Line]) -> list[str]:
    lines = ["| contrast | corpus | difference | p after Holm | seeds | verdict |", "|---|---|---|---|---|---|"]
    for each in planned:
        corpora = each["corpora"].split()
        where = corpora[0] if len(corpora) == 1 else f"mean of {len(corpora)}"
        what = f"`{each['row']}` minus {_named(each)}{', equal time' if each['at'] == 'time' else ''}"
        lines.append(
            f"| {what} | {where} | {_signed(each['difference'])} [{_signed(each['low'])}, {_signed(each['high'])}] "
            f"| {float(each['p_holm']):.2g} | {each['seeds']} | {each['verdict']} |"
        )
    return lines


def longer_results(report: Path, corpora: Sequence[str]) -> str:
    """The part of the page that is made from the tables of the report on the longer runs."""
    planned = read(report, "planned")
    lines = ["| contrast | score | difference | p after Holm | seeds | verdict |", "|---|---|---|---|---|---|"]
    lines += [
        f"| `{each['row']}` minus {_named(each)} | {NAMES[each['endpoint']]} "
        f"| {_signed(each['difference'], 2)} [{_signed(each['low'], 2)}, {_signed(each['high'], 2)}] "
        f"| {float(each['p_holm']):.2g} | {each['seeds']} | {each['verdict']} |"
        for each in planned
    ]
    explained = "Macro scores of the test sets, mean of the seeds and their standard deviation."
    report_link = "[The report on the longer runs](bleu/report/report.md)."
    return "\n\n".join(["\n".join(lines), explained, "\n".join(_scores(report, corpora)), report_link])


def _scores(report: Path, corpora: Sequence[str]) -> list[str]:
    """A line for each schedule, with both scores on every corpus."""
    columns = list(product(corpora, NAMES))
    heads = [f"{corpus}: {NAMES[metric]}" for corpus, metric in columns]
    found: dict[str, list[str]] = {}
    for corpus, metric in columns:
        for each in read(report / corpus, "averages"):
            if (each["metric"], each["scope"]) == (metric, "macro"):
                found.setdefault(each["row"], []).append(f"{float(each['mean']):.1f} ({float(each['sd']):.1f})")
    rows = [f"| `{row}` | {' | '.join(cells)} |" for row, cells in found.items()]
    return [f"| schedule | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|", *rows]


def _named(each: Line) -> str:
    several = len(each["minus"].split()) > 1
    return f"the best of {len(each['minus'].split())} (`{each['best']}`)" if several else f"`{each['minus']}`"


def _signed(number: str, digits: int = 3) -> str:
    return f"{float(number):+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _messy(planned: Sequence[Line]) -> str:
    found = [each for each in planned if each["contrast"].startswith("messy")]
    ahead = [each for each in found if float(each["difference"]) <= -float(each["interest"]) and _shown(each)]
    return (
        "- On messy text, estimated at least 0.03 nats ahead, and ahead at all with p below 0.05 after Holm: in "
        f"{len(ahead)} of {len(found)} tests (test loss at equal updates, dev loss at equal time)."
    )


def _clean(planned: Sequence[Line]) -> str:
    found = [each for each in planned if each["contrast"].startswith("clean")]
    behind = [each for each in found if float(each["difference"]) > 0 and _shown(each)]
    near = [each for each in found if float(each["high"]) < float(each["interest"])]
    return (
        f"- Not behind on clean text: shown to be behind in {len(behind)} of {len(found)} tests; the whole interval is "
        f"less than 0.03 nats behind in {len(near)}."
    )


def _shown(each: Line) -> bool:
    return float(each["p_holm"]) < 0.05


def _regret(regrets: Sequence[Line]) -> str:
    ranked = sorted((each for each in regrets if each["row"] != REPLAY), key=lambda each: float(each["regret"]))
    place = [each["row"] for each in ranked].index(ROW) + 1
    first = ", ".join(f"`{each['row']}` {float(each['regret']):.3f}" for each in ranked[:3])
    return (
        f"- The lowest regret of all schedules: `{ROW}` has place {place} of {len(ranked)}. The first three: {first}."
    )


def _spoken(regrets: Sequence[Line]) -> str:
    ranked = sorted(regrets, key=lambda each: float(each["regret"]))
    means = ", ".join(f"{each['row']} {float(each['regret']):.3f}" for each in ranked)
    return f"How far each schedule is behind the best one of each corpus in test loss; means, best first: {means}."


def fill(page: Path, text: str, begin: str = BEGIN) -> None:
    """Put ``text`` between two comments of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page} lacks one of the two comments between which results stand")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main(runs: Path, out: Path = HERE) -> None:
    plan = find_plan(runs)
    if plan is None:
        raise SystemExit(f"{runs} has no plan.json; it is not the folder of the league")
    longer = "bleu" in plan.plan.endpoint
    lacking = missing_longer(runs) if longer else missing(runs, plan.plan)
    if lacking:
        raise SystemExit(
            f"{len(lacking)} planned runs are missing, such as {lacking[0]}; results are read when all are done"
        )
    place = out / "bleu" if longer else out
    report = place / "report"
    if runs.resolve() != (place / "runs").resolve():
        print(f"records: {copy_all([runs], place / 'runs') / 1e6:.1f} MB")
    report_on([place / "runs"], report, title="The league: longer runs" if longer else "The league")
    if longer:
        fill(out / "README.md", longer_results(report, corpora_of(runs)), LONGER)
    else:
        fill(out / "README.md", results(report))
    print(f"see {out / 'README.md'} and {report / 'report.md'}; now write below the results what to use, and why")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="the folder of the league, or the published records")
    main(parser.parse_args().runs)
