"""Temporal memory between encoder and body of a graph actor: attention over a window of steps, or a GRU."""

from snowflake.networks.memory.node_memory import NodeMemory
from snowflake.networks.memory.past import Past, State

__all__ = ["NodeMemory", "Past", "State"]
