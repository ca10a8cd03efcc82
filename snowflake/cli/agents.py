"""``snowflake agents``: the ready-made bodies and their sizes, the names that can be made, and the body sets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import agents
from snowflake.cli.parsing import parse
from snowflake.config.body_sets import PREFIX, read_set, set_names


@dataclass(frozen=True)
class AgentsFlags:
    """List the ready-made bodies with the size of their graph, observation and action, families, and body sets."""


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    parse(AgentsFlags, argv, "snowflake agents")
    console = Console(highlight=False)
    console.print(_bodies())
    from agents.variation import KEYS

    others = [(family.name, family.grammar) for family in agents.families() if family.grammar]
    _list(console, "Families, with every name that is a body:", others)
    _list(console, "Variations: a body and any of these, each once, as in ant+mass=1.5+remove=1+seed=7:", KEYS.items())
    sets = {f"{PREFIX}{name}": read_set(name) for name in set_names()}
    words = ((name, ", ".join(f"{split} ({len(bodies)})" for split, bodies in splits.items()))
             for name, splits in sets.items())  # fmt: skip
    _list(console, f"Body sets: write {PREFIX}NAME/SPLIT, or {PREFIX}FILE.yaml/SPLIT for one of your own:", words)
    return 0


def _bodies() -> Table:
    from envs import LocomotionVectorEnv
    from snowflake.run import graph_of

    table = Table("name", box=None, header_style="bold", pad_edge=False)
    for column in ("nodes", "edges", "observations", "actions"):
        table.add_column(column, justify="right")
    table.add_column("task")
    for name in agents.names():
        env = LocomotionVectorEnv(name)
        graph = graph_of(env)
        sizes = (graph.num_nodes, graph.num_edges, graph.obs_dim, graph.act_dim)
        table.add_row(name, *map(str, sizes), env.morphology.task)
        env.close()
    return table


def _list(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print a heading and lines of a name and a text, wrapped."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows) + 4
    console.print(f"\n[bold]{title}[/bold]")
    for name, text in rows:
        first, *more = textwrap.wrap(text, max(console.width - width, 30)) or [""]
        lines = [f"  {name:<{width - 2}}{first}", *(" " * width + line for line in more)]
        console.print("\n".join(lines), markup=False, soft_wrap=True)
