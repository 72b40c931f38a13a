"""Run folders with translations of known quality, made without training."""

import json

from rota.api import prepare, train
from rota.config import parse_config
from rota.evaluation.metrics import score
from rota.runs.records import Record


def corpus(folder, *, subwords=300, **changes):
    synthetic = {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 8, "test": 40} | changes
    settings = {"corpus": "synthetic", "synthetic": synthetic, "low_resource": ["lato"], "subwords": {"size": subwords}}
    return settings | {"folder": str(folder)}


def prepare_corpus(folder, **changes):
    """Two generated languages, 40 test sentences each; ``lato`` is low-resource."""
    return prepare(parse_config({"data": corpus(folder, **changes)}))


def train_run(folder, data):
    """A run that has hardly begun to learn."""
    student = {"preset": "tiny", "width": 16, "feedforward": 32, "layers": 1, "lr_warmup": 1}
    training = {"steps": 4, "tokens": 200, "checkpoint_every": 4, "validate_every": 4, "threads": 1}
    sections = {"data": corpus(data), "student": student, "training": training, "evaluation": {"beam": 1}}
    train(parse_config(sections), folder)
    return folder


def make_run(folder, store, *, wrong, seed=1, step=100, **model):
    """A run whose translations lack the last word of every sentence whose number ``wrong`` says yes to."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "config": {"name": folder.name, "evaluation": {"beam": 5, "length_penalty": 1.0}},
        "seed": seed,
        "data": {
            "folder": str(store.folder),
            "fingerprint": store.fingerprint,
            "sizes": dict(store.sizes),
            "low_resource": list(store.low_resource),
        },
    }
    (folder / "run.json").write_text(json.dumps(about))
    evaluate(folder, store, wrong=wrong, step=step, **model)
    return folder


def evaluate(folder, store, *, wrong, step, beam=5, languages=None, **model):
    """What ``rota evaluate`` leaves behind."""
    record = Record(folder / "evals.jsonl")
    for arm in languages or store.languages:
        references = [reference for _, reference in store.text("test", arm)]
        lines = [" ".join(text.split()[:-1]) if wrong(place) else text for place, text in enumerate(references)]
        path = folder / "translations" / f"{step}.test.{arm}.beam{beam}-1.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        head = {
            "step": step,
            **model,
            "split": "test",
            "search": {"beam": beam, "length_penalty": 1.0},
            "language": arm,
        }
        for found in score(lines, references):
            record.write({**head, "metric": found.metric, "score": found.value, "signature": found.signature})
    record.close()
