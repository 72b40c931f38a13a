"""Tiny random checkpoints in the true formats of M2M100 and NLLB, and text in generated languages to train them on."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer, NllbTokenizer, NllbTokenizerFast

WORDS = ["the", "old", "boat", "goes", "to", "a", "far", "town", "and", "this", "small", "river", "has", "no", "bridge"]
LETTERS = {"az": "əğ", "tr": "şı", "gl": "ñç", "uz": "oʻ"}
SIZES: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "init_std": 0.2,
}


def english(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, size=rng.integers(3, 9)))


def foreign(line: str, language: str) -> str:
    """The same words backwards, with letters of their own."""
    return " ".join(word[::-1] + LETTERS[language][len(word) % 2] for word in line.split())


def pairs(language: str, count: int, seed: int) -> list[tuple[str, str]]:
    rng = np.random.default_rng([seed, *language.encode()])
    lines = [english(rng) for _ in range(count)]
    return [(foreign(line, language), line) for line in lines]


def write_text(folder: Path, languages: dict[str, int]) -> dict[str, Any]:
    """TSV files of these languages, with so many training pairs; returns the section ``data`` of a config."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, count in languages.items():
        for seed, (split, size) in enumerate({"train": count, "dev": 30, "test": 20}.items()):
            lines = "".join(f"{source}\t{target}\n" for source, target in pairs(language, size, seed))
            (folder / f"{split}.{language}.tsv").write_text(lines, encoding="utf-8")
    patterns = {split: str(folder / f"{split}.{{language}}.tsv") for split in ("train", "dev", "test")}
    return {"languages": list(languages), **patterns, "cleaning": {"leak_words": 9}}


@cache
def spm_bytes(kind: str = "bpe", size: int = 110) -> bytes:
    """A SentencePiece model of the generated languages, with the normalisation that NLLB and M2M100 have."""
    lines = [side for language in LETTERS for pair in pairs(language, 200, 9) for side in pair]
    lines += ["ﬁn Ⅷ １２ …", "é è ü 水 火"] * 3
    written = _Writer()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        model_type=kind,
        vocab_size=size,
        character_coverage=1.0,
        minloglevel=2,
    )
    return written.data


class _Writer:
    data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def network(vocabulary: int, **changes: Any) -> M2M100ForConditionalGeneration:
    torch.manual_seed(3)
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=vocabulary, **{**SIZES, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" in name or name.endswith("bias"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def nllb(folder: Path, *, fast: bool = True, weights: str = "safetensors", kind: str = "bpe", **changes: Any) -> Path:
    """A checkpoint with all codes of NLLB; its embeddings have two rows more than there are tokens, as in the original.

    ``weights``: safetensors, bin or shards.
    """
    folder.mkdir(parents=True)
    spm = folder / "sentencepiece.bpe.model"
    spm.write_bytes(spm_bytes(kind))
    slow = NllbTokenizer(str(spm))
    if fast:
        quick = NllbTokenizerFast(str(spm))
        quick.save_pretrained(folder)
        rows = len(quick) + 2
    else:
        slow.save_pretrained(folder)
        rows = len(slow) + 2
    save(network(rows, **changes), folder, weights)
    return folder


def m2m100(folder: Path, *, weights: str = "safetensors", **changes: Any) -> Path:
    """With the 100 codes of M2M100; its vocabulary has another order than SentencePiece's, and lacks two pieces."""
    folder.mkdir(parents=True)
    spm = folder / "sentencepiece.bpe.model"
    spm.write_bytes(spm_bytes())
    library = sentencepiece.SentencePieceProcessor(model_proto=spm_bytes())
    pieces = [library.id_to_piece(number) for number in range(3, library.get_piece_size())]
    kept = [piece for piece in reversed(pieces) if piece not in ("ab", "水")]
    vocabulary = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *kept])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(spm))
    tokenizer.save_pretrained(folder)
    save(network(len(vocabulary) + 100 + 8, **changes), folder, weights)
    return folder


def save(model: M2M100ForConditionalGeneration, folder: Path, weights: str) -> None:
    if weights == "shards":
        model.save_pretrained(folder, max_shard_size="20KB")
    else:
        model.save_pretrained(folder)
    if weights == "bin":
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
