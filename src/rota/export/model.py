"""One network of a run as a folder for other programs: which checkpoints, written how."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, get_args

from rota.data.ready_made.reading import PIECES_FILE
from rota.data.subwords import ABOUT, Subwords
from rota.evaluation.ctranslate import MARK, save_ctranslate2
from rota.evaluation.translator import Translator
from rota.export.hugging_face import ExportedTokenizer, exported_tokenizer, save_hugging_face
from rota.export.model_card import model_card
from rota.files import folder_atomically, read_json, write_json
from rota.runs import REMEDY, Run
from rota.runs.standing import Model, require_selected, standing_model
from rota.student.transformer import Transformer

Target = Literal["hf", "ctranslate2"]
Combine = Literal["last", "average", "moving-average"]
Quantization = Literal["float32", "int8"]

WINDOW: Final = 4
"""Checkpoints that are averaged if nothing else was selected; the paper's number."""


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

    Without more it is the model that stands for the run (:mod:`rota.runs.standing`): the one that a report shows, or
    the last checkpoint of a run that was not scored. ``step`` names another. ``combine="average"`` is the mean of the
    weights of the four checkpoints that end there. ``selected``: those that ``rota evaluate --select`` found best.
    """
    found, out = Run(run), Path(out)
    _check(to, quantization)
    model = choose(found, step=step, selected=selected, combine=combine)
    _require_free(out, found.folder)
    network = _load(found, model)
    found.check_subwords()
    tokenizer = _tokenizer(found)
    subwords = tokenizer.subwords
    with folder_atomically(out) as folder:
        if to == "hf":
            forced = subwords.target_tag(None, found.targets) if len(found.targets) == 1 else None
            save_hugging_face(network, tokenizer, found.about["config"], folder, forced=forced)
        else:
            write_json(folder / "tokenizer.json", tokenizer.content)
            save_ctranslate2(network, tokenizer.content, folder, quantization=quantization)
        card = model_card(found, model, to=to, quantization=quantization, tokenizer=tokenizer)
        (folder / "README.md").write_text(card, encoding="utf-8")
        mark = {"run": found.setting("config.name"), "steps": model.steps, "combine": model.combine}
        if found.targets != ("en",):
            mark["targets"] = list(found.targets)
        if subwords.about:
            mark["subwords"] = subwords.about
        write_json(folder / MARK, {**mark, "to": to, "quantization": quantization})
    return out


def _tokenizer(run: Run) -> ExportedTokenizer:
    """Subwords that Rota has learned tidy white space in the export too; a tokenizer that was given stays as it is."""
    content, subwords = read_json(run.subwords_path, remedy=REMEDY), Subwords.load(run.subwords_path)
    content.pop(ABOUT, None)
    if subwords.about.get("kind", "learned") in ("learned", "own"):
        content = exported_tokenizer(content)
    pieces = run.folder / PIECES_FILE
    return ExportedTokenizer(content, subwords, subwords.languages[0], pieces if pieces.is_file() else None)


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
        raise ValueError(f"{out} exists and is not an earlier export; choose another folder with --out, or delete it")


def choose(run: Run, *, step: int | None = None, selected: bool = False, combine: str | None = None) -> Model:
    """Which checkpoints an export is made of; an ensemble becomes the average of its weights."""
    if combine == "ensemble":
        raise ValueError("--combine ensemble is several networks; export their average with --combine average")
    if combine not in (None, *get_args(Combine)):
        raise ValueError(f"--combine is {combine!r}; it is {' or '.join(get_args(Combine))}")
    if selected and step is not None:
        raise ValueError(f"--selected and --step {step} name two different models; give one of them")
    if selected:
        model = require_selected(run)
    elif step is None and combine is None:
        model = _standing(run)
    else:
        last = run.checkpoint(step).step
        model = Model(tuple(found.step for found in run.checkpoints().list() if found.step <= last)[-WINDOW:])
    chosen = combine or model.combine
    if chosen in ("last", "moving-average"):
        return Model(model.steps[-1:], "moving-average" if chosen == "moving-average" else "last")
    return Model(model.steps, "average")


def _standing(run: Run) -> Model:
    """The model that stands for the run, unless it was trained further after its scores were made."""
    model = standing_model(run)
    if model.select is None and model.step < (last := run.checkpoint().step):
        since = f"the scores of {run} are of step {model.step:,}, and its last checkpoint is of step {last:,}"
        raise ValueError(f"{since}; score that with rota evaluate {run}, or name one of them with --step")
    return model


def _load(run: Run, model: Model) -> Transformer:
    return Translator.load(run.folder, steps=model.steps, combine=model.combine, device="cpu").networks[0]
