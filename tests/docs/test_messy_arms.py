"""docs/results/arms: every teacher that learns has a row, and the alarms of a run name the bad arms and no others."""

from doc_pages import DOCS

from rota import api
from rota.config import parse_config
from rota.experiments.suites import open_suite
from rota.runs import Run
from rota.teachers import TEACHERS

SUITE = str(DOCS / "results" / "arms" / "suite.yaml")


def test_every_teacher_that_learns_from_what_it_observes_is_a_row():
    rows = open_suite(SUITE).rows
    learn = {name for name, kind in TEACHERS.items() if kind.listens}
    assert learn - {"sb3"} <= set(rows), "sb3 needs a policy of your own"
    assert {"tscl-rota", "dqn-rota"} <= set(rows)


def test_the_alarms_name_the_misaligned_arm_and_the_one_that_is_learned_by_heart(tmp_path):
    values = open_suite(SUITE).on("synthetic").values("uniform", 1, tmp_path)
    values["data"]["folder"] = str(tmp_path / "data")
    api.train(parse_config(values), tmp_path / "run")
    found = [(entry["kind"], entry["arm"]) for entry in Run(tmp_path / "run").read("alarms")]
    assert sorted(found) == [("by-heart", "sisa"), ("unaligned", "kaka-web")]
