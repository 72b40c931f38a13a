"""COMET by the library itself, with a tiny random model in the format of the published ones."""

import hashlib
import logging
import shutil
import sys
import warnings

import pytest
import torch
from compared_runs import make_run, prepare_corpus, train_run
from ruamel.yaml import YAML

from rota.evaluation.comet import Comet, find_checkpoint
from rota.evaluation.comparison import compare_runs
from rota.evaluation.evaluate import add_comet
from rota.runs import Run
from rota.runs.records import read_record
from rota.runs.standing import standing_scores

SOURCES = ["bir pişik", "bir it təpənin üstündən qaçdı", ""]
HYPOTHESES = ["a cat", "the dog ran over a hill", "a mat"]
REFERENCES = ["the cat sat", "a dog ran over the hill", "the mat"]


@pytest.fixture(scope="module")
def library():
    """The library, if it is installed, and what is beneath it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
        return pytest.importorskip("comet")


def save_encoder(folder):
    """An XLM-R of two layers, as the hub would hold it: config and tokenizer, no weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import XLMRobertaConfig, XLMRobertaTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(REFERENCES + SOURCES, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    XLMRobertaTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    XLMRobertaConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=64, pad_token_id=1, **sizes
    ).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(library, tmp_path_factory):
    """``hparams.yaml`` and ``checkpoints/model.ckpt``, as Lightning saves a regression metric."""
    import pytorch_lightning
    from comet.models import RegressionMetric

    root = tmp_path_factory.mktemp("comet")
    save_encoder(root / "encoder")
    torch.manual_seed(1)
    metric = RegressionMetric(
        encoder_model="XLM-RoBERTa",
        pretrained_model=str(root / "encoder"),
        load_pretrained_weights=False,
        hidden_sizes=[12],
    )
    saved = {
        "state_dict": metric.state_dict(),
        "hyper_parameters": dict(metric.hparams),
        "pytorch-lightning_version": pytorch_lightning.__version__,
    }
    model = root / "tiny-comet"
    (model / "checkpoints").mkdir(parents=True)
    torch.save(saved, model / "checkpoints" / "model.ckpt")
    with (model / "hparams.yaml").open("w") as file:
        YAML(typ="safe").dump({"class_identifier": "regression_metric", **metric.hparams}, file)
    return model


@pytest.fixture(scope="module")
def comet(folder):
    return Comet.load(folder, device="cpu")


def test_scores_are_those_that_the_library_predicts(library, folder, comet):
    mean, scores = comet.score(SOURCES, HYPOTHESES, REFERENCES)
    loaded = library.load_from_checkpoint(str(folder / "checkpoints" / "model.ckpt"), local_files_only=True)
    samples = [
        {"src": source, "mt": translation, "ref": reference}
        for source, translation, reference in zip(SOURCES, HYPOTHESES, REFERENCES, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's trainer, which only this test needs
        expected = loaded.predict(samples, gpus=0, progress_bar=False, batch_size=2)
    assert scores == pytest.approx([100 * value for value in expected["scores"]], abs=1e-3)
    assert mean == pytest.approx(100 * expected["system_score"], abs=1e-3)
    assert len(set(scores)) == 3


def test_the_order_and_number_of_sentences_do_not_matter(comet):
    many = 25  # more than one batch of 32 sentences
    _, scores = comet.score(SOURCES * many, HYPOTHESES * many, REFERENCES * many)
    _, alone = comet.score(SOURCES[1:2], HYPOTHESES[1:2], REFERENCES[1:2])
    assert scores[1::3] == pytest.approx(alone * many, abs=1e-3)


def test_the_signature_names_model_version_and_weights(comet, folder):
    weights = hashlib.sha256((folder / "checkpoints" / "model.ckpt").read_bytes()).hexdigest()
    assert comet.signature.startswith("comet:tiny-comet|version:2.")
    assert comet.signature.endswith(f"|sha:{weights[:12]}")


def test_the_checkpoint_file_itself_may_be_named(folder):
    assert find_checkpoint(folder / "checkpoints" / "model.ckpt") == find_checkpoint(folder)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """No network, and an empty cache of the hub, which it gives."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def copy_with_encoder(folder, copy, encoder):
    """The model, its weights saying that they belong to another encoder."""
    shutil.copytree(folder, copy)
    path = copy / "checkpoints" / "model.ckpt"
    saved = torch.load(path, weights_only=False)
    saved["hyper_parameters"]["pretrained_model"] = encoder
    torch.save(saved, path)
    return copy


def test_an_encoder_that_was_moved_is_found_through_hparams(folder, comet, tmp_path):
    moved = copy_with_encoder(folder, tmp_path / "moved", "no-such/encoder")
    found = Comet.load(moved, device="cpu").score(SOURCES, HYPOTHESES, REFERENCES)
    assert found == comet.score(SOURCES, HYPOTHESES, REFERENCES)


def test_an_encoder_that_is_not_there_is_named_with_the_remedy(folder, tmp_path, offline):
    lacking = copy_with_encoder(folder, tmp_path / "lacking", "nobody/no-encoder")
    hparams = lacking / "hparams.yaml"
    hparams.write_text(hparams.read_text().replace(str(folder.parent / "encoder"), "nobody/no-encoder"))
    with pytest.raises(ValueError, match="encoder 'nobody/no-encoder' of .* write pretrained_model: DIR into") as found:
        Comet.load(lacking)
    assert "\n" not in str(found.value)


def test_a_model_that_was_fetched_before_is_used_by_its_name(folder, comet, offline):
    repository = offline / "models--Unbabel--tiny-comet"
    shutil.copytree(folder, repository / "snapshots" / "0123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    assert Comet.load("tiny-comet", device="cpu").signature == comet.signature


def test_a_model_that_is_not_at_hand_is_named_with_the_remedy(library, offline):
    with pytest.raises(ValueError, match="COMET model 'Unbabel/wmt22-comet-da' is not on this machine") as found:
        Comet.load("wmt22-comet-da")
    assert "hf download Unbabel/wmt22-comet-da --local-dir DIR" in str(found.value)
    assert "\n" not in str(found.value)


def test_incomplete_folders_are_told_from_names(library, tmp_path):
    with pytest.raises(ValueError, match="no COMET model './nowhere'; give its folder"):
        find_checkpoint("./nowhere")
    with pytest.raises(ValueError, match="model.ckpt is missing; a COMET model is a folder with hparams.yaml"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.ckpt").touch()
    with pytest.raises(ValueError, match="hparams.yaml is missing; it lies in the folder above"):
        find_checkpoint(tmp_path)


def test_without_the_extra_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(ValueError, match=r"COMET is not installed .* pip install unbabel-comet"):
        Comet.load()


def test_sentences_that_do_not_fit_together_are_refused(comet):
    with pytest.raises(ValueError, match="1 sources, 2 translations, 1 references"):
        comet.score(["a"], ["a", "b"], ["a"])
    with pytest.raises(ValueError, match="at least one: 0 sources"):
        comet.score([], [], [])


def test_comet_is_added_to_the_records_once_and_can_be_compared(comet, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    store = prepare_corpus(tmp_path / "data")
    runs = [
        make_run(tmp_path / "worse", store, wrong=lambda place: place % 2 == 0),
        make_run(tmp_path / "better", store, wrong=lambda _: False),
    ]
    heard = []
    for run in runs:
        scores = add_comet(Run(run), standing_scores(Run(run)), store, comet, progress=lambda *call: heard.append(call))
        assert set(scores) == {"lala", "lato"}
    assert heard[:2] == [("COMET of lala", 32, 40), ("COMET of lala", 40, 40)]
    before = (runs[0] / "evals.jsonl").read_bytes()
    assert add_comet(Run(runs[0]), standing_scores(Run(runs[0])), store, comet)["lala"].signature == comet.signature
    assert (runs[0] / "evals.jsonl").read_bytes() == before
    entry = next(entry for entry in read_record(runs[0] / "evals.jsonl") if entry["metric"] == "comet")
    lines = (runs[0] / entry["sentence_scores"]).read_text().splitlines()
    assert sum(map(float, lines)) / 40 == pytest.approx(entry["score"], abs=1e-3)
    found = compare_runs(runs[:1], runs[1:], metric="comet", resamples=200, trials=200)
    assert found.signatures == [comet.signature]
    differences = [scores[0] for row in found.rows for scores in (row.system - row.baseline,)]
    assert [row.difference for row in found.rows] == pytest.approx(differences)


def test_evaluate_shows_comet_beside_the_other_metrics(rota, folder, tmp_path):
    run = train_run(tmp_path / "run", tmp_path / "data")
    code, output, error = rota("evaluate", run, "--comet", folder)
    assert code == 0, error
    for words in ("BLEU", "chrF", "COMET", "comet:tiny-comet|version:2."):
        assert words in output
    assert "frozen" not in output + error
    written = (run / "evals.jsonl").read_bytes()
    assert rota("evaluate", run, "--comet", folder)[1] == output
    assert (run / "evals.jsonl").read_bytes() == written
    code, _, error = rota("evaluate", run, "--comet", tmp_path / "nowhere")
    assert code == 2
    assert "no COMET model" in error
