"""A network as the files that ``transformers`` reads: the M2M100 architecture with the tokenizer class of NLLB.

A run that started from M2M100 keeps that tokenizer, as long as its class can express what the vocabulary has become.
The files are written here, without the library that reads them; the tests load them with it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors.torch import save_file

from rota.data.corpora.parallel import tidy
from rota.data.ready_made.reading import M2M100_CODES, MASK, PIECES_FILE
from rota.data.subwords import SPECIALS, Subwords
from rota.evaluation.config import EvaluationConfig
from rota.files import write_json
from rota.runs.tensors import system_errors
from rota.student.config import Shape, StudentConfig
from rota.student.search import MAX_LENGTH
from rota.student.transformer import BOS, DECODER_START, EOS, PAD, Transformer, to_m2m100

POSITIONS: Final = MAX_LENGTH + 1


def exported_tokenizer(content: dict[str, Any]) -> dict[str, Any]:
    """Our subwords as a file for other programs: it tidies white space itself, as Rota does before it encodes."""
    collapse = {"type": "Replace", "pattern": {"Regex": f"[{_blanks()}]+"}, "content": " "}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    own = content["normalizer"]
    if own is not None and own.get("normalizers", ())[:2] == [collapse, strip]:
        return content  # it comes from an export
    steps = [collapse, strip, *([own] if own else [])]
    return {**content, "normalizer": {"type": "Sequence", "normalizers": steps}}


def _blanks() -> str:
    """All characters that ``tidy`` turns into a space, for a character class; the last of them is U+3000."""
    return "".join(f"\\x{{{number:x}}}" for number in range(0x3001) if tidy(f"a{chr(number)}b") == "a b")


def save_hugging_face(
    network: Transformer,
    tokenizer: ExportedTokenizer,
    config: dict[str, Any],
    folder: Path,
    *,
    forced: int | None = None,
) -> None:
    """The files that ``transformers`` reads: weights, configs, tokenizer.

    ``forced``: the tag that every translation begins with, of a model with one target language that has a tag.
    """
    tensors = to_m2m100(network.state_dict())
    if network.shape.tie_embeddings:
        tensors = {"model.shared.weight": tensors["model.shared.weight"]} | {
            name: tensor for name, tensor in tensors.items() if "embed_tokens" not in name and name != "lm_head.weight"
        }
    # A file of tensors holds no views: the parts of joined matrices, and shared ones, become copies.
    weights = folder / "model.safetensors"
    with system_errors(weights):
        save_file({name: tensor.clone() for name, tensor in tensors.items()}, weights, {"format": "pt"})
    student = StudentConfig.model_validate(config["student"])
    write_json(folder / "config.json", architecture(network.shape, student))
    search = generation(EvaluationConfig.model_validate(config["evaluation"]))
    first = {} if forced is None else {"forced_bos_token_id": forced}
    write_json(folder / "generation_config.json", search | first)
    tokenizer.save(folder)


def architecture(shape: Shape, student: StudentConfig) -> dict[str, Any]:
    """The ``config.json`` of M2M100; dropout is that of training, for those who train it further."""
    attention_dropout = student.dropout if student.attention_dropout is None else student.attention_dropout
    return {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "is_encoder_decoder": True,
        "vocab_size": shape.vocabulary,
        "d_model": shape.width,
        **{f"{side}_layers": getattr(shape, f"{side}_layers") for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": shape.heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": shape.feedforward for side in ("encoder", "decoder")},
        **{f"{side}_layerdrop": 0.0 for side in ("encoder", "decoder")},
        "activation_function": "relu",
        "scale_embedding": True,
        "tie_word_embeddings": shape.tie_embeddings,
        "max_position_embeddings": POSITIONS,
        "dropout": student.dropout,
        "activation_dropout": student.dropout,
        "attention_dropout": attention_dropout,
        "bos_token_id": BOS,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "decoder_start_token_id": DECODER_START,
        "torch_dtype": "float32",
    }


def generation(search: EvaluationConfig) -> dict[str, Any]:
    """The ``generation_config.json``: our search, as far as ``generate`` can be told.

    What it cannot: a limit for each sentence of its own; it has one for the batch (see docs/export.md).
    """
    return {
        "bos_token_id": BOS,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "decoder_start_token_id": DECODER_START,
        "forced_eos_token_id": EOS,
        "suppress_tokens": [BOS, PAD],
        "num_beams": search.beam,
        "length_penalty": search.length_penalty,
        "early_stopping": search.beam > 1,
        "max_length": MAX_LENGTH + 2,  # with the start symbol and the end symbol
    }


@dataclass(frozen=True)
class ExportedTokenizer:
    """The tokenizer of a run for ``transformers``; ``pieces`` is the SentencePiece model that it came with, if any."""

    content: dict[str, Any]  # of tokenizer.json
    subwords: Subwords
    source: str  # the language that is set at first
    pieces: Path | None = None

    @property
    def kind(self) -> str:
        return str(self.subwords.about.get("kind", "learned"))

    @property
    def codes(self) -> list[str]:
        """All tags, in the order of their ids."""
        tokens = self.subwords.tokens
        return [token for number in sorted(self.subwords.tag_ids) if (token := tokens[number]) is not None]

    @property
    def is_m2m100(self) -> bool:
        """Whether the class of M2M100 can be used: it puts its own tags behind the subwords, and knows no others."""
        if self.kind != "m2m100" or self.pieces is None:
            return False
        first = min(self.subwords.tag_ids)
        known = [[f"__{code}__" for code in codes.split()] for codes in M2M100_CODES.values()]
        return self.codes in known and self.subwords.tag_ids == list(range(first, first + len(self.codes)))

    def save(self, folder: Path) -> None:
        if self.pieces is not None:
            shutil.copyfile(self.pieces, folder / PIECES_FILE)
        if self.is_m2m100:
            below = self.subwords.tokens[: min(self.subwords.tag_ids)]
            write_json(folder / "vocab.json", {token: number for number, token in enumerate(below)})
        else:
            write_json(folder / "tokenizer.json", self.content)
        write_json(folder / "tokenizer_config.json", self.settings())

    def settings(self) -> dict[str, Any]:
        """The ``tokenizer_config.json``: the class of NLLB has sources like ours: tag, subwords, end of sentence."""
        bos, pad, eos, unk = SPECIALS
        common: dict[str, Any] = {
            "bos_token": bos,
            "pad_token": pad,
            "eos_token": eos,
            "unk_token": unk,
            "sep_token": eos,
        }
        common |= {"additional_special_tokens": self.codes, "model_max_length": POSITIONS}
        token = self.subwords.tokens[self.subwords.tag(self.source)]
        assert token is not None
        if self.is_m2m100:
            family = "m2m100" if len(self.codes) == 100 else "wmt21"
            rest = self.subwords.vocabulary - max(self.subwords.tag_ids) - 1
            more = {"language_codes": family, "num_madeup_words": rest, "src_lang": token[2:-2]}
            return {"tokenizer_class": "M2M100Tokenizer", **common, **more}
        mask = MASK if MASK in self.subwords.tokens else None
        found = {"tokenizer_class": "NllbTokenizer", **common, "cls_token": bos, "mask_token": mask}
        found |= {"src_lang": token, "legacy_behaviour": False, "clean_up_tokenization_spaces": False}
        if self.kind == "nllb":
            added = sorted(self.content["added_tokens"], key=lambda each: int(each["id"]))
            decoder = {str(each["id"]): {key: each[key] for key in each if key != "id"} for each in added}
            return found | {"added_tokens_decoder": decoder}
        return found | {"split_special_tokens": True}  # "</s>" in somebody's sentence is text
