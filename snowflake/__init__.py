"""Snowflake: one policy for any body.

``snowflake.load(run).predict(obs)`` plays a trained policy; the command ``snowflake`` trains, evaluates and transfers.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from snowflake.policy import GraphActorCriticPolicy

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(run: str | Path, checkpoint: str | None = None) -> GraphActorCriticPolicy:
    """Load the policy of a run folder; no code from the folder is run.

    Args:
        run: Run folder, or ``"pretrained:NAME"`` for one that the package ships.
        checkpoint: ``"best"``, ``"last"`` or a step; ``None`` takes the best there is.

    Returns:
        The policy, for the bodies that it was trained on; ``predict`` has Stable-Baselines3's signature.

    Raises:
        agents.errors.UserError: The folder or the checkpoint is missing or does not fit.
    """
    from snowflake.run import load as load_run

    return load_run(run, checkpoint)


def _refuse_intruder(name: str) -> None:
    """Raise unless the top-level package ``name`` lies next to this one.

    ``agents`` and ``envs`` are common names: another distribution (``openai-agents``, ``envs``) or a folder on the
    path may own them, and would be imported silently in place of ours.
    """
    home = Path(__file__).resolve().parent.parent
    spec = find_spec(name)
    if spec is None:
        raise ImportError(f"snowflake needs its package '{name}' in {home}: reinstall snowflake-rl")
    places = [Path(spec.origin).parent] if spec.origin else [Path(p) for p in spec.submodule_search_locations or ()]
    if not any(place.resolve() == home / name for place in places):
        where = spec.origin or ", ".join(map(str, places))
        raise ImportError(
            f"snowflake needs its own package '{name}' in {home}, but {where} comes first on the path: "
            "use an environment without that package (openai-agents and envs are known to clash), or another folder"
        )


for _name in ("agents", "envs"):
    _refuse_intruder(_name)
del _name
