"""Any robot at all: hypothesis draws its plan, MuJoCo compiles it in any order of siblings and actuators."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from hypothesis import strategies as st

_TRN, _JNT = mujoco.mjtTrn, mujoco.mjtJoint
_TYPES = {"free": _JNT.mjJNT_FREE, "ball": _JNT.mjJNT_BALL, "hinge": _JNT.mjJNT_HINGE, "slide": _JNT.mjJNT_SLIDE}
_TOPS = ((), ("free",), ("slide", "slide", "hinge"), ("hinge",), ("ball",), ("slide",))
_JOINTS = ((), ("hinge",), ("slide",), ("ball",), ("hinge", "hinge"), ("slide", "hinge"), ("ball", "slide"))
DRIVES = ("motor", "position", "velocity", "intvelocity", "damper", "cylinder", "muscle", "general", "adhesion")
PLACES = ("joint", "jointinparent", "ball", "site", "crank", "fixed tendon", "spatial tendon")


@dataclass(frozen=True)
class Plan:
    """A robot in numbers; whatever they are, MuJoCo compiles it.

    Attributes:
        joints: kinds of the joints of each link; that of the top link first.
        parents: which earlier link each further link hangs on.
        actuators: drive, place, and a number that chooses the element, of each.
        prop: whether a loose ball lies beside the robot, before it in the file.
        seed: of lengths, axes, ranges and masses.
    """

    joints: tuple[tuple[str, ...], ...]
    parents: tuple[int, ...]
    actuators: tuple[tuple[str, str, int], ...]
    prop: bool
    seed: int

    def moving(self) -> list[int]:
        """Links with a joint of their own or above them."""
        moves = [bool(self.joints[0])]
        for link, parent in enumerate(self.parents, start=1):
            moves.append(bool(self.joints[link]) or moves[parent])
        return [link for link, moved in enumerate(moves) if moved]

    def keys(self, *kinds: str) -> list[tuple[int, int]]:
        """Joints of some kinds, as (link, place on the link)."""
        return [(link, i) for link, own in enumerate(self.joints) for i, kind in enumerate(own) if kind in kinds]


@st.composite
def plans(draw: st.DrawFn, most: int = 60) -> Plan:
    """Draw a robot of 1 to ``most`` links in which something moves and something drives."""
    count = draw(st.integers(1, most))
    top = draw(st.sampled_from(_TOPS[1:] if count == 1 else _TOPS))
    joints = [top, *(draw(st.sampled_from(_JOINTS)) for _ in range(count - 1))]
    if not any(joints):
        joints[-1] = ("hinge",)
    parents = tuple(draw(st.integers(0, link - 1)) for link in range(1, count))
    drive, number = st.sampled_from(DRIVES), st.integers(0, 10_000)
    actuators = draw(st.lists(st.tuples(drive, st.sampled_from(PLACES), number), min_size=1, max_size=12))
    return Plan(tuple(joints), parents, tuple(actuators), draw(st.booleans()), draw(st.integers(0, 2**16)))


@dataclass(frozen=True)
class Compiled:
    """A compiled plan.

    Attributes:
        model: the model.
        joint: joint id by key, see `Plan.keys`.
        body: body id by link.
        actuator: actuator id by place in `Plan.actuators`.
    """

    model: mujoco.MjModel
    joint: dict[tuple[int, int], int]
    body: dict[int, int]
    actuator: dict[int, int]


def compile_plan(plan: Plan, shuffle: int | None = None) -> Compiled:
    """Compile a plan.

    Args:
        plan: the robot.
        shuffle: seed that permutes siblings and actuators and draws names; none keeps the order and gives plain names.
    """
    order = np.random.default_rng(shuffle)
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-3

    def name(text: str) -> str:
        return text if shuffle is None else f"{order.integers(10**12)}-{text}"

    def permuted(count: int) -> list[int]:
        return list(range(count)) if shuffle is None else order.permutation(count).tolist()

    names = {("link", link): name(f"b{link}") for link in range(len(plan.joints))}
    names |= {key: name(f"j{key}") for key in plan.keys(*_TYPES)}
    names |= {("site", link): name(f"s{link}") for link in range(len(plan.joints))}
    names |= {("actuator", k): name(f"a{k}") for k in range(len(plan.actuators))}
    if plan.prop:
        prop = spec.worldbody.add_body(name=name("prop"), pos=[9, 0, 0])
        prop.add_freejoint()
        prop.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0, 0])

    def add(parent: mujoco.MjsBody, link: int) -> None:
        body = _add_link(parent, plan, link, names)
        children = [child for child, above in enumerate(plan.parents, start=1) if above == link]
        for index in permuted(len(children)):
            add(body, children[index])

    add(spec.worldbody, 0)
    for k in permuted(len(plan.actuators)):
        _add_actuator(spec, plan, k, names)
    model = spec.compile()
    return Compiled(
        model=model,
        joint={key: model.joint(names[key]).id for key in plan.keys(*_TYPES)},
        body={link: model.body(names["link", link]).id for link in range(len(plan.joints))},
        actuator={k: model.actuator(names["actuator", k]).id for k in range(len(plan.actuators))},
    )


def _add_link(parent: mujoco.MjsBody, plan: Plan, link: int, names: dict) -> mujoco.MjsBody:
    rng = np.random.default_rng((plan.seed, link))
    body = parent.add_body(name=names["link", link], pos=rng.normal(size=3), quat=rng.normal(size=4))
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[rng.uniform(0.05, 0.3), 0, 0], pos=rng.normal(size=3) / 5)
    body.add_site(name=names["site", link], pos=rng.normal(size=3) / 5)
    for i, kind in enumerate(plan.joints[link]):
        joint = body.add_joint(name=names[link, i], type=_TYPES[kind], axis=rng.normal(size=3))
        if kind != "free":
            joint.damping, joint.armature = [rng.uniform(0, 3), 0, 0], 0.01
        if kind in ("hinge", "slide") and rng.random() < 0.5:
            joint.limited, joint.range = mujoco.mjtLimited.mjLIMITED_TRUE, [-rng.uniform(0, 1), rng.uniform(0.1, 2)]
    return body


def _add_actuator(spec: mujoco.MjSpec, plan: Plan, k: int, names: dict) -> None:
    drive, place, number = plan.actuators[k]
    rng = np.random.default_rng((plan.seed, 1000 + k))
    links, scalar = plan.moving(), plan.keys("hinge", "slide")
    link = links[number % len(links)]
    target, trntype, slider = names["site", link], _TRN.mjTRN_SITE, None
    if place in ("joint", "jointinparent") and scalar:
        target, trntype = names[scalar[number % len(scalar)]], _TRN.mjTRN_JOINT
        trntype = _TRN.mjTRN_JOINTINPARENT if place == "jointinparent" else trntype
    elif place == "ball" and (balls := plan.keys("ball")):
        target, trntype = names[balls[number % len(balls)]], _TRN.mjTRN_JOINT
    elif place == "crank":
        trntype, slider = _TRN.mjTRN_SLIDERCRANK, names["site", links[number // 7 % len(links)]]
    elif place == "fixed tendon" and scalar:
        target, trntype = f"tendon{k}", _TRN.mjTRN_TENDON
        tendon = spec.add_tendon(name=target)
        for i in sorted({number % len(scalar), number // 3 % len(scalar), number // 11 % len(scalar)}):
            tendon.wrap_joint(names[scalar[i]], rng.uniform(0.5, 2))
    elif place == "spatial tendon" and len(plan.joints) > 1:
        target, trntype = f"tendon{k}", _TRN.mjTRN_TENDON
        tendon = spec.add_tendon(name=target)
        tendon.wrap_site(names["site", link])
        tendon.wrap_site(names["site", (link + 1 + number // 5 % (len(plan.joints) - 1)) % len(plan.joints)])
    if drive == "adhesion":
        target, trntype, slider = names["link", link], _TRN.mjTRN_BODY, None
    actuator = spec.add_actuator(name=names["actuator", k], target=target, trntype=trntype)
    actuator.gear = [rng.uniform(0.5, 20), *rng.normal(size=5)]
    if slider is not None:
        actuator.slidersite, actuator.cranklength = slider, 10.0
    _drive(actuator, drive, rng)


def _drive(actuator: mujoco.MjsActuator, drive: str, rng: np.random.Generator) -> None:
    """Make an actuator of a kind, with a range of controls that suits it."""
    limits = {"adhesion": [0, 1], "damper": [0, 1], "muscle": [0, 1]}.get(drive, [-1, 1])
    actuator.ctrllimited, actuator.ctrlrange = mujoco.mjtLimited.mjLIMITED_TRUE, limits
    if drive == "general":
        actuator.dyntype, actuator.dynprm = mujoco.mjtDyn.mjDYN_FILTER, [0.05, *[0] * 9]
    elif drive == "intvelocity":
        actuator.set_to_intvelocity(rng.uniform(1, 50))
        actuator.actlimited, actuator.actrange = mujoco.mjtLimited.mjLIMITED_TRUE, [-1, 1]
    elif drive == "cylinder":
        actuator.set_to_cylinder(0.1, 0.0, 1.0)
    elif drive == "muscle":
        actuator.set_to_muscle(tausmooth=0.0)
        actuator.lengthrange = [0.1, 2.0]
    elif drive == "motor":
        actuator.set_to_motor()
    else:
        getattr(actuator, f"set_to_{drive}")(rng.uniform(0.5, 5))
