"""Tokens: their order, padding, masks, context and positions; one node; several bodies at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.errors import UserError
from snowflake.config.attention import AttentionConfig
from snowflake.config.attention_presets import PRESETS, VARIANTS
from snowflake.config.policy import PolicyConfig
from snowflake.networks import TransformerActor, TransformerCritic
from snowflake.networks.transformer.network import MAX_PADDED_ROWS
from snowflake.policy import GraphActorCriticPolicy
from tests.snowflake.networks.transformer.helpers import (
    actor_of,
    chain,
    draw,
    graph_of,
    normal,
    renumbered,
    structure_of,
)

BODIES = ["centipede-6", "ant", "humanoid"]


def shake(actor: TransformerActor) -> TransformerActor:
    """Draw the parameters that start at a constant, so that they matter."""
    generator = torch.Generator().manual_seed(9)
    for parameter in actor.parameters():
        if parameter.dim() == 1 or parameter.shape[0] == actor.config.attention.heads:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    actor.decoder.readout.layers[-1].weight.data *= 100.0  # which starts near 0
    return actor


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("settings", [{}, {"mask": "mix"}, {"qk_source": "context"}, VARIANTS["qk_fc"]])
def test_the_order_of_nodes_does_not_matter(body: str, settings: dict) -> None:
    graph = graph_of(body)
    order = np.concatenate([[0], 1 + np.random.default_rng(0).permutation(graph.num_nodes - 1)])
    actor = shake(actor_of(graph, **settings)).double()
    other = actor_of(renumbered(graph, order), **settings).double()
    actor.update_normalizer(2 + draw(graph, 50, seed=3), 0)
    other.load_state_dict(actor.state_dict(), strict=True)
    obs = draw(graph, 4).double()
    torch.testing.assert_close(other.distribution(obs), actor.distribution(obs), atol=1e-10, rtol=0)


def test_with_positions_the_order_does_matter() -> None:
    graph = graph_of("centipede-4")
    order = np.arange(graph.num_nodes)
    order[1:3] = order[2:0:-1]
    actor, other = (shake(actor_of(g, position="index")) for g in (graph, renumbered(graph, order)))
    obs = draw(graph, 4)
    assert not torch.allclose(actor.distribution(obs)[0], other.distribution(obs)[0], atol=1e-3)


@pytest.mark.parametrize("settings", [{}, {"mask": "hard"}, VARIANTS["qkv"]])
def test_a_mirrored_state_of_a_symmetric_body_has_the_mirrored_action(settings: dict) -> None:
    """The root in the middle of two equal arms of two joints each."""
    graph = chain(5)
    arms = np.array([2, 0, 1, 3, 4])  # node of the chain that stands at each place: the root in its middle
    edges = np.argsort(arms)[graph.edge_index]
    middle = type(graph)(**{**vars(graph), "edge_index": edges})
    actor = shake(actor_of(middle, **settings)).double()
    obs = normal(6, 5)
    mirror = torch.tensor([0, 4, 3, 2, 1])  # places 1, 2 are one arm from its tip, 3, 4 the other from its base
    mean, mirrored = actor.distribution(obs)[0], actor.distribution(obs[:, mirror])[0]
    torch.testing.assert_close(mirrored, mean[:, mirror[1:] - 1], atol=1e-10, rtol=0)
    assert float((mirrored - mean).abs().max()) > 1e-3


def final_states(actor: TransformerActor, obs: Tensor) -> Tensor:
    return actor.final_states(actor.prepare(obs, 0), 0)


def reach(mask: str, nodes: int = 9, layers: int = 3) -> Tensor:
    """Which nodes (columns) the last state of each node (rows) depends on, (V, V) bool."""
    actor = shake(actor_of(chain(nodes), mask=mask, layers=layers, bias="none")).double()
    obs = normal(2, nodes).requires_grad_(True)
    states = final_states(actor, obs)  # (V, N, S)
    rows = [torch.autograd.grad(state.sum(), obs, retain_graph=True)[0].abs().sum(0) for state in states]
    return torch.stack(rows) > 0


def test_hard_masks_let_a_node_reach_as_many_hops_as_there_are_layers() -> None:
    hops = structure_of(chain(9), max_hops=100).hops
    assert torch.equal(reach("hard"), hops <= 3)
    assert torch.equal(reach("hard", layers=1), hops <= 1)
    assert bool(reach("mix").all())
    assert bool(reach("none", layers=1).all())
    assert torch.equal(reach("mix", layers=1), hops <= 1)  # the first layer is masked


def weights_of(actor: TransformerActor, obs: Tensor) -> list[Tensor]:
    seen = []
    hooks = [
        layer.core.register_forward_pre_hook(
            lambda core, args: seen.append(core.probabilities(core.raw_logits(args[0], args[1]), *args[3:]))
        )
        for layer in actor.attention
    ]
    actor.distribution(obs)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("body", ["centipede-6", "ant"])
def test_context_makes_the_weights_those_of_the_body(body: str) -> None:
    graph = graph_of(body)
    fixed, free = (shake(actor_of(graph, qk_source=source)) for source in ("context", "state"))
    obs = draw(graph, 2)
    for weights in weights_of(fixed, obs):
        assert len(weights) == 1  # the same for all observations
    for weights in weights_of(free, obs):
        assert float((weights[0] - weights[1]).abs().max()) > 1e-3
    # and the action does depend on the observation
    mean = fixed.distribution(obs)[0]
    assert float((mean[0] - mean[1]).abs().max()) > 1e-3
    if body == "ant":  # static features tell nodes of one class apart
        states = fixed.context(0)
        assert states is not None
        assert len(states.unique(dim=0)) > len(np.unique(graph.node_class))


def test_presets_differ_in_what_their_names_say() -> None:
    graph = graph_of("centipede-4")

    def build(name: str) -> TransformerActor:
        return shake(actor_of(graph, hidden_size=16, **PRESETS[name]["attention"]))

    metamorph, star = build("metamorph"), build("metamorph_star")
    extra = {"encoder.position.rows", "encoder.position.trained"}
    assert set(metamorph.state_dict()) - set(star.state_dict()) == extra
    star.load_state_dict({k: v for k, v in metamorph.state_dict().items() if k not in extra}, strict=True)
    obs = draw(graph, 3)
    assert not torch.allclose(star.distribution(obs)[0], metamorph.distribution(obs)[0])
    metamorph.encoder.position.rows.data.zero_()
    assert torch.equal(star.distribution(obs)[0], metamorph.distribution(obs)[0])
    assert {key.split(".")[1] for key in build("modumorph").state_dict() if key.startswith("encoder")} == {
        "table",
        "root",
        "joint",
        "context",
    }
    assert [layer.masked for layer in build("bot_mix").attention] == [True, False, True]
    assert [layer.masked for layer in build("bot_hard").attention] == [True, True, True]


def test_positions_refuse_bodies_longer_than_they_were_trained_with() -> None:
    short, long = graph_of("centipede-4"), graph_of("centipede-6")
    trained = actor_of("centipede-6", position="index")
    shorter = actor_of("centipede-4", position="index")
    shorter.load_state_dict(trained.state_dict(), strict=True)
    assert int(shorter.encoder.position.trained) == long.num_nodes
    with pytest.raises(UserError, match=f"knows the positions of {short.num_nodes} nodes .* has {long.num_nodes}"):
        actor_of("centipede-6", position="index").load_state_dict(
            actor_of("centipede-4", position="index").state_dict()
        )
    with pytest.raises(UserError, match=r"17 nodes, more than policy.attention.max_positions = 16"):
        actor_of("centipede-6", position="index", max_positions=16)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("mask", ["none", "hard"])
def test_padding_never_changes_a_real_token(name: str, mask: str) -> None:
    actor = shake(actor_of("centipede-4", "centipede-8", mask=mask, **VARIANTS[name]))
    sizes = [graph.num_nodes for graph in actor.graphs]
    structure = actor.structures.padded([0, 1], [3, 2], [None, None])
    tokens = normal(5, sizes[1], 16).float()
    real = actor.blocks(tokens, structure)
    garbage = tokens.clone()
    garbage[:3, sizes[0] :] = 1e4 * normal(3, sizes[1] - sizes[0], 16, seed=5).float()
    again = actor.blocks(garbage, structure)
    assert torch.equal(again[:3, : sizes[0]], real[:3, : sizes[0]])  # bit for bit
    assert torch.equal(again[3:], real[3:])
    alone = actor.blocks(tokens[:3, : sizes[0]], actor.structures.one(0, None))
    torch.testing.assert_close(real[:3, : sizes[0]], alone, atol=1e-5, rtol=1e-5)
    assert bool(real.isfinite().all())


@pytest.mark.parametrize("bodies", [("centipede-4", "centipede-8", "centipede-6"), ("drone", "ant", "humanoid")])
@pytest.mark.parametrize("settings", [{}, {"qk_source": "context", "mask": "hard"}, VARIANTS["qk_cap"]])
def test_several_bodies_together_are_what_they_are_alone(bodies: tuple[str, ...], settings: dict) -> None:
    actor = shake(actor_of(*bodies, **settings)).double()
    critic = TransformerCritic(actor.graphs, actor.config, torch.Generator().manual_seed(1)).double()
    for rows in (2, MAX_PADDED_ROWS + 3):  # together, and one after the other
        obs = [draw(graph, rows, seed=k).double() for k, graph in enumerate(actor.graphs)]
        for network in (actor, critic):
            prepared = [network.prepare(rows, k) for k, rows in enumerate(obs)]
            together = network.final_states_together(prepared, [0, 1, 2])
            for k, states in enumerate(together):
                torch.testing.assert_close(states, network.final_states(prepared[k], k), atol=1e-10, rtol=0)
        prepared = [actor.prepare(rows, k) for k, rows in enumerate(obs)]
        for k, pair in enumerate(actor.distributions_of(prepared, [0, 1, 2])):
            torch.testing.assert_close(pair, actor.distribution(obs[k], k), atol=1e-10, rtol=0)
        values = critic.values_of([critic.prepare(rows, k) for k, rows in enumerate(obs)], [0, 1, 2])
        for k, value in enumerate(values):
            torch.testing.assert_close(value, critic.value(obs[k], k), atol=1e-10, rtol=0)


def test_a_policy_of_several_bodies_acts_as_it_does_on_each() -> None:
    """Log-probability and entropy sum over real actuators: padded slots change neither."""
    graphs = [graph_of("centipede-4"), graph_of("centipede-8")]
    config = PolicyConfig(network="transformer", critic="transformer", hidden_size=16)
    joint = GraphActorCriticPolicy.for_graphs(graphs, config)
    generator = torch.Generator().manual_seed(0)
    rows = torch.tensor([0, 1, 1, 0, 1])
    obs = torch.zeros(5, joint.observation_space.shape[0])
    for i, k in enumerate(rows.tolist()):
        obs[i, : graphs[k].obs_dim] = torch.randn(graphs[k].obs_dim, generator=generator)
    obs[:, -1] = rows
    actions = torch.randn(5, joint.action_space.shape[0], generator=generator)
    values, log_prob, entropy = joint.evaluate_actions(obs, actions)
    for k, graph in enumerate(graphs):
        alone = GraphActorCriticPolicy.for_graphs([graph], config)
        alone.load_actor(joint.actor.state_dict())
        alone.load_critic(joint.critic.state_dict())
        mine = obs[rows == k][:, : graph.obs_dim]
        wanted = alone.evaluate_actions(mine, actions[rows == k][:, : graph.act_dim])
        for got, want in zip((values, log_prob, entropy), wanted, strict=True):
            torch.testing.assert_close(got[rows == k], want, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("name", [*VARIANTS, *PRESETS])
def test_a_body_of_one_node(name: str) -> None:
    settings = VARIANTS.get(name) or PRESETS[name]["attention"]
    actor = actor_of("drone", **settings)
    assert actor.graphs[0].num_nodes == 1
    mean, log_std = actor.distribution(draw(actor.graphs[0], 3))
    assert mean.shape == (3, 2)
    assert log_std.shape == (2,)
    grads = torch.autograd.grad(mean.square().sum(), list(actor.parameters()), allow_unused=True)
    assert all(bool(g.isfinite().all()) for g in grads if g is not None)


def test_distances_beyond_the_clamp_share_one_bias() -> None:
    structure = structure_of(chain(6), max_hops=3)
    assert structure.hops[0].tolist() == [0, 1, 2, 3, 3, 3]
    assert AttentionConfig().max_hops == 8
    assert actor_of(chain(3)).attention[0].hop_bias.shape == (2, 9)
