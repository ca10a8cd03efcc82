"""What holds for the graph of any robot: 1 to 60 links, every kind of joint and actuator, tendons, sites, props."""

from __future__ import annotations

from collections import Counter

import mujoco
import numpy as np
import torch
from hypothesis import event, given, settings

from envs.observation import ACTUATOR, BODY, JOINT, ROOT, ObservationLayout, general_layout
from envs.robot import Robot, find_robot
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.networks import NerveNetActor
from tests.snowflake.graph.any_robot import Compiled, Plan, compile_plan, plans


def graph_of(model: mujoco.MjModel) -> tuple[MorphologyGraph, ObservationLayout, Robot]:
    robot = find_robot(model)
    layout = general_layout(model, robot)
    return build_graph(model, layout, robot=robot), layout, robot


def hinges_above(model: mujoco.MjModel, joint: int, nodes: set[int]) -> int:
    """The joint that a node hangs on, from the tree alone; -1 for the root."""
    body = int(model.jnt_bodyid[joint])
    own = [j for j in range(model.njnt) if model.jnt_bodyid[j] == body and j in nodes]
    top = model.body_rootid[body] == body
    if joint != own[0] and not top:
        return own[0]
    while not top:
        body = int(model.body_parentid[body])
        top = model.body_rootid[body] == body
        if not top and model.body_jntnum[body]:
            return next(j for j in range(model.njnt) if model.jnt_bodyid[j] == body)
    return -1


@settings(max_examples=40)
@given(plans())
def test_ids_edges_actuators_and_columns(plan: Plan) -> None:
    compiled = compile_plan(plan)
    model = compiled.model
    graph, layout, robot = graph_of(model)
    event(f"{len(plan.joints) // 10 * 10}+ links")
    for drive, place, _ in plan.actuators:
        event(f"{drive} on {place}")

    # Every joint of the robot is one node or part of the root; those of the prop are neither.
    mine = set(compiled.joint.values())
    merged, nodes = set(robot.root_joints.tolist()), graph.joint_id[1:].tolist()
    assert len(nodes) == len(set(nodes))
    assert merged.isdisjoint(nodes)
    assert merged | set(nodes) == mine
    assert {int(model.jnt_bodyid[joint]) for joint in merged} <= {robot.root_body}

    # A tree: every node but the root hangs on one other, and each link is there in both directions.
    links = Counter(map(tuple, graph.edge_index.T.tolist()))
    node_of = {-1: 0} | {joint: node for node, joint in enumerate(nodes, start=1)}
    expected = {(node_of[joint], node_of[hinges_above(model, joint, set(nodes))]) for joint in nodes}
    assert set(links) == expected | {(b, a) for a, b in expected}
    assert set(links.values()) <= {1}
    assert graph.num_edges == 2 * (graph.num_nodes - 1)
    assert (graph.distances() >= 0).all()

    # Every control once, on something that it moves, with shares that sum to 1.
    assert sorted(robot.controls.tolist()) == list(range(model.nu))
    assert graph.act_dim == model.nu == len(graph.output_node)
    pairs = list(map(tuple, graph.attachment.T.tolist()))
    assert len(set(pairs)) == len(pairs)
    assert {control for control, _ in pairs} == set(range(model.nu))
    assert all((control, node) in pairs for control, node in enumerate(graph.output_node.tolist()))
    shares = np.bincount(graph.attachment[0], np.abs(graph.attachment_weight), minlength=model.nu)
    np.testing.assert_allclose(shares, 1.0, atol=1e-5)

    check_columns(model, graph, layout, robot)
    again = MorphologyGraph.from_json(graph.to_json())
    for key, value in vars(graph).items():
        np.testing.assert_array_equal(getattr(again, key), value, err_msg=key)


def check_columns(model: mujoco.MjModel, graph: MorphologyGraph, layout: ObservationLayout, robot: Robot) -> None:
    """Each column says one thing of one element, and reaches the nodes that this element is part of."""
    owners = list(zip(layout.owner_kind.tolist(), layout.owner_id.tolist(), layout.features, strict=True))
    assert len(set(owners)) == len(owners) == graph.obs_dim
    readers: dict[int, list[int]] = {column: [] for column in range(graph.obs_dim)}
    for node in range(graph.num_nodes):
        row = graph.root_columns if node == 0 else graph.joint_columns[node - 1]
        for column in row[row >= 0].tolist():
            readers[column].append(node)
    for node, column in graph.shared_act.T.tolist():
        readers[column].append(node)
    attached: dict[int, set[int]] = {}
    for control, node in graph.attachment.T.tolist():
        attached.setdefault(int(robot.actuators[control]), set()).add(node)
    of_joint = {joint: node for node, joint in enumerate(graph.joint_id.tolist()) if node}
    for column, (kind, owner, feature) in enumerate(owners):
        if kind == ROOT:
            expected = {0}
        elif kind == JOINT:
            expected = {of_joint[owner]}
        elif kind == BODY:
            expected = {node for joint, node in of_joint.items() if model.jnt_bodyid[joint] == owner}
            expected |= {0} if owner == robot.root_body else set()
        else:
            assert kind == ACTUATOR
            expected = attached[owner] - {0} if feature == "act_0" else set()
        assert sorted(readers[column]) == sorted(expected), (column, feature)
    # What is gathered for the nodes can be put back.
    values, back = np.arange(graph.obs_dim) + 1.0, np.zeros(graph.obs_dim)
    for row in (graph.root_columns, *graph.joint_columns):
        back[row[row >= 0]] = values[row[row >= 0]]
    back[graph.shared_act[1]] = values[graph.shared_act[1]]
    back[graph.act_columns[graph.act_columns >= 0]] = values[graph.act_columns[graph.act_columns >= 0]]
    np.testing.assert_array_equal(np.flatnonzero(back != values), graph.unseen_columns)


def moved_columns(plan: Plan, one: Compiled, other: Compiled, layouts: tuple[ObservationLayout, ...]) -> list[int]:
    """For each column of one layout, the column of the other that says the same."""
    to = {
        JOINT: {one.joint[key]: other.joint[key] for key in one.joint},
        BODY: {one.body[link]: other.body[link] for link in one.body},
        ACTUATOR: {one.actuator[k]: other.actuator[k] for k in one.actuator},
    }
    to[ROOT] = to[BODY]
    first, second = (
        list(zip(item.owner_kind.tolist(), item.owner_id.tolist(), item.features, strict=True)) for item in layouts
    )
    place = {owner: column for column, owner in enumerate(second)}
    return [place[kind, to[kind][owner], feature] for kind, owner, feature in first]


@settings(max_examples=16)
@given(plans(most=25))
def test_names_and_the_order_of_siblings_and_actuators_have_no_say(plan: Plan) -> None:
    one, other = compile_plan(plan), compile_plan(plan, shuffle=plan.seed + 1)
    (graph, layout, robot), (shuffled, other_layout, other_robot) = graph_of(one.model), graph_of(other.model)
    columns = moved_columns(plan, one, other, (layout, other_layout))
    assert sorted(columns) == list(range(shuffled.obs_dim))
    key_of = {joint: key for key, joint in one.joint.items()}
    node_of = {joint: node for node, joint in enumerate(shuffled.joint_id.tolist())}
    to = np.array([0] + [node_of[other.joint[key_of[joint]]] for joint in graph.joint_id[1:].tolist()])
    np.testing.assert_array_equal(shuffled.node_class[to], graph.node_class)
    edges = {tuple(pair) for pair in shuffled.edge_index.T.tolist()}
    assert {tuple(pair) for pair in to[graph.edge_index].T.tolist()} == edges

    same = {a: other.actuator[k] for k, a in one.actuator.items()}
    controls = [other_robot.actuators.tolist().index(same[a]) for a in robot.actuators.tolist()]
    np.testing.assert_allclose(shuffled.actuator_static[controls], graph.actuator_static, atol=1e-5)
    actor = NerveNetActor([graph, shuffled], PolicyConfig(hidden_size=16), torch.Generator().manual_seed(0))
    obs = torch.randn(3, graph.obs_dim, generator=torch.Generator().manual_seed(plan.seed))
    moved = torch.zeros(3, shuffled.obs_dim)
    moved[:, columns] = obs
    mean, log_std = actor.distribution(obs, 0)
    again, again_std = actor.distribution(moved, 1)
    torch.testing.assert_close(again[:, controls], mean, atol=1e-5, rtol=1e-5)
    assert torch.equal(again_std[controls], log_std)
    if graph.num_nodes > 1:  # the negative control: another observation is another action
        assert not torch.allclose(actor.distribution(obs + 1, 0)[0], mean, atol=1e-5)
