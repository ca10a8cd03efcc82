"""The whole training config: one frozen dataclass of sections."""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.errors import UserError
from snowflake.config.checks import check_choice, check_device, check_range
from snowflake.config.env import EnvConfig
from snowflake.config.evaluation import EvaluationConfig
from snowflake.config.numerics import NumericsConfig, check_precision
from snowflake.config.policy import PolicyConfig
from snowflake.config.ppo import PPOConfig
from snowflake.config.task import TaskOptions


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run."""

    agents: tuple[str, ...] = ("centipede-6",)
    """Bodies to train on (snowflake agents lists them)."""
    method: str = "snowflake"
    """Method preset, a YAML in configs/methods: snowflake, nervenet, mlp, ..."""
    seed: int = 0
    """Seed of every random draw."""
    total_timesteps: int = 1_000_000
    """Environment steps to train for, over all environments and bodies."""
    device: str = "auto"
    """cpu, cuda, cuda:N; auto takes the CPU."""
    torch_threads: int = 0
    """Threads that compute an update; 0 takes every core of the process. No result on the CPU depends on it."""
    precision: str = "fp32"
    """Recipe of the linear layers: fp32, bf16, fp8-amax, fp8-cscale, fp8-unit, fp8-mor or fp8-mor-blocks."""
    compile: str = "auto"
    """Networks compiled by torch.compile for training: on, off, or auto: on with CUDA, off on the CPU."""
    env: EnvConfig = field(default_factory=EnvConfig)
    task: TaskOptions = field(default_factory=TaskOptions)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    numerics: NumericsConfig = field(default_factory=NumericsConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        if not self.agents:
            raise UserError("agents is empty: name at least one body, for example centipede-6")
        twice = sorted({name for name in self.agents if self.agents.count(name) > 1})
        if twice:
            raise UserError(f"agents names {twice[0]!r} twice: name each body once")
        check_range("", "seed", self.seed, 0, 2**31 - 1)
        check_range("", "total_timesteps", self.total_timesteps, 1, 10**12)
        check_device(self.device)
        check_range("", "torch_threads", self.torch_threads, 0, 1024)
        check_precision(self.precision, self.policy.parametrization)
        check_choice("", "compile", self.compile, ("auto", "on", "off"))
        object.__setattr__(self, "env", self.env.for_bodies(len(self.agents)))
        self.ppo.check_rollout(self.env.n_envs)
        if self.policy.parametrization == "unit":
            self.ppo.check_unit(self.policy.network)
        self._check_memory()

    def _check_memory(self) -> None:
        """Refuse what has no form for policies with memory."""
        memory = self.policy.memory
        if memory != "none" and (self.precision != "fp32" or self.policy.parametrization != "standard"):
            raise UserError(
                f"policy.memory = {memory!r} is computed in fp32 and the standard parametrization so far: leave out "
                "precision and policy.parametrization"
            )
        if memory != "none" and self.ppo.collection != "fixed":
            raise UserError(f"policy.memory = {memory!r} needs rollouts of one length: set ppo.collection to fixed")
        if memory != "none" and self.ppo.diagnostics_every:
            raise UserError(
                f"ppo.diagnostics_every measures policies without memory: set it to 0 with policy.memory {memory!r}"
            )
