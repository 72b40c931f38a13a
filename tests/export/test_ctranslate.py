from __future__ import annotations

import json
import shutil
import sys

import ctranslate2
import numpy as np
import pytest
import torch
from export_cases import LANGUAGES, SENTENCES, Saved, make_run

from rota.cli import models
from rota.data.corpora.parallel import tidy
from rota.evaluation.ctranslate import CTranslator
from rota.evaluation.translator import Translator
from rota.export.model import export
from rota.runs.checkpoints import Checkpoints
from rota.student.search import translate

KINDS = {"raw": ("raw", True), "untied": ("raw", False), "tokenised": ("tokenised", True)}


class Exported:
    def __init__(self, folder, kind):
        text, tied = KINDS[kind]
        self.run = make_run(folder / "run", text=text, tied=tied)
        self.folder = export(self.run, folder / "float32", to="ctranslate2")
        self.ours = Translator.load(self.run, device="cpu")
        self.theirs = CTranslator(self.folder, threads=2)


@pytest.fixture(scope="module", params=list(KINDS))
def exported(request, tmp_path_factory):
    return Exported(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return Exported(tmp_path_factory.mktemp("one"), "raw")


@pytest.mark.parametrize(("beam", "penalty"), [(1, 1.0), (2, 0.6), (5, 1.0), (5, 0.3)])
def test_it_finds_our_translations_blank_for_blank(exported, beam, penalty):
    for language in LANGUAGES:
        expected = exported.ours.translate(SENTENCES, language, beam=beam, length_penalty=penalty)
        assert expected[2] == expected[5] == ""
        assert len(set(expected)) > 5, "a model that says the same of everything would show nothing"
        assert exported.theirs.translate(SENTENCES, language, beam=beam, length_penalty=penalty) == expected


def test_its_scores_are_our_scores(exported):
    """The mean log-probability per token, the end symbol among them."""
    sources = exported.ours.subwords.encode_sources("no", [tidy(text) for text in SENTENCES if text.strip()])
    expected = [found.score for found in translate(exported.ours.networks, [np.array(ids) for ids in sources])]
    tokens = [exported.theirs._spell(source) for source in sources]
    model = ctranslate2.Translator(str(exported.folder))
    found = model.translate_batch(
        tokens, beam_size=5, return_scores=True, return_end_token=True, max_decoding_length=300, min_decoding_length=0
    )
    assert [result.scores[0] for result in found] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("batch_tokens", [1, 40, 10_000])
def test_batches_do_not_matter_and_progress_counts_every_sentence(raw, batch_tokens):
    texts = SENTENCES * 5
    done: list[int] = []
    found = raw.theirs.translate(texts, "az", batch_tokens=batch_tokens, progress=done.append)
    assert found == raw.ours.translate(texts, "az")
    assert sum(done) == 30, "6 of 8 are not blank"


def test_nothing_to_translate_gives_nothing(raw):
    assert raw.theirs.translate([], "az") == []
    assert raw.theirs.translate(["", " "], "az") == ["", ""]


def test_int8_is_smaller_and_nearly_as_sure_of_our_translations(raw, tmp_path):
    small = export(raw.run, tmp_path / "int8", to="ctranslate2", quantization="int8")
    sizes = [(folder / "model.bin").stat().st_size for folder in (small, raw.folder)]
    assert sizes[0] < 0.75 * sizes[1], "matrices are a quarter of their size; two tables of positions stay as they are"
    sources = raw.ours.subwords.encode_sources("no", [tidy(text) for text in SENTENCES if text.strip()])
    found = translate(raw.ours.networks, [np.array(ids) for ids in sources])
    pairs = [[raw.theirs._spell(source) for source in sources], [raw.theirs._spell(best.ids) for best in found]]
    rounded = ctranslate2.Translator(str(small)).score_batch(*pairs)
    lost = [best.score - np.mean(result.log_probs) for best, result in zip(found, rounded, strict=True)]
    # A network that is wrong is less sure by log 316 = 5.8 nats per token; one of width 32 suffers more than others.
    assert 0.01 < np.mean(np.abs(lost)) < 1.0


def babbling(folder):
    """A run whose network says the same word whatever happens."""
    run = make_run(folder)
    network = Translator.load(run, device="cpu").networks[0]
    with torch.no_grad():
        network.embedding.weight[2] = -10 * network.embedding.weight[20]
        network.decoder_norm.weight.zero_()
        network.decoder_norm.bias.copy_(100 * network.embedding.weight[20])
    Checkpoints(run / "checkpoints").save(200, {"student": Saved({"network": network.state_dict()})})
    return run


def test_a_translation_without_end_stops_at_the_limit_of_its_own_source(tmp_path):
    run = babbling(tmp_path / "run")
    theirs = CTranslator(export(run, tmp_path / "out", to="ctranslate2"), threads=1)
    sources = [[4, 20, 2], [4, 20, 21, 22, 23, 2]]
    found = theirs.search(sources, beam=2, max_ratio=1.5, extra=1)
    assert [len(ids) for ids in found] == [5, 10]  # int(1.5 * 3) + 1 and int(1.5 * 6) + 1
    assert {token for ids in found for token in ids} == {20}


def test_a_source_longer_than_all_positions_is_cut(raw):
    (found,) = raw.theirs.translate(["largo " * 1500], "az", beam=1)
    assert found
    assert len(raw.theirs._spell([4] * 3000)) == 1024
    assert raw.theirs._spell([4] * 3000)[-1] == "</s>"


def test_an_unknown_language_is_named_with_the_known_ones(raw):
    with pytest.raises(ValueError, match=r"unknown language 'fr'.*az, no, pt_br"):
        raw.theirs.translate(["la mer"], "fr")


def test_without_the_library_the_message_says_how_to_install_it(rota, raw, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    for command in (
        ("export", raw.run, "--to", "ctranslate2", "--out", tmp_path / "out"),
        ("translate", raw.folder, "-l", "az"),
    ):
        code, _, error = rota(*command, stdin="göy\n")
        assert code == 2
        assert error == "error: ctranslate2 is not installed; install it with: pip install ctranslate2\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["run", "folder"])
def test_the_command_translates_with_a_run_or_with_an_export(rota, raw, kind):
    code, output, error = rota("translate", getattr(raw, kind), "-l", "az", stdin="\n".join(SENTENCES) + "\n")
    assert code == 0, error
    assert output.split("\n")[:-1] == raw.ours.translate(SENTENCES, "az")


def test_long_input_is_translated_piece_by_piece_in_order(rota, raw, monkeypatch):
    monkeypatch.setattr(models, "CHUNK", 3)
    sizes: list[int] = []
    whole = CTranslator.translate
    monkeypatch.setattr(
        CTranslator,
        "translate",
        lambda self, texts, *rest, **more: sizes.append(len(texts)) or whole(self, texts, *rest, **more),
    )
    code, output, _ = rota("translate", raw.folder, "-l", "az", stdin="\n".join(SENTENCES))
    assert code == 0
    assert sizes == [3, 3, 2]
    assert output.split("\n")[:-1] == raw.ours.translate(SENTENCES, "az")


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("model.bin", lambda content: content[: len(content) // 2], "CTranslate2 cannot load"),
        ("model.bin", lambda _: b"", "CTranslate2 cannot load"),
        ("shared_vocabulary.json", lambda content: content[:-9], "shared_vocabulary.json is damaged ("),
        ("shared_vocabulary.json", lambda _: b"5", "shared_vocabulary.json is damaged (not a list of tokens)"),
        ("rota.json", lambda content: content[:-9], "rota.json is damaged ("),  # it names the languages
        ("tokenizer.json", lambda content: content[:-9], "tokenizer.json is damaged ("),
    ],
)
def test_a_damaged_export_is_named_in_one_line(rota, raw, tmp_path, name, change, why):
    model = tmp_path / "model"
    shutil.copytree(raw.folder, model)
    (model / name).write_bytes(change((model / name).read_bytes()))
    code, output, error = rota("translate", model, "-l", "az", stdin="göy\n")
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert error.startswith("error: ")
    assert why in error


def test_what_cannot_be_translated_with_is_explained(rota, raw, tmp_path):
    hugging_face = export(raw.run, tmp_path / "hf")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "model.bin").touch()
    (foreign / "shared_vocabulary.json").write_text(json.dumps([]))
    for arguments, message in (
        ((hugging_face,), "is for transformers (see its README.md); give a run, or export --to ctranslate2"),
        ((raw.folder, "--step", "100"), "--step 100 is for run folders"),
        ((raw.folder, "--selected"), "--selected is for run folders"),
        ((raw.run, "--selected", "--step", "100"), "--selected and --step 100 name two models"),
        ((raw.run, "--selected"), "has no selection.json; run rota evaluate"),
        ((foreign,), "is not an export for CTranslate2; make one with rota export RUN --to ctranslate2"),
        ((tmp_path / "nowhere",), "is not a run folder"),
    ):
        code, _, error = rota("translate", *arguments, "-l", "az", stdin="")
        assert code == 2
        assert message in error
    assert "unknown language 'fr'" in rota("translate", raw.folder, "-l", "fr", stdin="")[2]
