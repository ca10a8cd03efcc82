"""Small robots for the tests of the graph: from XML text, and random trees in any order and under any names."""

from __future__ import annotations

import string
from dataclasses import dataclass, field

import mujoco
import numpy as np

from envs.observation import general_layout
from envs.robot import find_robot
from snowflake.graph import MorphologyGraph, build_graph

_TYPES = {
    "hinge": mujoco.mjtJoint.mjJNT_HINGE,
    "slide": mujoco.mjtJoint.mjJNT_SLIDE,
    "ball": mujoco.mjtJoint.mjJNT_BALL,
}


def from_xml(bodies: str, actuators: str, rest: str = "", head: str = "") -> tuple[mujoco.MjModel, MorphologyGraph]:
    """Compile the inside of a worldbody and of an actuator section, and build the general graph."""
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco>{head}<worldbody>{bodies}</worldbody><actuator>{actuators}</actuator>{rest}</mujoco>"
    )
    return model, general_graph(model)


def general_graph(model: mujoco.MjModel, name: str = "toy", **keywords: bool) -> MorphologyGraph:
    robot = find_robot(model, name=name)
    return build_graph(model, general_layout(model, robot), name=name, robot=robot, **keywords)  # type: ignore[arg-type]


@dataclass
class Link:
    """A body of a random tree. Keys of joints tell them apart whatever the names and the order."""

    position: np.ndarray
    orientation: np.ndarray
    radius: float
    joints: list[tuple[int, str, np.ndarray, float, float]]  # key, type, axis, range, damping
    children: list[Link] = field(default_factory=list)


@dataclass
class Tree:
    """A random robot on a free root: links, and its motors as (joint key, gear)."""

    top: Link
    motors: list[tuple[int, float]]


def random_tree(seed: int, bodies: int = 9) -> Tree:
    rng = np.random.default_rng(seed)
    keys = iter(range(1000))

    def link(joints: int) -> Link:
        kinds = ["ball"] if joints == 3 else [str(rng.choice(["hinge", "slide"])) for _ in range(joints)]
        made = [
            (next(keys), kind, rng.normal(size=3), float(rng.uniform(0, 2)), float(rng.uniform(0, 3))) for kind in kinds
        ]
        return Link(rng.normal(size=3), rng.normal(size=4), float(rng.uniform(0.05, 0.3)), made)

    links = [link(0)]
    for _ in range(bodies - 1):
        new = link(int(rng.choice([0, 1, 1, 2, 3])))
        links[rng.integers(len(links))].children.append(new)
        links.append(new)
    if not any(kind != "ball" for one in links for _, kind, *_ in one.joints):
        return random_tree(seed + 1000, bodies)
    scalar = [key for one in links for key, kind, *_ in one.joints if kind != "ball"]
    driven = rng.choice(scalar, size=max(1, len(scalar) * 3 // 4), replace=False)
    return Tree(links[0], [(int(key), float(rng.choice([-1, 1]) * rng.uniform(1, 200))) for key in driven])


def compile_tree(tree: Tree, shuffle: int | None = None) -> tuple[mujoco.MjModel, dict[int, int], list[int]]:
    """Compile a random tree.

    Args:
        tree: the robot.
        shuffle: seed that permutes siblings and motors and draws names; none keeps the order and gives plain names.

    Returns:
        The model, joint id of every joint key, and which motor of `tree.motors` every actuator is.
    """
    rng = np.random.default_rng(shuffle)
    spec = mujoco.MjSpec()
    names: dict[int, str] = {}

    def name(plain: str) -> str:
        return plain if shuffle is None else "".join(rng.choice(list(string.ascii_letters), 12))

    def order(count: int) -> list[int]:
        return list(range(count)) if shuffle is None else rng.permutation(count).tolist()

    def add(parent: mujoco.MjsBody, link: Link) -> None:
        body = parent.add_body(name=name(f"b{len(names)}_{id(link)}"), pos=link.position, quat=link.orientation)
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[link.radius] * 3, pos=[0.1, 0, link.radius])
        for key, kind, axis, limit, damping in link.joints:
            names[key] = name(f"j{key}")
            joint = body.add_joint(name=names[key], type=_TYPES[kind], axis=axis, damping=damping)
            if limit > 1 and kind != "ball":
                joint.limited, joint.range = mujoco.mjtLimited.mjLIMITED_TRUE, [-limit / 3, limit]
        for index in order(len(link.children)):
            add(body, link.children[index])

    add(spec.worldbody, tree.top)
    spec.worldbody.first_body().add_freejoint()
    motors = order(len(tree.motors))
    for index in motors:
        key, gear = tree.motors[index]
        spec.add_actuator(
            name=name(f"a{index}"),
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            target=names[key],
            gear=[gear, 0, 0, 0, 0, 0],
            ctrllimited=mujoco.mjtLimited.mjLIMITED_TRUE,
            ctrlrange=[-1, 1],
        )
    spec.compiler.degree = False
    model = spec.compile()
    return model, {key: model.joint(text).id for key, text in names.items()}, motors


def strip_names(model: mujoco.MjModel) -> mujoco.MjModel:
    """Point every name of a compiled model at the empty string."""
    empty = bytes(model.names).rindex(b"\0")
    for key in dir(model):
        if key.startswith("name_") and key.endswith("adr"):
            getattr(model, key)[:] = empty
    return model
