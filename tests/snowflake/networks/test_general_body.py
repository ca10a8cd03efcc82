"""Graph networks under the feature set `general`: any robot, missing slots, controls on several nodes, transfer."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch

import agents
from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.graph import ACTUATOR_STATIC, GENERAL_CLASSES, JOINT_SLOTS, ROOT_SLOTS, MorphologyGraph
from snowflake.networks import FlatCritic, GraphCritic, MLPActor, NerveNetActor
from snowflake.networks.normalizer import RunningNorm, SlotNorm
from snowflake.networks.pyg_reference import PyGActor
from tests.snowflake.graph.models import from_xml, general_graph

BALL = '<geom size="0.1"/>'
LEG = f'<joint name="a" range="-40 40" limited="true"/>{BALL}<body pos="1 0 0">{BALL}<joint name="b"/></body>'
TENDONS = """<tendon><fixed name="flex"><joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>
<fixed name="extend"><joint joint="a" coef="-1"/><joint joint="b" coef="0.5"/></fixed></tendon>"""

MUSCLES = '<muscle tendon="flex" lengthrange="-1 1"/><muscle tendon="extend" lengthrange="-1 1"/>'
TOYS = {
    "drone": (
        '<body><freejoint/><geom size="0.1"/><site name="p" pos="1 0 0"/><site name="q" pos="-1 0 0"/></body>',
        '<motor site="p" gear="0 0 1 0 0 0.1"/><motor site="q" gear="0 0 1 0 0 -0.1"/>',
        "",
    ),
    "muscles": (f"<body>{BALL}<freejoint/><body>{LEG}</body></body>", f'{MUSCLES}<motor joint="b"/>', TENDONS),
    "arm": (
        f'<body>{BALL}<joint name="a"/><body pos="1 0 0">{BALL}<joint type="ball"/><joint name="s" type="slide"/>'
        "</body></body>",
        '<position joint="s"/><general joint="a" dyntype="filter" dynprm="0.1"/><motor joint="a"/>',
        "",
    ),
}


@cache
def graph_of(name: str) -> MorphologyGraph:
    return from_xml(*TOYS[name])[1] if name in TOYS else general_graph(agents.load(name).compile(), name)


def actor_of(*names: str, seed: int = 0, **config: object) -> NerveNetActor:
    generator = torch.Generator().manual_seed(seed)
    return NerveNetActor([graph_of(name) for name in names], PolicyConfig(**config), generator)  # type: ignore[arg-type]


def draw(graph: MorphologyGraph, rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, graph.obs_dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("aggregation", ["mean", "sum", "max"])
@pytest.mark.parametrize("name", ["ant", "walker2d", "drone", "muscles", "arm"])
def test_pytorch_geometric_agrees(name: str, aggregation: str) -> None:
    actor = actor_of(name, aggregation=aggregation)
    graph = actor.graphs[0]
    obs = draw(graph, 6)
    for _ in range(2):  # without statistics, and with
        data = Batch.from_data_list([graph.to_data(row) for row in obs])
        mean, log_std = actor.distribution(obs, 0)
        assert mean.shape == (6, graph.act_dim)
        reference = PyGActor(actor)
        torch.testing.assert_close(reference(data).view_as(mean), mean, atol=1e-5, rtol=0)
        assert torch.equal(reference.log_std(data), log_std.repeat(6))
        actor.update_normalizer(1 + 2 * draw(graph, 50, seed=1), 0)


def test_pytorch_geometric_agrees_on_a_batch_of_bodies_and_in_gradients() -> None:
    names = ("muscles", "drone", "arm", "muscles", "ant")
    actor = actor_of(*names).double()
    obs = [draw(graph, 1, seed=k).double() for k, graph in enumerate(actor.graphs)]
    data = Batch.from_data_list([graph.to_data(row[0]) for graph, row in zip(actor.graphs, obs, strict=True)])
    for key in ("x_root", "x_joint", "x_actuator", "static_root", "static_joint", "static_actuator"):
        data[key] = data[key].double()
    for k, row in enumerate(obs):
        graph = actor.graphs[k]
        data.x_joint[data.batch[data.node_type == 1] == k] = actor.body(k).gather(row)[1][0]
        data.x_root[k] = row.new_zeros(22)
        seen = torch.tensor(graph.root_columns >= 0)
        data.x_root[k, seen] = row[0, graph.root_columns[graph.root_columns >= 0].tolist()]
    bodies = zip(actor.graphs, obs, strict=True)
    acts = [row[0, g.act_columns.tolist()] * torch.tensor(g.act_columns >= 0) for g, row in bodies]
    data.x_actuator = torch.cat(acts)[:, None]
    fast = torch.cat([actor.distribution(row, k)[0][0] for k, row in enumerate(obs)])
    reference = PyGActor(actor)(data)
    torch.testing.assert_close(reference, fast, atol=1e-7, rtol=0)
    parameters = [p for name, p in actor.named_parameters() if name != "log_std"]
    for a, b in zip(
        torch.autograd.grad(fast.sin().sum(), parameters),
        torch.autograd.grad(reference.sin().sum(), parameters),
        strict=True,
    ):
        assert a.any()
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("target", ["walker2d", "humanoid", "centipede-12", "drone", "muscles", "arm"])
def test_weights_and_statistics_load_strictly_into_any_other_body(target: str) -> None:
    source, other = actor_of("ant"), actor_of(target, seed=1)
    source.update_normalizer(draw(source.graphs[0], 50), 0)
    other.load_state_dict(source.state_dict(), strict=True)
    graph = other.graphs[0]
    obs = draw(graph, 5)
    mean, log_std = other.distribution(obs, 0)
    assert mean.shape == (5, graph.act_dim)
    assert log_std.shape == (graph.act_dim,)
    assert torch.isfinite(mean).all()
    critic, other_critic = (
        GraphCritic([graph_of(name)], PolicyConfig(), torch.Generator().manual_seed(0)) for name in ("ant", target)
    )
    other_critic.load_state_dict(critic.state_dict(), strict=True)
    assert other_critic.value(obs).shape == (5,)


def test_parameter_counts() -> None:
    for name in ("ant", "drone"):
        actor = actor_of(name)
        counts = {c: sum(p.numel() for p in actor.component_parameters(c).values()) for c in actor.components}
        # table 8 x 32; root 22 + 19 inputs, joints 16 + 28; decoder 2 x 64 + 49 + 1 inputs
        assert counts == {
            "encoder": 256 + 42 * 32 + 45 * 32,
            "message": 12_480,
            "update": 49_536,
            "decoder": 179 * 64 + 65 * 64 + 65,
            "log_std": 8,
        }
        assert sum(counts.values()) == 80_745


def test_missing_slots_stay_zero_and_move_no_statistic() -> None:
    """An arm on a fixed base has no height; the ant's mean height must survive it, and its own slot stay 0."""
    actor = actor_of("ant", "arm")
    ant, arm = actor.graphs
    actor.update_normalizer(5 + draw(ant, 40), 0)
    height = ROOT_SLOTS.index("height")
    norm = actor.normalizer.root
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    actor.update_normalizer(draw(arm, 1000), 1)
    contact = torch.tensor([slot.startswith("contact") for slot in ROOT_SLOTS])
    for key, value in before.items():
        assert torch.equal(norm.state_dict()[key][:, ~contact], value[:, ~contact])
    assert norm.count[0, contact].tolist() == [1040] * 6
    assert norm.mean[0, height] > 4
    root, joint = actor.normalizer(*actor.body(1).gather(draw(arm, 3)), actor.body(1))
    assert root[:, height].tolist() == [0, 0, 0]
    assert not joint[:, ~actor.body(1).joint_mask].any()
    assert joint[:, actor.body(1).joint_mask].all()


def test_statistics_count_feature_by_feature() -> None:
    rng = np.random.default_rng(0)
    norm, present = SlotNorm(2, 3), torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    group = torch.tensor([1, 1, 0])
    batches = [rng.normal(10 * i, 1 + i, size=(rows, 3, 3)) * present.numpy() for i, rows in enumerate((3, 200, 1))]
    for batch in batches:
        norm.update(torch.tensor(batch), group, present)
    data = np.concatenate(batches)
    assert norm.count.tolist() == [[204, 204, 204], [408, 204, 0]]
    np.testing.assert_allclose(norm.mean[0], data[:, 2].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(norm.var[0], data[:, 2].var(axis=0), rtol=1e-12)
    np.testing.assert_allclose(norm.mean[1, 0], data[:, :2, 0].mean(), rtol=1e-12)
    np.testing.assert_allclose(norm.var[1, 0], data[:, :2, 0].var(), rtol=1e-12)
    np.testing.assert_allclose(norm.mean[1, 1], data[:, 0, 1].mean(), rtol=1e-12)
    everything = RunningNorm(2, 3)
    everything.update(torch.tensor(data[:, 2:]), torch.tensor([0]))
    x = torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(0)) * present
    torch.testing.assert_close(norm(x, group, present)[:, 2], everything(x[:, 2:], torch.tensor([0]))[:, 0])
    assert norm(100 * x, group, present).abs().max() == 5  # a feature without statistics is clipped too


def test_static_features_reach_the_policy_and_no_statistic() -> None:
    actor = actor_of("ant")
    graph = actor.graphs[0]
    obs = draw(graph, 4)
    actor.update_normalizer(obs, 0)
    assert actor.normalizer.joint.mean.shape == (8, 16)
    assert actor.normalizer.root.mean.shape == (1, 22)
    mean = actor.distribution(obs, 0)[0]
    for name in ("root_static", "joint_static", "actuator_static"):
        values = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in vars(graph).items()}
        values[name][..., 4] += 0.5
        changed = NerveNetActor([MorphologyGraph(**values)], PolicyConfig(), torch.Generator().manual_seed(0))
        changed.load_state_dict(actor.state_dict(), strict=True)
        assert not torch.allclose(changed.distribution(obs, 0)[0], mean, atol=1e-4), name


def test_antagonists_and_rotors_are_told_apart() -> None:
    for name, controls in (("muscles", [0, 1]), ("drone", [0, 1])):
        actor = actor_of(name)
        mean = actor.distribution(torch.zeros(1, actor.graphs[0].obs_dim), 0)[0][0]
        assert (mean[controls[0]] - mean[controls[1]]).abs() > 1e-3
    # the signed mean alone tells a flexor from an extensor
    body = actor_of("muscles").body(0)
    flexor, extensor = body.readout[3], body.readout[4]
    torch.testing.assert_close(flexor, -extensor)
    torch.testing.assert_close(body.readout[0], body.readout[1])


def test_an_activation_reaches_its_own_output_at_once() -> None:
    actor = actor_of("muscles", propagation_steps=0)
    graph = actor.graphs[0]
    obs = torch.zeros(1, graph.obs_dim, requires_grad=True)
    mean = actor.distribution(obs, 0)[0][0]
    gradient = torch.autograd.grad(mean[2], obs, retain_graph=True)[0][0]
    # the motor on b reads b, whose slot `act` is the mean of both muscles'; its own activation does not exist
    assert gradient[graph.act_columns[0]] == gradient[graph.act_columns[1]] != 0
    flexor = torch.autograd.grad(mean[0], obs)[0][0]
    assert flexor[graph.act_columns[0]] != flexor[graph.act_columns[1]]
    assert JOINT_SLOTS[-1] == "act"
    assert len(ACTUATOR_STATIC) == graph.actuator_static.shape[1]


def test_log_std_follows_the_class_of_the_attached_joint() -> None:
    for name, classes in (
        ("drone", ["root", "root"]),
        ("muscles", ["hinge_actuated"] * 3),
        ("arm", ["slide_actuated", "hinge_actuated", "hinge_actuated"]),
    ):
        actor = actor_of(name)
        with torch.no_grad():
            actor.log_std.copy_(torch.arange(8.0))
        log_std = actor.distribution(torch.zeros(1, actor.graphs[0].obs_dim), 0)[1]
        assert [GENERAL_CLASSES[int(value)] for value in log_std] == classes
    assert actor_of("muscles", log_std="per_actuator").log_std.shape == (3,)


def test_flat_networks_take_any_robot() -> None:
    graph = graph_of("arm")
    actor, critic = (
        network([graph], PolicyConfig(), torch.Generator().manual_seed(0)) for network in (MLPActor, FlatCritic)
    )
    obs = draw(graph, 4)
    actor.update_normalizer(obs)
    assert actor.distribution(obs)[0].shape == (4, 3)  # type: ignore[operator]
    assert critic.value(obs).shape == (4,)  # type: ignore[operator]


def test_columns_to_the_right_are_ignored() -> None:
    actor = actor_of("arm", "ant")
    obs = draw(actor.graphs[0], 4)
    padded = torch.cat([obs, torch.full((4, 43), torch.nan)], dim=1)
    assert torch.equal(actor.distribution(padded, 0)[0], actor.distribution(obs, 0)[0])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="actuator_wiring = 'official' reproduces a defect"):
        actor_of("ant", actuator_wiring="official")
