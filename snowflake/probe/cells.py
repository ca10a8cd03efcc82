"""One run of the probe: a variant at a learning rate with a seed, and all that it needs to be run anywhere."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

import agents
from agents.errors import UserError
from snowflake.config import TrainConfig, loader
from snowflake.config.networks import check_networks
from snowflake.config.probe import ProbeConfig
from snowflake.config.probe_variants import settings

METHOD = "transformer"
"""The method whose attention is probed."""


MEASUREMENTS = 10
"""How often in a run activations are measured."""

NO_BODY = {"bias": "none", "mask": "none", "qk_source": "state", "position": "none"}
"""Settings of `policy.attention` under which it asks nothing of a body (``bc``)."""


@dataclass(frozen=True)
class ProbeCell:
    """One run.

    Attributes:
        name: ``VARIANT__lrRATE__seedN``, unique in a folder.
        objective: ``bc`` or ``ppo``.
        variant: Name of the variant.
        rate: Learning rate after the warm-up.
        seed: Seed of every draw.
        updates: Updates of the run.
        samples: Samples of each update (``bc``).
        models: Hash of the compiled model of every body, by name (``ppo``).
        config: The resolved training config.
    """

    name: str
    objective: str
    variant: str
    rate: float
    seed: int
    updates: int
    samples: int
    models: dict[str, str]
    config: TrainConfig

    def to_yaml(self) -> str:
        """Return the cell as YAML text, for `read`."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["config"] = yaml.safe_load(loader.to_yaml(self.config))
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)

    @classmethod
    def read(cls, path: Path) -> ProbeCell:
        """Read what `to_yaml` wrote."""
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        config = loader.build([loader.check_layer(values.pop("config"))])
        return cls(config=config, **values)


class CellMaker:
    """Makes the cells of a probe; bodies and settings are checked once, before anything runs.

    Args:
        probe: The settings.

    Raises:
        UserError: A variant, body or setting is wrong.
    """

    def __init__(self, probe: ProbeConfig) -> None:
        self.probe = probe
        self.configs = {variant: _config(probe, variant) for variant in probe.variants}
        self.models = {}
        if probe.objective == "ppo":
            self.models = {name: agents.model_hash(agents.load(name).compile()) for name in probe.agents}

    def cells(self, variants: Iterable[str], rates: Iterable[float]) -> list[ProbeCell]:
        """Every one of the variants at every one of the rates, the seeds outermost, so that partial results compare."""
        seeds = range(self.probe.seeds)
        return [self._cell(v, rate, seed) for seed, rate, v in itertools.product(seeds, list(rates), list(variants))]

    def _cell(self, variant: str, rate: float, seed: int) -> ProbeCell:
        base = self.configs[variant]
        ppo = dataclasses.replace(base.ppo, learning_rate=rate)
        return ProbeCell(
            name=f"{variant.replace(':', '-')}__lr{rate:g}__seed{seed}",
            objective=self.probe.objective,
            variant=variant,
            rate=rate,
            seed=seed,
            updates=self.probe.updates,
            samples=self.probe.samples,
            models=self.models,
            config=dataclasses.replace(base, seed=seed, ppo=ppo),
        )


def _config(probe: ProbeConfig, variant: str) -> TrainConfig:
    """Resolve the training config of a variant, with all off that would hide divergence."""
    attention = {**settings(variant), "layers": probe.layers, "heads": probe.heads}
    overrides = {
        "method": METHOD,
        "torch_threads": 1,
        "policy": {"hidden_size": probe.hidden_size, "attention": attention},
        "ppo": {
            "learning_rate_schedule": "constant",
            "target_kl": None,
            "activations_every": max(1, probe.updates // MEASUREMENTS),
        },
        "env": {"num_threads": 1},
        "evaluation": {"eval_freq": 0},
    }
    if probe.objective == "ppo":
        overrides["agents"] = list(probe.agents)
    else:
        attention.update(NO_BODY)
    config = loader.resolve(None, probe.config, overrides)
    check_networks(config.policy, config.ppo)
    config.policy.check_bodies(config.agents)
    steps = probe.updates * config.ppo.n_steps * config.env.n_envs
    config = dataclasses.replace(config, total_timesteps=steps)
    check_guards(config)
    return config


def check_guards(config: TrainConfig) -> None:
    """Require that nothing is on that would hide divergence: KL stop, decaying rate, choice of the best checkpoint.

    Raises:
        UserError: Something is.
    """
    ppo = config.ppo
    for hides, key, instead in (
        (ppo.target_kl is not None, "ppo.target_kl", "null"),
        (ppo.learning_rate_schedule != "constant", "ppo.learning_rate_schedule", "constant"),
        (bool(ppo.component_learning_rates), "ppo.component_learning_rates", "{}"),
        (config.evaluation.eval_freq != 0, "evaluation.eval_freq", "0"),
        (bool(config.policy.freeze), "policy.freeze", "[]"),
    ):
        if hides:
            raise UserError(f"{key} hides divergence, and a probe would measure it instead: set it to {instead}")
