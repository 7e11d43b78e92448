"""Models the time of a program that the Ascend compiler emits for A2 and A3.

    from ascendport.ascend.soc import soc
    from ascendport.simulator import Simulator
    from ascendport.timing import time_launch

    modelled = time_launch(Simulator(text), [x, y, n], grid=(40,), soc=soc("Ascend910B3"))
    print(f"modelled {modelled.us:.1f} us, bound by {modelled.bound}")

A modelled time is no measurement: `Modelled.error` says how far off the model typically is.
"""

from ascendport.timing.constants import Constant, Constants, constants
from ascendport.timing.explain import perfetto, ub_use
from ascendport.timing.launch import HotLine, Modelled, Run, ScalarLines, launch_time, time_launch
from ascendport.timing.pipes import CAUSES, Machine, Schedule, Span, schedule

__all__ = [
    "CAUSES",
    "Constant",
    "Constants",
    "HotLine",
    "Machine",
    "Modelled",
    "Run",
    "ScalarLines",
    "Schedule",
    "Span",
    "constants",
    "launch_time",
    "perfetto",
    "schedule",
    "time_launch",
    "ub_use",
]
