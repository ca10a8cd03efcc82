"""Any settings: a config comes out, and survives being written and read, or one line that names the key."""

from __future__ import annotations

import dataclasses
import tempfile
import typing
from pathlib import Path
from typing import Any

import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from agents.errors import UserError
from snowflake.config import TrainConfig, loader

_WORDS = ("centipede-3", "mlp", "nervenet", "encoder", "cpu", "linear", "general", "1e3", "on", "", "ä", "a\nb")
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.integers(),
    st.floats(0, 1),
    st.floats(),
    st.sampled_from(_WORDS),
    st.text(max_size=8),
)
_VALUES = st.one_of(
    _SCALARS, st.lists(_SCALARS, max_size=3), st.dictionaries(st.text(max_size=4), _SCALARS, max_size=2)
)


def sections() -> dict[str, tuple[str, ...]]:
    """Keys by section; those of the top level under ""."""
    found: dict[str, tuple[str, ...]] = {"": ()}
    for name, hint in typing.get_type_hints(TrainConfig).items():
        if dataclasses.is_dataclass(hint):
            found[name] = tuple(field.name for field in dataclasses.fields(hint))
        else:
            found[""] += (name,)
    return found


@st.composite
def any_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Draw one to three settings; most have a key that exists and a value that may be right."""
    made: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        section = draw(st.sampled_from(list(sections())))
        key = draw(st.sampled_from((*sections()[section] * 3, "x", "seed", "n_envs", "")))
        default = getattr(getattr(TrainConfig(), section) if section else TrainConfig(), key, None)
        near = st.sampled_from((default, default * 2 if isinstance(default, (int, float)) else default))
        value = draw(st.one_of(near, near, _VALUES))
        target = made.setdefault(section, {}) if section else made
        if isinstance(target, dict):
            target[key] = value
    return made


@settings(max_examples=150)
@given(any_settings())
def test_a_config_or_one_line(values: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
        outcomes = []
        for resolve in (lambda: loader.resolve(overrides=values), lambda: loader.resolve(configs=[path])):
            try:
                outcomes.append(resolve())
            except UserError as error:
                line = str(error)
                assert line, values
                assert len(line.splitlines()) == 1 or "\\n" in repr(values), line
                outcomes.append(None)
        config, read = outcomes
        event("valid" if config else "refused")
        assert (config is None) == (read is None)  # a file and the same settings by hand fare alike
        if config is None:
            return
        assert read is not None
        assert repr(config) == repr(read)
        path.write_text(loader.to_yaml(config), encoding="utf-8")
        assert repr(loader.load(path)) == repr(config)
