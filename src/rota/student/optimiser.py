"""Adam over the parts of a network, each with its own share of the learning rate; frozen parts have no gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rota.student.config import Part, StudentConfig
from rota.student.transformer import Transformer

MOMENTS = ("exp_avg", "exp_avg_sq")


def part_of(parameter: str) -> Part:
    """Of a parameter by its name; the output matrix of a student that does not tie it counts as embeddings."""
    first = parameter.split(".")[0]
    if first in ("embedding", "output"):
        return "embeddings"
    return "encoder" if first in ("encoder", "encoder_norm") else "decoder"


def freeze(network: Transformer, parts: Sequence[Part]) -> None:
    """From now on no gradients of these parts are computed, and nothing is kept for them."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(part_of(name) not in parts)


class NotFiniteError(ArithmeticError):
    """The loss or its gradient is not a finite number; the weights are still those of the step before."""


class Optimiser:
    """The moments are there from the beginning, so that every state has the same form."""

    def __init__(self, network: Transformer, config: StudentConfig) -> None:
        self.names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        by_name = dict(network.named_parameters())
        self.parameters: list[nn.Parameter] = [by_name[name] for name in self.names]
        # OpenNMT-py's epsilon.
        options: dict[str, Any] = {"lr": 0.0, "betas": config.betas, "eps": 1e-9, "fused": True}
        self._clip_norm = config.clip_norm
        self._adam = torch.optim.Adam(self._groups(config.rates), **options)
        for parameter in self.parameters:
            self._adam.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                **{key: torch.zeros_like(parameter) for key in MOMENTS},
            }
        self._denominators: list[Tensor] | None = None  # of the present moments, once they were needed

    def _groups(self, rates: Mapping[Part, float]) -> list[dict[str, Any]]:
        """Parameters with the same factor of the learning rate; without factors there is one group."""
        groups: dict[float, list[nn.Parameter]] = {}
        for name, parameter in zip(self.names, self.parameters, strict=True):
            groups.setdefault(rates.get(part_of(name), 1.0), []).append(parameter)
        return [{"params": parameters, "factor": factor} for factor, parameters in groups.items()]

    @property
    def gradients(self) -> list[Tensor]:
        """Of all parameters that have one."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def add(self, gradients: Sequence[Tensor]) -> None:
        """Adds these, one for each parameter, to the present ones; where there is none, this tensor becomes it."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)

    def step(self, step: int, rate: float, loss: float, norm: float) -> None:
        """Step number ``step`` with the gradients that the parameters have, clipped; ``norm`` is before that."""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._adam.zero_grad(set_to_none=True)
            raise NotFiniteError(
                f"loss {loss:g} and gradient norm {norm:g} at step {step} with learning rate {rate:.3g};"
                " the weights are those of the step before: lower student.learning_rate or lengthen student.lr_warmup."
            )
        if norm > self._clip_norm:
            torch._foreach_mul_(self.gradients, self._clip_norm / norm)
        for group in self._adam.param_groups:
            group["lr"] = rate * group["factor"]
        self._denominators = None
        self._adam.step()

    def denominators(self, step: int) -> list[Tensor] | None:
        """What Adam divides by after so many steps; infinite where no gradient was ever seen, so that those are 0."""
        if step == 0 or self._denominators is not None:
            return self._denominators
        group = self._adam.param_groups[0]
        correction = math.sqrt(1 - group["betas"][1] ** step)
        squares = [self._adam.state[parameter]["exp_avg_sq"] for parameter in self.parameters]
        denominators = list(torch._foreach_div(torch._foreach_sqrt(squares), correction))
        torch._foreach_add_(denominators, group["eps"])
        for each, square in zip(denominators, squares, strict=True):
            each.masked_fill_(square == 0, math.inf)
        self._denominators = denominators
        return denominators

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The moments by the names of the parameters; not copies."""
        states = [self._adam.state[parameter] for parameter in self.parameters]
        return {key: dict(zip(self.names, (state[key] for state in states), strict=True)) for key in MOMENTS}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]], step: int) -> None:
        self._denominators = None
        for name, parameter in zip(self.names, self.parameters, strict=True):
            moments = self._adam.state[parameter]
            moments["step"].fill_(step)
            for key in MOMENTS:
                moments[key].copy_(state[key][name])
