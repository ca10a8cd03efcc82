"""The Centipede generator against the published numbers and against one body written out by hand."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import agents
from agents.centipede import make_morphology

# legs: observations, actions, nq, nv, bodies with the world
TABLE = {
    3: (81, 6, 15, 14, 9),
    4: (97, 10, 17, 16, 11),
    5: (123, 12, 21, 20, 14),
    6: (139, 16, 23, 22, 16),
    7: (165, 18, 27, 26, 19),
    8: (181, 22, 29, 28, 21),
    10: (223, 28, 35, 34, 26),
    12: (265, 34, 41, 40, 31),
    14: (307, 40, 47, 46, 36),
    18: (391, 52, 59, 58, 46),
    20: (433, 58, 65, 64, 51),
    24: (517, 70, 77, 76, 61),
}

# Centipede-3 from its description, with angles in radians and no defaults: two torsos, the front one with a left leg.
BY_HAND = """
<mujoco>
  <compiler angle="radian"/>
  <option integrator="RK4" timestep="0.01"><flag autoreset="disable"/></option>
  <worldbody>
    <geom type="plane" size="1 1 1" friction="1.5 .1 .1" margin=".01"/>
    <body pos="0 0 .75">
      <geom type="sphere" size=".25" density="100" {geom}/>
      <joint type="free" margin=".01"/>
      <body pos="0 -.28 0">
        <joint axis="0 0 1" range="-0.6981317 0.6981317" {joint}/>
        <geom type="capsule" size=".08" fromto="0 0 0 0 -.28 0" density="25" {geom}/>
        <body pos="0 -.28 0">
          <joint axis="1 0 0" range="0.5235988 1.7453293" {joint}/>
          <geom type="capsule" size=".08" fromto="0 0 0 0 -.6 0" density="25" {geom}/>
        </body>
      </body>
      <body pos="0 .28 0">
        <joint axis="0 0 1" range="-0.6981317 0.6981317" {joint}/>
        <geom type="capsule" size=".08" fromto="0 0 0 0 .28 0" density="25" {geom}/>
        <body pos="0 .28 0">
          <joint axis="-1 0 0" range="0.5235988 1.7453293" {joint}/>
          <geom type="capsule" size=".08" fromto="0 0 0 0 .6 0" density="25" {geom}/>
        </body>
      </body>
      <body pos=".5 0 0">
        <geom type="sphere" size=".25" density="100" {geom}/>
        <joint pos="-.25 0 0" axis="0 0 1" range="-0.3490659 0.3490659" {joint}/>
        <joint pos="-.25 0 0" axis="0 1 0" range="-0.1745329 0.5235988" {joint}/>
        <body pos="0 -.28 0">
          <joint name="hip" axis="0 0 1" range="-0.6981317 0.6981317" {joint}/>
          <geom type="capsule" size=".08" fromto="0 0 0 0 -.28 0" density="25" {geom}/>
          <body pos="0 -.28 0">
            <joint name="ankle" axis="1 0 0" range="0.5235988 1.7453293" {joint}/>
            <geom type="capsule" size=".08" fromto="0 0 0 0 -.6 0" density="25" {geom}/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
""".format(
    joint='limited="true" armature="1" damping="1"',
    geom='friction="1.5 .1 .1" margin=".01" conaffinity="0"',
)


@pytest.mark.parametrize("legs", TABLE)
def test_sizes(legs: int) -> None:
    model = agents.load(f"centipede-{legs}").compile()
    observations = model.nq - 2 + model.nv + 6 * model.nbody
    assert (observations, model.nu, model.nq, model.nv, model.nbody) == TABLE[legs]


@pytest.mark.parametrize(("legs", "mass"), [(6, 22.93), (20, 76.44)])
def test_total_mass(legs: int, mass: float) -> None:
    assert agents.load(f"centipede-{legs}").compile().body_mass.sum() == pytest.approx(mass, abs=0.005)


def test_equals_the_body_written_by_hand() -> None:
    made, hand = agents.load("centipede-3").compile(), mujoco.MjModel.from_xml_string(BY_HAND)
    exact = ("body_parentid", "jnt_type", "jnt_bodyid", "jnt_limited", "geom_bodyid", "geom_type", "geom_contype",
             "geom_conaffinity", "geom_condim")  # fmt: skip
    for name in exact:
        np.testing.assert_array_equal(getattr(made, name), getattr(hand, name), err_msg=name)
    close = ("body_pos", "body_mass", "body_inertia", "body_ipos", "jnt_pos", "jnt_axis", "jnt_range", "jnt_margin",
             "dof_armature", "dof_damping", "geom_friction", "geom_margin", "qpos0")  # fmt: skip
    for name in close:
        np.testing.assert_allclose(getattr(made, name), getattr(hand, name), atol=1e-7, err_msg=name)
    np.testing.assert_allclose(made.geom_size[1:], hand.geom_size[1:])  # the floor's size is only drawn
    assert made.opt.timestep == hand.opt.timestep
    assert made.opt.integrator == hand.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4


def test_joint_and_actuator_order() -> None:
    model = agents.load("centipede-6").compile()
    joints = ["root", "lefthip_0", "ankle_0", "righthip_1", "ankle_1",
              "body_1", "bodyupdown_1", "lefthip_2", "ankle_2", "righthip_3", "ankle_3",
              "body_2", "bodyupdown_2", "lefthip_4", "ankle_4", "righthip_5", "ankle_5"]  # fmt: skip
    motors = ["lefthip_0", "ankle_0", "righthip_1", "ankle_1",
              "lefthip_2", "ankle_2", "righthip_3", "ankle_3", "body_1", "bodyupdown_1",
              "lefthip_4", "ankle_4", "righthip_5", "ankle_5", "body_2", "bodyupdown_2"]  # fmt: skip
    assert [model.joint(i).name for i in range(model.njnt)] == joints
    assert [model.joint(i).name for i in model.actuator_trnid[:, 0]] == motors
    np.testing.assert_array_equal(model.actuator_gear[:, 0], [100 if "body" in name else 150 for name in motors])
    np.testing.assert_array_equal(model.actuator_ctrlrange, [[-1, 1]] * 16)
    assert model.actuator_ctrllimited.all()


def test_node_classes_follow_the_joints() -> None:
    for name in ("centipede-3", "centipede-6", "centipede-7-crippled-2-3"):
        morphology = agents.load(name)
        model = morphology.compile()
        names = [model.joint(i).name for i in range(model.njnt)]
        assert morphology.node_class(model) == tuple(name.split("_")[0] for name in names)
    with pytest.raises(ValueError, match="joints"):
        agents.load("centipede-3").node_class(agents.load("centipede-4").compile())


def test_odd_number_leaves_the_last_spine_joints_passive() -> None:
    for legs in (3, 5, 7):
        model = agents.load(f"centipede-{legs}").compile()
        driven = {model.joint(i).name for i in model.actuator_trnid[:, 0]}
        passive = {model.joint(i).name for i in range(1, model.njnt)} - driven
        assert passive == {f"body_{legs // 2}", f"bodyupdown_{legs // 2}"}


@pytest.mark.parametrize(
    ("name", "crippled"), [("centipede-6-crippled", [0, 1]), ("centipede-6-crippled-2-3", [2, 3]),
                           ("centipede-5-crippled-4", [4]), ("centipede-8-crippled-0-3-7", [0, 3, 7])]
)  # fmt: skip
def test_crippled_legs_lose_their_motors_only(name: str, crippled: list[int]) -> None:
    morphology = agents.load(name)
    legs = int(name.split("-")[1])
    whole, model = agents.load(f"centipede-{legs}").compile(), morphology.compile()
    assert morphology.name == name
    assert morphology.source["arguments"] == {"legs": legs, "crippled_legs": crippled}
    lost = {f"{part}_{leg}" for leg in crippled for part in ("lefthip", "righthip", "ankle")}
    kept = [motor for motor in (whole.actuator(i).name for i in range(whole.nu)) if motor not in lost]
    assert [model.actuator(i).name for i in range(model.nu)] == kept
    assert model.nu == whole.nu - 2 * len(crippled)
    np.testing.assert_array_equal(model.body_mass, whole.body_mass)
    np.testing.assert_array_equal(model.jnt_range, whole.jnt_range)


def test_names_are_canonical() -> None:
    assert agents.load("centipede-6-crippled-0-1").name == "centipede-6-crippled"
    assert agents.load("centipede-6-crippled-3-2-3").name == "centipede-6-crippled-2-3"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("centipede-2", "needs at least 3 legs"),
        ("centipede-0", "needs at least 3 legs"),
        ("centipede-100000", "at most 400 legs"),
        ("centipede-6-crippled-6", "no leg 6 to cripple, legs are 0 to 5"),
        ("centipede-3-crippled-0-1-2", "no motor is left"),
    ],
)
def test_impossible_centipedes(name: str, message: str) -> None:
    with pytest.raises(agents.UserError, match=message) as caught:
        agents.load(name)
    assert "\n" not in str(caught.value)


def test_legs_must_be_a_number() -> None:
    with pytest.raises(agents.UserError):
        make_morphology(5.5)  # type: ignore[arg-type]


def test_robot_meets_the_floor_and_not_itself() -> None:
    model = agents.load("centipede-6").compile()
    data = mujoco.MjData(model)
    data.qpos[2] = 0.2  # torsos 5 cm deep in the floor, and overlapping each other's hips
    mujoco.mj_forward(model, data)
    assert data.ncon > 0
    floor = model.geom("floor").id
    assert all(floor in (data.contact[i].geom1, data.contact[i].geom2) for i in range(data.ncon))
