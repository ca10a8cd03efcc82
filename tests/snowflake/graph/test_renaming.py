"""Names and the order of siblings have no say: the graph is the same up to order, and the policy's actions follow."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from envs.observation import ObservationLayout, general_layout
from envs.robot import find_robot
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.networks import NerveNetActor
from tests.snowflake.graph.models import compile_tree, general_graph, random_tree, strip_names

NODE_ARRAYS = ("node_type", "node_class")


def graph_and_layout(model: mujoco.MjModel) -> tuple[MorphologyGraph, ObservationLayout]:
    robot = find_robot(model)
    layout = general_layout(model, robot)
    return build_graph(model, layout, robot=robot), layout


def slots(graph: MorphologyGraph, layout: ObservationLayout, node: int) -> list[str | None]:
    columns = graph.root_columns if node == 0 else graph.joint_columns[node - 1]
    return [layout.features[column] if column >= 0 else None for column in columns]


@pytest.mark.parametrize("seed", range(12))
def test_random_trees(seed: int) -> None:
    tree = random_tree(seed)
    (model, plain_ids, _), (other, ids, motors) = compile_tree(tree), compile_tree(tree, shuffle=100 + seed)
    (graph, layout), (shuffled, other_layout) = graph_and_layout(model), graph_and_layout(other)

    key_of = {joint: key for key, joint in plain_ids.items()}
    other_node = dict(zip(shuffled.joint_id.tolist(), range(shuffled.num_nodes), strict=True))
    to = np.array([0] + [other_node[ids[key_of[int(joint)]]] for joint in graph.joint_id[1:]])  # node -> its like
    assert sorted(to) == list(range(shuffled.num_nodes))

    for key in NODE_ARRAYS:
        np.testing.assert_array_equal(getattr(shuffled, key)[to], getattr(graph, key))
    assert set(map(tuple, to[graph.edge_index].T.tolist())) == set(map(tuple, shuffled.edge_index.T.tolist()))
    assert shuffled.num_edges == graph.num_edges
    np.testing.assert_allclose(shuffled.root_static, graph.root_static, atol=1e-6)
    np.testing.assert_allclose(shuffled.joint_static[to[1:] - 1], graph.joint_static, atol=1e-6)
    np.testing.assert_allclose(shuffled.actuator_static, graph.actuator_static[motors], atol=1e-6)
    np.testing.assert_array_equal(shuffled.output_node, to[graph.output_node[motors]])
    for node in range(graph.num_nodes):
        assert slots(graph, layout, node) == slots(shuffled, other_layout, int(to[node]))

    actor = NerveNetActor([graph, shuffled], PolicyConfig(), torch.Generator().manual_seed(0))
    obs = torch.randn(3, graph.obs_dim, generator=torch.Generator().manual_seed(seed))
    moved = torch.zeros(3, shuffled.obs_dim)
    for node in range(graph.num_nodes):
        mine = graph.root_columns if node == 0 else graph.joint_columns[node - 1]
        theirs = shuffled.root_columns if node == 0 else shuffled.joint_columns[to[node] - 1]
        moved[:, theirs[theirs >= 0].tolist()] = obs[:, mine[mine >= 0].tolist()]
    mean, log_std = actor.distribution(obs, 0)
    again, again_std = actor.distribution(moved, 1)
    torch.testing.assert_close(again, mean[:, motors], atol=2e-6, rtol=0)
    assert torch.equal(again_std, log_std[motors])
    assert mean.std() > 1e-3


@pytest.mark.parametrize("seed", [0, 5])
def test_a_model_without_names(seed: int) -> None:
    model, _, _ = compile_tree(random_tree(seed))
    named = general_graph(model).to_json()
    strip_names(model)
    assert {mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(model.njnt)} <= {"", None}
    assert general_graph(model).to_json() == named


PLAIN = """
<mujoco><compiler angle="radian" autolimits="true"/><option gravity="0 0 -9.81"/>
<worldbody><body pos="0 0 1" quat="0.7071067811865476 0 0 0.7071067811865476"><freejoint/><geom size="0.2" mass="3"/>
<body pos="0.3 0 0"><joint name="a" axis="0 1 0" range="-0.7853981633974483 1.5707963267948966" damping="2"/>
<geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.4" mass="1"/>
<body pos="0 0 -0.4"><joint name="b" axis="1 0 0" range="0 3.141592653589793" armature="0.1" damping="2"/>
<geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.4" mass="1"/></body></body></body></worldbody>
<actuator><motor joint="b" gear="30" ctrlrange="-1 1"/><position joint="a" kp="40" ctrlrange="-0.5 1"/></actuator>
</mujoco>"""

OTHER_WORDS = """
<mujoco><compiler angle="degree" eulerseq="xyz"/>
<default><joint damping="2" limited="true"/><geom type="capsule" size="0.05" mass="1"/>
<default class="drive"><motor gear="30" ctrllimited="true" ctrlrange="-1 1"/></default></default>
<worldbody><body pos="0 0 1" euler="0 0 90"><freejoint/><geom type="sphere" size="0.2" mass="3"/>
<frame pos="0.3 0 0"><body><joint name="hip" axis="0 2 0" range="-45 90"/>
<geom fromto="0 0 0 0 0 -0.4"/>
<body pos="0 0 -0.4"><joint name="knee" axis="1 0 0" range="0 180" armature="0.1"/>
<geom fromto="0 0 0 0 0 -0.4"/></body></body></frame></body></worldbody>
<actuator><motor class="drive" joint="knee"/>
<general joint="hip" biastype="affine" gainprm="40" biasprm="0 -40 0" ctrllimited="true" ctrlrange="-0.5 1"/></actuator>
</mujoco>"""


def test_degrees_defaults_and_frames_are_words_for_the_same_model() -> None:
    one, other = (general_graph(mujoco.MjModel.from_xml_string(xml)) for xml in (PLAIN, OTHER_WORDS))
    assert one.joint_static.any()
    for key, value in vars(one).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(getattr(other, key), value, atol=1e-6, err_msg=key)
        else:
            assert getattr(other, key) == value
