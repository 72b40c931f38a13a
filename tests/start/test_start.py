"""Runs that start from a checkpoint of Hugging Face: tokens, logits, training, and export to the same format."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from start_cases import LETTERS, m2m100, nllb, pairs, write_text
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, M2M100ForConditionalGeneration

from rota import api
from rota.config import parse_config
from rota.data.ready_made.adopting import as_it_is
from rota.data.store import Store
from rota.evaluation.ctranslate import CTranslator
from rota.evaluation.translator import Translator
from rota.export.model import export
from rota.runs import Run
from rota.student.pieces import lay_out
from rota.student.pretrained import read_pretrained
from rota.student.transformer import Transformer, logits
from rota.types import Batch

CODES = {"az": "azj_Latn", "tr": "tur_Latn", "en": "eng_Latn"}
ODD = ["水 火 Ünknown  ﬁn Ⅷ… zz水水q", "  the\told   boat ", "ab水ab"]


def settings(folder, text, start, steps=4, **more):
    data = {**text, "folder": str(folder / "data"), "subwords": more.pop("subwords", {"codes": CODES})}
    student = {"start": str(start), "learning_rate": {"peak": 0.002}, **more.pop("student", {})}
    training = {"steps": steps, "tokens": 200, "checkpoint_every": steps, "validate_every": "50%", "threads": 1}
    return parse_config({"data": data, "student": student, "training": training, **more})


def our_logits(network, source, target):
    batch = Batch("x", np.array(source), np.array([len(source)]), np.array(target), np.array([len(target)]), {})
    piece = lay_out(batch, network.shape.heads, torch.device("cpu"), varlen=False)
    with torch.no_grad():
        return logits(network, network(piece.source_N, piece.source, piece.target_N, piece.target, None))


def their_logits(model, source, target):
    with torch.no_grad():
        shifted = torch.tensor([[2, *target[:-1]]])
        return model(input_ids=torch.tensor([source]), decoder_input_ids=shifted).logits[0]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (nllb, "azj_Latn"),
        (lambda folder: nllb(folder, fast=False, weights="bin"), "azj_Latn"),
        (lambda folder: nllb(folder, fast=False, kind="unigram", weights="shards"), "azj_Latn"),
        (m2m100, "az"),
        (lambda folder: m2m100(folder, tie_word_embeddings=False, weights="bin"), "az"),
    ],
    ids=["nllb", "nllb-slow", "nllb-unigram", "m2m100", "m2m100-untied"],
)
def test_tokens_and_logits_are_those_of_transformers(tmp_path, make, code):
    folder = make(tmp_path / "model")
    theirs, ours = AutoTokenizer.from_pretrained(folder, src_lang=code), as_it_is(folder)
    ours.about["tags"] = {"az": code}
    texts = [side for language in LETTERS for pair in pairs(language, 20, 5) for side in pair] + ODD
    token = code if "_" in code else f"__{code}__"
    tag = ours.tokens.index(token)
    sources = [[tag, *ids[:-1], 2] for ids in ours.encode_targets(texts)]
    assert sources == theirs(texts).input_ids
    assert ours.decode_batch([source[1:] for source in sources[:20]]) == texts[:20]
    found = read_pretrained(folder)
    network = Transformer(found.shape)
    network.load_state_dict(found.weights())
    model = M2M100ForConditionalGeneration.from_pretrained(folder).eval()
    for source, target in zip(sources[:5], sources[5:10], strict=True):
        torch.testing.assert_close(
            our_logits(network, source, target), their_logits(model, source, target), atol=1e-4, rtol=0
        )


@pytest.fixture(scope="module")
def tiny_nllb(tmp_path_factory):
    return nllb(tmp_path_factory.mktemp("nllb") / "model")


@pytest.mark.parametrize("teacher", [{"name": "temperature", "temperature": 5}, "align"], ids=["temperature", "align"])
def test_an_nllb_checkpoint_is_tuned_exported_and_loaded_by_transformers(tmp_path, tiny_nllb, teacher):
    text = write_text(tmp_path / "text", {"az": 120, "tr": 300})
    config = settings(tmp_path, text, tiny_nllb, steps=50, teacher=teacher)
    api.train(config, tmp_path / "run")
    run = Run(tmp_path / "run")
    first, *_, last = [entry["dev_loss"] for entry in run.read("validations")]
    assert [entry["step"] for entry in run.read("validations")] == [0, 25, 50]
    assert all(last[language] < first[language] - 0.5 for language in ("az", "tr"))
    folder = export(run.folder, tmp_path / "hf", to="hf")
    tokenizer = AutoTokenizer.from_pretrained(folder, src_lang="azj_Latn")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert type(model) is M2M100ForConditionalGeneration
    assert model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids("eng_Latn")
    original = AutoTokenizer.from_pretrained(tiny_nllb, src_lang="azj_Latn")
    lines = [source for source, _ in pairs("az", 12, 7)] + ODD
    assert tokenizer(lines).input_ids == original(lines).input_ids
    ours = Translator.load(run.folder, device="cpu")
    [network] = ours.networks
    sources = ours.subwords.encode_sources("az", lines)
    assert sources == [list(ids) for ids in tokenizer(lines).input_ids]
    target = ours.subwords.encode_targets(["the old boat"], "en")[0]
    assert target[0] == original.convert_tokens_to_ids("eng_Latn"), "a target begins with its code, as NLLB learned it"
    torch.testing.assert_close(
        our_logits(network, sources[0], target), their_logits(model, sources[0], target), atol=1e-4, rtol=0
    )
    limits = [2 * len(source) + 10 for source in sources]
    theirs = []
    for line, limit in zip(lines, limits, strict=True):
        found = model.generate(**tokenizer(line, return_tensors="pt"), num_beams=1, max_new_tokens=limit + 1)
        theirs.append(tokenizer.decode(found[0], skip_special_tokens=True))
    assert theirs == ours.translate(lines, "az", beam=1)
    slow = AutoTokenizer.from_pretrained(folder, src_lang="azj_Latn", use_fast=False)
    assert slow(lines[:12]).input_ids == [list(ids) for ids in tokenizer(lines[:12]).input_ids]


def test_m2m100_comes_back_with_its_own_tokenizer(tmp_path, docs_script):
    start = m2m100(tmp_path / "model")
    text = write_text(tmp_path / "text", {"az": 80, "gl": 80})
    student = {"learning_rate": {"peak": 0.01}}  # trained until its translations end by themselves
    config = settings(tmp_path, {**text, "directions": "both-ways"}, start, 200, subwords={}, student=student)
    api.train(config, tmp_path / "run")
    folder = export(tmp_path / "run", tmp_path / "hf", to="hf")
    tokenizer, before = (AutoTokenizer.from_pretrained(each, src_lang="gl") for each in (folder, start))
    assert type(tokenizer).__name__ == "M2M100Tokenizer"
    lines = [source for source, _ in pairs("gl", 9, 7)] + ODD
    assert tokenizer(lines).input_ids == before(lines).input_ids
    assert (folder / "sentencepiece.bpe.model").read_bytes() == (start / "sentencepiece.bpe.model").read_bytes()
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ours = Translator.load(tmp_path / "run", device="cpu")
    source, target = ours.subwords.encode_sources("gl", lines[:1])[0], ours.subwords.encode_targets(["the"], "az")[0]
    torch.testing.assert_close(
        our_logits(ours.networks[0], source, target), their_logits(model, source, target), atol=1e-4, rtol=0
    )
    assert model.generation_config.forced_bos_token_id is None, "whoever uses a model with several targets says which"
    assert 'src_lang="az"' in (folder / "README.md").read_text()
    exported = CTranslator(export(tmp_path / "run", tmp_path / "ct2", to="ctranslate2"), threads=1)
    clean = [line for line in lines if "水" not in line]
    assert exported.translate(clean, "gl", to="en", beam=2) == ours.translate(clean, "gl", to="en", beam=2)
    expected = ours.translate(clean, "gl", to="en")
    assert docs_script("use_transformers.py", folder, "gl", "en", lines=clean) == expected
    assert docs_script("use_ctranslate2.py", tmp_path / "ct2", "gl", "en", lines=clean) == expected


def test_the_scripts_of_the_docs_and_the_model_card_take_the_codes_of_nllb(tmp_path, tiny_nllb, docs_script, capsys):
    text = write_text(tmp_path / "text", {"az": 80})
    codes = {"az": "azj_Latn", "en": "eng_Latn"}
    both_ways = {**text, "directions": "both-ways"}
    student = {"learning_rate": {"peak": 0.01}}  # trained until its translations end by themselves
    config = settings(tmp_path, both_ways, tiny_nllb, 200, subwords={"codes": codes}, student=student)
    api.train(config, tmp_path / "run")
    exports = {to: export(tmp_path / "run", tmp_path / to, to=to) for to in ("hf", "ctranslate2")}
    scripts = {"use_transformers.py": exports["hf"], "use_ctranslate2.py": exports["ctranslate2"]}
    ours = Translator.load(tmp_path / "run", device="cpu")
    found = set()
    for source, target in (("en", "az"), ("az", "en")):
        lines = [pair[source == "en"] for pair in pairs("az", 9, 7)]
        expected = ours.translate(lines, source, to=target)
        found |= set(expected)
        for script, folder in scripts.items():
            assert docs_script(script, folder, codes[source], codes[target], lines=lines) == expected, (script, source)
    assert len(found) > 1
    for to, folder in exports.items():
        code = (folder / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
        capsys.readouterr()
        exec(code.replace("FOLDER", repr(str(folder))).replace("TEXT", repr(lines[0])), {})
        assert capsys.readouterr().out == f"{ours.translate(lines[:1], 'az', to='en')[0]}\n", to
    for script, folder in scripts.items():
        with pytest.raises(SystemExit, match="the model has no language 'az'; its README.md lists them"):
            docs_script(script, folder, "az", "eng_Latn", lines=["the old boat"])


@pytest.mark.parametrize("make", [nllb, m2m100, lambda folder: nllb(folder, fast=False, kind="unigram")])
def test_a_cut_vocabulary_divides_the_text_as_before_and_has_the_same_vectors(tmp_path, make):
    start = make(tmp_path / "model")
    codes = {} if make is m2m100 else {"codes": {**CODES, "az": "azj_Latn"}}
    codes = {"codes": {"az": "azj_Latn", "en": "eng_Latn"}} if codes else {}
    text = write_text(tmp_path / "text", {"az": 60})
    config = settings(tmp_path, text, start, subwords={"cut": True, **codes})
    loop = api.train(config, tmp_path / "run", until=0)
    store = Store.open(tmp_path / "data")
    whole, cut = as_it_is(start), store.subwords
    assert cut.vocabulary < whole.vocabulary
    lines = [side for pair in pairs("az", 60, 0) for side in pair]
    for before, after in zip(whole.encode_targets(lines), cut.encode_targets(lines), strict=True):
        assert [whole.tokens[number] for number in before] == [cut.tokens[number] for number in after]
    matrix = loop.student.network.embedding.weight
    old = read_pretrained(start).weights()["embedding.weight"]
    for number, token in enumerate(cut.tokens):
        assert torch.equal(matrix[number], old[whole.tokens.index(token)])
    api.train(config, tmp_path / "run")
    folder = export(tmp_path / "run", tmp_path / "hf", to="hf")
    theirs = AutoTokenizer.from_pretrained(folder, src_lang="az" if make is m2m100 else "azj_Latn")
    assert [list(ids) for ids in theirs(lines).input_ids] == cut.encode_sources("az", lines)
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.vocab_size == cut.vocabulary
    if make is not m2m100:  # which has no mask
        assert cut.tokens[-1] == theirs.mask_token == "<mask>"
        assert theirs.mask_token_id == cut.vocabulary - 1 == len(theirs) - 1
