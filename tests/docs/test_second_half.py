"""The second half of docs/tutorial.md: three corpora, a relative, both directions, a pretrained model."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from doc_pages import ROOT, blocks
from test_tutorial import SECOND_HALF, WORDS, save, type_in

from rota.config import load_config
from rota.runs import Run

SMALLER = {
    "steps: 4k, tokens: 2k, checkpoint_every: 10%": "steps: 20, tokens: 200, checkpoint_every: 25%",
    "steps: 2k, tokens: 2k": "steps: 4, tokens: 200",
    "peak: 0.0001}, lr_warmup: 10%": "peak: 0.003}, lr_warmup: 10%",
    "rota evaluate runs/gl": "rota evaluate runs/gl --beam 1 --select-beam 1",
}
ENDINGS = {"gl": "ñç", "pt": "ãç", "ast": "xu"}


def steps():
    """What the reader types and saves, in order."""
    for kind, block in blocks(SECOND_HALF):
        if kind in ("sh", "yaml"):
            for ours, less in SMALLER.items():
                block = block.replace(ours, less)
            yield kind, block


def write_text(folder):
    """Text as the page supposes it: three corpora of gl, one each of pt and ast, and dev and test sets."""
    rng = np.random.default_rng(1)
    files = {"gl": ["subtitles", "scripture", "web"], "pt": ["train"], "ast": ["train"]}
    for language, names in files.items():
        (folder / language).mkdir(parents=True)
        for name in (*names, "dev", "test"):
            english = [
                " ".join(rng.choice(WORDS, size=rng.integers(3, 9)))
                for _ in range(24 if name in ("dev", "test") else 90)
            ]
            ending = ENDINGS[language]
            lines = [
                f"{' '.join(word[::-1] + ending[len(word) % 2] for word in line.split())}\t{line}" for line in english
            ]
            (folder / language / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_the_numbers_that_this_test_makes_smaller_are_those_of_the_page():
    typed = "".join(content for kind, content in blocks(SECOND_HALF) if kind in ("sh", "yaml"))
    assert [ours for ours in SMALLER if ours not in typed] == []


def test_the_configs_of_the_second_half_are_right(tmp_path):
    first, second = (load_config(save(block, tmp_path)) for kind, block in steps() if kind == "yaml")
    assert list(first.data.sources) == ["subtitles", "scripture", "web"]
    assert str(first.data.subwords.model) == str(first.student.start) == "models/nllb"
    assert str(second.data.subwords.model) == "runs/gl"


@pytest.mark.slow
def test_every_block_of_the_second_half_works_after_those_before_it(tmp_path):
    pytest.importorskip("transformers")
    sys.path.insert(0, str(ROOT / "tests" / "start"))
    from start_cases import nllb
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    write_text(tmp_path / "text")
    nllb(tmp_path / "models" / "nllb")
    printed = {}
    for kind, block in steps():
        if kind == "yaml":
            save(block, tmp_path)
        else:
            printed[block] = type_in(block, tmp_path)
    assert "gl-en.subtitles" in printed["rota prepare gl.yaml\n"]
    translated = next(output for block, output in printed.items() if "--to gl" in block)
    assert len(translated.splitlines()) == 5
    losses = [entry["dev_loss"] for entry in Run(tmp_path / "runs" / "gl").read("validations")]
    assert losses[-1]["en-gl"] < losses[0]["en-gl"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "models" / "gl", src_lang="glg_Latn")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "models" / "gl")
    assert model.config.vocab_size >= len(tokenizer)
    second = Run(tmp_path / "runs" / "ast")
    assert next(entry["step"] for entry in second.read("validations")) == 0
    assert set(second.sizes) == {f"{pair}" for pair in ("gl-en", "en-gl", "pt-en", "en-pt", "ast-en", "en-ast")}
