"""fairseq's beam search with our weights, in its own environment: a process that translates when it is asked to."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PYTHON = Path("environments") / "fairseq" / "bin" / "python"
"""In the cache of benchmarks/peers/run.py, which installs it: --only fairseq --install-only."""


class Fairseq:
    """Translates with so many padded source tokens in a batch; ``wall`` and ``processor`` are seconds of the last."""

    def __init__(self, python: Path, weights: Path, tokens: int, limits: dict[str, Any]) -> None:
        command = [str(python), str(HERE / "peers" / "drivers" / "translate_fairseq.py"), str(weights)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._tokens, self._limits = tokens, limits
        self.wall = self.processor = 0.0
        if self._answer() != "ready\n":
            raise RuntimeError(f"fairseq did not start; see what this prints: {' '.join(command)}")

    def __call__(self, sources: list[list[int]]) -> list[list[int]]:
        assert self._process.stdin is not None
        wanted = {"sources": sources, "beam": self._limits["beam"], "extra": self._limits["extra"]}
        self._process.stdin.write(json.dumps({**wanted, "tokens": self._tokens}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._answer())
        self.wall, self.processor = answer["wall"], answer["processor"]
        found: list[list[int]] = answer["found"]
        return found

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def write_weights(run: Path, out: Path) -> None:
    """Our weights under fairseq's names, which are those of M2M100 without the first word; and the sizes."""
    import torch

    from rota.evaluation.translator import Translator
    from rota.student.transformer import to_m2m100

    (network,) = Translator.load(run).networks
    shape = network.shape
    weights = {
        name.removeprefix("model."): tensor.clone()
        for name, tensor in to_m2m100(network.state_dict()).items()
        if name not in ("model.shared.weight", "lm_head.weight")
    }
    weights["decoder.output_projection.weight"] = network.output_matrix.detach().clone()
    for side in ("encoder", "decoder"):  # without a version fairseq takes them for early ones, and drops the last norms
        weights[f"{side}.version"] = torch.tensor([3.0])
    sizes = {"vocabulary": shape.vocabulary, "layers": shape.encoder_layers, "width": shape.width}
    sizes |= {"heads": shape.heads, "feedforward": shape.feedforward}
    torch.save({"weights": weights, "sizes": sizes}, out)
