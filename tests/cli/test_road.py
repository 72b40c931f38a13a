"""The whole road on a tiny generated corpus: prepare, train, evaluate, translate, from the shell and from Python."""

import gzip
import json

import pytest

import rota as package
from rota.config import parse_config
from rota.report.figures.shares import plot_shares, share_windows
from rota.runs import Run
from rota.runs.records import read_record
from rota.student.nmt import NMT
from rota.student.optimiser import NotFiniteError
from rota.training.listeners import Display

CONFIG = """
data:
  corpus: synthetic
  synthetic: {families: {la: {lala: 400, lato: 80}}, dev: 12, test: 9}
  low_resource: [lato]
  subwords: {size: 400}
student: {preset: tiny, width: 32, feedforward: 64, layers: 1, lr_warmup: 5, dropout: 0.1, learning_rate: {peak: 0.01}}
teacher: {name: temperature, temperature: 2, warmup: 25%}
training: {steps: 40, tokens: 200, checkpoint_every: 10, validate_every: 20, threads: 1}
evaluation: {beam: 2}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("road")
    (folder / "small.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def road(rota, project, monkeypatch):
    monkeypatch.chdir(project)
    assert rota("train", "small.yaml")[0] == 0
    return rota


def test_preparing_shows_what_was_kept_and_a_second_time_does_nothing(rota, project, monkeypatch):
    monkeypatch.chdir(project)
    code, output, _ = rota("prepare", "small.yaml")
    assert code == 0
    assert "lato (low)" in output
    before = (project / "prepared" / "small" / "manifest.json").stat().st_mtime_ns
    assert rota("prepare", "small.yaml")[0] == 0
    assert (project / "prepared" / "small" / "manifest.json").stat().st_mtime_ns == before


def test_a_run_says_what_it_is_and_what_it_did(road, project):
    run = project / "runs" / "small"
    about = json.loads((run / "run.json").read_text())
    assert about["config"]["teacher"]["temperature"] == 2
    assert about["data"]["low_resource"] == ["lato"]
    assert {"torch", "numpy", "python"} <= set(about["versions"])
    steps = list(read_record(run / "steps.jsonl"))
    assert [entry["step"] for entry in steps] == list(range(1, 41))
    assert {entry["why"] for entry in steps[:10]} == {"warmup"}
    assert {entry["why"] for entry in steps[10:]} == {"sampled"}
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert [entry["step"] for entry in read_record(run / "validations.jsonl")] == [20, 40]
    assert any(path.name.startswith("events") for path in (run / "tensorboard").iterdir())


def test_training_a_trained_run_again_changes_nothing(road, project):
    before = (project / "runs" / "small" / "steps.jsonl").read_bytes()
    code, output, _ = road("train", "small.yaml")
    assert code == 0
    assert "is trained" in output
    assert (project / "runs" / "small" / "steps.jsonl").read_bytes() == before


def test_evaluating_scores_every_language_and_repeats_nothing(road, project):
    code, output, _ = road("evaluate", "runs/small")
    assert code == 0
    for words in ("BLEU", "chrF", "lala", "lato (low)", "low-resource", "high-resource", "macro", "tok:13a"):
        assert words in output
    run = project / "runs" / "small"
    translations = sorted(path.name for path in (run / "translations").iterdir())
    assert translations == ["40.test.lala.beam2-1.txt", "40.test.lato.beam2-1.txt"]
    assert len((run / "translations" / translations[0]).read_text().splitlines()) == 9
    written = (run / "evals.jsonl").read_text()
    assert len(written.splitlines()) == 6, "two languages, three metrics"
    assert road("evaluate", "runs/small")[1] == output
    assert (run / "evals.jsonl").read_text() == written


def test_the_dev_sets_and_other_checkpoints_can_be_evaluated(road, project):
    assert road("evaluate", "runs/small", "--split", "dev", "--step", "20", "--beam", "1")[0] == 0
    assert (project / "runs" / "small" / "translations" / "20.dev.lala.beam1-1.txt").exists()


def test_translating_keeps_the_number_of_lines(road):
    code, output, error = road("translate", "runs/small", "--language", "lato", stdin="tola meka\n\n  sati \n")
    assert code == 0, error
    assert output.count("\n") == 3
    assert output.split("\n")[1] == "", "blank for blank"


def test_python_does_what_the_shell_does(road, project):
    config = package.load_config("small.yaml")
    loop = package.train(config, run="runs/small")
    assert loop.step == 40
    translator = package.Translator.load("runs/small")
    assert len(translator.translate(["tola", "meka sati"], language="lala", beam=1)) == 2
    assert set(package.evaluate("runs/small").values("bleu")) == {"lala", "lato"}


def test_the_same_seed_gives_the_same_run_and_another_one_another(road, project):
    assert road("train", "small.yaml", "--run", "runs/again")[0] == 0
    assert road("train", "small.yaml", "--run", "runs/other", "--set", "seed=2")[0] == 0
    steps = {name: (project / "runs" / name / "steps.jsonl").read_bytes() for name in ("small", "again", "other")}
    assert steps["small"] == steps["again"]
    assert steps["small"] != steps["other"]


def test_until_stops_and_says_how_to_go_on(road, project):
    code, output, _ = road("train", "small.yaml", "--run", "runs/parts", "--until", "13")
    assert code == 0
    assert "at step 13 and saved; continue with: rota train small.yaml --run runs/parts" in " ".join(output.split())
    assert road("train", "small.yaml", "--run", "runs/parts")[0] == 0
    whole, parts = (project / "runs" / name / "steps.jsonl" for name in ("small", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


def test_the_display_of_a_resumed_run_knows_the_dev_losses_of_its_first_part(road, monkeypatch):
    told = []

    def resume(self, step, seen, dev_losses=()):
        told.append((step, list(dev_losses)))

    monkeypatch.setattr(Display, "resume", resume)
    assert road("train", "small.yaml", "--run", "runs/shown", "--until", "25")[0] == 0
    assert road("train", "small.yaml", "--run", "runs/shown", "--until", "30")[0] == 0
    (start, none), (step, [dev_loss]) = told
    assert (start, none, step) == (0, [], 25)
    assert set(dev_loss) == {"lala", "lato"}


def test_published_records_are_not_trained_over(road, project):
    published = project / "published" / "small"
    published.mkdir(parents=True)
    for name in ("run.json", "validations.jsonl"):
        (published / name).write_bytes((project / "runs" / "small" / name).read_bytes())
    (published / "steps.jsonl.gz").write_bytes(gzip.compress((project / "runs" / "small" / "steps.jsonl").read_bytes()))
    code, _, error = road("train", "small.yaml", "--run", "published/small")
    assert code == 2
    assert "published/small holds published records, without models to resume from" in error
    assert len(list(read_record(published / "validations.jsonl"))) == 2


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_used(road, project):
    assert road("train", "small.yaml", "--run", "runs/damaged", "--until", "20")[0] == 0
    weights = project / "runs" / "damaged" / "checkpoints" / "20" / "student.network.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"ruin")
    code, output, _ = road("train", "small.yaml", "--run", "runs/damaged")
    assert code == 0
    assert "20 is damaged" in " ".join(output.split())
    assert "resuming from step 10" in output
    whole, mended = (project / "runs" / name / "steps.jsonl" for name in ("small", "damaged"))
    assert whole.read_bytes() == mended.read_bytes()


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint(road, project, monkeypatch):
    update = NMT.update

    def explode(self, batches, draw_next):
        if self.step == 25:
            raise NotFiniteError("the loss at step 26 is nan.")
        return update(self, batches, draw_next)

    monkeypatch.setattr(NMT, "update", explode)
    code, _, error = road("train", "small.yaml", "--run", "runs/exploded")
    assert code == 1
    assert "the loss at step 26 is nan" in error
    assert "last good checkpoint is runs/exploded/checkpoints/20" in error
    assert "Traceback" not in error


def test_the_share_figure_is_made_from_the_records(road, project):
    ends, shares = share_windows(Run(project / "runs" / "small"), windows=4)
    assert ends.tolist() == [10, 20, 30, 40]
    assert shares["lala"][0] == 1.0, "the warm-up is on the high-resource language alone"
    assert all(abs(lala + lato - 1) < 1e-9 for lala, lato in zip(shares["lala"], shares["lato"], strict=True))
    picture = plot_shares(project / "runs" / "small", project / "shares.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_static_teacher_trains(road, project):
    for teacher in ("uniform", "proportional", "mixed", "two-phase"):
        assert road("train", "small.yaml", "--set", f"teacher={teacher}", "--run", f"runs/{teacher}")[0] == 0
    mixed = list(read_record(project / "runs" / "mixed" / "steps.jsonl"))
    low_resource = sum(entry.get("tokens_by_language", {}).get("lato", 0) for entry in mixed)
    assert low_resource / sum(entry["tokens"] for entry in mixed) == pytest.approx(80 / 480, abs=0.03)


def test_the_last_language_may_have_small_batches_as_in_the_released_code(road, project):
    assert road("train", "small.yaml", "--set", "training.last_arm_tokens=50", "--run", "runs/last")[0] == 0
    tokens = {"lala": set(), "lato": set()}
    for entry in read_record(project / "runs" / "last" / "steps.jsonl"):
        tokens[entry["arm"]].add(entry["tokens"])
    assert max(tokens["lato"]) < 80 < 120 < min(tokens["lala"])


@pytest.mark.parametrize("teacher", ["tscl", "dqn"])
def test_a_learned_teacher_trains_and_a_run_cut_in_two_is_the_same(road, project, teacher):
    settings = {"tscl": "{name: tscl, warmup: 10}", "dqn": DQN_SETTINGS}[teacher]
    command = ("train", "small.yaml", "--set", f"teacher={settings}", "--run")
    assert road(*command, f"runs/{teacher}-whole")[0] == 0
    assert road(*command, f"runs/{teacher}-parts", "--until", "23")[0] == 0
    assert road(*command, f"runs/{teacher}-parts")[0] == 0
    whole, parts = (project / "runs" / f"{teacher}-{name}" for name in ("whole", "parts"))
    for name in ("steps.jsonl", "validations.jsonl", "checkpoints/40/student.network.safetensors"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes(), name
    steps = list(read_record(whole / "steps.jsonl"))
    assert {entry["why"] for entry in steps[10:]} <= {"explore", "exploit", "first visit"}
    assert set(steps[20]["scores"]) == {"lala", "lato"}
    assert steps[20]["epsilon"] is not None


DQN_SETTINGS = (
    "{name: dqn, warmup: 10, decide_every: 2, epsilon_steps: 10, replay_minimum: 3, replay_batch: 4,"
    " hidden: [8], groups: 3, refresh: 1/2}"
)


def test_the_q_network_of_any_checkpoint_can_be_probed(road, project):
    assert road("train", "small.yaml", "--set", f"teacher={DQN_SETTINGS}", "--run", "runs/dqn-whole")[0] == 0
    for step in ("20", "40"):  # step 20 is thinned by then
        code, output, error = road("policy", "runs/dqn-whole", "--step", step)
        assert code == 0, error
        assert "amplified" in output
        probe = json.loads((project / "runs" / "dqn-whole" / "policy" / f"{step}.json").read_text())
        assert probe["languages"] == ["lala", "lato"]
        assert all(sum(row) == pytest.approx(1) for row in probe["matrix"])
        assert (project / "runs" / "dqn-whole" / "policy" / f"{step}.png").exists()
    assert "no Q network" in road("policy", "runs/small")[2]
    assert "observed nothing yet" in road("policy", "runs/dqn-whole", "--step", "10")[2]


def test_teachers_can_be_tried_on_a_scripted_student(rota):
    code, output, _ = rota("simulate", "tscl", "--world", "stationary", "--steps", "200")
    assert code == 0
    assert "scripted student" in output
    assert "best fixed mixture" in " ".join(output.split())
    assert rota("simulate", "tscl", "--world", "moon")[0] == 2
    code, _, error = rota("simulate", "tscl", "uniform", "--set", "epsilon=0.3")
    assert code == 2
    assert "uniform: unknown key 'teacher.epsilon'" in " ".join(error.split())


def test_the_teachers_are_listed_and_each_has_its_parameters(rota):
    code, output, _ = rota("teachers")
    assert code == 0
    for words in ("uniform", "proportional", "temperature", "mixed", "two-phase"):
        assert words in output
    code, output, _ = rota("teachers", "fixed")
    assert code == 0
    for words in ("decide_every", "(required)"):
        assert words in output


def test_a_config_of_python_values_is_checked_like_a_file():
    assert parse_config({"data": {"corpus": "synthetic"}}).teacher.name == "uniform"
