"""From YAML to `TrainConfig`: precedence, types, and one line for every mistake."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.errors import UserError
from snowflake.config import PPOConfig, TrainConfig, files, loader

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def write(tmp_path: Path):
    """Return a function that writes a YAML and returns its path."""

    def _write(text: str | bytes, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


def test_defaults_yaml_equals_the_dataclasses() -> None:
    values, _ = files.read_yaml(ROOT / "docs" / "defaults.yaml")
    assert loader.check_layer(values).values == dataclasses.asdict(TrainConfig())


def test_precedence_is_defaults_method_config_overrides(write) -> None:
    path = write("method: snowflake\nseed: 1\npolicy:\n  freeze: [encoder]\n  hidden_size: 32\nenv:\n  n_envs: 4\n")
    assert loader.resolve("nervenet").policy.freeze == ()
    assert loader.resolve("snowflake").policy.freeze == ("encoder", "message", "decoder")
    config = loader.resolve(None, [path], {"seed": 2, "env": {"n_envs": 8}})
    assert (config.seed, config.env.n_envs, config.policy.hidden_size) == (2, 8, 32)
    assert config.policy.freeze == ("encoder",)
    assert config.ppo == PPOConfig()


def test_a_method_asked_for_by_name_is_not_undone_by_a_config(write) -> None:
    """The config of another run, whole, beside `--method`: the run is what its name says."""
    whole = write(loader.to_yaml(loader.resolve("snowflake", [], {"seed": 7})))
    for method in ("mlp", "nervenet"):
        config = loader.resolve(method, [whole])
        assert (config.method, config.seed) == (method, 7)
        assert (config.policy.network, config.policy.freeze) == (
            loader.resolve(method).policy.network,
            loader.resolve(method).policy.freeze,
        )


def test_later_configs_win(write) -> None:
    first, second = write("seed: 1\ndevice: cpu", "a.yaml"), write("seed: 2", "b.yaml")
    config = loader.resolve(configs=[first, second])
    assert (config.seed, config.device) == (2, "cpu")


def test_method_comes_from_the_config_unless_given(write) -> None:
    path = write("method: mlp")
    assert loader.resolve(configs=[path]).policy.network == "mlp"
    config = loader.resolve("nervenet", [path])
    assert (config.method, config.policy.network) == ("nervenet", "nervenet")
    for method in (None, "nervenet"):
        config = loader.resolve(method, [path], {"method": "snowflake"})
        assert (config.method, config.policy.freeze) == ("snowflake", ("encoder", "message", "decoder"))
    assert loader.resolve("mlp", overrides={"method": "official"}).policy.init == "shared_seed"


def test_official_preset_differs_as_documented() -> None:
    official, ours = loader.resolve("official"), loader.resolve("snowflake")
    assert loader.difference(official, ours) == {
        "method": "official",
        "policy": {
            "train_node_table": True,
            "log_std": "per_actuator",
            "log_std_init": 0.0,
            "init": "shared_seed",
            "actuator_wiring": "official",
        },
        "ppo": {
            "clip_range": 0.1,
            "timelimit_bootstrap": False,
            "collection": "whole_episodes",
            "step_accounting": "nominal",
            "mlp_update": "official",
        },
    }


@pytest.mark.parametrize("method", files.method_names())
@pytest.mark.parametrize("name", files.shipped_names())
def test_every_shipped_config_resolves_and_round_trips(method: str, name: str, tmp_path: Path) -> None:
    config = loader.resolve(method, [name])
    path = tmp_path / "config.yaml"
    path.write_text(loader.to_yaml(config))
    assert loader.load(path) == config
    assert config.method == method


def test_a_run_config_is_read_without_a_preset(write) -> None:
    assert loader.load(write("method: snowflake")).policy.freeze == ()


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("ppo: {learning_rate: 3e-4}", "learning_rate", 3e-4),  # YAML 1.1 reads text here
        ("ppo: {learning_rate: 1}", "learning_rate", 1.0),
        ("ppo: {target_kl: null}", "target_kl", None),
        ("ppo: {target_kl: 1E-2}", "target_kl", 0.01),
        ("ppo: {max_grad_norm: .inf}", "max_grad_norm", math.inf),
        ("ppo: {n_steps: 1_000}", "n_steps", 1000),
        ("ppo: {n_steps: 1e3}", "n_steps", 1000),
        ("ppo: {n_steps: 2.5E+3}", "n_steps", 2500),
        ("ppo: {n_steps: 1.e2}", "n_steps", 100),
        ("ppo: {scale_returns: on}", "scale_returns", True),
    ],
)
def test_values_are_read_as_annotated(write, text: str, key: str, value: object) -> None:
    read = getattr(loader.load(write(text)).ppo, key)
    assert read == value
    assert type(read) is type(value)


def test_an_empty_section_is_empty(write) -> None:
    assert loader.load(write("seed: 1\nenv:\n")) == TrainConfig(seed=1)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("seed: 1\nseeed: 2", 2, "seeed is not a key: did you mean 'seed'"),
        ("env:\n  n_env: 2", 2, "env.n_env is not a key: did you mean 'n_envs'"),
        ("n_envs: 2", 1, "n_envs belongs in the section env:"),
        ("ppo:\n\n  n_envs: 2", 3, "n_envs belongs in the section env:"),
        ("ppo: {seed: 2}", 1, "seed belongs at the top level"),
        ("env.n_envs: 2", 1, "write n_envs: indented below env:"),
        ("total-timesteps: 2", 1, "did you mean 'total_timesteps'"),
        ("env: 3", 1, "env is a section"),
        ("env: [n_envs]", 1, "env is a section"),
        ("env: {n_envs: many}", 1, "env.n_envs wants a whole number, has 'many'"),
        ("env: {n_envs: true}", 1, "env.n_envs wants a whole number, has true"),
        ("total_timesteps: 1.5e0", 1, "total_timesteps wants a whole number, has '1.5e0'"),
        ("total_timesteps: 1e-1", 1, "total_timesteps wants a whole number, has '1e-1'"),
        ("total_timesteps: 1e9999", 1, "total_timesteps wants a whole number, has '1e9999'"),
        ("total_timesteps: 1.5", 1, "total_timesteps wants a whole number, has 1.5"),
        ("ppo: {gamma: true}", 1, "ppo.gamma wants a number, has true"),
        ("ppo: {gamma: 'nan'}", 1, "ppo.gamma wants a number, has 'nan'"),
        ("ppo: {gamma: .nan}", 1, "ppo.gamma = nan is out of range"),
        ("ppo: {gamma: 1" + "0" * 400 + "}", 1, "too large"),
        ("ppo: {scale_returns: 1}", 1, "ppo.scale_returns wants true or false, has 1"),
        ("device: 0", 1, "device wants text, has 0: put it in quotes"),
        ("device: null", 1, "device wants text, has null"),
        ("agents: centipede-6", 1, "agents wants a list, has 'centipede-6': write [centipede-6]"),
        ("agents: [centipede-6, 4]", 1, "agents wants text, has 4"),
        ("agents: &a [*a]", 1, "agents wants text"),
        ("seed: 1\nseed: 2", 2, "seed is given twice, first in line 1"),
        ("env: {n_envs: 2}\nenv: {n_envs: 3}", 2, "env is given twice"),
        ("seed: 1\nenv:\n  n_envs: -1", 3, "env.n_envs = -1 is out of range"),
        ("policy: {aggregation: median}", 1, "policy.aggregation = 'median' is not a choice: did you mean 'mean'"),
        ("seed: [1", 1, "not valid YAML"),
        ("seed: 1\n\tdevice: cpu", 2, "not valid YAML"),
        ("seed: !!python/object/apply:os.getcwd []", 1, "not valid YAML"),
        ("seed: 1\n---\nseed: 2", 2, "not valid YAML"),
        ("1: 2", 1, "a key must be a word"),
        ("? [a]\n: 2", 1, "a key must be a word"),
        ("a: &a {seed: 1}\n<<: *a", 2, "merge keys"),
    ],
)
def test_a_mistake_is_told_with_its_line(write, text: str, line: int, words: str) -> None:
    path = write(text)
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        loader.load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no settings"),
        (b"# only a comment\n", "holds no settings"),
        (b"- seed\n", "holds no settings"),
        (b"seed", "holds no settings"),
        (b"\x00\x01\xff\xfe\x80", "no UTF-8 text"),
        (b"seed: \x01", "not valid YAML"),
        (b"seed: 2020-13-45", "not valid YAML"),
        (b"a: " * 300 + b"1", "not valid YAML"),
        (b"[" * 5000, "not valid YAML"),
        (b"# " + b"x" * files.MAX_BYTES, "larger than"),
    ],
)
def test_a_file_that_is_no_config_is_told_in_one_line(write, content: bytes, words: str) -> None:
    path = write(content)
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        loader.load(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < len(str(path)) + 200
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_devices_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a file nor a shipped config: did you mean 'demo'"):
        files.find_config("demoo")
    with pytest.raises(UserError, match="neither a file"):
        files.find_config("x" * 5000)
    with pytest.raises(UserError, match="neither a file"):
        files.find_config("a\0b")
    with pytest.raises(UserError, match="is a folder"):
        loader.resolve(configs=[tmp_path])
    with pytest.raises(UserError, match="no regular file"):
        loader.resolve(configs=[Path("/dev/null")])


def test_an_unknown_method_names_the_nearest_and_the_place(write) -> None:
    with pytest.raises(UserError, match=r"^method 'nervnet' does not exist: did you mean 'nervenet'"):
        loader.resolve("nervnet")
    with pytest.raises(UserError, match=r"^method '' does not exist"):
        loader.resolve("")
    path = write("seed: 1\nmethod: ../demo")
    with pytest.raises(UserError, match=f"^{re.escape(str(path))}:2: method"):
        loader.resolve(configs=[path])


def test_sections_are_checked_against_each_other_only_once_all_is_merged(write) -> None:
    path = write("agents: [centipede-4, centipede-6, centipede-8]\npolicy: {critic: graph}")
    assert loader.resolve(configs=[path], overrides={"env": {"n_envs": 3}}).env.n_envs == 3
    with pytest.raises(UserError, match=r"n_envs = 16 is not a multiple of the 3 bodies: use 15 or 18"):
        loader.resolve(configs=[path], overrides={"env": {"n_envs": 16}})


def test_overrides_are_checked_like_a_file() -> None:
    with pytest.raises(UserError, match=r"^n_envs is not a key: n_envs belongs in the section env"):
        loader.resolve(overrides={"n_envs": 4})
    with pytest.raises(UserError, match=r"^env.n_envs wants a whole number"):
        loader.resolve(overrides={"env": {"n_envs": 4.5}})
    assert loader.resolve(overrides={"total_timesteps": 2e6}).total_timesteps == 2_000_000


def test_every_annotation_can_be_read() -> None:
    def leaves(cls: type) -> typing.Iterator[tuple[object, object]]:
        for name, hint in typing.get_type_hints(cls).items():
            if dataclasses.is_dataclass(hint):
                yield from leaves(typing.cast(type, hint))
            else:
                yield hint, getattr(cls(), name)

    for hint, default in leaves(TrainConfig):
        assert loader.convert(default, hint) == default


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    rate=st.floats(1e-300, 1000.0),
    norm=st.floats(1e-9, allow_nan=False),
    device=st.sampled_from(["auto", "cpu", "cuda", "cuda:1"]),
    freeze=st.lists(st.sampled_from(["encoder", "1e3", "no", "null", "~", " a", "#", "ä"]), max_size=3),
)
def test_any_config_round_trips(seed: int, rate: float, norm: float, device: str, freeze: list[str]) -> None:
    import tempfile

    overrides = {
        "seed": seed,
        "device": device,
        "policy": {"freeze": freeze},
        "ppo": {"learning_rate": rate, "max_grad_norm": norm, "target_kl": None},
    }
    config = loader.resolve(overrides=overrides)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(loader.to_yaml(config), encoding="utf-8")
        assert loader.load(path) == config


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="seed:env n_\n\t-[]{},&*!?|>'\"%@`#<0123456789.~", max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            config = loader.load(path)
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert isinstance(config, TrainConfig)
