from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from export_cases import LANGUAGES, SENTENCES, STEPS, learn, make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from rota.data.corpora.parallel import tidy
from rota.evaluation.translator import Translator
from rota.export.hugging_face import exported_tokenizer
from rota.export.model import choose, export
from rota.runs import Run
from rota.runs.standing import Model
from rota.student.kernels.attention import Layout
from rota.student.search import translate
from rota.student.transformer import logits

KINDS = {"raw": ("raw", True), "untied": ("raw", False), "tokenised": ("tokenised", True)}


class Exported:
    """A run and what ``transformers`` makes of its export."""

    def __init__(self, folder, kind):
        text, tied = KINDS[kind]
        self.run = make_run(folder / "run", text=text, tied=tied)
        self.folder = export(self.run, folder / "hf")
        self.ours = Translator.load(self.run, device="cpu")
        self.model, self.loading = AutoModelForSeq2SeqLM.from_pretrained(self.folder, output_loading_info=True)
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder, src_lang="__no__")


@pytest.fixture(scope="module", params=list(KINDS))
def exported(request, tmp_path_factory):
    return Exported(tmp_path_factory.mktemp(request.param), request.param)


def sources_of(exported, language="no"):
    texts = [tidy(text) for text in SENTENCES if text.strip()]
    return exported.ours.subwords.encode_sources(language, texts)


def test_transformers_finds_every_weight_and_nothing_else(exported):
    assert {key: list(found) for key, found in exported.loading.items() if found} == {}
    assert type(exported.model).__name__ == "M2M100ForConditionalGeneration"
    assert exported.tokenizer.is_fast
    assert len(exported.tokenizer) == exported.ours.subwords.vocabulary


@torch.no_grad()
def test_transformers_computes_our_logits(exported):
    network = exported.ours.networks[0]
    for source in sources_of(exported):
        target = [9, 12, 5, 3, 2]
        layouts = [Layout(np.array([len(side)]), network.shape.heads, network.device) for side in (source, target)]
        states = network(torch.tensor(source), layouts[0], torch.tensor(target), layouts[1], None)
        theirs = exported.model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[2, *target[:-1]]]))
        torch.testing.assert_close(logits(network, states), theirs.logits[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("beam", [1, 5])
def test_generate_finds_our_translations(exported, beam):
    sources = sources_of(exported)
    expected = translate(exported.ours.networks, [np.array(source) for source in sources], beam=beam)
    for source, hypothesis in zip(sources, expected, strict=True):
        found = exported.model.generate(
            input_ids=torch.tensor([source]),
            max_new_tokens=2 * len(source) + 11,
            num_beams=beam,
            early_stopping=beam > 1,
        )
        assert found[0].tolist() == [2, *hypothesis.ids.tolist(), 2]


@torch.no_grad()
def test_generate_searches_as_the_run_does_if_nothing_is_said(exported):
    assert exported.model.generation_config.num_beams == 5
    assert exported.model.generation_config.length_penalty == 1.0
    batch = exported.tokenizer(["dəniz göy", "largo é largo é høy"], return_tensors="pt", padding=True)
    found = exported.tokenizer.batch_decode(
        exported.model.generate(**batch, max_new_tokens=30), skip_special_tokens=True
    )
    assert found == exported.ours.translate(["dəniz göy", "largo é largo é høy"], "no")


def test_the_language_is_chosen_with_src_lang(exported):
    for number, language in enumerate(LANGUAGES):
        exported.tokenizer.src_lang = f"__{language}__"
        ids = exported.tokenizer("dəniz göy")["input_ids"]
        assert ids == exported.ours.subwords.encode_sources(language, ["dəniz göy"])[0]
        assert ids[0] == 4 + number
    exported.tokenizer.src_lang = "__no__"


@given(text=st.text() | st.text(alphabet=" \t\x85\u2028éa_<>/s水"))
@settings(max_examples=200)
def test_the_tokenizer_gives_our_ids_for_any_text(exported, text):
    ids = exported.tokenizer(text)["input_ids"]
    assert ids == exported.ours.subwords.encode_sources("no", [tidy(text)])[0]
    assert exported.tokenizer.decode(ids, skip_special_tokens=True) == exported.ours.subwords.decode(ids)


@pytest.mark.parametrize("text", ["__az__", "a </s> b", "<pad>", "x<unk>y"])
def test_text_that_spells_a_symbol_is_ordinary_text(exported, text):
    tag, *ids, end = exported.tokenizer(text)["input_ids"]
    assert (tag, end) == (5, 2)
    assert not set(ids) & {0, 1, 2, 4, 5, 6}


def test_the_tokenizer_tidies_exactly_the_characters_that_rota_tidies():
    content = exported_tokenizer({"normalizer": {"type": "Prepend", "prepend": " "}})
    pattern = content["normalizer"]["normalizers"][0]["pattern"]["Regex"]
    listed = {int(number, 16) for number in pattern.removeprefix("[\\x{").removesuffix("}]+").split("}\\x{")}
    assert listed == {number for number in range(0xD800) if tidy(f"a{chr(number)}b") == "a b"}
    assert not any(chr(number).isspace() for number in range(0xE000, 0x110000))


def test_a_sentence_longer_than_all_positions_is_still_encoded(exported):
    ids = exported.tokenizer("largo " * 1500)["input_ids"]
    with torch.no_grad():
        found = exported.model.generate(input_ids=torch.tensor([ids]), num_beams=1, max_new_tokens=3)
    assert found.shape[1] <= 4


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", steps=STEPS)


def test_the_last_checkpoint_is_exported_unless_another_is_named(run):
    assert choose(Run(run)).steps == (100,)
    assert choose(Run(run), step=40).steps == (40,)
    assert choose(Run(run), step=40).combine == "last"


def record(run, step, **model):
    """A score of each language, as ``rota evaluate`` would leave it."""
    head = {"step": step, "split": "test", "search": {"beam": 5, "length_penalty": 1.0}, "metric": "bleu", "score": 1.0}
    head["signature"] = "tok:13a"
    with (run / "evals.jsonl").open("a") as file:
        file.writelines(json.dumps({**head, **model, "language": arm}) + "\n" for arm in LANGUAGES)


def test_without_options_it_is_the_model_that_stands_for_the_run(run):
    record(run, 100, steps=[80, 100], combine="average")
    assert choose(Run(run)) == Model((80, 100), "average")
    record(run, 80, steps=[40, 60, 80], combine="ensemble", select="macro")
    assert choose(Run(run)) == Model((40, 60, 80), "average"), "one folder holds one network"
    assert choose(Run(run), step=100) == Model((100,))


def test_a_run_that_was_trained_on_after_its_scores_is_asked_about(run):
    record(run, 60)
    with pytest.raises(
        ValueError, match=r"scores of .*run are of step 60, and its last checkpoint is of step 100; scor"
    ):
        choose(Run(run))
    assert choose(Run(run), step=60) == Model((60,))
    assert choose(Run(run), combine="last") == Model((100,))


def test_an_average_is_of_the_four_checkpoints_that_end_there(run):
    assert choose(Run(run), combine="average").steps == (40, 60, 80, 100)
    assert choose(Run(run), combine="average", step=60).steps == (20, 40, 60)


def test_the_average_is_the_mean_of_the_weights(run, tmp_path):
    from safetensors.torch import load_file

    folder = export(run, tmp_path / "hf", step=40, combine="average")
    found = load_file(folder / "model.safetensors")["model.decoder.layers.1.fc1.weight"]
    name = "decoder.1.feedforward.inner.weight"
    _, networks = learn("raw", True)
    torch.testing.assert_close(found, (networks[20][name] + networks[40][name]) / 2)


def selection(run, combine):
    content = {"combine": combine, "best": {"steps": [40, 60, 80], "step": 80}}
    (run / "selection.json").write_text(json.dumps(content))


def test_the_selected_window_is_exported_an_ensemble_as_its_average(run):
    selection(run, "ensemble")
    assert choose(Run(run), selected=True).steps == (40, 60, 80)
    assert choose(Run(run), selected=True).combine == "average"
    assert choose(Run(run), selected=True, combine="last").steps == (80,)
    selection(run, "last")
    assert choose(Run(run), selected=True).steps == (80,)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"to": "onnx"}, "--to is 'onnx'; it is hf or ctranslate2"),
        ({"quantization": "int4", "to": "ctranslate2"}, "--quantization is 'int4'; it is float32 or int8"),
        ({"quantization": "int8"}, "--quantization int8 is for --to ctranslate2"),
        ({"combine": "ensemble"}, "export their average with --combine average"),
        ({"combine": "median"}, "--combine is 'median'; it is last or average"),
        ({"step": 7}, "no checkpoint of step 7; it has 20, 40, 60, 80, 100"),
        ({"selected": True}, "no selection.json; run rota evaluate"),
        ({"selected": True, "step": 40}, "--selected and --step 40 name two different models"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(run, tmp_path, mistake, message):
    with pytest.raises(ValueError, match=message):
        export(run, tmp_path / "out", **mistake)
    assert not (tmp_path / "out").exists()


def test_an_earlier_export_is_replaced_and_nothing_else(run, tmp_path):
    out = export(run, tmp_path / "out")
    (out / "old").touch()
    export(run, out)
    assert not (out / "old").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    for folder in (tmp_path / "mine", run, tmp_path):
        with pytest.raises(ValueError, match=r"exists and is not an earlier export|would replace the run itself"):
            export(run, folder)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_an_export_that_fails_leaves_the_earlier_one(run, tmp_path, monkeypatch):
    out = export(run, tmp_path / "out")
    monkeypatch.setattr("rota.export.model.model_card", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(run, out, step=20)
    assert json.loads((out / "rota.json").read_text())["steps"] == [100]


def test_exporting_needs_no_transformers(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert (export(run, tmp_path / "out") / "model.safetensors").exists()


def test_the_command_says_where_the_model_is(rota, run, tmp_path):
    code, output, error = rota("export", run, "--to", "hf", "--out", tmp_path / "out", "--step", "20")
    assert code == 0, error
    assert f"wrote {tmp_path / 'out'}" in output
    assert rota("export", run, "--to", "gguf", "--out", tmp_path / "other")[0] == 2
