"""Cross-entropy of whole test sets as a score."""

import json
import shutil

import numpy as np
import pytest
import torch
from window_cases import Saved, make_config, make_run, random_network

from rota import api
from rota.evaluation import losses
from rota.evaluation.translator import Loader
from rota.runs import Run
from rota.runs.checkpoints import Checkpoints
from rota.runs.records import read_record
from rota.runs.standing import standing_scores
from rota.student.pieces import lay_out
from rota.student.transformer import logits


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return api.prepare(make_config(tmp_path_factory.mktemp("losses") / "data"))


@pytest.fixture(scope="module")
def original(store, tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("original") / "run", store)


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def entries(run):
    return list(read_record(run / "evals.jsonl"))


def sentence_losses(run, store, arm, steps):
    """Nats of each test sentence: one sentence at a time, log of the mean probability of the networks."""
    networks = [Loader(run).network(step) for step in steps]
    sentences, found = store.split("test"), []
    for index in range(*sentences.range(arm)):
        batch = sentences.batch(arm, np.array([index]))
        piece = lay_out(batch, networks[0].shape.heads, networks[0].device, varlen=False)
        with torch.inference_mode():
            read = (piece.source_N, piece.source, piece.target_N, piece.target, None)
            mean = torch.stack([logits(network, network(*read)).softmax(-1) for network in networks]).mean(0)
        found.append(-mean.gather(1, piece.target_N[:, None]).log().sum().item())
    return found


@pytest.mark.parametrize(("options", "steps"), [({}, (60,)), ({"combine": "ensemble", "window": 2}, (50, 60))])
def test_the_loss_is_the_cross_entropy_of_all_test_sentences(run, store, options, steps):
    found = api.evaluate(run, metrics="loss", **options)
    sentences = store.split("test")
    for arm in store.languages:
        expected = sentence_losses(run, store, arm, steps)
        tokens = int(sentences.target.lengths(np.arange(*sentences.range(arm))).sum())
        assert found.values("loss")[arm] == pytest.approx(sum(expected) / tokens, rel=1e-5)
        [entry] = [entry for entry in entries(run) if entry["language"] == arm]
        assert (entry["tokens"], entry["sentences"], entry["metric"]) == (tokens, 6, "loss")
        assert entry["calibrated"] <= entry["score"]
        kept = losses.read_losses(Run(run), entry, 6)
        assert [nats for nats, _ in kept] == pytest.approx(expected, rel=1e-4)
        assert sum(count for _, count in kept) == tokens


def test_without_other_metrics_nothing_is_translated(rota, run):
    code, output, error = rota("evaluate", run, "--metrics", "loss")
    assert code == 0, error
    assert not (run / "translations").exists()
    assert {entry["metric"] for entry in entries(run)} == {"loss"}
    rows = output.splitlines()
    first = rows[[row.split() for row in rows].index(["language", "loss"]) + 1]
    assert float(first.split()[-1]) == pytest.approx(entries(run)[0]["score"], abs=5e-4)
    assert "nats per token|smoothing:no" in output
    assert "translations" not in entries(run)[0]


def test_a_loss_is_measured_once(run, monkeypatch):
    first = api.evaluate(run, metrics=["loss"])
    written = entries(run)
    monkeypatch.setattr(losses, "examine", lambda *_, **__: pytest.fail("measured again"))
    assert api.evaluate(run, metrics="loss").scores == first.scores
    assert entries(run) == written
    found = api.evaluate(run, beam=1)
    assert found.values("loss") == first.values("loss"), "another search changes no loss"
    assert standing_scores(Run(run)).values("loss") == first.values("loss")


def test_a_lost_file_of_sentences_is_made_again(run):
    api.evaluate(run, metrics="loss")
    (run / entries(run)[0]["sentence_scores"]).unlink()
    api.evaluate(run, metrics="loss")
    assert (run / entries(run)[0]["sentence_scores"]).is_file()


def test_the_metrics_of_the_config_are_scored(store, tmp_path):
    run = make_run(tmp_path / "run", store, steps=(60,), metrics=["loss"])
    assert json.loads((run / "run.json").read_text())["config"]["evaluation"]["metrics"] == ["loss"]
    api.evaluate(run)
    assert {entry["metric"] for entry in entries(run)} == {"loss"}


def test_default_metrics_leave_no_trace_in_the_config(store):
    assert "metrics" not in make_config(store.folder).dump()["evaluation"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--metrics", "ter"), "--metrics is 'ter'; it is one of bleu, chrf, loss"),
        (("--combine", "moving-average"), "has no moving average of the weights; train with student.average: 0.99"),
        (("--combine", "moving-average", "--window", "3"), "--window 3 is of several checkpoints"),
    ],
)
def test_mistakes_are_named_in_one_line(rota, run, options, message):
    code, _, error = rota("evaluate", run, *options)
    assert (code, error.count("\n")) == (2, 1)
    assert message in error


def test_the_moving_average_of_the_weights_can_be_evaluated(rota, run, store):
    network, average = random_network(store, seed=60), random_network(store, seed=7)
    state = {"network": dict(network.state_dict()), "average": dict(average.state_dict()), "averaged": 9}
    Checkpoints(run / "checkpoints").save(60, {"student": Saved(state)})
    plain, moving = (api.evaluate(run, combine=combine) for combine in ("last", "moving-average"))
    assert moving.model.steps == (60,)
    assert moving.values("loss") != plain.values("loss")
    assert moving.translations["lala"].name == "60.moving-average.test.lala.beam2-1.txt"
    code, output, error = rota("evaluate", run, "--combine", "moving-average")
    assert code == 0, error
    assert "step 60, moving average, test" in " ".join(output.split())
    other = shutil.copytree(run, run.parent / "other")
    shutil.rmtree(other / "checkpoints")
    Checkpoints(other / "checkpoints").save(60, {"student": Saved({"network": dict(average.state_dict())})})
    for name in ("evals.jsonl", "written.json"):
        (other / name).unlink()
    assert api.evaluate(other, metrics="loss").values("loss") == moving.values("loss")


def test_losses_of_two_runs_are_compared(rota, run, store, tmp_path):
    other = make_run(tmp_path / "other", store, steps=(10,))
    api.evaluate(run, metrics="loss")
    code, _, error = rota("compare-scores", run, other, "--metric", "loss")
    assert code == 2
    assert "has no scores of its test sets" in error
    theirs = api.evaluate(other, metrics="loss").averages("loss")["macro"]
    code, output, error = rota("compare-scores", run, other, "--metric", "loss")
    assert code == 0, error
    macro = next(line.split() for line in output.splitlines() if line.split()[:1] == ["macro"])
    ours = api.evaluate(run, metrics="loss").averages("loss")["macro"]
    assert float(macro[1]) == pytest.approx(ours, abs=1e-3)
    assert float(macro[3]) == pytest.approx(theirs - ours, abs=1e-3)
    assert "Cross-entropy (nats per token, less is better)" in output
    code, _, error = rota("compare-scores", run, other, "--metric", "chrf")
    assert code == 2
    assert "has no translations of lala" in error


def test_losses_that_are_missing_or_of_another_vocabulary_are_refused(rota, run, store, tmp_path):
    other = make_run(tmp_path / "other", store, steps=(10,))
    api.evaluate(run, metrics="bleu")
    api.evaluate(other, metrics="loss")
    code, _, error = rota("compare-scores", run, other, "--metric", "loss")
    assert code == 2
    assert f"{run} has no losses of lala, step 60 (not selected); run rota evaluate {run} --metrics loss first" in error
    api.evaluate(run, metrics="loss")
    changed = [entry | {"signature": entry["signature"] + "0"} for entry in entries(other)]
    (other / "evals.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in changed))
    code, _, error = rota("compare-scores", run, other, "--metric", "loss")
    assert code == 2
    assert "losses per token of different vocabularies cannot be compared" in error


@pytest.mark.parametrize("content", [None, "1.0\t2\n", "1.0\n" * 6])
def test_a_file_of_sentences_that_is_missing_or_cut_is_named(run, content):
    api.evaluate(run, metrics="loss")
    entry = entries(run)[0]
    path = run / entry["sentence_scores"]
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(ValueError, match=path.name):
        losses.read_losses(Run(run), entry, 6)


def test_comet_needs_translations(run):
    from rota.evaluation.evaluate import with_comet

    with pytest.raises(ValueError, match="add bleu or chrf to --metrics"):
        with_comet(run, api.evaluate(run, metrics="loss"), comet=None)
