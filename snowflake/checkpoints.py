"""The checkpoints of a run folder: which there are, which are whole, which go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agents.errors import UserError
from snowflake.body_files import ADVICE
from snowflake.files import dump_json, remove_folder, write_atomic
from snowflake.json_files import read_entry
from snowflake.manifest import MANIFEST, damage

ACTING = ("actor.safetensors", "critic.safetensors")
"""Files of a checkpoint that acting needs."""


@dataclass(frozen=True)
class Checkpoints:
    """The folder ``checkpoints`` in the folder of a run.

    Args:
        path: folder of the run.
    """

    path: Path

    def checkpoint_path(self, step: int) -> Path:
        """Folder of the checkpoint at ``step`` environment steps."""
        return self.path / "checkpoints" / f"step_{step:012d}"

    def checkpoints(self) -> tuple[int, ...]:
        """Environment steps at which a checkpoint lies in the folder, ascending."""
        return tuple(
            sorted(int(p.name[5:]) for p in (self.path / "checkpoints").glob("step_*") if p.name[5:].isdecimal())
        )

    def index(self) -> dict[str, int]:
        """Which checkpoints are ``last`` and ``best``, by step.

        Raises:
            UserError: the index is damaged.
        """
        file = self.path / "checkpoints" / "index.json"
        return (
            {name: step.count() for name, step in read_entry(file, ADVICE).entries().items()} if file.exists() else {}
        )

    def set_index(self, steps: dict[str, int]) -> None:
        """Let names (``last``, ``best``) point at the checkpoints of these steps, all at once."""
        if self.index() != steps:
            write_atomic(self.path / "checkpoints" / "index.json", dump_json(steps))

    def prune(self, newest: int) -> None:
        """Delete all checkpoints but the ``newest`` ones (0 keeps all) and those that the index names."""
        wanted = {*self.checkpoints()[-newest:], *self.index().values()}
        for step in self.checkpoints():
            if step not in wanted:
                remove_folder(self.checkpoint_path(step))

    def last_intact(self) -> tuple[Path, dict[int, str]]:
        """The newest whole checkpoint, not beyond ``last``, and what is wrong with the newer ones, by step.

        Raises:
            UserError: there is none.
        """
        last = int(self.find_checkpoint("last", whole=False).name[5:])
        damaged: dict[int, str] = {}
        for step in sorted((s for s in self.checkpoints() if s <= last), reverse=True):
            wrong = _damage(self.checkpoint_path(step))
            if wrong is None:
                return self.checkpoint_path(step), damaged
            damaged[step] = wrong
        told = "; ".join(f"{self.checkpoint_path(step).name}: {wrong}" for step, wrong in damaged.items())
        raise UserError(f"run {self.path} has no whole checkpoint ({told}): train again")

    def set_aside(self, steps: Iterable[int]) -> None:
        """Keep damaged checkpoints under names that no command reads, for who wants to save what can be saved."""
        for step in steps:
            folder = self.checkpoint_path(step)
            target = folder.with_name(f"damaged_{folder.name}")
            if target.exists():
                remove_folder(target)
            folder.rename(target)

    def drop_checkpoints_after(self, step: int) -> None:
        """Delete checkpoints beyond ``step``: a run that was killed while it saved may leave one that nothing names."""
        for other in self.checkpoints():
            if other > step:
                remove_folder(self.checkpoint_path(other))

    def find_checkpoint(self, which: str | int | None = None, *, whole: bool = True) -> Path:
        """Folder of a checkpoint: ``best``, ``last``, a number of steps; None takes ``best``, else ``last``.

        Args:
            which: the checkpoint.
            whole: also require that its weights are as they were written.

        Raises:
            UserError: it is not there, or damaged.
        """
        steps, index = self.checkpoints(), self.index()
        if which is None:
            which = "best" if "best" in index else "last"
        step = index.get(str(which), int(which) if str(which).isdecimal() else None)
        if step is not None and step in steps:
            folder = self.checkpoint_path(step)
            if whole and (wrong := damage(folder, ACTING)):
                others = ", ".join(str(s) for s in steps if damage(self.checkpoint_path(s), ACTING) is None)
                raise UserError(f"checkpoint {folder} is damaged: {wrong}; whole ones: {others or 'none'}")
            return folder
        names = [name for name, other in index.items() if other in steps]
        empty = "none: their folders were deleted" if index else "none: the run was stopped before its first"
        gone = (
            f": its folder {self.checkpoint_path(step).name} was deleted"
            if step is not None and step in index.values()
            else ""
        )
        have = ", ".join([*names, *map(str, steps)]) or empty
        raise UserError(f"run {self.path} has no checkpoint {str(which)!r}{gone}; it has: {have}")


def _damage(folder: Path) -> str | None:
    """What is wrong with a complete checkpoint; one of the first format has no manifest."""
    if not (folder / MANIFEST).exists():
        try:
            version = read_entry(folder / "state.json", ADVICE)["format_version"].count()
        except UserError:
            return "state.json cannot be read"
        return f"{MANIFEST} is missing" if version > 1 else None
    return damage(folder)
