"""What the rest of the package knows of a body: a name, where it comes from, and how to compile it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from agents.errors import UserError
from agents.registry import family, from_source

_PLACES = ("paths", "npaths", "nbuffer", "signature")
"""What a compiled model says of where its files lay, or what follows from it."""


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

    @property
    def unvaried(self) -> Morphology:
        """The body that this one is a variation of; itself, where it is none."""
        return from_source(self.source["arguments"]["base"]) if self.source["family"] == "variation" else self

    @property
    def root_body(self) -> str | None:
        """Name of the top body of the tree to control, where the source says it."""
        return self.unvaried.source["arguments"].get("root_body")

    def spec(self) -> mujoco.MjSpec:
        """Build the editable model afresh."""
        return family(self.source["family"]).spec(**self.source["arguments"])

    def compile(self, edit: Callable[[mujoco.MjSpec], None] | None = None) -> mujoco.MjModel:
        """Compile the body, with MuJoCo's silent reset of a diverged state switched off.

        Args:
            edit: changes the editable model before it is compiled.

        Returns:
            A new `mujoco.MjModel`, owned by the caller. Equal in every call and process: `model_hash` tells.

        Raises:
            UserError: MuJoCo refuses it, as it does a file that has changed.
        """
        spec = self.spec()
        if edit is not None:
            edit(spec)
        # A diverged simulation must end the episode in sight of the learner; MuJoCo would put the body back by itself.
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        return compile_spec(spec, self.name)

    def node_class(self, model: mujoco.MjModel) -> tuple[str, ...] | None:
        """Say which part of the body every joint is, as the generator knows it.

        Args:
            model: the compiled model of this morphology.

        Returns:
            One class name per joint id (length `model.njnt`), e.g. `("root", "lefthip", "ankle", ...)`, the names of
            the node table of NerveNet (Wang et al. 2018); `None` for a body whose source supplies none.
        """
        return family(self.source["family"]).node_class(model, **self.source["arguments"])


def compile_spec(spec: mujoco.MjSpec, name: str) -> mujoco.MjModel:
    """Compile an editable model as it is.

    Args:
        spec: the model; its elements know their ids afterwards.
        name: of the body, for the message.

    Raises:
        UserError: MuJoCo refuses it.
    """
    with warnings.catch_warnings():
        # Gymnasium's half_cheetah sets its total mass by an attribute that MuJoCo 4 deprecates: no news to a user.
        warnings.filterwarnings("ignore", message=".*settotalmass", category=UserWarning)
        try:
            return spec.compile()
        except ValueError as error:
            raise UserError(f"body {name!r} does not compile: {' '.join(str(error).split())}") from error


def model_hash(model: mujoco.MjModel) -> str:
    """Return the SHA-256 (hexadecimal) of the compiled model.

    It covers MuJoCo's version, so a model compiled by another MuJoCo has another hash, but not where the files of
    meshes and textures lay.
    """
    if not model.paths.strip(b"\0"):
        buffer = np.zeros(mujoco.mj_sizeModel(model), dtype=np.uint8)
        mujoco.mj_saveModel(model, None, buffer)
        return hashlib.sha256(buffer.tobytes()).hexdigest()
    digest = hashlib.sha256(mujoco.mj_versionString().encode())
    for part in (model, model.opt, model.stat, model.vis):
        for name in dir(part):
            if name.startswith("_") or name.endswith("pathadr") or name in _PLACES:
                continue
            value = getattr(part, name)
            if isinstance(value, np.ndarray):
                digest.update(f"{name}{value.dtype}{value.shape}".encode() + value.tobytes())
            elif isinstance(value, (int, float, bytes)):
                digest.update(f"{name}{value!r}".encode())
    return digest.hexdigest()
