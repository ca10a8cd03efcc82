"""What the report says of an actuator, from the compiled numbers alone."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from envs.robot import find_robot
from snowflake.inspection import elements

MODEL = """<mujoco><worldbody><body name="base"><joint name="j" range="-1 1"/><geom size=".1"/><site name="s"/>
  <body name="tip"><joint name="k" type="slide"/><geom size=".1"/></body></body></worldbody>
  <tendon><fixed name="t"><joint joint="j" coef="1"/><joint joint="k" coef="2"/></fixed></tendon>
  <actuator>{}</actuator></mujoco>"""


@pytest.mark.parametrize(
    ("element", "kind"),
    [
        ('<motor joint="j" gear="7"/>', "motor"),
        ('<position joint="j" kp="3"/>', "position"),
        ('<position joint="j" kp="3" kv="1" timeconst=".1"/>', "position"),
        ('<velocity joint="j" kv="2"/>', "velocity"),
        ('<intvelocity joint="j" kp="5" actrange="-1 1"/>', "intvelocity"),
        ('<damper joint="j" kv="2" ctrlrange="0 1"/>', "damper"),
        ('<cylinder joint="j" timeconst=".1" area="2"/>', "cylinder"),
        ('<muscle joint="j"/>', "muscle"),
        ('<adhesion body="tip" gain="3" ctrlrange="0 1"/>', "adhesion"),
        ('<general joint="j" dyntype="filter" dynprm=".1"/>', "general"),
        ('<general joint="j" gainprm="2" biastype="affine" biasprm="1 -3 0"/>', "general"),
    ],
)
def test_kind_of_an_actuator(element: str, kind: str) -> None:
    model = mujoco.MjModel.from_xml_string(MODEL.format(element))
    assert elements.actuator_kind(model, 0) == kind


def test_an_actuator_on_a_tendon() -> None:
    model = mujoco.MjModel.from_xml_string(
        MODEL.format('<motor tendon="t" gear="7" forcelimited="true" forcerange="-2 2"/>')
    )
    row = elements.actuators(model, find_robot(model))[0]
    assert row["name"] == "actuator#0"
    assert (row["transmission"], row["drives"]) == ("fixed tendon", ["j", "k"])
    assert (row["gear"], row["force_range"], row["controls"]) == ([7.0], [-2.0, 2.0], [0])


def test_tree_and_joints() -> None:
    model = mujoco.MjModel.from_xml_string(MODEL.format('<motor joint="j"/>'))
    base, tip = elements.tree(model, find_robot(model))
    assert (base["name"], base["depth"], base["part"]) == ("base", 0, "robot")
    assert (tip["parent"], tip["depth"]) == (base["id"], 1)
    assert base["joints"] == [{"id": 0, "name": "j", "type": "hinge", "range": pytest.approx(np.deg2rad([-1, 1]))}]
    assert tip["joints"][0]["range"] is None
    assert elements.dof_name(model, 1) == "k"
