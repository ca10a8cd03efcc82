"""Unit scaling and u-muP: constants that keep weights, activations and gradients at RMS 1 when training starts.

`functional` holds the scaled operations, `to_unit` turns a network of the package into its unit-scaled form, `optim`
the learning rates that go with it, `record` measures what came of it.
"""

from snowflake.numerics.unit.network import to_unit
from snowflake.numerics.unit.optim import max_grad_norm, parameter_groups, rate_factors
from snowflake.numerics.unit.record import record, weight_gradients
from snowflake.numerics.unit.scale import loss_factor, scale

__all__ = [
    "loss_factor",
    "max_grad_norm",
    "parameter_groups",
    "rate_factors",
    "record",
    "scale",
    "to_unit",
    "weight_gradients",
]
