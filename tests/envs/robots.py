"""Small robots, one a difficulty of real models, as MJCF."""

from __future__ import annotations

from pathlib import Path

from agents import Morphology
from agents.files import make_morphology

_BOX = '<body name="{name}" pos="{x} 0 2"><freejoint/><geom size=".1"/></body>'
_LEG = """
<body name="leg{n}" pos="0 {side}.1 0"><joint name="hip{n}" axis="0 1 0" range="-50 70"/><geom type="capsule"
 size=".03" fromto="0 0 0 0 {side}.2 -.2"/><body name="foot{n}" pos="0 {side}.2 -.2"><geom size=".04"/>{more}</body>
</body>"""


def _legged(
    before: str = "", after: str = "", joints: str = "<freejoint/>", actuators: str = "", more: str = ""
) -> str:
    actuators = actuators or '<motor name="m2" joint="hip2" gear="5" ctrlrange="-1 1"/><motor joint="hip1" gear="3"/>'
    return f"""<mujoco><worldbody><geom type="plane" size="5 5 1"/>{before}
<body name="torso" pos="0 0 1">{joints}<geom name="belly" size=".2"/><site name="back" pos="0 0 .2"/>
{_LEG.format(n=1, side="", more=more)}{_LEG.format(n=2, side="-", more="")}</body>{after}</worldbody>
<actuator>{actuators}</actuator></mujoco>"""


_SHIN = '<body name="shin" pos="0 0 -.2"><joint name="{name}" {joint}/><geom size=".05"/><site name="shin"/></body>'
_ARM = """<mujoco><worldbody>{world}<body name="base" pos="0 0 1"><geom size=".1"/><site name="base"/>
<body name="upper" pos=".1 0 0"><joint name="shoulder" axis="0 1 0" {limit}/><geom type="capsule" size=".02"
 fromto="0 0 0 .3 0 0"/><geom name="pulley" size=".04" pos=".2 0 0" mass="0" contype="0" conaffinity="0"/>
<body name="lower" pos=".3 0 0"><joint name="elbow" axis="0 1 0" limited="true" range="-90 90"/><geom type="capsule"
 size=".02" fromto="0 0 0 .3 0 0"/><site name="hand" pos=".2 0 .05"/></body></body></body></worldbody>
<tendon><fixed name="both"><joint joint="shoulder" coef="1"/><joint joint="elbow" coef="-.5"/></fixed>
<spatial name="cord"><site site="base"/><geom geom="pulley"/><site site="hand"/></spatial></tendon>
<actuator>{actuators}</actuator></mujoco>"""


def _arm(actuators: str, limit: str = "", world: str = "") -> str:
    return _ARM.format(actuators=actuators, limit=limit, world=world)


_PLANAR = """<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1" ref="1"/>
<joint name="pitch" axis="0 1 0" pos="0 0 .05"/>"""

ROBOTS: dict[str, str] = {
    "plain": _legged(),
    "box before": _legged(before=_BOX.format(name="box", x=1)),
    "box after": _legged(after=_BOX.format(name="box", x=1)),
    "mocap": _legged(before='<body name="target" mocap="true" pos="1 0 1"><geom size=".05" contype="0"/></body>'),
    "planar root": _legged(joints=_PLANAR),
    "ball joint": _legged(
        more=_SHIN.format(name="ball", joint='type="ball" range="0 60"'),
        actuators='<motor joint="hip2"/><motor joint="hip1"/><motor joint="ball" gear="0 1 0 0 0 0"/>',
    ),
    "passive ball": _legged(before=_BOX.format(name="b", x=1), more=_SHIN.format(name="ball", joint='type="ball"')),
    "slide joint": _legged(
        more=_SHIN.format(name="slide", joint='type="slide" axis="0 0 1" range="-.1 .3"')
        + '<body pos="0 0 -.4"><joint name="far" type="slide" axis="1 0 0"/><geom size=".05"/></body>',
        actuators='<motor joint="hip1"/><position joint="slide" kp="50"/><velocity joint="far" kv="3"/>',
    ),
    "several joints a body": _legged(
        more='<body><joint name="a" axis="1 0 0"/><joint name="b" axis="0 1 0" pos="0 0 .1"/>'
        '<joint name="c" type="slide" axis="0 0 1"/><geom size=".05"/></body>',
        actuators='<motor joint="b"/><motor joint="hip1"/>',
    ),
    "fixed base": _arm('<motor joint="elbow" ctrlrange="-2 3"/><motor joint="shoulder" forcerange="-4 4" gear="2"/>'),
    "several actuators a joint": _arm(
        '<motor joint="elbow"/><position joint="elbow" kp="3"/><velocity joint="shoulder" kv="2"/>'
        '<damper joint="elbow" ctrlrange="0 1" kv="2"/><intvelocity joint="shoulder" kp="4" actrange="-2 2"/>'
        '<cylinder joint="shoulder" timeconst=".1"/><general joint="elbow" gainprm="3" dyntype="filter" dynprm=".1"/>'
    ),
    "several controls an actuator": _arm(
        '<pid name="pid" joint="shoulder" kp="3" kv=".5"/><position joint="elbow" kp="2"/>', limit='range="-40 80"'
    ),
    "orientation servo": _legged(
        more=_SHIN.format(name="ball", joint='type="ball"'),
        actuators='<motor joint="hip1"/><orientation name="servo" joint="ball" kp="3"/><motor joint="hip2"/>',
    ),
    "fixed tendon": _arm('<motor tendon="both" ctrlrange="-1 1"/>'),
    "spatial tendon": _arm('<motor tendon="cord" gear="-5" ctrlrange="0 1"/>'),
    "muscle": _arm('<muscle tendon="cord" lengthrange=".2 .6"/><motor joint="elbow"/>'),
    "site": _legged(actuators='<motor site="back" gear="0 0 1 0 0 0"/><motor joint="hip1"/>'),
    "joint in parent": _legged(
        more=_SHIN.format(name="ball", joint='type="ball"'),
        actuators='<motor jointinparent="ball" gear="1 0 0 0 0 0"/><motor joint="hip1"/>',
    ),
    "adhesion": _legged(actuators='<motor joint="hip1"/><adhesion body="foot2" ctrlrange="0 1" gain="5"/>'),
    "slider-crank": _arm(
        '<motor slidersite="base" cranksite="hand" cranklength=".8"/><motor joint="elbow"/>', limit='range="-20 20"'
    ),
    "drone": """<mujoco><worldbody><body name="hull" pos="0 0 1"><freejoint/><geom size=".1" mass="1"/>
<site name="l" pos="0 .1 0"/><site name="r" pos="0 -.1 0"/></body></worldbody><actuator>
<motor site="l" gear="0 0 1 0 0 0" ctrlrange="0 13"/><motor site="r" gear="0 0 1 0 0 0" ctrlrange="0 13"/></actuator>
<keyframe><key qpos="0 0 1 1 0 0 0" ctrl="4.9 4.9"/></keyframe></mujoco>""",
    "pendulum": """<mujoco><worldbody><body name="pole"><joint name="pin" axis="0 1 0"/><geom size=".1" pos="0 0 -.5"/>
</body></worldbody><actuator><motor joint="pin"/></actuator></mujoco>""",
    "tendon to the world": """<mujoco><worldbody><site name="hook" pos=".3 0 1"/><body name="bone"><joint name="pin"
 axis="0 1 0"/><geom type="capsule" size=".05" fromto="0 0 0 0 0 .5"/><site name="tip" pos="0 0 .5"/></body></worldbody>
<tendon><spatial name="cord"><site site="hook"/><site site="tip"/></spatial></tendon>
<actuator><motor tendon="cord" gear="-1"/></actuator></mujoco>""",
}
"""MJCF texts, each a single actuated tree."""

TWO_ROBOTS = """<mujoco><worldbody><body name="left" pos="0 1 0"><joint name="l" axis="0 1 0"/>
<geom size=".1" pos=".2 0 0"/></body><body pos="0 -1 0"><joint name="r" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/>
<body name="tip"><joint name="t" axis="0 1 0"/><geom size=".1" pos=".4 0 0"/></body></body></worldbody><actuator>
<motor joint="r" ctrlrange="-1 1"/><position joint="l" kp="3" ctrlrange=".2 .8"/><motor joint="t" ctrlrange="-1 1"/>
</actuator></mujoco>"""
"""Two actuated trees: "left", and one without a name."""


def morphology(folder: Path, xml: str, root_body: str | None = None) -> Morphology:
    """Write a robot to a file and return its body, without the check in a process of its own."""
    path = folder / "small.xml"
    path.write_text(xml)
    return make_morphology(path, root_body, files=[str(path)])
