"""The swap: replaces linear layers of any module by quantised ones, by qualified name, and says what it did."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from agents.errors import UserError
from snowflake.numerics.backends import backend_names, choose
from snowflake.numerics.config import OPERANDS, GemmConfig, OperandConfig, Recipe, Rule
from snowflake.numerics.gemm import QuantisedGemm
from snowflake.numerics.linear import QuantisedLinear
from snowflake.numerics.recipes import find_recipe
from snowflake.numerics.stats import OperandStatistics, Statistics

_DEFAULT = Rule("*", "bf16", "no rule names it")
_BF16 = OperandConfig(formats=("bf16",))


class Row(NamedTuple):
    """One line of the conversion report: a module with a weight matrix, how it is computed, and why."""

    name: str
    shape: tuple[int, ...]
    precision: str
    reason: str


def table(rows: Sequence[Row], recipe: str) -> str:
    """Return a report's lines as text, and how many weight matrices are computed how."""
    lines = [("layer", "shape", "precision", "why")]
    lines += [(row.name, "x".join(map(str, row.shape)), row.precision, row.reason) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    text = ["  ".join([*(line[i].ljust(widths[i]) for i in range(3)), line[3]]).rstrip() for line in lines]
    count = Counter(row.precision for row in rows)
    total = ", ".join(f"{n} in {precision}" for precision, n in count.items()) or "none"
    return "\n".join([*text, f"precision {recipe}: {len(rows)} weight matrices, {total}"])


class Reading(NamedTuple):
    """What was computed since the last reading.

    Attributes:
        operands: statistics by layer and operand, like `update.joint.gates/x`.
        operand_shares: share of the quantised operands' numbers in e4m3, e5m2, bf16, each operand weighing the same.
        flop_shares: share of all linear layers' operations in e4m3, e5m2, bf16, fp32; a product is in the wider format
            of its two operands.
        changes: operands whose format will be another from now on.
        nonfinite: groups that held infinity or NaN.
    """

    operands: dict[str, OperandStatistics]
    operand_shares: dict[str, float]
    flop_shares: dict[str, float]
    changes: list[str]
    nonfinite: int

    def scalars(self) -> dict[str, float]:
        """Return everything by tag, for TensorBoard: LAYER/x/amax, share/operands/e4m3, share/flops/bf16."""
        tags: dict[str, float] = {}
        for key, seen in self.operands.items():
            values = {**asdict(seen), **{f"share_{name}": share for name, share in seen.formats.items()}}
            tags |= {f"{key}/{name}": float(value) for name, value in values.items() if name != "formats"}
        for operand in OPERANDS:
            scales = [
                seen.log2_scale for key, seen in self.operands.items() if key.endswith(f"/{operand}") and seen.tensors
            ]
            if scales:
                summary = {"min": min(scales), "median": median(scales), "max": max(scales)}
                tags |= {f"log2_scale/{operand}/{name}": value for name, value in summary.items()}
        tags |= {f"share/operands/{name}": share for name, share in self.operand_shares.items()}
        tags |= {f"share/flops/{name}": share for name, share in self.flop_shares.items()}
        return {**tags, "nonfinite": float(self.nonfinite), "format_changes": float(len(self.changes))}


class Conversion:
    """A converted module: its quantised layers, their statistics and state.

    Attributes:
        recipe: what it was converted to.
        layers: quantised products by qualified name.
        rows: the report's lines, converted layers and others.
    """

    def __init__(self, module: nn.Module, recipe: Recipe, rows: list[Row], backend: str, sampling: str) -> None:
        self.recipe = recipe
        self.rows = rows
        self._module = module
        self._backend = backend
        converted = [row.name for row in rows if row.precision != "fp32"]
        self._statistics = Statistics([f"{name}/{operand}" for name in converted for operand in OPERANDS])
        self.layers: dict[str, QuantisedGemm] = {}
        self._plain_flops = [0]
        self._hooks: list[Any] = []
        modules = dict(module.named_modules())
        for row in rows if recipe.converts else ():
            layer = modules.get(row.name)  # None for a parameter
            if row.precision == "fp32":
                if isinstance(layer, nn.Linear):
                    self._hooks.append(layer.register_forward_hook(self._count_plain))
                continue
            layer_recipe = recipe if row.precision == recipe.name else _in_bf16(recipe)
            gemm = QuantisedGemm(row.name, layer_recipe, self._statistics, backend, sampling)
            gemm.owner = self
            self.layers[row.name] = gemm
            _install(module, row.name, cast(nn.Linear, layer), gemm)
        if self.layers:
            self._hooks.append(_forget_after_steps(self))
            weakref.finalize(self, self._hooks[-1].remove)

    def forget_weights_of(self, optimiser: torch.optim.Optimizer) -> None:
        """Quantise anew the weights that an optimiser holds."""
        held = {id(p) for group in optimiser.param_groups for p in group["params"]}
        for name, gemm in self.layers.items():
            if id(self._module.get_submodule(name).weight) in held:
                gemm.forget_weight()

    def _count_plain(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        linear, x = cast(nn.Linear, layer), inputs[0]
        products = 1
        if torch.is_grad_enabled():
            products += int(linear.weight.requires_grad) + int(x.requires_grad)
        self._plain_flops[0] += 2 * x.numel() * linear.out_features * products

    def report(self) -> str:
        """Return what is computed how, and why, as text."""
        device = next((p.device for p in self._module.parameters()), torch.device("cpu"))
        text = [table(self.rows, self.recipe.name)]
        if self.layers:
            backend, reason = choose(self._backend, device)
            text.append(f"backend {backend.name} on {device}: {reason}")
        for what in sorted({f"{g}: {how}" for gemm in self.layers.values() for g, how in gemm.arithmetic.items()}):
            text.append(what)
        return "\n".join(text)

    def forget_weights(self) -> None:
        """Quantise every weight anew: after a change that leaves version counters, for instance through `.data`."""
        for gemm in self.layers.values():
            gemm.forget_weight()

    def forget_flops(self) -> None:
        """Start counting operations anew, for instance after an evaluation, which is no part of training."""
        self._plain_flops[0] = 0
        for gemm in self.layers.values():
            gemm.take_flops()

    def step(self) -> Reading:
        """Read what was computed since the last call, and let formats and delayed scales change.

        To be called between an update and the next rollout, so that what computes log-probabilities stays the same
        within an iteration. Reads the device twice. Every interval quantises, and looks at, the weights anew, as a
        process does that starts from a checkpoint.
        """
        shares = {name: self._shares(gemm) for name, gemm in self.layers.items()}
        operands = self._statistics.read()
        for name in self.layers:
            for operand in OPERANDS:
                seen = operands.get(f"{name}/{operand}")
                if seen is not None and seen.tensors:
                    shares[name][operand] = seen.formats
        flop_shares = self._flop_shares(shares)
        changes = [*self._change_formats(), *self._demote(operands)]
        self.forget_weights()
        used = [share for name in self.layers for o, share in shares[name].items() if self._tensors(name, o)]
        mean = {f: sum(s.get(f, 0.0) for s in used) / max(len(used), 1) for f in ("e4m3", "e5m2", "bf16")}
        return Reading(operands, mean, flop_shares, changes, sum(o.nonfinite for o in operands.values()))

    def _tensors(self, name: str, operand: str) -> int:
        return self.layers[name].quantisers[operand].tensors

    @staticmethod
    def _shares(gemm: QuantisedGemm) -> dict[str, dict[str, float]]:
        """Return the formats of each operand as the host knows them; of a mixture within a tensor, as if all BF16."""
        formats = {name: quantiser.format for name, quantiser in gemm.quantisers.items()}
        return {name: {"bf16" if fmt is None else fmt.name: 1.0} for name, fmt in formats.items()}

    def _flop_shares(self, shares: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
        order: tuple[str, ...] = ("e4m3", "e5m2", "bf16")
        total: dict[str, float] = dict.fromkeys((*order, "fp32"), 0.0)
        total["fp32"], self._plain_flops[0] = float(self._plain_flops[0]), 0
        for name, gemm in self.layers.items():
            pairs = {"output": "xw", "grad_input": "gw", "grad_weight": "gx"}
            for product, flops in gemm.take_flops().items():
                first, second = (shares[name][operand] for operand in pairs[product])
                if not gemm.quantised(product):
                    total["bf16"] += flops
                    continue
                for a, share_a in first.items():
                    for b, share_b in second.items():
                        total[max(a, b, key=order.index)] += flops * share_a * share_b
        if not self.recipe.converts:
            return {**dict.fromkeys(order, 0.0), "fp32": 1.0}
        everything = sum(total.values())
        return {name: flops / everything if everything else 0.0 for name, flops in total.items()}

    def _change_formats(self) -> list[str]:
        names = [(name, operand) for name in self.layers for operand in OPERANDS]
        pending = [self.layers[name].quantisers[operand].pending() for name, operand in names]
        device = next((p.device for p in pending if p.device.type != "cpu"), torch.device("cpu"))
        host = torch.cat([p.to(device) for p in pending]).cpu().split([len(p) for p in pending]) if pending else ()
        changes = []
        for i, (name, gemm) in enumerate(self.layers.items()):
            changed = gemm.step(list(host[i * len(OPERANDS) : (i + 1) * len(OPERANDS)]))
            changes += [f"{name}/{operand}" for operand in changed]
        return changes

    def _demote(self, operands: dict[str, OperandStatistics]) -> list[str]:
        """Put layers into BF16 whose operands have outgrown their formats, and return their operands."""
        changes = []
        for name, gemm in self.layers.items():
            limits = gemm.recipe.demotion
            seen = [operands[key] for key in (f"{name}/{o}" for o in OPERANDS) if key in operands]
            if limits is None or gemm.demoted:
                continue
            if any(s.sat_frac > limits.saturation or s.rms > limits.rms for s in seen):
                gemm.demote()
                changes += [f"{name}/{operand}" for operand in OPERANDS]
        return changes

    def state_dict(self) -> dict[str, Tensor]:
        """Return the recipe's state, CPU tensors by layer, operand and what: amax histories, constants, choices."""
        state = {
            f"{quantiser.key}/{what}": value
            for gemm in self.layers.values()
            for quantiser in gemm.quantisers.values()
            for what, value in quantiser.state().items()
        }
        demotable = {name: gemm for name, gemm in self.layers.items() if gemm.recipe.demotion is not None}
        return state | {f"{name}/demoted": torch.tensor(int(gemm.demoted)) for name, gemm in demotable.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a state of the same recipe; layers that it does not name start anew.

        Raises:
            UserError: it names layers or values that there are none of.
        """
        known = self.state_dict()
        extra = sorted(set(state) - set(known))
        wrong = sorted(key for key in set(state) & set(known) if state[key].shape != known[key].shape)
        if extra or wrong:
            raise UserError(
                f"the state of recipe {self.recipe.name!r} does not fit, it differs in {', '.join(extra + wrong)}: "
                "leave it out"
            )
        for name, gemm in self.layers.items():
            gemm.demote(bool(state.get(f"{name}/demoted", 0)))
            for quantiser in gemm.quantisers.values():
                prefix = f"{quantiser.key}/"
                quantiser.load({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
            gemm.forget_weight()

    def revert(self) -> None:
        """Put ordinary layers back, with the same parameters."""
        for name in self.layers:
            layer = self._module.get_submodule(name) if name else self._module
            if isinstance(layer, QuantisedLinear):
                _replace(self._module, name, layer.plain())
            else:
                layer.gemm = None  # type: ignore[assignment]
        for hook in self._hooks:
            hook.remove()
        self.layers, self._hooks = {}, []


def convert(
    module: nn.Module,
    recipe: str | Recipe,
    *,
    backend: str = "auto",
    parametrization: str = "standard",
    sampling: str = "training",
) -> Conversion:
    """Compute a module's linear layers by a recipe, in place.

    Parameters stay the same objects, so optimisers and state dicts do not notice. A layer of the exact type `nn.Linear`
    is replaced; one with an attribute `gemm` (unit-scaled layers) gets the product put there. Others are left, and
    named in the report.

    Args:
        module: any module, on its device.
        recipe: a name or a recipe.
        backend: auto, emulate, scaled_mm or triton.
        parametrization: of the module, standard or unit.
        sampling: which tensors statistics see: training, always, or off.

    Raises:
        UserError: no such recipe or backend; a recipe for unit-scaled networks on another; a backend that does not work
            on the module's device or cannot compute the recipe; a module that is converted already.
    """
    recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
    if recipe.parametrization != "any" and recipe.parametrization != parametrization:
        raise UserError(
            f"precision {recipe.name!r} is for networks with parametrization: {recipe.parametrization}, this one's is "
            f"{parametrization}: choose another precision, or train with policy.parametrization = 'unit'"
        )
    if sampling not in ("training", "always", "off"):
        raise UserError(f"sampling = {sampling!r} is unknown: choose from training, always, off")
    if backend not in backend_names():
        raise UserError(f"backend = {backend!r} is unknown: choose from {', '.join(backend_names())}")
    if is_converted(module):
        raise UserError(f"the module is converted already: revert that before converting it to {recipe.name!r}")
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    if recipe.converts:
        _check_backend(recipe, choose(backend, device)[0].codes, backend)
    rows = list(_rows(module, recipe))
    return Conversion(module, recipe, rows, backend, sampling)


def is_converted(module: nn.Module) -> bool:
    """Return whether any of a module's layers is quantised, so that code must call layers and not read weights."""
    return any(isinstance(getattr(layer, "gemm", None), QuantisedGemm) for layer in module.modules())


def _rows(module: nn.Module, recipe: Recipe) -> Iterator[Row]:
    """Yield a line for every module that has a weight matrix of its own."""
    for name, layer in module.named_modules():
        if not isinstance(layer, nn.Linear) and not hasattr(layer, "gemm"):
            for key, parameter in layer.named_parameters(recurse=False):
                if parameter.dim() >= 2:
                    full = f"{name}.{key}" if name else key
                    reason = f"{type(layer).__name__} is no linear layer"
                    yield Row(full, tuple(parameter.shape), "fp32", reason)
            continue
        weight = cast(Tensor, layer.weight)
        shape = (weight.shape[0], weight.shape[1])
        if not recipe.converts:
            yield Row(name, shape, "fp32", "as it is")
        elif type(layer) is not nn.Linear and not hasattr(layer, "gemm"):
            yield Row(name, shape, "fp32", f"{type(layer).__name__} is a linear layer of another kind")
        elif 0 in shape:
            yield Row(name, shape, "fp32", "empty")
        else:
            rule = next((rule for rule in recipe.rules if rule.matches(name, shape[0])), _DEFAULT)
            precision = recipe.name if rule.precision == "recipe" else rule.precision
            yield Row(name, shape, precision, rule.reason or f"named by {rule.pattern}")


def _check_backend(recipe: Recipe, codes: bool, backend: str) -> None:
    """Refuse a backend that would compute no product of a recipe itself."""
    if not codes or backend == "auto":
        return
    for operand in (recipe.x, recipe.w):
        if operand.formats == ("bf16",):
            raise UserError(
                f"backend {backend!r} computes in 8 bits, precision {recipe.name!r} does not: choose emulate"
            )
        if operand.granularity == "block" or (operand.mixture and recipe.mixture.choice == "immediate"):
            raise UserError(
                f"backend {backend!r} cannot compute precision {recipe.name!r}, whose blocks have scales or formats of "
                "their own: choose emulate"
            )


def _forget_after_steps(conversion: Conversion) -> Any:
    """Have weights quantised anew after every optimiser's step: fused optimisers leave version counters as they are."""
    reference = weakref.ref(conversion)

    def after_step(optimiser: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        alive = reference()
        if alive is not None:
            alive.forget_weights_of(optimiser)

    return register_optimizer_step_post_hook(after_step)


def _in_bf16(recipe: Recipe) -> Recipe:
    """Return the recipe for layers that a rule, or none, puts into BF16."""
    gemm = GemmConfig(operands="quantised")
    return Recipe("bf16", _BF16, _BF16, _BF16, gemm, gemm, gemm, recipe.mixture, recipe.rules)


def _install(module: nn.Module, name: str, layer: nn.Linear, gemm: QuantisedGemm) -> None:
    if hasattr(layer, "gemm"):
        layer.gemm = gemm  # type: ignore[assignment]
    elif not name:
        raise UserError("a linear layer by itself has no place to put another: wrap it in a module")
    else:
        _replace(module, name, QuantisedLinear(layer, gemm))


def _replace(module: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, layer)
