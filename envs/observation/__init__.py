"""What a body observes: one flat vector, and a layout that says for every column whose it is, what, and in which unit.

The feature set `paper` is that of NerveNet (Wang et al. 2018) and Snowflake (Blake et al. 2021); `general` serves every
robot that `envs.robot.find_robot` finds.
"""

from envs.observation.general import GeneralObserver, general_layout
from envs.observation.layout import ACTUATOR, BODY, CONTACT_CLIP, JOINT, ROOT, WORLD, ObservationLayout
from envs.observation.paper import PaperObserver, paper_layout

__all__ = [
    "ACTUATOR",
    "BODY",
    "CONTACT_CLIP",
    "JOINT",
    "ROOT",
    "WORLD",
    "GeneralObserver",
    "ObservationLayout",
    "PaperObserver",
    "general_layout",
    "paper_layout",
]
