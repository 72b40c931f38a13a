"""Files as stable-baselines3 writes them, made by hand: only what a teacher reads of them."""

import io
import json
import zipfile

import numpy as np
import torch


def actor(inputs, outputs, *, hidden=6, spread=None, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"mlp_extractor.policy_net.0": (hidden, inputs), "action_net": (outputs, hidden), "value_net": (1, hidden)}
    weights = {} if spread is None else {"log_std": torch.full((outputs,), float(np.log(spread)))}
    return weights | _filled(rng, shapes)


def q_network(inputs, outputs, *, hidden=6, seed=0):
    rng = np.random.default_rng(seed)
    layers = {"q_net.0": (hidden, inputs), "q_net.2": (outputs, hidden)}
    return _filled(rng, {f"{net}.{name}": shape for net in ("q_net", "q_net_target") for name, shape in layers.items()})


def _filled(rng, shapes):
    found = {}
    for name, (outputs, inputs) in shapes.items():
        found[f"{name}.weight"] = torch.tensor(rng.standard_normal((outputs, inputs)), dtype=torch.float32)
        found[f"{name}.bias"] = torch.tensor(rng.standard_normal(outputs), dtype=torch.float32)
    return found


def write_model(path, weights, **settings):
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"policy_kwargs": {}, "use_sde": False, **settings}))
        archive.writestr("policy.pth", buffer.getvalue())
    return path
