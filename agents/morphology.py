"""What the rest of the package knows of a body: a name, where it comes from, and how to compile it."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from agents.registry import family


@dataclass(frozen=True)
class Morphology:
    """A body, as data: it pickles, goes into JSON and rebuilds the same compiled model anywhere.

    The model itself is not kept, because a `mujoco.MjSpec` does not pickle and the XML that MuJoCo writes back rounds.

    Attributes:
        name: canonical name, as in `agents.load`, e.g. `"centipede-6"`.
        source: `{"family": str, "arguments": {...}}`, JSON-able; `agents.from_source` rebuilds the morphology from it.
        task: name of the task that the body is trained on by default; `""` while it has none.
    """

    name: str
    source: dict[str, Any]
    task: str = ""

    def __hash__(self) -> int:
        return hash((self.name, self.task))

    def spec(self) -> mujoco.MjSpec:
        """Build the editable model afresh."""
        return family(self.source["family"]).spec(**self.source["arguments"])

    def compile(self) -> mujoco.MjModel:
        """Compile the body, with MuJoCo's silent reset of a diverged state switched off.

        Returns:
            A new `mujoco.MjModel`, owned by the caller. Equal in every call and process: `model_hash` tells.
        """
        spec = self.spec()
        # A diverged simulation must end the episode in sight of the learner; MuJoCo would put the body back by itself.
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        with warnings.catch_warnings():
            # Gymnasium's half_cheetah sets its total mass by an attribute that MuJoCo 4 deprecates: no news to a user.
            warnings.filterwarnings("ignore", message=".*settotalmass", category=UserWarning)
            return spec.compile()

    def node_class(self, model: mujoco.MjModel) -> tuple[str, ...] | None:
        """Say which part of the body every joint is, as the generator knows it.

        Args:
            model: the compiled model of this morphology.

        Returns:
            One class name per joint id (length `model.njnt`), e.g. `("root", "lefthip", "ankle", ...)`, the names of
            the node table of NerveNet (Wang et al. 2018); `None` for a body whose source supplies none.
        """
        return family(self.source["family"]).node_class(model, **self.source["arguments"])


def model_hash(model: mujoco.MjModel) -> str:
    """Return the SHA-256 (hexadecimal) of the compiled model's binary form.

    The binary form opens with MuJoCo's version, so a model compiled by another MuJoCo has another hash.
    """
    buffer = np.zeros(mujoco.mj_sizeModel(model), dtype=np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return hashlib.sha256(buffer.tobytes()).hexdigest()
