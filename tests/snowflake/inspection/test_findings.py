"""Every finding, on the smallest model that has it, and none on a model that is fine."""

from __future__ import annotations

import mujoco
import pytest

from snowflake.inspection.findings import ERROR, NOTE, WARNING, Finding, find_problems, listed

FINE = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
  <body name="base" pos="0 0 1"><freejoint/><geom size=".1"/>
    <body name="arm" pos=".15 0 0"><joint name="elbow" range="-60 60"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/></body>
  </body>{more}</worldbody>
  <actuator><motor name="drive" joint="elbow" ctrlrange="-1 1"/>{motors}</actuator>{rest}</mujoco>"""


def findings(text: str = FINE, *, root_body: str | None = None, more: str = "", motors: str = "", rest: str = ""):
    text = text.replace("{more}", more).replace("{motors}", motors).replace("{rest}", rest)
    return find_problems(mujoco.MjModel.from_xml_string(text), root_body, "it")


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def test_nothing_is_odd_about_a_plain_robot() -> None:
    assert findings() == []


@pytest.mark.parametrize(
    ("old", "new", "severity", "code", "words"),
    [
        ('range="-60 60"', 'range="30 60"', WARNING, "reset-outside-limits", "'elbow', by 0.524 rad"),
        ('ctrlrange="-1 1"', 'ctrlrange=".5 1"', NOTE, "zero-outside-control-range", "'drive'"),
        ('ctrlrange="-1 1"', "", WARNING, "unlimited-controls", "1 control without a range: 'drive'"),
        ('<geom type="plane" size="5 5 1"/>', "", NOTE, "no-ground", "no ground to stand on"),
        ('<freejoint/>', "", NOTE, "fixed-base", "'base' is fixed"),
        ('<freejoint/>', '<joint name="pin"/>', NOTE, "fixed-base", "'base' turns on 'pin' in one place"),
        ('ctrlrange="-1 1"', 'ctrlrange="-1e9 1e9"', WARNING, "absurd-range", "control ranges beyond 1e+06: 'drive'"),
        ('range="-60 60"', 'range="-1e9 1e9"', WARNING, "absurd-range", "joint ranges beyond 1e+06: 'elbow'"),
        ('ctrlrange="-1 1"', 'ctrlrange="-1 1" forcerange="-1e10 9"', WARNING, "absurd-range", "force ranges"),
        ('pos="0 0 1"', 'pos="0 0 0"', NOTE, "reset-penetrates", "0.1 m inside"),
    ],
)  # fmt: skip
def test_one_thing_is_odd(old: str, new: str, severity: str, code: str, words: str) -> None:
    assert old in FINE
    finding = only(findings(FINE.replace(old, new)))
    assert (finding.severity, finding.code) == (severity, code)
    assert words in finding.message
    assert finding.advice


def test_limits_of_slides_and_balls() -> None:
    more = """<body name="cart"><joint name="rail" type="slide" range=".1 .2"/><geom size=".1" contype="0"
      conaffinity="0"/><body name="wrist"><joint name="cup" type="ball" range="0 30"/><geom size=".05" contype="0"
      conaffinity="0"/></body></body>"""
    key = """<keyframe><key name="bent" qpos="0 0 1 1 0 0 0 0 .15 .7071 .7071 0 0"/></keyframe>"""
    found = {finding.code: finding for finding in findings(more=more, rest=key)}
    assert found["reset-outside-limits"].elements == ("rail",)
    assert "by 0.1 m" in found["reset-outside-limits"].message
    assert found["keyframe-outside-limits"].elements == ("cup",)
    assert "keyframe 'bent'" in found["keyframe-outside-limits"].message
    assert "by 1.05 rad" in found["keyframe-outside-limits"].message


def test_a_keyframe_with_controls_outside_their_range() -> None:
    finding = only(findings(rest='<keyframe><key name="k" ctrl="3"/><key ctrl="0"/></keyframe>'))
    assert (finding.severity, finding.code) == (NOTE, "keyframe-control-outside-range")
    assert "keyframe 'k'" in finding.message


def test_what_is_no_part_of_the_robot() -> None:
    more = """<body name="ball" pos="2 0 1"><freejoint/><geom size=".1"/></body>
      <body name="hand" mocap="true" pos="3 0 1"><geom size=".1"/></body>
      <body name="post" pos="4 0 1"><geom size=".1"/></body>"""
    found = {finding.code: finding for finding in findings(more=more)}
    assert found["passive-trees"].elements == ("ball",)
    assert found["mocap-bodies"].elements == ("hand",)
    assert set(found) == {"passive-trees", "mocap-bodies"}


def test_joints_without_an_actuator_and_loops() -> None:
    text = FINE.replace('<joint name="elbow"', '<joint name="free" axis="0 1 0"/><joint name="elbow"')
    equality = '<equality><connect name="loop" body1="arm" body2="base" anchor="0 0 0"/></equality>'
    found = {finding.code: finding for finding in findings(text, rest=equality)}
    assert found["unactuated-joints"].elements == ("free",)
    assert found["equality-constraints"].elements == ("loop",)
    assert "1 connect" in found["equality-constraints"].message


def test_two_robots_are_refused_unless_one_is_chosen() -> None:
    more = '<body name="second" pos="2 0 1"><joint name="other"/><geom size=".1"/></body>'
    motors = '<motor joint="other" ctrlrange="-1 1"/>'
    finding = only(findings(more=more, motors=motors))
    assert (finding.severity, finding.code) == (ERROR, "refused")
    assert "--root-body" in finding.message
    codes = {finding.code for finding in findings(more=more, motors=motors, root_body="second")}
    assert codes == {"passive-trees", "other-controls", "fixed-base"}


def test_no_actuators_is_an_error_and_comes_first() -> None:
    found = findings(
        '<mujoco><worldbody><body><joint range="1 2" name="j"/><geom size="1"/></body></worldbody></mujoco>'
    )
    assert [finding.code for finding in found] == ["no-actuators", "reset-outside-limits"]
    assert found[0].severity == ERROR


def test_long_lists_are_cut() -> None:
    assert listed(["a"]) == "'a'"
    assert listed(list("abcdef")) == "'a', 'b', 'c', 'd' and 2 more"
