"""Bodies from model files: where they may lie, what is refused and how, and copies that stand alone."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

import agents
from agents import file_check, files
from agents.files import FileError

ROBOT = """<mujoco><compiler meshdir="meshes"/><asset><mesh name="hull" file="hull.obj"/></asset>
<worldbody><body name="hull"><freejoint/><geom type="mesh" mesh="hull"/><include file="parts/leg.xml"/></body>
</worldbody><actuator><motor joint="hip"/></actuator></mujoco>"""
LEG = """<mujocoinclude><body name="leg"><joint name="hip"/><geom size=".1" pos="0 0 -1"/></body>
</mujocoinclude>"""
MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
PENDULUM = """<mujoco><worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody>
<actuator><motor joint="j"/></actuator></mujoco>"""


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    """Return a robot of three files, in a folder with a name that some programs do not like."""
    folder = tmp_path / "my robôt dir"
    for name, text in {"robot.xml": ROBOT, "parts/leg.xml": LEG, "meshes/hull.obj": MESH}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "robot.xml"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile files in this process, which saves the start of another."""
    monkeypatch.setattr(files, "_checked_apart", lambda path, seconds: file_check.check(path))


def test_any_path_from_any_directory(robot: Path) -> None:
    absolute = agents.load(str(robot))
    os.chdir(robot.parent)
    relative = agents.load("robot.xml")
    os.chdir("parts")
    assert agents.load(Path("../robot.xml")) == relative == absolute
    assert absolute.name == "my-robôt-dir-robot"  # "robot" alone says nothing
    assert absolute.task == "locomotion"
    model = absolute.compile()
    assert (model.nu, model.nmesh) == (1, 1)
    assert pickle.loads(pickle.dumps(absolute)) == absolute
    rebuilt = agents.from_source(json.loads(json.dumps(absolute.source)))
    assert rebuilt == absolute
    assert agents.model_hash(rebuilt.compile()) == agents.model_hash(model)


def test_source_lists_every_file(robot: Path) -> None:
    listed = agents.load(robot).source["arguments"]["files"]
    assert listed == [str(robot.parent / name) for name in ("robot.xml", "meshes/hull.obj", "parts/leg.xml")]


def test_copies_stand_alone(robot: Path, tmp_path: Path) -> None:
    body = agents.load(robot)
    expected = agents.model_hash(body.compile())
    source = files.copy_files(body, tmp_path / "run")
    for file in (robot, robot.parent / "parts/leg.xml", robot.parent / "meshes/hull.obj"):
        file.unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    copy = agents.from_source(json.loads(json.dumps(source)), tmp_path / "moved")
    assert copy.name == body.name
    assert agents.model_hash(copy.compile()) == expected
    with pytest.raises(FileError, match=r"there is no file .*robot.xml any more"):
        body.compile()


@pytest.mark.usefixtures("at_once")
def test_files_above_the_model_keep_their_places(robot: Path, tmp_path: Path) -> None:
    inner = robot.parent / "xml" / "robot.xml"
    inner.parent.mkdir()
    inner.write_text(ROBOT.replace('"meshes"', '"../meshes"').replace("parts/", "../parts/"))
    source = files.copy_files(agents.load(inner), tmp_path / "run")
    assert source["arguments"]["path"] == "xml/robot.xml"
    assert (tmp_path / "run/meshes/hull.obj").is_file()
    copy = agents.from_source(source, tmp_path / "run")
    assert agents.model_hash(copy.compile()) == agents.model_hash(agents.load(inner).compile())


@pytest.mark.usefixtures("at_once")
def test_the_hash_sees_a_changed_mesh(robot: Path) -> None:
    body = agents.load(robot)
    before = agents.model_hash(body.compile())
    mesh = robot.parent / "meshes/hull.obj"
    mesh.write_text(MESH.replace("v 1 0 0", "v 2 0 0"))
    os.utime(mesh, (0, 0))  # MuJoCo keeps meshes in memory until the second of their last change is another
    assert agents.model_hash(body.compile()) != before


def test_bodies_of_other_families_need_no_copies(tmp_path: Path) -> None:
    body = agents.load("centipede-3")
    assert agents.from_source(files.copy_files(body, tmp_path), tmp_path) == body
    assert not list(tmp_path.iterdir())


REFUSED = {
    "empty": ("", "empty", "the file is empty"),
    "fragment": (LEG, "fragment", "name the file that includes it"),
    "keys": ("<mujoco><keyframe><key qpos='1 2 3'/></keyframe></mujoco>", "fragment", "invalid qpos size"),
    "motors": ("<mujoco><actuator><motor joint='j'/></actuator></mujoco>", "fragment", "target 'j'"),
    "assets": ("<mujoco><asset><material name='m'/></asset></mujoco>", "fragment", "it holds no body"),
    "broken": ("<mujoco><worldbody>", "broken", "XML parse error"),
    "schema": (PENDULUM.replace("<joint", "<jiont"), "broken", "unrecognized element Element 'jiont'"),
    "html": ("<html/>", "broken", "neither MJCF"),
    "old": ("<mujoco><compiler coordinate='global'/></mujoco>", "broken", "global coordinates no longer supported"),
    "endless": (
        PENDULUM.replace("<actuator>", "<include file='endless.xml'/><actuator>"),
        "broken",
        "already included",
    ),
    "mesh": ("<mujoco><asset><mesh file='no.stl'/></asset></mujoco>", "missing asset", ": put the file there, or"),
    "meshdir": (
        "<mujoco><compiler meshdir='m'/><asset><mesh file='no.stl'/></asset></mujoco>",
        "missing asset",
        "m, which does not exist: put the file there, or correct meshdir",
    ),
    "misspelt": (
        "<mujoco><asset><mesh file='misspellt.stl'/></asset></mujoco>",
        "missing asset",
        "which has 'misspelt.xml': correct the name",
    ),
    "include": ("<mujoco><include file='no.xml'/></mujoco>", "missing asset", "'no.xml'"),
    "passive": (PENDULUM[: PENDULUM.index("<actuator>")] + "</mujoco>", "no actuators", "add motors to its joints"),
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8", "utf-8-sig", "latin-1"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "arm.xml"
    path.write_bytes(PENDULUM.replace('name="j"', 'name="jü"').replace('joint="j"', 'joint="jü"').encode(encoding))
    if encoding.startswith(("utf-16", "utf-32")):
        name = encoding[:6].upper()
        with pytest.raises(FileError, match=rf"arm.xml: the file is in {name}, MuJoCo reads UTF-8: save it"):
            agents.load(path)
    else:
        assert agents.load(path).compile().nu == 1


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_robot_is_one_line(tmp_path: Path, name: str) -> None:
    text, kind, message = REFUSED[name]
    path = tmp_path / f"{name}.xml"
    path.write_text(text)
    with pytest.raises(agents.UserError) as caught:
        agents.load(path)
    assert isinstance(caught.value, FileError)
    assert caught.value.kind == kind
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("suffix", [".mjcf", ".XML"])
def test_suffixes(robot: Path, tmp_path: Path, suffix: str) -> None:
    other = robot.rename(robot.with_suffix(suffix))
    source = files.copy_files(agents.load(other), tmp_path / "run")
    assert source["arguments"]["path"] == f"robot{suffix}"
    assert agents.from_source(source, tmp_path / "run").compile().nmesh == 1


@pytest.mark.usefixtures("at_once")
def test_urdf(tmp_path: Path) -> None:
    path = tmp_path / "arm.URDF"
    path.write_text("""<robot name="arm"><link name="a"/><link name="b"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link><joint name="j" type="continuous">
<parent link="a"/><child link="b"/></joint></robot>""")
    with pytest.raises(FileError, match="URDF knows none, so save the model as MJCF and add motors") as caught:
        agents.load(path)
    assert caught.value.kind == "no actuators"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("robit.xml", "did you mean 'robot.xml'"),
        ("./sub/robot", "folder .*sub does not exist"),
        ("centipede.mjcf", r"no model file .*centipede.mjcf: \S.* holds robot.xml$"),
        ("a.xml", "no model file .*a.xml: .* holds robot.xml"),
        ("Robot2.mjcf", "did you mean 'robot.xml'"),
        ("robot.xm", "no model file .*robot.xm: did you mean 'robot.xml'"),
        ("parts", "parts is a folder, name a model file: parts holds leg.xml$"),
        ("meshes/", r"meshes/ holds none \(.xml, .mjcf, .urdf\)$"),
    ],
)
def test_paths_that_lead_nowhere(robot: Path, path: str, message: str) -> None:
    os.chdir(robot.parent)
    with pytest.raises(FileError, match=message) as caught:
        agents.load(path)
    assert caught.value.kind == "missing"


def test_names_are_no_paths(robot: Path) -> None:
    os.chdir(robot.parent)
    Path("ant").mkdir()
    assert agents.load("ant").source["family"] == "gymnasium"
    for name in ("antt", "walker.5"):
        with pytest.raises(agents.UserError, match=f"unknown body '{name}'"):
            agents.load(name)


def run_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    """Let another program take the place of the one that compiles the file."""
    script = tmp_path / "script.py"
    script.write_text(program)
    monkeypatch.setattr(files.file_check, "__file__", str(script))


def test_a_crash_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, robot: Path) -> None:
    crash = "import os, signal, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    run_instead(monkeypatch, tmp_path, crash + "os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(FileError, match=r"robot.xml: MuJoCo crashed while it compiled the file \(SIGSEGV\)$") as caught:
        agents.load(robot)
    assert caught.value.kind == "crash"
    run_instead(monkeypatch, tmp_path, "raise MemoryError('too large')")
    with pytest.raises(FileError, match=r"MuJoCo gave up compiling the file \(MemoryError: too large\)$"):
        agents.load(robot)


def test_a_file_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, robot: Path) -> None:
    run_instead(monkeypatch, tmp_path, "import time\ntime.sleep(60)")
    with pytest.raises(FileError, match=r"robot.xml: MuJoCo did not compile it within 0.5 s$") as caught:
        files.checked_files(str(robot), seconds=0.5)
    assert caught.value.kind == "timeout"
    assert pickle.loads(pickle.dumps(caught.value)).kind == "timeout"


@pytest.mark.usefixtures("at_once")
def test_root_bodies(tmp_path: Path) -> None:
    path = tmp_path / "two arms.xml"
    path.write_text(PENDULUM)
    body = agents.load(path, root_body="left arm")
    assert (body.name, body.root_body) == ("two-arms-left-arm", "left arm")
    assert agents.from_source(body.source).root_body == "left arm"
    assert agents.load(path).root_body is None
    with pytest.raises(agents.UserError, match="body 'ant' is one robot: leave out the root body 'left'"):
        agents.load("ant", root_body="left")


@pytest.mark.usefixtures("at_once")
def test_names_of_bodies(tmp_path: Path) -> None:
    (tmp_path / "Größe").mkdir()
    for file, name in {"ant.xml": "ant-file", "My Ant (2).xml": "My-Ant-2", "Größe/scene.xml": "Größe-scene"}.items():
        (tmp_path / file).write_text(PENDULUM)
        assert agents.load(tmp_path / file).name == name


@pytest.mark.usefixtures("at_once")
def test_a_file_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "arm.xml"
    path.write_text(PENDULUM)
    body = agents.load(path)
    path.write_text("<mujoco>")
    with pytest.raises(FileError, match="XML parse error"):
        body.compile()
    path.write_text(PENDULUM.replace('motor joint="j"', 'motor joint="k"'))
    with pytest.raises(agents.UserError, match=r"body 'arm' does not compile: .*'k'"):
        body.compile()
