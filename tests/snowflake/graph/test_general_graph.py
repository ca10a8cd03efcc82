"""The graph of any robot: nodes, slots, attachments, static features, equality edges."""

from __future__ import annotations

from functools import cache

import mujoco
import numpy as np
import pytest
from torch_geometric.data import Batch

import agents
from envs.observation import general_layout
from envs.robot import find_robot
from snowflake.graph import (
    ACTUATOR_STATIC,
    GENERAL_CLASSES,
    JOINT_SLOTS,
    JOINT_STATIC,
    ROOT_SLOTS,
    ROOT_STATIC,
    MorphologyGraph,
    build_graph,
)
from tests.snowflake.graph.models import from_xml, general_graph

BALL = '<geom size="0.1"/>'


@cache
def body(name: str) -> tuple[mujoco.MjModel, MorphologyGraph]:
    model = agents.load(name).compile()
    return model, general_graph(model, name)


def column(names: tuple[str, ...], array: np.ndarray, name: str) -> np.ndarray:
    return array[..., names.index(name)]


def links(graph: MorphologyGraph) -> set[tuple[int, int]]:
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    assert len(edges) == graph.num_edges
    assert edges == {(b, a) for a, b in edges}
    return {(a, b) for a, b in edges if a < b}


def assert_finite_and_sane(graph: MorphologyGraph) -> None:
    for array in (graph.root_static, graph.joint_static, graph.actuator_static):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        assert np.abs(array).max(initial=0.0) <= 10


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "missing"),
    [
        ("ant", 9, 16, set()),
        ("humanoid", 18, 34, set()),
        ("centipede-12", 35, 68, set()),
        ("walker2d", 7, 12, {"rot_1", "rot_3", "rot_4", "rot_5", "linvel_1", "angvel_0", "angvel_2"}),
    ],
)
def test_real_bodies(name: str, nodes: int, edges: int, missing: set[str]) -> None:
    model, graph = body(name)
    assert (graph.num_nodes, graph.num_edges, graph.act_dim) == (nodes, edges, model.nu)
    assert graph.vocabulary == GENERAL_CLASSES
    assert graph.root_columns.shape == (22,)
    assert graph.joint_columns.shape == (nodes - 1, 16)
    lacking = {slot for slot, c in zip(ROOT_SLOTS, graph.root_columns, strict=True) if c < 0}
    assert lacking == missing | {"command_0", "command_1", "command_2"}
    hinges = {slot for slot, c in zip(JOINT_SLOTS, graph.joint_columns[0], strict=True) if c >= 0}
    assert hinges == {"pos_0", "pos_1", "vel_0", *(f"contact_{i}" for i in range(6))}
    assert graph.unseen_columns.tolist() == []
    assert graph.joint_id[graph.output_node].tolist() == model.actuator_trnid[:, 0].tolist()
    assert_finite_and_sane(graph)


def test_the_tree_is_that_of_the_papers_features() -> None:
    from envs.observation import paper_layout

    for name in ("ant", "centipede-5", "humanoid"):
        model, graph = body(name)
        paper = build_graph(model, paper_layout(model), name=name)
        np.testing.assert_array_equal(graph.edge_index, paper.edge_index)
        np.testing.assert_array_equal(graph.node_class, paper.node_class)
        np.testing.assert_array_equal(graph.output_node, paper.output_node)


def test_slots_read_what_the_layout_says() -> None:
    model, graph = from_xml(
        f'<body>{BALL}<freejoint/><body pos="1 0 0">{BALL}<joint name="s" type="slide"/><joint name="h"/>'
        f'<body pos="1 0 0">{BALL}<joint type="ball"/></body></body></body>',
        '<motor joint="h"/><general joint="s" dyntype="filter" dynprm="0.1"/>',
    )
    layout = general_layout(model, find_robot(model))
    assert [graph.vocabulary[kind] for kind in graph.node_class] == [
        "root",
        "slide_actuated",
        "hinge_actuated",
        "ball_passive",
    ]
    for row, joint in zip(graph.joint_columns, graph.joint_id[1:], strict=True):
        for slot, index in zip(JOINT_SLOTS, row, strict=True):
            if index >= 0:
                owner = {"contact": model.jnt_bodyid[joint], "act": 1}.get(slot.rsplit("_", 1)[0], joint)
                assert layout.owner_id[index] == owner
                assert layout.features[index] == {"act": "act_0"}.get(slot, slot)
    present = (graph.joint_columns >= 0).sum(axis=1).tolist()
    assert present == [1 + 1 + 6 + 1, 2 + 1 + 6, 6 + 3 + 6]
    assert graph.act_columns.tolist() == [-1, layout.features.index("act_0")]


def test_jointless_bodies_and_several_joints_on_one() -> None:
    _, graph = from_xml(
        f'<body>{BALL}<freejoint/><body>{BALL}<body>{BALL}<joint name="a"/><joint name="b" axis="0 1 0"/>'
        f'<body>{BALL}<body>{BALL}<joint name="c"/></body></body></body></body></body>',
        '<motor joint="c"/>',
    )
    assert links(graph) == {(0, 1), (1, 2), (1, 3)}
    assert column(JOINT_STATIC, graph.joint_static, "mass")[0] > column(JOINT_STATIC, graph.joint_static, "mass")[2]


ARM = f"""<body name="base">{BALL}<joint name="yaw" axis="0 0 1"/>
<body pos="0 0 1">{BALL}<joint name="lift" axis="0 1 0"/>
<body pos="0 0 1">{BALL}<joint name="l" axis="1 0 0"/></body>
<body pos="0 0.5 1">{BALL}<joint name="r" axis="1 0 0"/></body></body></body>"""


def test_a_fixed_base_has_no_state_and_its_joints_are_nodes() -> None:
    _, graph = from_xml(ARM, '<motor joint="yaw"/><motor joint="lift"/>')
    assert links(graph) == {(0, 1), (0, 2), (2, 3), (2, 4)}
    assert {slot.split("_")[0] for slot, c in zip(ROOT_SLOTS, graph.root_columns, strict=True) if c >= 0} == {"contact"}
    assert column(ROOT_STATIC, graph.root_static, "is_fixed") == 1
    assert column(ROOT_STATIC, graph.root_static, "down_z") == -1


ROTORS = "".join(
    f'<motor site="r{i}" gear="0 0 1 0 0 {spin}" ctrlrange="0 5" ctrllimited="true"/>'
    for i, spin in enumerate((0.1, -0.1, 0.1, -0.1))
)
DRONE = (
    "<body><freejoint/>"
    + '<geom type="box" size="0.1 0.1 0.02"/>'
    + "".join(f'<site name="r{i}" pos="{x} {y} 0"/>' for i, (x, y) in enumerate([(1, 1), (1, -1), (-1, -1), (-1, 1)]))
    + "</body>"
)


def test_one_node_and_no_edge() -> None:
    _, graph = from_xml(DRONE, ROTORS)
    assert (graph.num_nodes, graph.num_edges, graph.act_dim) == (1, 0, 4)
    assert graph.edge_index.shape == (2, 0)
    assert graph.joint_columns.shape == (0, 16)
    assert graph.distances().tolist() == [[0]]
    assert graph.output_node.tolist() == [0, 0, 0, 0]
    assert len(np.unique(graph.actuator_static.round(4), axis=0)) == 4  # rotors differ in torque, by place and spin
    again = MorphologyGraph.from_json(graph.to_json())
    assert again.to_json() == graph.to_json()
    assert again.joint_static.shape == (0, len(JOINT_STATIC))
    data = Batch.from_data_list([graph.to_data(np.ones(graph.obs_dim))] * 2)
    assert data.validate()
    assert data.num_nodes == 2
    assert_finite_and_sane(graph)


def test_antagonists_differ_in_their_signed_shares() -> None:
    tendons = """<tendon><fixed name="flex"><joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>
    <fixed name="extend"><joint joint="a" coef="-1"/><joint joint="b" coef="0.5"/></fixed></tendon>"""
    chain = f'<body>{BALL}<joint name="a"/><body pos="1 0 0">{BALL}<joint name="b"/></body></body>'
    _, graph = from_xml(chain, '<motor tendon="flex"/><motor tendon="extend" gear="3"/>', tendons)
    assert graph.attachment.tolist() == [[0, 0, 1, 1], [1, 2, 1, 2]]
    np.testing.assert_allclose(graph.attachment_weight, [2 / 3, -1 / 3, -2 / 3, 1 / 3], rtol=1e-6)
    assert column(ACTUATOR_STATIC, graph.actuator_static, "on_tendon").tolist() == [1, 1]
    assert {graph.vocabulary[kind] for kind in graph.node_class[1:]} == {"hinge_actuated"}


def test_a_spatial_tendon_without_a_moment_arm_counts_its_nodes_alike() -> None:
    chain = (
        f'<body>{BALL}<joint name="a" axis="1 0 0"/><site name="p"/>'
        f'<body pos="1 0 0">{BALL}<joint name="b" axis="1 0 0"/><site name="q"/></body></body>'
    )
    tendon = '<tendon><spatial name="t"><site site="p"/><site site="q"/></spatial></tendon>'
    _, graph = from_xml(chain, '<motor tendon="t"/><motor joint="a"/>', tendon)
    assert graph.attachment_weight[:2].tolist() == [0.5, 0.5]
    assert column(ACTUATOR_STATIC, graph.actuator_static, "moment")[0] == 0


def test_several_actuators_on_a_joint_and_several_controls_on_one() -> None:
    bodies = f'<body>{BALL}<joint name="a" range="-40 40" limited="true"/></body>'
    _, graph = from_xml(
        bodies,
        '<position joint="a" kp="30"/><velocity joint="a" kv="2"/><motor joint="a"/><damper joint="a" kv="1" '
        'ctrlrange="0 1"/><muscle joint="a"/><pid joint="a" kp="3" kv="1" input="pos vel"/>',
    )
    assert graph.act_dim == 7
    assert set(graph.output_node.tolist()) == {1}
    kinds = ["position", "velocity", "motor", "affine", "muscle", "position", "position"]
    for row, kind in zip(graph.actuator_static, kinds, strict=True):
        assert [name for name in ACTUATOR_STATIC[:7] if column(ACTUATOR_STATIC, row, name)] == [f"is_{kind}"]
    inputs = ["position", "velocity", "other", "other", "other", "position", "velocity"]
    for row, kind in zip(graph.actuator_static, inputs, strict=True):
        assert column(ACTUATOR_STATIC, row, f"input_{kind}") == 1
    assert column(ACTUATOR_STATIC, graph.actuator_static, "slot_1").tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert column(JOINT_STATIC, graph.joint_static, "controls")[0] == pytest.approx(np.log(8) / 4)
    assert graph.joint_columns[0, -1] == graph.act_columns[4] >= 0


def test_several_activations_on_a_joint_are_averaged() -> None:
    _, graph = from_xml(
        f'<body>{BALL}<joint name="a" range="-40 40" limited="true"/></body>',
        '<muscle joint="a"/><motor joint="a"/><muscle joint="a" scale="100"/>',
    )
    assert graph.joint_columns[0, -1] == -1
    assert graph.shared_act.tolist() == [[1, 1], graph.act_columns[[0, 2]].tolist()]
    assert graph.act_columns[1] == -1
    assert graph.slot_masks()[1][0, -1]
    assert graph.unseen_columns.tolist() == []
    obs = np.zeros(graph.obs_dim)
    obs[graph.act_columns[0]], obs[graph.act_columns[2]] = 0.2, 0.6
    assert graph.to_data(obs).x_joint[0, -1].item() == pytest.approx(0.4)


def test_equality_constraints_are_extra_edges_when_asked_for() -> None:
    bodies = (
        f'<body name="base">{BALL}<freejoint/>'
        + "".join(
            f'<body name="{n}" pos="{i} 0 0">{BALL}<joint name="{n}0"/><body name="{n}b">{BALL}<joint name="{n}1"/>'
            f'<body name="{n}w" pos="0 0 1">{BALL}</body></body></body>'
            for i, n in enumerate("pqr")
        )
        + f'</body><body name="prop" pos="9 0 0">{BALL}<freejoint/></body>'
    )
    rest = """<tendon><fixed name="t"><joint joint="p0" coef="1"/><joint joint="q0" coef="1"/></fixed></tendon>
    <equality><connect body1="pw" body2="qb" anchor="0 0 0"/><weld body1="qb" body2="pb"/>
    <joint joint1="r0" joint2="p0"/><joint joint1="r1"/>
    <tendon tendon1="t"/><weld body1="base" body2="r"/><weld body1="base" body2="rb"/>
    <connect body1="p" anchor="0 0 0"/><connect body1="rb" body2="prop" anchor="0 0 0"/><weld body1="r" body2="rw"/>
    <weld body1="rb" body2="rw"/><connect body1="qb" body2="rb" anchor="0 0 0" active="false"/></equality>"""
    model, plain = from_xml(bodies, '<motor joint="p0"/>', rest)
    tree = {(0, 1), (1, 2), (0, 3), (3, 4), (0, 5), (5, 6)}
    assert links(plain) == tree
    tied = general_graph(model, equality_edges=True)
    # pb-qb (twice, by `connect` and `weld`), r0-p0, the tendon's p0-q0, base-rb; base-r and r-rb are there already
    assert links(tied) == tree | {(2, 4), (1, 5), (1, 3), (0, 6)}
    np.testing.assert_array_equal(tied.edge_index[:, : plain.num_edges], plain.edge_index)


def test_static_features_by_hand() -> None:
    _, graph = from_xml(
        '<body quat="0.7071067811865476 0 0 0.7071067811865476" pos="5 5 5"><freejoint/><geom size="0.1" mass="3"/>'
        '<body pos="2 0 0"><joint name="a" axis="0 0 2" pos="0.5 0 0" range="-90 90" limited="true" damping="0.5" '
        'armature="0.02" stiffness="4" frictionloss="0.3"/><geom size="0.1" mass="1"/></body></body>',
        '<position joint="a" kp="50" gear="-2" ctrlrange="-1 3" ctrllimited="true" forcerange="-5 5" '
        'forcelimited="true"/>',
    )
    # two balls 2 m apart: 3 x 0.5^2 + 1 x 1.5^2 = 3 kg m^2 about the centre, and 2/5 m r^2 each about their own
    size = np.sqrt((3 + 0.4 * 4 * 0.01 * 1.5) / 4)
    joint = dict(zip(JOINT_STATIC, graph.joint_static[0].tolist(), strict=True))
    inertia = 0.25 + 0.004

    def wide(x: float, unit: float) -> float:
        return float(np.log1p(x / unit)) / 4

    expected = {
        "is_hinge": 1, "axis_z": 1, "offset_x": wide(2.5 / size, 0.1), "is_limited": 1, "lower": -np.pi / (np.pi + 2),
        "upper": np.pi / (np.pi + 2), "damping": wide(0.5, 0.01), "armature": wide(0.02, 1e-4),
        "stiffness": wide(4, 0.01), "frictionloss": wide(0.3, 0.01), "mass": wide(1, 0.01), "mass_fraction": 0.25,
        "inertia": wide(inertia, 1e-5), "centre_x": -wide(0.5 / size, 0.1), "controls": wide(1, 1),
    }  # fmt: skip
    assert joint == pytest.approx(dict.fromkeys(JOINT_STATIC, 0.0) | expected, abs=1e-6)
    actuator = dict(zip(ACTUATOR_STATIC, graph.actuator_static[0].tolist(), strict=True))
    expected = {
        "is_position": 1, "on_joint": 1, "input_position": 1, "slot_0": 1, "gear": wide(2, 0.01),
        "gear_direction_0": -1, "moment": wide(2 / size, 0.01), "nodes": wide(1, 1), "gain": wide(50, 0.01),
        "bias_position": -wide(50, 0.01), "is_limited": 1, "lower": -0.5, "upper": 0.75, "is_force_limited": 1,
        "force_lower": -wide(5, 0.1), "force_upper": wide(5, 0.1),
    }  # fmt: skip
    assert actuator == pytest.approx(dict.fromkeys(ACTUATOR_STATIC, 0.0) | expected, abs=1e-6)
    assert graph.attachment_weight.tolist() == [-1]
    root = dict(zip(ROOT_STATIC, graph.root_static.tolist(), strict=True))
    expected = {
        "is_free": 1, "freedoms": 1, "total_mass": wide(4, 0.1), "size": wide(size, 0.01), "joints": wide(1, 1),
        "controls": wide(1, 1), "mass": wide(3, 0.01), "mass_fraction": 0.75, "inertia": wide(0.012, 1e-5),
        "gravity": wide(9.81, 1), "down_z": -1,
    }  # fmt: skip
    assert root == pytest.approx(dict.fromkeys(ROOT_STATIC, 0.0) | expected, abs=1e-6)


def test_extreme_numbers_stay_finite() -> None:
    model, _ = from_xml(ARM, '<motor joint="yaw"/><position joint="l" kp="1"/>')
    model.jnt_stiffness[:] = 1e30
    model.dof_damping[:] = np.inf
    model.jnt_limited[:] = 1
    model.jnt_range[:] = [-np.inf, 1e300]
    model.actuator_gainprm[:] = 1e200
    model.actuator_ctrllimited[:] = 1
    model.actuator_ctrlrange[:] = [-1e300, np.inf]
    model.body_mass[:] = 0
    model.opt.gravity[:] = 1e9
    assert_finite_and_sane(general_graph(model))


def test_json_keeps_every_array() -> None:
    _, graph = body("centipede-12")
    again = MorphologyGraph.from_json(graph.to_json())
    for key, value in vars(graph).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(again, key), value)
            assert getattr(again, key).dtype == value.dtype
