"""A network as the files that ``transformers`` reads: the M2M100 architecture with the tokenizer class of NLLB.

The files are written here, without the library that reads them; the tests load them with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from safetensors.torch import save_file

from rota.data.corpora.parallel import tidy
from rota.data.subwords import SPECIALS
from rota.evaluation.config import EvaluationConfig
from rota.files import write_json
from rota.student.config import Shape, StudentConfig
from rota.student.search import MAX_LENGTH
from rota.student.transformer import BOS, DECODER_START, EOS, PAD, Transformer, to_m2m100

POSITIONS: Final = MAX_LENGTH + 1


def exported_tokenizer(content: dict[str, Any]) -> dict[str, Any]:
    """Our subwords as a file for other programs: it tidies white space itself, as Rota does before it encodes."""
    collapse = {"type": "Replace", "pattern": {"Regex": f"[{_blanks()}]+"}, "content": " "}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    return {**content, "normalizer": {"type": "Sequence", "normalizers": [collapse, strip, content["normalizer"]]}}


def _blanks() -> str:
    """All characters that ``tidy`` turns into a space, for a character class; the last of them is U+3000."""
    return "".join(f"\\x{{{number:x}}}" for number in range(0x3001) if tidy(f"a{chr(number)}b") == "a b")


def languages_of(tokenizer: dict[str, Any]) -> list[str]:
    """The languages in the order of their tags."""
    added = sorted(tokenizer["added_tokens"], key=lambda token: int(token["id"]))
    return [token["content"][2:-2] for token in added[len(SPECIALS) :]]


def save_hugging_face(network: Transformer, languages: Sequence[str], config: dict[str, Any], folder: Path) -> None:
    """The files that ``transformers`` reads beside ``tokenizer.json``: the weights and three configs."""
    tensors = to_m2m100(network.state_dict())
    if network.shape.tie_embeddings:
        tensors = {"model.shared.weight": tensors["model.shared.weight"]} | {
            name: tensor for name, tensor in tensors.items() if "embed_tokens" not in name and name != "lm_head.weight"
        }
    # A file of tensors holds no views: the parts of joined matrices, and shared ones, become copies.
    save_file(
        {name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    student = StudentConfig.model_validate(config["student"])
    write_json(folder / "config.json", architecture(network.shape, student))
    write_json(folder / "generation_config.json", generation(EvaluationConfig.model_validate(config["evaluation"])))
    write_json(folder / "tokenizer_config.json", tokenizer_settings(languages))


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


def tokenizer_settings(languages: Sequence[str]) -> dict[str, Any]:
    """The ``tokenizer_config.json``: the class of NLLB, whose sources are tag, subwords, end of sentence like ours."""
    tags = [f"__{language}__" for language in languages]
    bos, pad, eos, unk = SPECIALS
    return {
        "tokenizer_class": "NllbTokenizer",
        "bos_token": bos,
        "pad_token": pad,
        "eos_token": eos,
        "unk_token": unk,
        "cls_token": bos,
        "sep_token": eos,
        "mask_token": None,
        "additional_special_tokens": tags,
        "src_lang": tags[0],
        "legacy_behaviour": False,
        "split_special_tokens": True,  # "</s>" in somebody's sentence is text
        "clean_up_tokenization_spaces": False,
        "model_max_length": POSITIONS,
    }
