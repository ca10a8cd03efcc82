"""Compiled forms of the networks' forward passes (`torch.compile`), for training."""

from __future__ import annotations

import os
import shutil
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from agents.errors import UserError

if TYPE_CHECKING:
    from snowflake.networks import Actor, Critic
    from snowflake.networks.base import Prepared

MIN_ROWS = 2
"""Fewer rows are computed uncompiled: the compiler would treat the sizes 0 and 1 as constants of their own."""


def missing_compiler(device: str) -> str | None:
    """Say what `torch.compile` lacks to compile for a device; None if nothing is known to be missing."""
    if device.startswith("cuda"):
        from torch.utils._triton import has_triton

        return None if has_triton() else "Triton is not installed"
    command = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    return None if shutil.which(command) else f"there is no C++ compiler ({command})"


def resolve(mode: str, device: str, precision: str = "fp32") -> str:
    """Decide ``auto``: ``on`` with CUDA and Triton, where launching single operations takes longest.

    On the CPU it is ``off``: the hand-written operations are as fast, and need no compiler.

    Args:
        mode: ``on``, ``off`` or ``auto``.
        device: device of the policy; ``auto`` is the CPU.
        precision: recipe; quantised layers choose and count between products, which the compiler does not follow.

    Raises:
        UserError: ``on`` without a compiler, or in less than 32 bits.
    """
    if precision != "fp32":
        if mode == "on":
            raise UserError(f"compile = 'on' is for precision fp32, not {precision}: use --compile off")
        return "off"
    if mode == "off" or (mode == "auto" and not device.startswith("cuda")):
        return "off"
    missing = missing_compiler(device)
    if missing is None:
        return "on"
    if mode == "on":
        raise UserError(f"compile = 'on': {missing}; install it, or use --compile off")
    print(f"compile: off, since {missing} (it would make training faster)", file=sys.stderr)
    return "off"


class NetworkCalls:
    """How a policy calls its networks: as they are, or compiled, body by body.

    Compiled or not, the result is the same up to rounding; the parameters are the networks' own.

    Args:
        actor: the actor.
        critic: the critic.
    """

    def __init__(self, actor: Actor, critic: Critic) -> None:
        self.actor, self.critic = actor, critic
        self._distribution: Sequence[Callable[..., Any]] = ()
        self._value: Sequence[Callable[..., Any]] = ()
        self._spent_before = 0.0

    @property
    def compiled(self) -> bool:
        """Whether they are compiled."""
        return bool(self._distribution)

    def compile(self) -> None:
        """Compile from now on, at the first call of each kind: per body, with and without gradients, and batch size.

        With several bodies the rows of a body vary from minibatch to minibatch, so the code fits any number of them.
        """
        count = len(self.actor.graphs)
        self._spent_before = _compile_seconds()
        self._distribution = [_compiled(self.actor.distribution_of, k, f"actor_{k}", count > 1) for k in range(count)]
        self._value = [_compiled(self.critic.value_of, k, f"critic_{k}", count > 1) for k in range(count)]

    def compile_seconds(self) -> float:
        """Return how long compilation took since `compile`, forward and backward, up to now."""
        return _compile_seconds() - self._spent_before if self.compiled else 0.0

    def distribution(self, prepared: Prepared, k: int) -> tuple[Tensor, Tensor]:
        """See `Actor.distribution_of`."""
        if self._distribution and prepared[0].shape[-2] >= MIN_ROWS:
            return self._distribution[k](*prepared)  # type: ignore[no-any-return]
        return self.actor.distribution_of(prepared, k)

    def value(self, prepared: Prepared, k: int) -> Tensor:
        """See `Critic.value_of`."""
        if self._value and prepared[0].shape[-2] >= MIN_ROWS:
            return self._value[k](*prepared)  # type: ignore[no-any-return]
        return self.critic.value_of(prepared, k)

    def distributions(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """See `Actor.distributions_of`."""
        if not self._distribution:
            return self.actor.distributions_of(prepared, bodies)
        return [self.distribution(part, k) for part, k in zip(prepared, bodies, strict=True)]

    def values(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[Tensor]:
        """See `Critic.values_of`."""
        if not self._value:
            return self.critic.values_of(prepared, bodies)
        return [self.value(part, k) for part, k in zip(prepared, bodies, strict=True)]


def _compile_seconds() -> float:
    from torch._dynamo.utils import calculate_time_spent

    return float(calculate_time_spent()["total_wall_time"])


def _compiled(method: Callable[..., Any], k: int, name: str, any_rows: bool) -> Callable[..., Any]:
    """Return ``method(prepared, k)`` as a compiled function of the prepared tensors."""

    def call(*prepared: Tensor) -> Any:
        return method(prepared, k)

    # Compiled code is kept per code object, a limited number each: every body gets one of its own.
    own = types.FunctionType(call.__code__.replace(co_name=name), call.__globals__, name, None, call.__closure__)
    compiled = torch.compile(own, fullgraph=True, dynamic=any_rows)

    def guarded(*prepared: Tensor) -> Any:
        if any_rows:
            for tensor in prepared:
                torch._dynamo.mark_dynamic(tensor, tensor.dim() - 2)
        # Without this, beyond the limit of kept versions the uncompiled code would be used silently.
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            return compiled(*prepared)

    return guarded
