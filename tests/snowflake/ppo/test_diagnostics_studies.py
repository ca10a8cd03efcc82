"""The shipped studies of the paper's diagnostics: they resolve, and ask what their comments say."""

from __future__ import annotations

from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest
import torch

import agents
import envs
from snowflake.config import PPOConfig, TrainConfig
from snowflake.config.study import find_study, read_study
from snowflake.freezing import rows
from snowflake.policy import GraphActorCriticPolicy
from snowflake.run import graph_of
from snowflake.sweep.cells import cells_of

STUDIES = ("l2", "learning-rate", "clip", "batch-size", "freezing-ablation", "official", "message-layers")


def configs(name: str) -> dict[str, TrainConfig]:
    """The config of every variant of a study, with the first seed."""
    study = read_study(find_study(name))
    return {cell.variant: cell.config for cell in cells_of(study, name) if cell.config.seed == study.seeds[0]}


@pytest.mark.parametrize("name", STUDIES)
def test_every_variant_differs_and_its_policy_can_be_built(name: str) -> None:
    variants = configs(name)
    assert len({str((c.policy, c.ppo)) for c in variants.values()}) == len(variants)
    with closing(envs.make_vector_env(["centipede-6"], 1)) as env:
        graph = graph_of(env)
    for policy in {str(c.policy): c.policy for c in variants.values()}.values():
        built = GraphActorCriticPolicy.for_graphs([graph], policy)
        assert torch.isfinite(built.act(torch.zeros(1, graph.obs_dim), deterministic=True)[0]).all()
    for morphology in (*read_study(find_study(name)).transfer, "centipede-6"):
        agents.load(morphology)


@pytest.mark.parametrize("name", STUDIES)
def test_the_comment_says_how_to_run_it_and_how_many_cells_there_are(name: str) -> None:
    path = find_study(name)
    study = read_study(path)
    comment = "".join(line[1:] for line in Path(path).read_text().splitlines() if line.startswith("#"))
    assert study.name == name
    assert f"snowflake sweep {name}" in comment
    assert f" {len(cells_of(study, name))} cells of " in comment


def test_the_ablation_freezes_every_subset() -> None:
    parts = ("encoder", "message", "update", "decoder")
    wanted = {frozenset(subset) for count in range(5) for subset in combinations(parts, count)}
    variants = configs("freezing-ablation")
    assert {frozenset(config.policy.freeze) for config in variants.values()} == wanted
    assert len(variants) == 16
    for name, config in variants.items():
        assert name == ("+".join(config.policy.freeze) or "nothing")
    with closing(envs.make_vector_env(["centipede-6"], 1)) as env:
        policy = GraphActorCriticPolicy.for_graphs([graph_of(env)], variants["encoder+message+update+decoder"].policy)
    assert [row.component for row in rows(policy.actor) if row.trainable] == ["log_std"]


def test_the_official_study_turns_on_one_switch_at_a_time_and_then_all() -> None:
    variants = configs("official")
    for method in ("snowflake", "nervenet"):
        base, everything = variants[method], variants[f"{method}-all"]
        on = {
            name.removeprefix(f"{method}-"): changed(base, config)
            for name, config in variants.items()
            if name.startswith(f"{method}-")
        }
        union = set().union(*(keys for name, keys in on.items() if name != "all"))
        assert on["all"] == union | {"mlp_update"}
        assert all(len(keys) == 1 for name, keys in on.items() if name not in ("all", "nominal"))
        assert on["nominal"] == {"collection", "step_accounting"}
        assert everything.policy.freeze == base.policy.freeze
    assert changed(variants["mlp"], variants["mlp-descends"]) == {"mlp_update"}
    assert variants["mlp-descends"].ppo.mlp_update != PPOConfig().mlp_update


def changed(a: TrainConfig, b: TrainConfig) -> set[str]:
    """The keys of the policy and PPO sections in which two configs differ."""
    sections = ((a.policy, b.policy), (a.ppo, b.ppo))
    return {key for x, y in sections for key in vars(x) if getattr(x, key) != getattr(y, key)}
