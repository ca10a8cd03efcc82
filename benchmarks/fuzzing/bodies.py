"""Broken model files: MJCF and URDF with meshes, includes and every kind of element, damaged."""

from __future__ import annotations

import random
import re

from benchmarks.fuzzing.case import Place
from benchmarks.fuzzing.texts import damage_bytes, replace_file

_MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
_LEG = """<mujocoinclude><body name="leg"><joint name="hip" range="-40 40"/><geom size=".1" pos="0 0 -.5"/></body>
</mujocoinclude>"""
_WALKER = """<mujoco model="walker">
<compiler angle="degree" meshdir="meshes"/>
<option timestep="0.005" integrator="implicitfast"/>
<size memory="4M"/>
<default><joint armature="0.02" damping="1"/><geom density="500" friction="1 .1 .1"/></default>
<asset><mesh name="hull" file="hull.obj" scale=".3 .3 .3"/><texture name="t" builtin="checker" width="8" height="8"/>
<material name="m" texture="t"/><hfield name="h" nrow="3" ncol="3" size="1 1 1 .1"/></asset>
<worldbody>
<geom type="plane" size="5 5 .1"/><light pos="0 0 3"/><camera name="c" pos="0 -3 1"/>
<body name="torso" pos="0 0 1"><freejoint name="root"/><geom type="mesh" mesh="hull" mass="2"/>
<site name="s" pos="0 0 .1"/>
<include file="parts/leg.xml"/>
<body name="arm" pos=".3 0 0"><joint name="ball" type="ball" range="0 60"/>
<geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/>
<body name="hand" pos=".3 0 0"><joint name="slide" type="slide" axis="1 0 0" range="-.1 .1"/>
<joint name="turn" axis="0 1 0"/>
<geom type="box" size=".05 .05 .05"/><site name="tip"/></body></body>
</body>
<body name="ball" pos="1 0 .2"><freejoint/><geom size=".1"/></body>
</worldbody>
<tendon><fixed name="f"><joint joint="hip" coef="1"/><joint joint="turn" coef="-1"/></fixed>
<spatial name="p"><site site="s"/><site site="tip"/></spatial></tendon>
<equality><connect body1="hand" body2="torso" anchor="0 0 0" active="false"/></equality>
<actuator><motor name="a" joint="hip" gear="20" ctrlrange="-1 1"/><position name="b" joint="slide" kp="5"/>
<velocity name="v" joint="turn" kv="1"/><general name="g" tendon="f" gainprm="3"/><muscle name="mu" tendon="p"/>
</actuator>
<sensor><gyro site="s"/></sensor>
<keyframe><key name="home" qpos="0 0 1 1 0 0 0 0 1 0 0 0 0 0 1 0 .2 1 0 0 0"/></keyframe>
</mujoco>"""
_PENDULUM = """<mujoco><worldbody><body><joint name="j"/><geom size=".1" pos="0 0 -1"/></body></worldbody>
<actuator><motor joint="j"/></actuator></mujoco>"""
_URDF = """<robot name="r"><link name="a"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>
</inertial></link><link name="b"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
</link><joint name="j" type="revolute"><parent link="a"/><child link="b"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/>
</joint></robot>"""
_BODIES = (_WALKER, _WALKER, _WALKER, _PENDULUM, _URDF)

_NUMBERS = (
    *("", "0", "-1", "nan", "inf", "-inf", "1e308", "1e-308", "1e400", "99999999999999999999", "1 2"),
    "1 2 3 4 5 6 7 8 9",
)
_WORDS = (
    *("x", "none", "auto", "true", "ö", "&lt;", "a" * 3000, "hinge", "free", "ball", "joint"),
    *("../../../etc/passwd", "/dev/zero"),
)
_ELEMENTS = (
    '<include file="robot.xml"/>',
    '<include file="nowhere.xml"/>',
    '<include file="/etc/passwd"/>',
    '<include file="/dev/zero"/>',
    '<include file="."/>',
    "<custom><numeric name='n' data='1 2'/></custom>",
    "<extension><plugin plugin='mujoco.elasticity.cable'/></extension>",
    "<worldbody><replicate count='3' offset='1 0 0'><body><joint/><geom size='.1'/></body></replicate></worldbody>",
    "<worldbody><replicate count='1000000' offset='1 0 0'><body><joint/><geom size='.1'/></body></replicate>"
    "</worldbody>",
    "<worldbody><composite type='cable' count='20 1 1'/></worldbody>",
    "<worldbody><flexcomp name='x' type='grid' count='3 3 3' spacing='.1 .1 .1'/></worldbody>",
    "<worldbody><body mocap='true'><geom size='.1'/></body></worldbody>",
    "<worldbody><body name='other'><joint name='k'/><geom size='.1'/></body></worldbody><actuator>"
    "<motor joint='k'/></actuator>",
    "<actuator><motor site='s'/><adhesion body='torso' gain='1' ctrlrange='0 1'/></actuator>",
    "<actuator><intvelocity joint='hip' actrange='-1 1'/><cylinder joint='hip'/>"
    "<damper joint='hip' ctrlrange='0 1'/></actuator>",
    "<actuator><motor joint='ball'/><motor joint='root'/><motor jointinparent='ball'/>"
    "<motor cranksite='s' slidersite='tip'/></actuator>",
    "<size memory='900G'/>",
    "<size memory='1'/>",
    "<size nuser_body='1000000000'/>",
    "<option timestep='0'/>",
    "<option timestep='1e9'/>",
    "<option gravity='0 0 1e30'/>",
    "<option solver='PGS' iterations='1000000'/>",
    "<asset><hfield name='big' nrow='100000' ncol='100000' size='1 1 1 1'/></asset>",
    "<asset><texture name='big' builtin='flat' width='100000' height='100000'/></asset>",
    "<asset><mesh name='gone' file='gone.stl'/></asset>",
    "<asset><model name='sub' file='robot.xml'/></asset>",
    "<deformable/>",
    "<keyframe><key qpos='1 2 3'/></keyframe>",
    "<!-- " + "x" * 100_000 + " -->",
    "<?php system('touch pwned') ?>",
    "<![CDATA[ ]]>",
)
_HEADS = (
    '<?xml version="1.0" encoding="utf-16"?>',
    '<?xml version="1.0" encoding="nonsense"?>',
    '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>",
    "\ufeff",
    "\n\n  ",
    "<html>",
    "\x00",
)


def make(rng: random.Random, place: Place) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Write a damaged model with its files; see `benchmarks.fuzzing.case.Maker`."""
    text = rng.choice(_BODIES)
    suffix = ".urdf" if text is _URDF else rng.choice((".xml", ".xml", ".xml", ".mjcf", ".XML", ".txt"))
    path = place.here / f"robot{suffix}"
    leg, mesh = place.here / "parts" / "leg.xml", place.here / "meshes" / "hull.obj"
    for file, content in ((leg, _LEG), (mesh, _MESH)):
        file.parent.mkdir()
        file.write_text(content)
    stories = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text, story = rng.choice(_WAYS)(text, rng)
        stories.append(story)
    path.write_bytes(text.encode(errors="surrogatepass"))
    file = rng.choice((path, path, leg, mesh))
    way = rng.random()
    if way < 0.25:
        data, story = damage_bytes(file.read_bytes(), rng)
        file.write_bytes(data)
        stories.append(f"{file.name}: {story}")
    elif way < 0.33:
        stories.append(f"{file.name}: {replace_file(file, rng)}")
    return _command(path.name, rng, place), "; ".join(stories), ("out",)


def _command(name: str, rng: random.Random, place: Place) -> tuple[str, ...]:
    small = ["--n-envs", "2", "--n-steps", "8", "--batch-size", "8", "--n-epochs", "1", "--eval-freq", "0"]
    small += [
        "--total-timesteps",
        "16",
        "--hidden-size",
        "8",
        "--num-threads",
        "1",
        "--torch-threads",
        "1",
        "--run",
        "out",
    ]
    name = rng.choice((name, f"./{name}", str(place.here / name)))
    run, changed = (
        str(place.templates / "graph"),
        rng.choice(("", "", "+mass=2", "+vary=0.2+seed=3", "+remove=1", "+limb=0.5")),
    )
    commands: list[list[str]] = [
        ["train", "--model", name + changed, *small],
        ["train", "--model", name, "--root-body", rng.choice(("torso", "ball", "x", "")), *small],
        ["train", "--agents", name, "centipede-3", *small],
        ["inspect", name, "--steps", "5"],
        ["inspect", name, "--steps", "2", "--output", "out", "--json"],
        ["evaluate", run, "--agents", name, "--episodes", "1", "--output", "out"],
        ["transfer", run, "--to", name + changed, "--episodes", "1", "--output", "out"],
        ["finetune", run, "--agents", name, "--run", "out"],
    ]
    return tuple(rng.choice(commands))


# --- ways to damage a model's text ----------------------------------------------------------------------------------


def _value(text: str, rng: random.Random) -> tuple[str, str]:
    """Put an odd value into an attribute."""
    places = list(re.finditer(r'(\w+)="([^"]*)"', text))
    if not places:
        return text, "no attribute"
    found = rng.choice(places)
    new = rng.choice(_NUMBERS + _WORDS)
    return f'{text[: found.start()]}{found[1]}="{new}"{text[found.end() :]}', f"{found[1]} = {new[:20]!r}"


def _number(text: str, rng: random.Random) -> tuple[str, str]:
    """Put an odd number in the place of one."""
    places = list(re.finditer(r"(?<=[\" ])-?[\d.]+(?=[\" ])", text))
    if not places:
        return text, "no number"
    found = rng.choice(places)
    new = rng.choice(_NUMBERS)
    return text[: found.start()] + new + text[found.end() :], f"{found[0]} -> {new[:20]}"


def _without(text: str, rng: random.Random) -> tuple[str, str]:
    """Drop an attribute or a tag."""
    places = list(re.finditer(r'\s\w+="[^"]*"|<[^>]*>', text))
    if not places:
        return text, "nothing to drop"
    found = rng.choice(places)
    return text[: found.start()] + text[found.end() :], f"without {found[0][:30]!r}"


def _element(text: str, rng: random.Random) -> tuple[str, str]:
    """Put in an element, at the end or inside any other."""
    new = rng.choice(_ELEMENTS)
    places = [found.start() for found in re.finditer(r"</", text)] or [0]
    at = places[-1] if rng.random() < 0.8 else rng.choice(places)
    return text[:at] + new + text[at:], f"with {new[:50]}"


def _head(text: str, rng: random.Random) -> tuple[str, str]:
    head = rng.choice(_HEADS)
    if "DOCTYPE" in head:
        text = text.replace('name="', 'name="&i;', 1).replace("model=", "model2=", rng.randrange(2))
    return head + text, f"head {head[:30]!r}"


def _deep(text: str, rng: random.Random) -> tuple[str, str]:
    """Nest bodies, or text, deeply."""
    depth = rng.choice((30, 100, 3000, 50_000))
    if rng.random() < 0.5:
        return "<a>" * depth, f"{depth} tags"
    nested = '<body pos="0 0 .1"><joint/><geom size=".05"/>' * depth + "</body>" * depth
    return text.replace("</worldbody>", f"{nested}</worldbody>", 1), f"{depth} bodies deep"


def _many(text: str, rng: random.Random) -> tuple[str, str]:
    """Repeat what moves, or what drives it."""
    count = rng.choice((2, 50, 400))
    if rng.random() < 0.5:
        return text.replace("</actuator>", '<motor joint="hip"/>' * count + "</actuator>"), f"{count} motors"
    limbs = "".join(f'<body pos="{i} 0 1"><joint/><geom size=".05"/></body>' for i in range(count))
    return text.replace("</worldbody>", f"{limbs}</worldbody>", 1), f"{count} bodies"


def _bare(text: str, rng: random.Random) -> tuple[str, str]:
    """Take away all joints, all actuators, all geoms or all masses."""
    name = rng.choice(("joint", "freejoint", "motor", "geom", "body", "worldbody", "actuator", "inertial"))
    return re.sub(rf"<{name}\b[^>]*/>", "", text), f"no <{name}/>"


_WAYS = (
    _value,
    _value,
    _value,
    _number,
    _number,
    _number,
    _without,
    _without,
    _element,
    _element,
    _head,
    _deep,
    _many,
    _bare,
)
