"""A trained network for other programs: a Hugging Face folder of the M2M100 architecture, or a CTranslate2 model.

The files are written here, without the libraries that read them; the tests load them with those libraries.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from safetensors.torch import save_file

from rota.data.corpora.parallel import tidy
from rota.data.subwords import SPECIALS
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.ctranslate import save_ctranslate2
from rota.evaluation.model_card import model_card
from rota.evaluation.translator import Translator, find_checkpoint, read_run, selected_model
from rota.runs.checkpoints import Checkpoints
from rota.student.config import Shape, StudentConfig
from rota.student.search import MAX_LENGTH
from rota.student.transformer import BOS, DECODER_START, EOS, PAD, Transformer, to_m2m100

Target = Literal["hf", "ctranslate2"]
Combine = Literal["last", "average"]
Quantization = Literal["float32", "int8"]

MARK: Final = "rota.json"
"""Written into every export: what it was made of, and that an export may be put in its place."""

POSITIONS: Final = MAX_LENGTH + 1
WINDOW: Final = 4
"""Checkpoints that are averaged if nothing else was selected; the paper's number."""


@dataclass(frozen=True)
class Chosen:
    """The checkpoints that become one network: the last of ``steps`` alone, or the mean of all their weights."""

    steps: tuple[int, ...]
    combine: Combine


def export(
    run: Path | str,
    out: Path | str,
    *,
    to: str = "hf",
    step: int | None = None,
    selected: bool = False,
    combine: str | None = None,
    quantization: str = "float32",
) -> Path:
    """Write the network of a run to the folder ``out`` and return it; an earlier export there is replaced.

    Without more, the network is that of the last checkpoint, or of ``step``. ``combine="average"`` is the mean of the
    weights of the four checkpoints that end there. ``selected``: those that ``rota evaluate --select`` found best.
    """
    run, out = Path(run), Path(out)
    _check(to, quantization)
    about = read_run(run)
    chosen = choose(run, step=step, selected=selected, combine=combine)
    _require_free(out, run)
    network = _load(run, chosen)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tokenizer = exported_tokenizer(json.loads((run / "subwords.json").read_text(encoding="utf-8")))
    _write_json(partial / "tokenizer.json", tokenizer)
    if to == "hf":
        save_hugging_face(network, languages_of(tokenizer), about["config"], partial)
    else:
        save_ctranslate2(network, tokenizer, partial, quantization=quantization)
    card = model_card(run, about, steps=chosen.steps, combine=chosen.combine, to=to, quantization=quantization)
    (partial / "README.md").write_text(card, encoding="utf-8")
    mark = {"run": about["config"]["name"], "steps": chosen.steps, "combine": chosen.combine}
    _write_json(partial / MARK, {**mark, "to": to, "quantization": quantization})
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)
    return out


def _check(to: str, quantization: str) -> None:
    targets, quantizations = get_args(Target), get_args(Quantization)
    if to not in targets:
        raise ValueError(f"--to is {to!r}; it is {' or '.join(targets)}")
    if quantization not in quantizations:
        raise ValueError(f"--quantization is {quantization!r}; it is {' or '.join(quantizations)}")
    if to == "hf" and quantization != "float32":
        raise ValueError(f"--quantization {quantization} is for --to ctranslate2; leave it out for --to hf")


def _require_free(out: Path, run: Path) -> None:
    """Nothing but an earlier export is ever replaced."""
    if out.resolve() in (run.resolve(), *run.resolve().parents):
        raise ValueError(f"--out {out} would replace the run itself; choose another folder")
    if out.exists() and not ((out / MARK).is_file() or (out.is_dir() and not any(out.iterdir()))):
        raise ValueError(f"{out} exists and is no earlier export; choose another folder with --out, or delete it")


def choose(run: Path, *, step: int | None = None, selected: bool = False, combine: str | None = None) -> Chosen:
    """Which checkpoints an export is made of; every one must be there."""
    if combine == "ensemble":
        raise ValueError("--combine ensemble is several networks; export their average with --combine average")
    if combine not in (None, *get_args(Combine)):
        raise ValueError(f"--combine is {combine!r}; it is {' or '.join(get_args(Combine))}")
    if selected and step is not None:
        raise ValueError(f"--selected and --step {step} name two different models; give one of them")
    if selected:
        steps, combine = _selected(run, combine)
    else:
        last = find_checkpoint(run, step).step
        saved = [found.step for found in Checkpoints(run / "checkpoints").list() if found.step <= last]
        steps = saved[-WINDOW:]
    return Chosen(tuple(steps if combine == "average" else steps[-1:]), cast(Combine, combine or "last"))


def _selected(run: Path, combine: str | None) -> tuple[list[int], str]:
    """The steps of the window that was found best; an ensemble becomes the average of its weights."""
    steps, together = selected_model(run)
    return steps, combine or ("last" if together == "last" else "average")


def _load(run: Path, chosen: Chosen) -> Transformer:
    if len(chosen.steps) == 1:
        return Translator.load(run, step=chosen.steps[0], device="cpu").networks[0]
    return Translator.load(run, steps=chosen.steps, combine="average", device="cpu").networks[0]


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
    _write_json(folder / "config.json", architecture(network.shape, student))
    _write_json(folder / "generation_config.json", generation(EvaluationConfig.model_validate(config["evaluation"])))
    _write_json(folder / "tokenizer_config.json", tokenizer_settings(languages))


def architecture(shape: Shape, student: StudentConfig) -> dict[str, Any]:
    """The ``config.json`` of M2M100; dropout is that of training, for whoever trains on."""
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


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
