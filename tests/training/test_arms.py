"""A run whose languages have several training texts: teachers choose among arms, dev losses are of languages."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from rota import api
from rota.cli.views import data_table
from rota.config import parse_config
from rota.data.preparation.cleaning import LEAK
from rota.goal import resolve
from rota.measures import DevLoss, Estimate
from rota.report.figures.shares import share_windows
from rota.report.study import read_study
from rota.report.tables.budgets import data_table as corpus_table
from rota.runs import Run
from rota.teachers import Classroom, build_teacher, teacher_from
from rota.teachers.dqn.policy import probe_checkpoint
from rota.training.alarms.by_heart import ByHeart
from rota.training.alarms.guard import watch_over
from rota.training.alarms.losses import RisingLoss
from rota.training.devsets import DevSets
from rota.training.listeners import Display
from rota.training.spot_checks import SpotCheck
from rota.types import Decision, Route

SIZES = {"gl": 20, "gl-web": 60, "pt": 120}
LANGUAGE_OF = {"gl": "gl", "gl-web": "gl", "pt": "pt"}
ROOM = Classroom(SIZES, low_resource=("gl", "gl-web"), steps=100, language_of=LANGUAGE_OF)
VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 150, "lato": 60}}, "dev": 24, "test": 4},
        "sources": {"lato-2": {"language": "lato", "take": 0.4}},
        "low_resource": ["lato"],
        "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "training": {"steps": 8, "tokens": 60, "checkpoint_every": 4, "validate_every": 4, "threads": 1},
}
ARMS = ["lala", "lato", "lato-2"]
DQN = {"name": "dqn", "decide_every": 1, "groups": 2, "group_sentences": 2, "reward_tokens": 60, "warmup": None}
TSCL = {"name": "tscl", "warmup": None, "reward_tokens": 60}


def config(folder, **more):
    return parse_config({**VALUES, "data": {**VALUES["data"], "folder": str(folder)}, **more})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arms") / "data"
    api.prepare(config(folder))
    return folder


@pytest.mark.parametrize(
    "teacher", [TSCL, DQN, {"name": "uniform"}, {"name": "mixed"}], ids=lambda value: value["name"]
)
def test_a_run_trains_on_arms_and_validates_languages_cut_in_two_or_not(data, tmp_path, teacher):
    whole, parts = Run(tmp_path / "whole"), Run(tmp_path / "parts")
    settings = config(data, teacher=teacher)
    api.train(settings, whole.folder)
    api.train(settings, parts.folder, until=3)
    api.train(settings, parts.folder)
    for name in ("steps", "validations"):
        assert whole.record_path(name).read_bytes() == parts.record_path(name).read_bytes()
    assert list(whole.read("rewards")) == list(parts.read("rewards"))
    steps = list(whole.read("steps"))
    assert {arm for entry in steps for arm in entry.get("tokens_by_language", {entry["arm"]: 1})} <= set(ARMS)
    assert set(list(whole.read("validations"))[-1]["dev_loss"]) == {"lala", "lato"}
    assert whole.arms == dict(api.prepare(settings).sizes)
    assert list(whole.sizes) == ["lala", "lato"]
    assert sum(whole.sizes.values()) == sum(whole.arms.values()) == 210
    assert whole.route("lato-2") == Route("lato", "en", "lato")


def test_the_dev_loss_of_an_arm_is_that_of_its_language_measured_once(data):
    sets = DevSets(api.prepare(config(data)), teacher_share=0.5, division="text", validate_tokens=500)
    batches = sets.by_arm(DevLoss(tokens=60))
    assert list(batches) == ARMS
    assert batches["lato"] is batches["lato-2"]
    assert list(sets.validation) == ["lala", "lato"]
    assert (sets.teacher_part("lato-2") == sets.teacher_part("lato")).all()


def test_scores_are_of_languages_and_a_goal_too(data, tmp_path):
    run = Run(tmp_path / "run")
    api.train(config(data, goal="lato"), run.folder)
    assert run.goal == {"lato": 1.0}
    found = api.evaluate(run.folder, select="none", beam=1)
    assert list(found.scores) == ["lala", "lato"]


def test_a_replay_repeats_the_arms_of_another_run(data, tmp_path):
    api.train(config(data), tmp_path / "first")
    api.train(config(data, teacher={"name": "replay-exact", "run": str(tmp_path / "first")}), tmp_path / "again")
    played = [sorted(entry["arm"] for entry in Run(tmp_path / name).read("steps")) for name in ("first", "again")]
    assert played[0] == played[1]


def test_groups_of_languages_and_static_schedules_count_arms():
    rng = np.random.default_rng(1)
    assert build_teacher(teacher_from("proportional"), ROOM, rng).shares == {"gl": 0.1, "gl-web": 0.3, "pt": 0.6}
    assert build_teacher(teacher_from("uniform"), ROOM, rng).shares["gl-web"] == pytest.approx(1 / 3)
    assert ROOM.select("high-resource") == ("pt",)
    assert ROOM.select("low-resource") == ("gl", "gl-web")


def test_a_language_without_an_arm_of_its_name_stands_for_all_its_arms():
    language_of = {"gl-ted": "gl", "gl-web": "gl", "pt": "pt"}
    room = Classroom({"gl-ted": 30, "gl-web": 10, "pt": 5}, ("gl-ted", "gl-web"), 9, language_of=language_of)
    assert room.select(("gl",)) == ("gl-ted", "gl-web")
    fixed = build_teacher(teacher_from({"name": "fixed", "shares": {"gl": 3, "pt": 1}}), room, np.random.default_rng(1))
    assert fixed.shares == {"gl-ted": pytest.approx(9 / 16), "gl-web": pytest.approx(3 / 16), "pt": 0.25}
    with pytest.raises(ValueError, match="unknown language 'es'; the corpus has gl-ted, gl-web, pt"):
        room.select(("es",))
    assert room.languages == ("gl", "pt")
    assert room.goal == {"gl": 0.5, "pt": 0.5}


def test_the_goal_of_a_language_is_divided_among_its_dev_sets():
    routes = {name: Route(name[:2], "en", name) for name in ("gl-ted", "gl-web", "pt")}
    assert resolve("gl", tuple(routes), (), routes) == {"gl-ted": 0.5, "gl-web": 0.5}
    assert resolve({"gl-ted": 3, "pt": 1}, tuple(routes), (), routes) == {"gl-ted": 0.75, "pt": 0.25}


def test_text_that_is_held_out_elsewhere_is_named_with_its_remedy(data, monkeypatch):
    console = Console(width=200, record=True, file=io.StringIO())
    store = api.prepare(config(data))
    monkeypatch.setitem(store.manifest.cleaning["lala"]["train"], LEAK, sum(store.sizes.values()) // 4)
    console.print(data_table(store))
    assert "20% of the training pairs have English that is in a dev or test set." in console.export_text()
    monkeypatch.setitem(store.manifest.cleaning["lala"]["train"], LEAK, sum(store.sizes.values()) // 10)
    console.print(data_table(store))
    assert "hold out the same lines" not in console.export_text()


def test_tables_show_arms_under_their_language(data, tmp_path):
    console = Console(width=120, record=True, file=io.StringIO())
    store = api.prepare(config(data))
    console.print(data_table(store))
    rows = [line.split()[:2] for line in console.export_text().splitlines()]
    assert ["lato", "(low)"] in rows
    assert ["lato-2", str(store.sizes["lato-2"])] in rows
    api.train(config(data), tmp_path / "runs" / "uniform")
    study = read_study([tmp_path / "runs"])
    lines = [[cell.text for cell in line[:3]] for line in corpus_table(study).rows]
    assert ["\N{EN DASH} lato-2", "arm of lato", str(store.sizes["lato-2"])] in lines
    assert list(share_windows(study.any_run)[1]) == ARMS
    assert set(study.any_run.history.overall) == set(ARMS)


def test_the_display_has_a_line_for_each_arm_with_the_loss_of_its_language():
    console = Console(width=100, record=True, file=io.StringIO())
    display = Display(console, title="run", languages=("gl", "pt"), steps=10, language_of=LANGUAGE_OF)
    display.resume(2, {"gl-web": 30, "pt": 10}, [{"gl": 4.5, "pt": 3.5}])
    console.print(display.render())
    lines = [line.split() for line in console.export_text().splitlines()]
    assert [line[1:3] for line in lines if line[:1] == ["gl-web"]] == [["30", "75.0%"]]
    assert [line[-1] for line in lines if line[:1] == ["gl-web"]] == ["4.500"]


def test_the_policy_of_a_q_network_has_languages_as_rows_and_arms_as_columns(data, tmp_path):
    run = Run(tmp_path / "run")
    api.train(config(data, teacher=DQN), run.folder)
    probe = probe_checkpoint(run.checkpoint())
    assert probe.languages == ["lala", "lato"]
    assert probe.arms == ARMS
    assert np.shape(probe.matrix) == (2, 3)
    assert json.loads(probe.write(tmp_path / "probe.json").read_text())["arms"] == ARMS


def validate(detector, losses, arms):
    """Each validation after an update of every arm; returns what was raised."""
    raised, seen = [], dict.fromkeys(arms, 0)
    for step, loss in enumerate(losses, start=1):
        for arm in arms:
            seen[arm] += 100
            detector.updated(step, Decision(arm, "sampled"), 3.0, dict(seen))
        raised += detector.validated(step, loss)
    return raised


def test_an_open_loop_schedule_on_the_arms_of_a_language_trains_on_that_language():
    """The loss of gl falls and rises; with nothing but sources of it, gl still counts as trained on."""
    falling = [5 - 0.05 * number for number in range(20)]
    losses = [{"gl": loss, "pt": 3.0} for loss in [*falling, 4.3, 4.5, 4.7]]
    blind, seeing = RisingLoss(listens=False), RisingLoss(listens=False, language_of={"gl-web": "gl"})
    assert validate(blind, losses, ["gl-web"]) == []
    assert [alarm.kind for alarm in validate(seeing, losses, ["gl-web"])][:1] == ["rising-loss"]


def test_rising_losses_are_those_of_the_goal():
    falling = [5 - 0.05 * number for number in range(20)]
    losses = [{"gl": loss, "pt": 9 - loss} for loss in [*falling, 4.3, 4.5, 4.7]]
    options = {"listens": True, "guard": False, "decide_every": 1, "rng": np.random.default_rng(1)}
    raised = {}
    for goal in ("all", "gl"):
        room = Classroom({"gl": 9, "pt": 9}, (), 100, goal=resolve(goal, ("gl", "pt")))
        teacher = build_teacher(teacher_from("uniform"), room, np.random.default_rng(1))
        _, alarms = watch_over(teacher, room, **options)
        raised[goal] = [alarm.kind for alarm in validate(alarms, losses, ["gl", "pt"])]
    assert raised["all"] == []
    assert "rising-loss" in raised["gl"]


def test_an_arm_is_learned_by_heart_when_the_loss_of_its_language_stands_still():
    blind, seeing = ByHeart(), ByHeart({"gl-web": "gl"})
    found = {}
    for name, detector in (("blind", blind), ("seeing", seeing)):
        kinds = []
        for step in range(1, 13):
            dev_loss = {"gl": 4.0 if step > 3 else 5.0 - step / 10}
            loss = Estimate(4.0 - 0.3 * step, 0.01)
            check = SpotCheck({}, {"gl-web": loss}, {}, dev_loss, {"gl-web": 9}, {"gl-web": 2.0 + step})
            kinds += [alarm.kind for alarm in detector.checked(step, check)]
        found[name] = set(kinds)
    assert found == {"blind": set(), "seeing": {"by-heart"}}
