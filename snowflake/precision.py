"""The networks of a policy computed by a recipe of `snowflake.numerics`, and what is kept and logged of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from agents.errors import UserError
from snowflake.networks import Network
from snowflake.networks.operands import refusal, round_operands
from snowflake.numerics import Recipe, convert, find_recipe
from snowflake.numerics.backends import choose
from snowflake.numerics.convert import Row, table

if TYPE_CHECKING:
    from snowflake.numerics import Conversion, Reading


def numerics_of(
    networks: Mapping[str, Network], recipe: str, *, backend: str, parametrization: str, sampling: str
) -> PolicyNumerics:
    """Compute networks by a recipe from now on: see `PolicyNumerics`.

    By `native`, if it is asked for, or if backend is auto, recipe `bf16`, and the compiled library can compute the
    actor so.

    Raises:
        UserError: `native` is asked for where it cannot be; what `snowflake.numerics.convert` refuses.
    """
    lacks = refusal(networks["actor"]) if recipe == "bf16" else "it is for precision bf16"
    if backend == "native" and lacks:
        raise UserError(f"backend 'native' cannot compute precision {recipe} here: {lacks}; choose auto or emulate")
    if backend in ("auto", "native") and not lacks:
        return NativeNumerics(networks, backend)
    numerics = PolicyNumerics(networks, recipe, backend=backend, parametrization=parametrization, sampling=sampling)
    if backend == "auto" and recipe == "bf16":
        numerics.not_native = lacks
    return numerics


class PolicyNumerics:
    """Actor and critic, converted in place; each has statistics and formats of its own.

    Args:
        networks: by name, on their device, frozen as wanted.
        recipe: its name; one that converts.
        backend: auto, emulate, scaled_mm or triton.
        parametrization: of the networks, standard or unit.
        sampling: which tensors statistics see: training, always, or off.

    Attributes:
        conversions: by the networks' names.
        whole_batches: whether layers must see whole minibatches, one after the other: a gradient's scale is the whole
            tensor's, and statistics would depend on which thread comes first.

    Raises:
        UserError: what `snowflake.numerics.convert` refuses.
    """

    whole_batches = True

    def __init__(
        self,
        networks: Mapping[str, Network],
        recipe: str,
        *,
        backend: str = "auto",
        parametrization: str = "standard",
        sampling: str = "training",
    ) -> None:
        self.recipe: Recipe = find_recipe(recipe)
        self.backend, self.parametrization = backend, parametrization
        self.not_native = ""
        """Why backend auto is not native, where recipe and device would let one expect it."""
        self.skipped_steps = 0
        """Minibatches of which nothing was applied, since a loss or a gradient was not finite."""
        self.device = next(iter(networks["actor"].parameters())).device
        self.conversions: dict[str, Conversion] = {
            name: convert(network, recipe, backend=backend, parametrization=parametrization, sampling=sampling)
            for name, network in networks.items()
        }

    def again(self, networks: Mapping[str, Network]) -> PolicyNumerics:
        """Convert other networks by the same recipe, for evaluation; the actor takes over the formats chosen."""
        recipe = self.recipe.name
        other = numerics_of(
            networks, recipe, backend=self.backend, parametrization=self.parametrization, sampling="off"
        )
        other.load({key: value for key, value in self.state().items() if key.startswith(f"{recipe}/actor/")})
        return other

    def arithmetic(self) -> str:
        """Return in a line what computes the products, and why."""
        backend, reason = choose(self.backend, self.device)
        if self.not_native:
            reason = f"not native, since {self.not_native}"
        how = "products are emulated" if backend.name == "emulate" else f"products by {backend.name}"
        return f"precision {self.recipe.name}: {how} on {self.device} ({reason})"

    def describe(self) -> str:
        """Return in a few lines what is computed how, and why not all of it by the recipe."""
        lines = [self.arithmetic()]
        lines += [_summary(name, conversion.rows) for name, conversion in self.conversions.items()]
        return "\n".join(lines)

    def report(self) -> str:
        """Return the whole report: every weight matrix of both networks, and the arithmetic of each product."""
        return "\n\n".join(f"{name}\n{conversion.report()}" for name, conversion in self.conversions.items()) + "\n"

    def step(self) -> dict[str, Reading]:
        """Read the statistics, and let formats change: between an update and the next rollout."""
        return {name: conversion.step() for name, conversion in self.conversions.items()}

    def forget_flops(self) -> None:
        """Start counting operations anew: after an evaluation."""
        for conversion in self.conversions.values():
            conversion.forget_flops()

    def forget_weights(self) -> None:
        """Quantise every weight anew: after a change of parameters that optimisers did not make."""
        for conversion in self.conversions.values():
            conversion.forget_weights()

    def state(self) -> dict[str, Tensor]:
        """Return what the recipe has learned: by recipe, network, layer, operand and what; empty for most recipes."""
        return {
            f"{self.recipe.name}/{network}/{key}": value
            for network, conversion in self.conversions.items()
            for key, value in conversion.state_dict().items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned, of the networks that it names.

        Raises:
            UserError: it does not fit.
        """
        for network, conversion in self.conversions.items():
            prefix = f"{self.recipe.name}/{network}/"
            own = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            if own:
                conversion.load_state_dict(own)


class NativeNumerics(PolicyNumerics):
    """Recipe `bf16` by the compiled library, which rounds operands as it reads them: layers stay as they are.

    Sums are in float32, an output depends on its own row only, and nothing is counted.

    Args:
        networks: by name, on the CPU; `refusal` has nothing against the actor.
        backend: native or auto, as asked for.
    """

    whole_batches = False

    def __init__(self, networks: Mapping[str, Network], backend: str) -> None:
        self.recipe = find_recipe("bf16")
        self.backend, self.parametrization = backend, "standard"
        self.not_native, self.skipped_steps = "", 0
        self.device = torch.device("cpu")
        self.conversions = {}
        self.rows = {name: round_operands(network) for name, network in networks.items()}

    def arithmetic(self) -> str:
        """See `PolicyNumerics`."""
        reason = "as asked for" if self.backend == "native" else "this CPU multiplies bfloat16 numbers"
        return f"precision bf16: products by native, the compiled library, on cpu ({reason})"

    def describe(self) -> str:
        """See `PolicyNumerics`."""
        return "\n".join([self.arithmetic(), *(_summary(name, rows) for name, rows in self.rows.items())])

    def report(self) -> str:
        """See `PolicyNumerics`."""
        tables = [f"{name}\n{table(rows, 'bf16')}" for name, rows in self.rows.items()]
        return "\n\n".join([*tables, self.arithmetic()]) + "\n"


def _summary(network: str, rows: Sequence[Row]) -> str:
    """Return in a line which layers of a network are computed how, and why."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        kinds.setdefault((row.precision, row.reason), []).append(row.name)
    parts = [f"{key[0]} {', '.join(names)} ({key[1]})" for key, names in kinds.items()]
    return f"  {network}: {'; '.join(parts)}"


def load_state(numerics: PolicyNumerics | None, state: Mapping[str, Tensor]) -> str | None:
    """Take over a checkpoint's recipe state, and say what is left out of it, or missing; None if all is well.

    Args:
        numerics: of the policy; None in 32 bits.
        state: the checkpoint's; empty if it has none.

    Raises:
        UserError: it is of the same recipe and does not fit.
    """
    if numerics is not None:
        numerics.load(state)
        numerics.forget_weights()
    recipe = "fp32" if numerics is None else numerics.recipe.name
    stored = sorted({key.partition("/")[0] for key in state})
    if stored and recipe not in stored:
        return f"precision {recipe}: the checkpoint's state of recipe {', '.join(stored)} is left out"
    if numerics is not None and not stored and any("/choice" in key for key in numerics.state()):
        return f"precision {recipe}: the checkpoint has no choices of formats, every operand starts with its first"
    return None


def scalars(readings: Mapping[str, Reading], skipped_steps: int, *, layers: bool) -> dict[str, float]:
    """Return readings by TensorBoard tag, `numerics/NETWORK/...`.

    Args:
        readings: by network.
        skipped_steps: of `PolicyNumerics`.
        layers: also the statistics of every layer's operands.
    """
    found = {"numerics/skipped_steps": float(skipped_steps)}
    summary = ("share/", "nonfinite", "format_changes")
    for network, reading in readings.items():
        values = {
            f"numerics/{network}/{tag}": value
            for tag, value in reading.scalars().items()
            if layers or tag.startswith(summary)
        }
        found |= values
    return found


def mean_std(log_std: Tensor) -> float:
    """Return the mean standard deviation of the actions, from its logarithm."""
    return float(torch.exp(log_std.detach()).mean())
