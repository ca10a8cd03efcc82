"""The morphology graph: which parts a body has, how they touch, and which numbers belong to which part."""

from snowflake.graph.builder import build_graph
from snowflake.graph.morphology import (
    GENERAL_CLASSES,
    JOINT_NODE,
    JOINT_SLOTS,
    PAPER_CLASSES,
    ROOT_NODE,
    ROOT_SLOTS,
    MorphologyGraph,
)
from snowflake.graph.static import ACTUATOR_STATIC, JOINT_STATIC, ROOT_STATIC

__all__ = [
    "ACTUATOR_STATIC",
    "GENERAL_CLASSES",
    "JOINT_NODE",
    "JOINT_SLOTS",
    "JOINT_STATIC",
    "PAPER_CLASSES",
    "ROOT_NODE",
    "ROOT_SLOTS",
    "ROOT_STATIC",
    "MorphologyGraph",
    "build_graph",
]
