"""Learning rates of unit-scaled parameters under Adam, after u-muP (Blake et al. 2024, arXiv 2407.17465).

| parameter | factor on the learning rate |
|---|---|
| hidden weight | fan-in^-1/2 |
| read-out weight, input weight, node-class table, bias, log-std | 1 |

A step of Adam moves a weight by the learning rate; what the network sees is that times alpha, fan-in^-1/2. So the
best rate does not depend on width, and is about fan-in times the one of the standard parametrisation: 0.02 for 3e-4
at width 64.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from snowflake.numerics.unit.modules import UnitLinear


def rate_factors(network: nn.Module, *, input_width_power: float = 0.0) -> dict[str, float]:
    """Return the factor on the learning rate of every parameter, by qualified name.

    Args:
        network: after `to_unit`.
        input_width_power: input weights and the table get hidden width^-power: 0 as in muP, 1/2 as in the u-muP code.
    """
    factors = {name: 1.0 for name, _ in network.named_parameters()}
    for prefix, module in network.named_modules():
        name = f"{prefix}.weight" if prefix else "weight"
        if isinstance(module, UnitLinear) and module.kind == "hidden":
            factors[name] = module.in_features**-0.5
        elif isinstance(module, UnitLinear) and module.kind == "input":
            factors[name] = (2.0 * module.out_features) ** -input_width_power
        elif name.replace("weight", "table") in factors:
            table = dict(network.named_parameters())[name.replace("weight", "table")]
            factors[name.replace("weight", "table")] = (2.0 * table.shape[1]) ** -input_width_power
    return factors


def parameter_groups(
    network: nn.Module, learning_rate: float, *, weight_decay: float = 0.0, input_width_power: float = 0.0
) -> list[dict[str, Any]]:
    """Return groups of trainable parameters for Adam or AdamW.

    Weight decay is independent of the learning rate: a group's is `weight_decay` / its rate, since AdamW multiplies
    the two. A schedule must scale all groups alike: `lr_factor` is in every group, its `lr` is `learning_rate *
    lr_factor`.

    Args:
        network: after `to_unit`, frozen as wanted.
        learning_rate: of a parameter with factor 1.
        weight_decay: share of a weight that one step takes away.
        input_width_power: see `rate_factors`.
    """
    factors = rate_factors(network, input_width_power=input_width_power)
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(factors[name], []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": learning_rate * factor,
            "lr_factor": factor,
            "weight_decay": weight_decay / (learning_rate * factor) if weight_decay else 0.0,
        }
        for factor, parameters in sorted(groups.items(), reverse=True)
    ]


def max_grad_norm(parameters: Iterable[torch.Tensor], rms: float = 1.0) -> float:
    """Return where to clip the global norm of unit-scaled gradients: `rms` * sqrt(number of trainable parameters)."""
    return rms * sum(p.numel() for p in parameters if p.requires_grad) ** 0.5
