"""The tasks: batched environments over any body, and their Gymnasium form. Importing registers the `Snowflake/` ids."""

from envs.locomotion_env import LocomotionEnv
from envs.multi_body import MultiBodyVectorEnv, make_vector_env
from envs.observation import ObservationLayout, general_layout, paper_layout
from envs.registration import register_environments
from envs.robot import Robot, find_robot
from envs.tasks.options import TaskOptions
from envs.vector_env import LocomotionVectorEnv

__all__ = [
    "LocomotionEnv",
    "LocomotionVectorEnv",
    "MultiBodyVectorEnv",
    "ObservationLayout",
    "Robot",
    "TaskOptions",
    "find_robot",
    "general_layout",
    "make_vector_env",
    "paper_layout",
]

register_environments()
