"""Tokenizers that were made elsewhere: SentencePiece models and ``tokenizers`` files, whole, cut and extended."""

from __future__ import annotations

import json
from functools import cache

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from start_cases import m2m100, nllb, pairs, spm_bytes, write_text
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from rota import api
from rota.config import parse_config
from rota.data.ready_made.adopting import adopt, as_it_is
from rota.data.ready_made.editing import new_subwords, normalised, tokens_of
from rota.data.ready_made.reading import M2M100_CODES, read_ready_made
from rota.data.ready_made.sentencepiece import Piece, SentencePieceModel
from rota.data.subwords import EOS, SPECIALS, Subwords, SubwordsConfig
from rota.settings import ConfigError
from rota.student.pretrained import read_pretrained

LINES = [side for language in ("az", "uz") for pair in pairs(language, 40, 2) for side in pair]
# Letters that the models know, others, and what SentencePiece normalises.
TEXT = st.text("abdegiorstvwəğñ水ﬁⅧ１… \t<>/▁", max_size=30)


@cache
def own(path):
    """The subwords of a model alone, made once for all examples."""
    return subwords_of(path)


def subwords_of(path, languages=("az",), **settings):
    config = SubwordsConfig(model=path, **settings)
    return adopt(config, languages, lambda _: iter(LINES), path.parent, tags_targets=False)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def spm(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "own.model"
    path.write_bytes(spm_bytes(request.param))
    return path


@given(text=TEXT.filter(lambda text: "▁" not in text and text.strip()))
def test_text_is_divided_as_sentencepiece_divides_it(spm, text):
    library = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    ours = own(spm)
    for line in (text, *LINES[:3]):
        if any(symbol in line for symbol in ("<s>", "</s>", "<unk>")):
            continue  # known as symbols to SentencePiece
        [ids] = ours.encode_targets([line])
        pieces = [piece if library.piece_to_id(piece) else "<unk>" for piece in library.encode(line, out_type=str)]
        assert [ours.tokens[number] for number in ids[:-1]] == pieces


@given(text=TEXT)
def test_no_text_becomes_a_symbol(spm, text):
    ours = own(spm)
    for line in (text, f"{text}</s>", "<s> __az__ <pad>"):
        *ids, end = ours.encode_targets([line])[0]
        assert end == EOS
        assert not {0, 1, 2, ours.tag("az")} & set(ids)


def test_a_model_file_is_written_as_it_was_read(spm):
    model = SentencePieceModel.load(spm)
    assert sentencepiece.SentencePieceProcessor(model_proto=model.to_bytes()).encode(LINES[0]) == (
        sentencepiece.SentencePieceProcessor(model_file=str(spm)).encode(LINES[0])
    )
    assert SentencePieceModel.parse(model.to_bytes()) == model
    assert model.pieces[:3] == (Piece("<unk>", 0.0, 2), Piece("<s>", 0.0, 3), Piece("</s>", 0.0, 3))


def test_a_run_with_a_sentencepiece_model_of_ones_own(tmp_path, spm):
    data = {**write_text(tmp_path / "text", {"az": 60, "tr": 60}), "folder": str(tmp_path / "data")}
    student = {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1}
    training = {"steps": 2, "tokens": 100, "threads": 1}
    values = {"data": {**data, "subwords": {"model": str(spm)}}, "student": student, "training": training}
    config = parse_config(values)
    api.train(config, tmp_path / "run")
    found = Subwords.load(tmp_path / "run" / "subwords.json")
    assert found.tokens[:4] == list(SPECIALS)
    assert found.languages == ["az", "tr"]
    assert not found.tags_targets
    again = parse_config(values)
    spm_copy = spm.read_bytes()
    try:
        spm.write_bytes(SentencePieceModel.parse(spm_copy).edited(None, ["qq"]).to_bytes())
        with pytest.raises(ConfigError, match=r"was prepared differently: the content of .*own.model changed"):
            api.prepare(again)
        values["data"].pop("subwords")
        named = r"data\.subwords\.model changed from .*own\.model to not set \(which student\.start sets if"
        with pytest.raises(ConfigError, match=named):
            api.prepare(parse_config(values))
    finally:
        spm.write_bytes(spm_copy)


def a_tokenizers_file(path, kind):
    """With its own symbols, numbers, truncation and a symbol of the user's."""
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
        trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    elif kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[CLS]", "[UNK]"], show_progress=False)
        tokenizer.decoder = decoders.WordPiece()
    else:
        tokenizer = Tokenizer(models.Unigram())
        symbols = {"special_tokens": ["<x>", "<unk>"], "unk_token": "<unk>"}
        trainer = trainers.UnigramTrainer(vocab_size=100, show_progress=False, **symbols)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens(["@url"])
    tokenizer.enable_truncation(3)
    tokenizer.save(str(path))
    return tokenizer


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_tokenizers_file_keeps_its_subwords_and_gets_our_symbols(tmp_path, kind):
    theirs = a_tokenizers_file(tmp_path / "own.json", kind)
    theirs.no_truncation()
    ours = subwords_of(tmp_path / "own.json", ["az", "tr"])
    assert ours.tokens[:4] == list(SPECIALS)
    assert ours.tokens[-2:] == ["__az__", "__tr__"]
    for line in [*LINES[:8], "boat @url 水"]:
        [ids] = ours.encode_targets([line])
        names = [token.replace("[UNK]", "<unk>") for token in theirs.encode(line, add_special_tokens=False).tokens]
        if kind == "unigram":
            names = [name if theirs.token_to_id(name) is not None else "<unk>" for name in names]
        assert [ours.tokens[number] for number in ids[:-1]] == names
    *ids, _ = ours.encode_targets(["a </s> b</s> <s>"])[0]
    assert not {0, 1, 2} & set(ids)


def test_a_cut_vocabulary_divides_its_text_in_the_same_way(spm):
    whole, cut = subwords_of(spm), subwords_of(spm, cut=True)
    assert cut.vocabulary < whole.vocabulary
    for before, after in zip(whole.encode_targets(LINES), cut.encode_targets(LINES), strict=True):
        assert [whole.tokens[each] for each in before] == [cut.tokens[each] for each in after]


def test_new_subwords_are_the_most_frequent_pairs_worked_out_by_hand():
    model = {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3}, "merges": [], "unk_token": "<unk>"}
    content = {"version": "1.0", "model": model, "added_tokens": [], "normalizer": None, "post_processor": None}
    content |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None, "truncation": None, "padding": None}
    content = normalised(json.dumps(content))
    # abc three times, ab twice, cb twice, ca once: (a, b) 5, (b, c) 3, (c, b) 2; after joining ab: (ab, c) 3, (c, b) 2.
    assert new_subwords(content, ["abc ab abc", "cb abc ab ca cb", "ax"], 5) == ["ab", "abc", "cb"]


def test_only_bpe_takes_new_subwords(tmp_path):
    (tmp_path / "own.model").write_bytes(spm_bytes("unigram"))
    with pytest.raises(ConfigError, match="data.subwords.add is 5, and the tokenizer is a Unigram model"):
        subwords_of(tmp_path / "own.model", add=5)


def test_the_codes_of_m2m100_are_those_of_its_class():
    assert {name: codes.split() for name, codes in M2M100_CODES.items()} == FAIRSEQ_LANGUAGE_CODES


def test_a_language_without_a_code_is_named_with_the_remedy(tmp_path):
    folder = nllb(tmp_path / "model")

    def message(codes):
        with pytest.raises(ConfigError) as error:
            subwords_of(folder, ["az", "en"], codes=codes)
        return str(error.value)

    assert "has no code for the language 'az'" in message({})
    assert "write for example data.subwords.codes: {az: " in message({})
    assert "has no code 'aze_Latn'; it has azj_Latn" in message({"az": "aze_Latn"})
    assert "{en: eng_Latn}, or new for a language it lacks" in message({"az": "azj_Latn"})
    assert "por_Latn" in message({"az": "pt"}), "codes that begin as it does are listed"
    assert "write for example data.subwords.codes: {az: CODE}" in message({"az": "pt"}), "none of them is near"
    assert "data.subwords.codes names 'tr', which is not a language of the data (az, en)" in message({"tr": "tur_Latn"})
    found = subwords_of(folder, ["az", "en"], codes={"az": "new", "en": "eng_Latn"})
    assert found.tokens[found.tag("az")] == "__az__"
    assert found.tokens[found.tag("en")] == "eng_Latn"


def test_the_codes_of_m2m100_are_named_as_a_config_writes_them(tmp_path):
    with pytest.raises(ConfigError, match=r"no code 'aze_Latn'; it has az, .*\.codes: \{az: az\}, or new"):
        subwords_of(m2m100(tmp_path / "model"), ["az", "en"], codes={"az": "aze_Latn"})


def test_a_new_tag_that_the_model_has_is_said(tmp_path, caplog):
    prepared(tmp_path, {"az": "new"}, ["az-en"], m2m100(tmp_path / "model"))
    assert "'az' is new, but" in caplog.text
    assert "has a tag '__az__', which is used" in caplog.text


def prepared(folder, codes, directions, start):
    data = {**write_text(folder / "text", {"az": 40, "tr": 40}), "folder": str(folder / "data")}
    data |= {"subwords": {"codes": codes}, "directions": directions}
    return api.prepare(parse_config({"data": data, "student": {"start": str(start)}}))


def test_two_target_languages_with_one_code_are_refused_and_sources_with_one_are_said(tmp_path, caplog):
    start = nllb(tmp_path / "model")
    codes = {"az": "tur_Latn", "tr": "tur_Latn", "en": "eng_Latn"}
    message = "'az' and 'tr' have the same code 'tur_Latn', by which .*; give each its own .*, or write tr: new"
    with pytest.raises(ConfigError, match=message):
        prepared(tmp_path, codes, ["en-az", "en-tr"], start)
    assert not (tmp_path / "data").exists()
    store = prepared(tmp_path, codes, ["az-en", "tr-en"], start)
    assert store.subwords.tag("az") == store.subwords.tag("tr")
    assert "'az' and 'tr' have the same code 'tur_Latn', so that the model cannot tell them apart" in caplog.text
    caplog.clear()
    prepared(tmp_path / "new", {**codes, "tr": "new"}, ["en-az", "en-tr"], start)
    assert "the same code" not in caplog.text


def test_a_code_that_a_tokenizer_without_such_codes_does_not_have(tmp_path, spm):
    with pytest.raises(
        ConfigError, match=r"has no code 'azj_Latn', it has none; leave 'az' out of data.subwords.codes"
    ):
        subwords_of(spm, codes={"az": "azj_Latn"})


def changed(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "config.json",
            {"activation_function": "gelu"},
            "activation_function is 'gelu', and .* has 'relu'",
        ),
        ("config.json", {"scale_embedding": False}, "scale_embedding is False, and Rota's network has True"),
        ("config.json", {"model_type": "mbart"}, "model_type is 'mbart'; Rota starts from 'm2m_100'"),
        ("config.json", {"decoder_ffn_dim": 64}, "encoder_ffn_dim is 48 and decoder_ffn_dim is 64"),
        (
            "config.json",
            {"encoder_layers": 3},
            r"no tensor 'model.encoder.layers.2.* says encoder_layers 3 and decoder_layers 1; take config.json and",
        ),
        (
            "config.json",
            {"encoder_layers": 1},
            r"no place for the tensor 'model.encoder.layers.1.* encoder_layers 1 and",
        ),
        (
            "config.json",
            {"d_model": 64},
            r"the tensor '.*' is .*32.*, and config.json says .*d_model 64.*; take config",
        ),
        (
            "config.json",
            {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
            r"fc1.* is 48.*, and config.json says ffn_dim 64",
        ),
        ("config.json", {"vocab_size": 9999}, r"is \d+ x 32, and config.json says vocab_size 9999 x d_model 32; take"),
        ("config.json", {"decoder_start_token_id": 0}, "decoder_start_token_id is 0, and Rota's network has 2"),
        ("tokenizer_config.json", {"language_codes": "other"}, "language_codes is 'other'"),
    ],
)
def test_a_checkpoint_that_cannot_be_ours_is_named(tmp_path, name, changes, message):
    start = m2m100(tmp_path / "model")
    changed(start / name, **changes)
    config = one_update(tmp_path, start)
    with pytest.raises(ConfigError, match=message) as error:
        api.train(config, tmp_path / "run")
    assert "Shape(" not in str(error.value)
    if name == "config.json":
        assert not (tmp_path / "data").exists(), "found before the text was prepared"


def test_a_tokenizer_with_more_tokens_than_the_checkpoint_has_rows_is_named(tmp_path):
    start = m2m100(tmp_path / "model")
    changed(start / "config.json", vocab_size=150)
    with pytest.raises(ConfigError, match=r"vocab_size is 150 and the tokenizer beside it has [0-9]+ tokens"):
        read_ready_made(start)


def test_a_vocabulary_that_is_cut_does_not_hide_other_sizes(tmp_path):
    start = m2m100(tmp_path / "model")
    changed(start / "config.json", vocab_size=9999)
    with pytest.raises(ConfigError, match="config.json says vocab_size 9999"):
        api.train(one_update(tmp_path, start, subwords={"cut": True}), tmp_path / "run")


def one_update(folder, start, **data):
    data = {**write_text(folder / "text", {"az": 40}), "folder": str(folder / "data"), **data}
    training = {"steps": 1, "tokens": 100, "threads": 1}
    return parse_config({"data": data, "student": {"start": str(start)}, "training": training})


@pytest.mark.parametrize("weights", ["safetensors", "bin", "shards"])
def test_weights_that_are_missing_or_cut_off_are_found_before_the_text_is_prepared(tmp_path, weights):
    start = m2m100(tmp_path / "model", weights=weights)
    config, checked = one_update(tmp_path, start), read_pretrained(start)
    checked.check()
    name = next(path.name for path in sorted(start.iterdir()) if path.suffix in (".safetensors", ".bin"))
    whole = (start / name).read_bytes()
    (start / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=rf"{name} (is damaged|cannot be read as weights)"):
        api.train(config, tmp_path / "run")
    (start / name).unlink()
    with pytest.raises(ConfigError, match=f"{name} is missing" if weights == "shards" else "there are no weights"):
        api.train(config, tmp_path / "run")
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "run").exists()


def test_files_that_are_no_tokenizers_are_named(tmp_path):
    (tmp_path / "a.model").write_bytes(b"not a model")
    (tmp_path / "a.json").write_text("{}")
    for name, message in {
        "a.model": "is not a SentencePiece model",
        "a.json": "is not a file of Hugging Face tokenizers",
        "b.json": "data.subwords.model: .*b.json does not exist; give a .model or .json file",
        ".": "has no tokenizer: neither subwords.json, tokenizer.json nor",
    }.items():
        with pytest.raises(ConfigError, match=message):
            read_ready_made(tmp_path / name)
    for kind in ("word", "char"):
        (tmp_path / "own.model").write_bytes(spm_bytes(kind, 20))
        message = f"own.model is a SentencePiece model, but its model type is {kind}; Rota reads unigram and BPE"
        with pytest.raises(ConfigError, match=message):
            read_ready_made(tmp_path / "own.model")


def test_weights_that_could_run_code_are_not_read(tmp_path):
    import pickle

    start = nllb(tmp_path / "model", weights="bin")
    (start / "pytorch_model.bin").write_bytes(pickle.dumps({"model.shared.weight": print}, protocol=2))
    with pytest.raises(ConfigError, match=r"pytorch_model.bin cannot be read as weights alone"):
        read_pretrained(start).weights()
    (start / "pytorch_model.bin").unlink()
    with pytest.raises(ConfigError, match="there are no weights"):
        read_pretrained(start).weights()
    (start / "model.safetensors").write_bytes(b"00000000")
    with pytest.raises(ConfigError, match="model.safetensors is damaged"):
        read_pretrained(start).weights()


def test_pieces_that_the_network_lacks_are_unknown(tmp_path):
    found = as_it_is(m2m100(tmp_path / "model"))
    content = read_ready_made(tmp_path / "model").content
    assert len(tokens_of(content)) == found.vocabulary + 1, "SentencePiece knows 水, the vocabulary does not"
    assert 3 in found.encode_targets(["水"])[0]


@pytest.mark.parametrize("setting", [{"cut": True}, {"add": 3}, {"codes": {"az": "azj_Latn"}}])
def test_a_vocabulary_that_is_learned_is_not_changed(setting):
    with pytest.raises(ConfigError, match="changes a tokenizer that is given; give model, or student.start"):
        parse_config({"data": {"corpus": "synthetic", "subwords": setting}})
