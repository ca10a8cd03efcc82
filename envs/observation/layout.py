"""The description of an observation: whose every column is, what it says, and in which unit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import mujoco
import numpy as np

from envs.robot import display_name

WORLD, JOINT, BODY, ROOT, ACTUATOR = 0, 1, 2, 3, 4
"""Values of `ObservationLayout.owner_kind`."""

CONTACT_CLIP = 1.0
"""Contact torques [N·m] and forces [N] are observed, and charged by the task, within plus or minus this."""

_OBJECTS = {
    WORLD: mujoco.mjtObj.mjOBJ_BODY,
    JOINT: mujoco.mjtObj.mjOBJ_JOINT,
    BODY: mujoco.mjtObj.mjOBJ_BODY,
    ROOT: mujoco.mjtObj.mjOBJ_BODY,
    ACTUATOR: mujoco.mjtObj.mjOBJ_ACTUATOR,
}


@dataclass(frozen=True, eq=False)
class ObservationLayout:
    """The columns of an observation vector of size D.

    Attributes:
        feature_set: name of the set of features, `"paper"` or `"general"`.
        names: what to call a column in a table, e.g. `"qpos(ankle_0)"`; display only. (D,)
        features: feature of a column, the same for every owner of a kind, e.g. `"qpos"`, `"cfrc_ext_5"`. (D,)
        units: unit of a column, `"1"` for a pure number. (D,)
        owner_kind: `WORLD`, `JOINT`, `BODY`, `ROOT` or `ACTUATOR`. (D,) int8
        owner_id: joint id, body id (of the root too) or actuator id; 0 for the world. (D,) int32
    """

    feature_set: str
    names: tuple[str, ...]
    features: tuple[str, ...]
    units: tuple[str, ...]
    owner_kind: np.ndarray
    owner_id: np.ndarray

    @property
    def size(self) -> int:
        """Number of columns D."""
        return len(self.names)


@dataclass(frozen=True)
class Column:
    """One column; `source` is where its observer finds the number."""

    feature: str
    unit: str
    owner_kind: int
    owner_id: int
    source: int = -1


def make_layout(feature_set: str, model: mujoco.MjModel, columns: Iterable[Column]) -> ObservationLayout:
    """Put columns together to a layout, in their order."""
    columns = tuple(columns)
    return ObservationLayout(
        feature_set=feature_set,
        names=tuple(
            f"{column.feature}({display_name(model, _OBJECTS[column.owner_kind], column.owner_id)})"
            for column in columns
        ),
        features=tuple(column.feature for column in columns),
        units=tuple(column.unit for column in columns),
        owner_kind=np.array([column.owner_kind for column in columns], dtype=np.int8),
        owner_id=np.array([column.owner_id for column in columns], dtype=np.int32),
    )
