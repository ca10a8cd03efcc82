"""``snowflake agents``: the ready-made bodies and their sizes."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import agents
from snowflake.cli.parsing import parse


@dataclass(frozen=True)
class AgentsFlags:
    """List the ready-made bodies with the size of their graph, observation and action."""


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    parse(AgentsFlags, argv, "snowflake agents")
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
    console = Console()
    console.print(table)
    console.print("\nA centipede-N exists for every N >= 3, and centipede-N-crippled-I-J with legs I and J crippled.")
    return 0
