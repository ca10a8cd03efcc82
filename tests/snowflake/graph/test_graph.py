"""The morphology graph against the published counts, MuJoCo's own addresses, and hand-made bodies."""

from __future__ import annotations

import pickle
import string
from functools import cache

import mujoco
import numpy as np
import pytest

import agents
from agents.errors import UserError
from envs.observation import ObservationLayout, paper_layout
from snowflake.graph import GENERAL_CLASSES, PAPER_CLASSES, MorphologyGraph, build_graph

# legs: observation, action, nodes, directed edges
TABLE = {
    3: (81, 6, 9, 16),
    4: (97, 10, 11, 20),
    5: (123, 12, 15, 28),
    6: (139, 16, 17, 32),
    7: (165, 18, 21, 40),
    8: (181, 22, 23, 44),
    10: (223, 28, 29, 56),
    12: (265, 34, 35, 68),
    14: (307, 40, 41, 80),
    18: (391, 52, 53, 104),
    20: (433, 58, 59, 116),
    24: (517, 70, 71, 140),
}


@cache
def body(name: str) -> tuple[mujoco.MjModel, MorphologyGraph]:
    morphology = agents.load(name)
    model = morphology.compile()
    return model, build_graph(model, paper_layout(model), morphology.node_class(model), name)


def from_xml(bodies: str, motors: str, **keywords: object) -> MorphologyGraph:
    xml = f"<mujoco><worldbody>{bodies}</worldbody><actuator>{motors}</actuator></mujoco>"
    model = mujoco.MjModel.from_xml_string(xml)
    return build_graph(model, paper_layout(model), name="toy", **keywords)  # type: ignore[arg-type]


def links(graph: MorphologyGraph) -> set[tuple[int, int]]:
    """Undirected edges, smaller node first; fails on an edge without its reverse."""
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    assert len(edges) == graph.num_edges
    assert edges == {(b, a) for a, b in edges}
    return {(a, b) for a, b in edges if a < b}


def joint_names(model: mujoco.MjModel, graph: MorphologyGraph) -> list[str]:
    return ["root"] + [model.joint(int(joint)).name for joint in graph.joint_id[1:]]


@pytest.mark.parametrize("legs", TABLE)
def test_counts_of_centipedes(legs: int) -> None:
    _, graph = body(f"centipede-{legs}")
    assert (graph.obs_dim, graph.act_dim, graph.num_nodes, graph.num_edges) == TABLE[legs]
    assert len(links(graph)) == graph.num_nodes - 1
    assert graph.vocabulary == PAPER_CLASSES
    assert graph.root_columns.shape == (17,)
    assert graph.joint_columns.shape == (graph.num_nodes - 1, 8)


@pytest.mark.parametrize("legs", [3, 6, 7])
def test_edges_of_centipedes(legs: int) -> None:
    model, graph = body(f"centipede-{legs}")
    names = joint_names(model, graph)
    expected = set()
    for leg in range(legs):
        segment = leg // 2
        hip = f"{'righthip' if leg % 2 else 'lefthip'}_{leg}"
        expected |= {(f"body_{segment}" if segment else "root", hip), (hip, f"ankle_{leg}")}
    for segment in range(1, (legs + 1) // 2):
        expected |= {(f"body_{segment - 1}" if segment > 1 else "root", f"body_{segment}")}
        expected |= {(f"body_{segment}", f"bodyupdown_{segment}")}
    assert {frozenset((names[a], names[b])) for a, b in links(graph)} == {frozenset(pair) for pair in expected}


@pytest.mark.parametrize(
    ("legs", "eccentricity", "diameter", "near"), [(6, 4, 6, 17), (8, 5, 7, 21), (12, 7, 9, 22), (20, 11, 13, 22)]
)
def test_distances_of_centipedes(legs: int, eccentricity: int, diameter: int, near: int) -> None:
    distances = body(f"centipede-{legs}")[1].distances()
    assert distances[0].max() == eccentricity
    assert distances.max() == diameter
    assert (distances[0] <= 4).sum() == near
    assert (distances == distances.T).all()
    assert (np.diag(distances) == 0).all()


@pytest.mark.parametrize("name", ["centipede-4", "centipede-7", "centipede-12", "centipede-6-crippled"])
def test_columns_are_mujocos_addresses(name: str) -> None:
    model, graph = body(name)

    def column(array: str, address: int) -> int:
        start = {"qpos": -2, "qvel": model.nq - 2, "cfrc_ext": model.nq - 2 + model.nv}[array]
        return start + address

    top = model.body("torso_0").id
    contacts = [column("cfrc_ext", 6 * top + i) for i in range(6)]
    assert graph.root_columns.tolist() == [
        *(column("qpos", i) for i in range(2, 7)),
        *(column("qvel", i) for i in range(6)),
        *contacts,
    ]
    for joint, row in zip(graph.joint_id[1:], graph.joint_columns.tolist(), strict=True):
        carrier = model.jnt_bodyid[joint]
        assert row == [
            column("qpos", model.jnt_qposadr[joint]),
            column("qvel", model.jnt_dofadr[joint]),
            *(column("cfrc_ext", 6 * carrier + i) for i in range(6)),
        ]
    assert graph.unseen_columns.tolist() == [column("cfrc_ext", i) for i in range(6)]


def test_both_spine_joints_see_the_same_contacts() -> None:
    model, graph = body("centipede-6")
    names = joint_names(model, graph)
    yaw, pitch = (graph.joint_columns[names.index(f"{kind}_2") - 1] for kind in ("body", "bodyupdown"))
    assert yaw[2:].tolist() == pitch[2:].tolist()
    assert yaw[0] != pitch[0]


@pytest.mark.parametrize("name", ["centipede-6", "centipede-7", "centipede-6-crippled", "ant", "humanoid"])
def test_outputs_follow_actuator_order(name: str) -> None:
    model, graph = body(name)
    assert graph.joint_id[graph.output_node].tolist() == model.actuator_trnid[:, 0].tolist()


def test_last_segment_of_an_odd_centipede_has_a_passive_spine() -> None:
    model, graph = body("centipede-5")
    names = joint_names(model, graph)
    assert set(range(1, graph.num_nodes)) - set(graph.output_node.tolist()) == {
        names.index("body_2"),
        names.index("bodyupdown_2"),
    }


def test_crippled_differs_in_outputs_only() -> None:
    _, whole = body("centipede-6")
    _, crippled = body("centipede-6-crippled")
    for key in ("node_class", "edge_index", "root_columns", "joint_columns"):
        np.testing.assert_array_equal(getattr(whole, key), getattr(crippled, key))
    assert crippled.output_node.tolist() == whole.output_node[4:].tolist()


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "root", "joint"),
    [
        ("walker2d", 7, 12, 5 + 6, 8),
        ("humanoid", 18, 34, 11 + 6, 8),
        ("ant", 9, 16, 11 + 6, 8),
        ("half_cheetah", 7, 12, 5 + 6, 8),
        ("hopper", 4, 6, 5 + 6, 8),
        ("swimmer", 3, 4, 4 + 6, 8),  # its two slides are horizontal, so both positions stay unobserved
    ],
)
def test_gymnasium_bodies(name: str, nodes: int, edges: int, root: int, joint: int) -> None:
    _, graph = body(name)
    assert (graph.num_nodes, graph.num_edges, len(links(graph))) == (nodes, edges, nodes - 1)
    assert (len(graph.root_columns), graph.joint_columns.shape[1]) == (root, joint)
    assert graph.vocabulary == GENERAL_CLASSES
    assert {graph.vocabulary[i] for i in graph.node_class[1:]} == {"hinge_actuated"}
    assert (graph.distances() >= 0).all()


def test_ant_has_actuators_out_of_joint_order_and_legs_on_jointless_bodies() -> None:
    model, graph = body("ant")
    assert graph.output_node.tolist() == [7, 8, 1, 2, 3, 4, 5, 6]
    assert links(graph) == {(0, 1), (1, 2), (0, 3), (3, 4), (0, 5), (5, 6), (0, 7), (7, 8)}
    jointless = set(np.flatnonzero(model.body_jntnum == 0).tolist())
    contacts = model.nq - 2 + model.nv
    assert {(column - contacts) // 6 for column in graph.unseen_columns.tolist()} == jointless


def test_names_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    for name in ("centipede-7", "ant"):
        morphology = agents.load(name)
        spec = morphology.spec()
        for kind in ("bodies", "joints", "geoms", "actuators", "sites", "cameras", "tendons"):
            for element in getattr(spec, kind):
                if kind == "bodies" and element.name == "world":
                    continue
                old, new = element.name, "".join(rng.choice(list(string.ascii_letters), 12))
                element.name = new
                if kind == "joints":  # what refers to a joint by name follows it
                    for actuator in spec.actuators:
                        if actuator.target == old:
                            actuator.target = new
        model = spec.compile()
        graph = build_graph(model, paper_layout(model), morphology.node_class(model), name)
        assert model.joint(1).name != body(name)[0].joint(1).name
        assert graph.to_json() == body(name)[1].to_json()


def test_general_classes_follow_from_the_model() -> None:
    _, named = body("centipede-5")
    model, _ = body("centipede-5")
    graph = build_graph(model, paper_layout(model))
    assert graph.vocabulary[-1] == "other"
    passive = {"hinge_passive"} & {graph.vocabulary[i] for i in graph.node_class}
    assert passive
    expected = ["root"] + ["hinge_passive"] * (named.num_nodes - 1)
    for node in named.output_node:
        expected[node] = "hinge_actuated"
    assert [graph.vocabulary[i] for i in graph.node_class] == expected
    strange = ("root",) + ("tail",) * (model.njnt - 1)
    assert build_graph(model, paper_layout(model), strange).vocabulary == GENERAL_CLASSES


HINGE = '<geom size="0.1"/><joint name="{0}" type="hinge"/>'


def test_rules_on_a_hand_made_body() -> None:
    """Cart with an actuated slide, a static mount, an arm with two joints on one body, and a forearm behind a weld."""
    graph = from_xml(
        '<body name="cart"><geom size="0.1"/><joint name="slide" type="slide" axis="1 0 0"/>'
        '<joint name="tilt" type="hinge" axis="0 1 0"/>'
        '<body name="mount"><geom size="0.1"/>'
        '<body name="arm"><geom size="0.1"/><joint name="a" type="hinge"/><joint name="b" type="hinge" axis="0 1 0"/>'
        '<body name="weld"><geom size="0.1"/>'
        f'<body name="forearm">{HINGE.format("c")}</body></body></body></body></body>',
        '<motor joint="c"/><motor joint="slide"/><motor joint="a"/>',
    )
    # root (with `tilt`), slide, a, b, c
    assert graph.num_nodes == 5
    assert links(graph) == {(0, 1), (0, 2), (2, 3), (2, 4)}
    assert graph.output_node.tolist() == [4, 1, 2]
    assert [graph.vocabulary[i] for i in graph.node_class] == [
        "root",
        "slide_actuated",
        "hinge_actuated",
        "hinge_passive",
        "hinge_actuated",
    ]


def test_unactuated_tree_is_no_part_of_the_body() -> None:
    robot = f'<body name="base">{HINGE.format("a")}</body>'
    ball = '<body name="ball"><freejoint/><geom size="0.1"/></body>'
    alone = from_xml(robot, '<motor joint="a"/>')
    beside = from_xml(ball + robot, '<motor joint="a"/>')
    assert (alone.num_nodes, beside.num_nodes) == (2, 2)
    assert beside.joint_id.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("bodies", "motors", "message"),
    [
        (f"<body>{HINGE.format('a')}</body>", "", "no actuator"),
        (
            f'<body name="x">{HINGE.format("a")}</body><body name="y">{HINGE.format("b")}</body>',
            '<motor joint="a"/><motor joint="b"/>',
            "2 actuated trees.*'x', 'y'",
        ),
        (f'<body>{HINGE.format("a")}<site name="s"/></body>', '<motor site="s"/>', "drives no joint"),
        ('<body><freejoint name="f"/><geom size="0.1"/></body>', '<motor joint="f"/>', "free joint"),
        (
            f"<body>{HINGE.format('a')}</body>",
            '<motor joint="a"/><motor name="m" joint="a"/>',
            "'m' drives a joint that",
        ),
        (
            f'<body>{HINGE.format("a")}<body><geom size="0.1"/><joint name="b" type="ball"/></body></body>',
            '<motor joint="a"/>',
            "joint 'b' observes 13 columns where joint 'a' observes 8",
        ),
    ],
)
def test_bodies_that_no_policy_serves_are_refused_in_one_line(bodies: str, motors: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^toy.*{message}") as caught:
        from_xml(bodies, motors)
    assert "\n" not in str(caught.value)


def test_node_class_of_another_body_is_refused() -> None:
    model, _ = body("centipede-4")
    with pytest.raises(ValueError, match="has 3 entries, the model has 11 joints"):
        build_graph(model, paper_layout(model), ("root", "lefthip", "ankle"))


def test_to_data() -> None:
    _, graph = body("centipede-4")
    obs = np.arange(graph.obs_dim, dtype=np.float32)
    data = graph.to_data(obs)
    assert data.validate()
    assert data.num_nodes == 11
    assert not data.has_self_loops()
    assert data.is_undirected()
    np.testing.assert_array_equal(data.edge_index, graph.edge_index)
    np.testing.assert_array_equal(data.x_root[0], obs[graph.root_columns])
    np.testing.assert_array_equal(data.x_joint, obs[graph.joint_columns])
    assert "x_root" not in graph.to_data()


def test_json_and_pickle_round_trip() -> None:
    _, graph = body("centipede-5")
    for again in (MorphologyGraph.from_json(graph.to_json()), pickle.loads(pickle.dumps(graph))):
        assert again.to_json() == graph.to_json()
        assert again.vocabulary == graph.vocabulary
        assert again.edge_index.dtype == np.int64


def test_arrays_are_read_only_copies() -> None:
    model, _ = body("centipede-4")
    layout: ObservationLayout = paper_layout(model)
    graph = build_graph(model, layout)
    with pytest.raises(ValueError, match="read-only"):
        graph.edge_index[0, 0] = 7
