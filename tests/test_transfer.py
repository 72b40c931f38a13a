"""Slow: what the generated languages are for. A small language learns from its large relative."""

import pytest

from rota import api
from rota.config import parse_config


def low_resource_bleu(folder, families, steps):
    """BLEU on ``lato`` after ``steps`` updates of a tiny student on all languages, drawn uniformly."""
    values = {
        "data": {
            "corpus": "synthetic",
            "folder": str(folder / "data"),
            "low_resource": ["lato"],
            "synthetic": {"families": families, "dev": 50, "test": 150},
            "subwords": {"size": 1500},
        },
        "student": {"preset": "tiny", "dropout": 0.1, "learning_rate": {"peak": 0.002}, "lr_warmup": 100},
        "training": {"steps": steps, "tokens": 700, "tensorboard": False, "threads": 1, "checkpoint_every": "100%"},
        "evaluation": {"beam": 1},
    }
    api.train(parse_config(values), folder / "run")
    return api.evaluate(folder / "run").values("bleu")["lato"]


@pytest.mark.slow
def test_a_low_resource_language_learns_from_its_relative(tmp_path):
    # The same number of updates on lato in both: half of 1,000 against all of 500.
    together = low_resource_bleu(tmp_path / "together", {"la": {"lala": 8000, "lato": 400}}, steps=1000)
    alone = low_resource_bleu(tmp_path / "alone", {"la": {"lato": 400}}, steps=500)
    assert together > alone + 15, f"{together:.1f} with its relative, {alone:.1f} alone"
    assert together > 50
