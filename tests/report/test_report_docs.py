"""What the documentation says of reports, against reports: their names of files, and what the command prints."""

import re
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from made_runs import SIZES, everywhere, make_run, make_suite, write_json
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rota.experiments.suites.paper import paper
from rota.report.assemble import make_report
from rota.report.several import make_regret_report

DOCS = Path(__file__).parents[2] / "docs"


def doc(name):
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def undrawn():
    """Which figures there are is asked here, not what they look like: drawing them takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda layout, figure: None)
        patch.setattr(FigureCanvasSVG, "print_svg", lambda canvas, file, **_: file.write("<svg></svg>"))
        patch.setattr(FigureCanvasAgg, "print_png", lambda canvas, file, **_: file.write(b""))
        yield


# The study of the tutorial: what the seeds of a row have more than those of proportional.
DIFFERENCES = {
    "uniform": {"dev-loss": (-0.0295, 0.0205), "chrf": (-0.336, 2.566), "bleu": (-0.001, 0.031)},
    "proportional": {"dev-loss": (0.0, 0.0), "chrf": (0.0, 0.0), "bleu": (0.0, 0.0)},
    "temperature-5": {"dev-loss": (-0.08175, 0.03275), "chrf": (-1.19, 1.6), "bleu": (0.00964, 0.01036)},
}


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "schedules"
    make_suite(folder, {row: {"warmup": "no"} for row in DIFFERENCES}, seeds=[1, 2])
    for row, found in DIFFERENCES.items():
        for place, seed in enumerate((1, 2)):
            make_run(
                folder / row / f"seed-{seed}",
                seed=seed,
                warmup=None,
                dev_losses={20: everywhere(5.7 + found["dev-loss"][place])},
                scores={metric: everywhere(3.3 + found[metric][place]) for metric in ("chrf", "bleu")},
            )
    return folder


def test_the_output_on_the_pages_is_what_the_command_prints_for_two_seeds(rota, two_seeds, tmp_path, monkeypatch):
    typed = "rota report runs/schedules --baseline proportional --out report"
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "schedules").symlink_to(two_seeds)
    monkeypatch.chdir(tmp_path)
    code, output, error = rota(*typed.split()[1:])
    assert code == 0, error
    for page in ("tutorial.md", "commands/report.md"):
        shown = re.search(rf"```sh\n{typed}\n```\n\n```\n(.*?)```", doc(page), re.DOTALL)[1]
        assert shown == output, page


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Paths in reports that have everything: both learned teachers, a changed setting of each, two probes, scores,
    and the regret over two studies."""
    folder = tmp_path_factory.mktemp("made")
    rows = {
        row: {"table": row.partition("-")[0] if "-" in row else "main"} for row in ("tscl", "dqn", "tscl-a", "dqn-a")
    }
    make_suite(folder / "suite", {"uniform": {}, **rows}, seeds=[1, 2])
    for row in ("uniform", *rows):
        for seed in (1, 2):
            make_one(folder / "suite" / row / f"seed-{seed}", row.partition("-")[0], seed)
    shutil.copytree(folder / "suite", folder / "other")
    made = make_report([folder / "suite"], folder / "report")
    regret = make_regret_report([folder / "suite", folder / "other"], folder / "regret")
    tables = {f"tables/{name}" for name in (*made.tables, *regret.tables)}
    return tables | {f"figures/{name}.png" for name in (*made.figures, *regret.figures)}


def make_one(folder, teacher, seed):
    learned = teacher != "uniform"
    gained = zip(["az", "az", "tr", "tr", "az", "tr"], [10, 9, 7, 7, 5, 0], strict=True)
    told = [{"step": 1, "arm": arm, "joint_loss": loss} for arm, loss in gained]
    values = {step: {"epsilon": 0.1, "scores": everywhere(step / 10)} for step in range(1, 21)}
    make_run(
        folder,
        seed=seed,
        teacher=teacher,
        dev_losses={20: everywhere(2.0 + seed)},
        dev_scores={20: {"bleu": everywhere(9.0), "chrf": everywhere(19.0)}},
        scores={"chrf": everywhere(20.0 + seed), "bleu": everywhere(10.0 + seed)},
        decisions=values if learned else {},
        observations=told if learned else [],
        goal={"az": 2, "tr": 1},
        spot_checks=[{"step": 20, "dev_source_gain": everywhere([0.2, 0.1]), "epochs": everywhere(3.0)}],
    )
    for step in (4, 8) if teacher == "dqn" else ():
        (folder / "policy").mkdir(exist_ok=True)
        matrix = [[0.25] * 4] * 4
        write_json(
            folder / "policy" / f"{step}.json", {"step": step, "languages": list(SIZES), "matrix": matrix, "factor": 5}
        )


def section(text, heading):
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_file_that_the_table_of_the_papers_results_names_is_made(names):
    rows = [
        line.split("|")[2] for line in section(doc("paper.md"), "Every table and figure").splitlines() if "|" in line
    ]
    named = [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 10
    assert [name for name in named if not name.startswith(("tables/", "figures/"))] == [], "with their folders"
    assert [pattern for pattern in named if not any(fnmatch(name, pattern) for name in names)] == []


def test_the_command_for_the_tables_of_settings_runs_all_their_rows():
    """A name that is a row and a table is the row alone."""
    [rows] = re.findall(r"rota compare paper --rows '(.*?)'", doc("paper.md"))
    wanted = {name for name, row in paper().rows.items() if row.table in ("tscl", "dqn")}
    assert wanted | {"tscl", "dqn"} <= set(paper().choose(rows))


OTHER_RUNS = ("planned", "who-helps-whom-*", "arm-shares")
"""Made for suites with a plan, for runs of align, and where a language has several arms: test_planned.py,
test_helping.py and test_by_language.py have them."""


@pytest.mark.parametrize("heading", ["Tables", "Figures"])
def test_the_page_on_reports_names_all_that_is_made_and_nothing_else(names, heading):
    rows = [line.split("|")[1] for line in section(doc("report.md"), heading).splitlines() if line.startswith("| `")]
    patterns = [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    made = {Path(name).name.removesuffix(".png") for name in names if name.startswith(f"{heading.lower()}/")}
    unmade = [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in made)]
    assert set(unmade) <= set(OTHER_RUNS)
    assert [name for name in made if not any(fnmatch(name, pattern) for pattern in patterns)] == []
