"""A teacher of one's own: the example of docs/own_teacher.md, found by its name, simulated, trained, resumed."""

import importlib
import json
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from rota.config import RunConfig, parse_config, teacher_config
from rota.measures import DevLoss
from rota.runs.records import read_record
from rota.settings import ConfigError
from rota.simulation.simulate import simulate_config
from rota.simulation.worlds import stationary
from rota.teachers import Classroom, build_teacher
from rota.teachers.lookup import find_config
from rota.testing import observation_of
from rota.testing.no_harm import MARGIN, above_uniform

DOCS = Path(__file__).parents[1] / "docs"
NAME = "own_teacher:WorstFirstConfig"
CONFIG = """
data:
  corpus: synthetic
  synthetic: {families: {la: {lala: 300, lato: 60}}, dev: 12, test: 9}
  low_resource: [lato]
  subwords: {size: 400}
student: {preset: tiny, width: 32, feedforward: 64, layers: 1, lr_warmup: 5}
teacher: {name: own_teacher:WorstFirstConfig, epsilon: 0.2, warmup: 10%}
training: {steps: 40, tokens: 150, checkpoint_every: 10, validate_every: 20, tensorboard: false, threads: 1}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The folder of a user; an installed program does not look for modules there by itself."""
    (tmp_path / "small.yaml").write_text(CONFIG)
    for name in ("own_teacher.py", "own_measure.py"):
        (tmp_path / name).write_text((DOCS / name).read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("own_teacher", "own_measure"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    return tmp_path


def write_module(project, text):
    """A module of the user's under a name that was never imported."""
    name = f"module_{uuid.uuid4().hex}"
    (project / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    return name


def teacher(arms=("az", "tr", "ru"), **options):
    room = Classroom(dict.fromkeys(arms, 10), low_resource=(), steps=100)
    return build_teacher(find_config(NAME)(**options), room, np.random.default_rng(1))


def tell(worst_first, arm, loss):
    worst_first.tell(observation_of(worst_first.watches, 1, {arm: 1}, {DevLoss: {arm: loss}}))


def test_the_example_has_thirty_lines_at_most():
    lines = (DOCS / "own_teacher.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 30


def test_the_page_shows_the_example_as_it_is():
    shown = re.findall(r"```python\n(.*?)```", (DOCS / "own_teacher.md").read_text(), re.DOTALL)
    assert (DOCS / "own_teacher.py").read_text() in shown
    assert (DOCS / "own_measure.py").read_text() in shown


def test_worst_first_visits_every_language_and_then_plays_the_one_of_the_highest_loss(project):
    worst_first = teacher(epsilon=0)
    for arm, loss in (("az", 4.0), ("tr", 3.0), ("ru", 5.0)):
        assert worst_first.ask(0).arm == arm
        tell(worst_first, arm, loss)
    assert worst_first.ask(3).arm == "ru"
    tell(worst_first, "ru", 3.5)
    decision = worst_first.ask(4)
    assert (decision.arm, decision.why, decision.scores) == ("az", "exploit", {"az": 4.0, "tr": 3.0, "ru": 3.5})


def test_the_check_of_the_page_that_worst_first_does_no_harm(project):
    assert "class TestWorstFirstDoesNoHarm(NoHarm):" in (DOCS / "own_teacher.md").read_text()
    assert above_uniform({"name": NAME}, 100, range(3)) < MARGIN


def test_worst_first_explores_as_often_as_its_config_says(project):
    worst_first = teacher(epsilon=0.3)
    for arm, loss in (("az", 4.0), ("tr", 3.0), ("ru", 5.0)):
        tell(worst_first, arm, loss)
    chosen = [worst_first.ask(step).arm for step in range(1000)]
    assert chosen.count("ru") / 1000 == pytest.approx(0.8, abs=0.04)  # 0.7, and a third of 0.3


def test_worst_first_wastes_itself_on_a_language_that_cannot_be_learned(project):
    # left falls below 5 with its first update, right stays at 5: after one turn of left, it is right for ever.
    result = simulate_config(teacher_config(NAME, ["epsilon=0"], steps=200), stationary(200), 200, guard=False)
    assert result.shares == {"left": 1 / 200, "right": 199 / 200}
    assert result.final_losses["right"] == 5.0


def test_it_can_be_simulated_from_the_shell(rota, project):
    code, output, error = rota("simulate", NAME, "--world", "stationary", "--steps", "100", "--set", "epsilon=0")
    assert code == 0, error
    assert "own_teacher" in output


def test_a_config_with_it_reads_back_as_itself(project):
    config = parse_config({"data": {"corpus": "synthetic"}, "teacher": {"name": NAME, "epsilon": 0.2, "warmup": "10%"}})
    assert type(config.teacher) is find_config(NAME)
    dumped = json.loads(json.dumps(config.dump()))
    assert dumped["teacher"] == {
        "name": NAME,
        "epsilon": 0.2,
        "warmup": {"until": "10%", "languages": "high-resource", "inform": "none"},
        "decide_every": 1,
        "observe_every": None,
    }
    assert parse_config(dumped) == config
    assert parse_config(dumped).fingerprint == config.fingerprint


def test_its_name_alone_is_enough(project):
    assert parse_config({"data": {"corpus": "synthetic"}, "teacher": NAME}).teacher == find_config(NAME)()


def test_python_users_give_the_config_itself(project):
    own = find_config(NAME)(epsilon=0.5)
    config = RunConfig(data={"corpus": "synthetic"}, teacher=own)
    assert config.teacher == own
    assert parse_config(config.dump()) == config


def test_a_config_under_a_name_that_is_not_its_own_is_refused(project):
    name = write_module(project, "from own_teacher import WorstFirstConfig\n\nclass Copy(WorstFirstConfig): ...\n")
    copy = find_config(f"{name}:Copy")()
    with pytest.raises(ValueError, match=f"the name '{NAME}' is not that of its class; write name: {name}:Copy"):
        RunConfig(data={"corpus": "synthetic"}, teacher=copy)


MODULE = """
from rota.teachers import TeacherConfig


class Nameless(TeacherConfig):
    def build(self, classroom, rng): ...


class Idle(TeacherConfig):
    name: str = "idle"
"""
MISTAKES = [
    ("nowhere_to_be_found:Own", "teacher: no module 'nowhere_to_be_found'; run Rota in the folder that holds it"),
    ("own_teacher.part:Own", "teacher: no module 'own_teacher.part'; run Rota in the folder"),
    ("own_teacher:WorstFirstConfg", "no teacher config 'WorstFirstConfg'; it has WorstFirstConfig"),
    ("own_teacher:WorstFirst", "no teacher config 'WorstFirst'; it has WorstFirstConfig"),
    ("json:Own", "module 'json' has no teacher config 'Own'; derive one from rota.teachers.TeacherConfig"),
    ("own_teacher:", "no teacher config ''; it has WorstFirstConfig"),
    (":Own", "teacher: importing '' failed: ValueError: Empty module name"),
]


def refusal(values):
    with pytest.raises(ConfigError) as error:
        parse_config({"data": {"corpus": "synthetic"}, "teacher": values})
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("name", "message"), MISTAKES, ids=[name for name, _ in MISTAKES])
def test_a_name_that_leads_nowhere_is_explained_in_one_line(project, name, message):
    assert message in refusal(name)


def test_a_class_that_is_not_complete_is_explained_in_one_line(project):
    name = write_module(project, MODULE)
    assert f"'{name}:Nameless' has no field 'name'; write in its class: name: str = " in refusal(f"{name}:Nameless")
    assert f"'{name}:Idle' has no method 'build'; write one that returns the teacher" in refusal(f"{name}:Idle")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("losses = [1, 2", r"SyntaxError: '\[' was never closed"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_is_broken_is_explained_in_one_line(project, text, message):
    name = write_module(project, text)
    assert re.search(f"importing '{name}' failed: {message}.*; fix that module", refusal(f"{name}:Own"))


def test_its_settings_are_checked_as_those_of_any_teacher(project):
    assert refusal({"name": NAME, "epsilom": 1}) == "config: unknown key 'teacher.epsilom'; did you mean 'epsilon'?"
    assert "teacher.epsilon: Input should be less than or equal to 1 (it is 2)" in refusal({"name": NAME, "epsilon": 2})


def test_it_trains_from_the_shell_and_a_run_cut_in_two_is_the_same(rota, project):
    assert rota("train", "small.yaml", "--run", "whole")[0] == 0
    assert rota("train", "small.yaml", "--run", "parts", "--until", "23")[0] == 0
    assert rota("train", "small.yaml", "--run", "parts")[0] == 0
    assert_same_run(project)
    steps = list(read_record(project / "whole" / "steps.jsonl"))
    assert {entry["why"] for entry in steps[:4]} == {"warmup"}
    assert {entry["why"] for entry in steps[4:]} == {"explore", "exploit"}
    assert set(steps[-1]["scores"]) == {"lala", "lato"}


def test_a_measure_of_its_own_is_taken_recorded_and_survives_a_cut(rota, project):
    """A measure and a teacher in one file of the user's; nothing of Rota knows them."""
    own = ("--set", "teacher={name: own_measure:TailFirstConfig, epsilon: 0.2}")
    assert rota("train", "small.yaml", *own, "--run", "whole")[0] == 0
    assert rota("train", "small.yaml", *own, "--run", "parts", "--until", "23")[0] == 0
    assert rota("train", "small.yaml", *own, "--run", "parts")[0] == 0
    assert_same_run(project)
    told = list(read_record(project / "whole" / "observations.jsonl"))
    assert [set(entry["hard_tail"]) for entry in told] == [{"lala", "lato"}] * 40
    scores = [entry["scores"] for entry in read_record(project / "whole" / "steps.jsonl")]
    assert scores[1:] == [entry["hard_tail"] for entry in told[:-1]]


def test_a_measure_without_a_gauge_is_named(rota, project):
    text = (project / "own_measure.py").read_text().replace("return {HardTail: HardTailGauge}", "return {}")
    name = write_module(project, text.replace("own_measure:", "NAME:"))
    (project / f"{name}.py").write_text((project / f"{name}.py").read_text().replace("NAME:", f"{name}:"))
    code, _, error = rota("train", "small.yaml", "--set", f"teacher={name}:TailFirstConfig", "--run", "no")
    assert code == 2
    assert "no gauge for HardTail(); there is one for TrainLoss, DevLoss" in error


def install(project, monkeypatch, name, value):
    """An installed package with one entry point, as pip would leave it."""
    about = project / "installed" / "worst_first-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: worst-first\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[rota.teachers]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(project / "installed")
    monkeypatch.syspath_prepend(project)
    importlib.invalidate_caches()


def test_a_teacher_of_an_installed_package_is_found_by_its_entry_point(project, monkeypatch):
    text = (project / "own_teacher.py").read_text().replace("own_teacher:WorstFirstConfig", "worst-first")
    module = write_module(project, text)
    install(project, monkeypatch, "worst-first", f"{module}:WorstFirstConfig")
    found = parse_config({"data": {"corpus": "synthetic"}, "teacher": {"name": "worst-first", "epsilon": 0.4}}).teacher
    assert (type(found).__module__, found.epsilon) == (module, 0.4)
    assert "did you mean 'worst-first'?" in refusal("worst-fist")


def test_an_entry_point_that_leads_nowhere_is_explained_in_one_line(project, monkeypatch):
    install(project, monkeypatch, "broken", "json:JSONDecoder")
    assert "the entry point 'broken' leads to 'json:JSONDecoder', which is not a teacher's config" in refusal("broken")


def assert_same_run(project):
    for name in ("steps.jsonl", "validations.jsonl", "checkpoints/40/student.network.safetensors"):
        assert (project / "whole" / name).read_bytes() == (project / "parts" / name).read_bytes(), name


@pytest.mark.slow
def test_a_killed_run_ends_as_an_undisturbed_one(rota, project):
    assert rota("train", "small.yaml", "--run", "whole")[0] == 0
    program = Path(sys.executable).with_name("rota")
    process = subprocess.Popen([program, "train", "small.yaml", "--run", "parts"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (project / "parts" / "checkpoints" / "20").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (project / "parts" / "checkpoints" / "40").exists(), "it was killed on the way"
    assert rota("train", "small.yaml", "--run", "parts")[0] == 0
    assert_same_run(project)
