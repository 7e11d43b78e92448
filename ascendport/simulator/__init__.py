"""Runs the program that the Ascend compiler emits for A2 and A3 on this CPU.

    from ascendport.simulator import Simulator

    simulator = Simulator(text)                      # what bishengir-compile emits
    result = simulator.run([x, y, n], grid=(40,), names=["x", "y", "n"])
    for finding in result.findings:
        print(finding)

Outputs are in the arrays that were passed. Nothing of Triton or torch is needed.
"""

from ascendport.simulator.errors import ArgumentError, MalformedError, UnsupportedError
from ascendport.simulator.ir import Location, Program
from ascendport.simulator.launch import Simulator, run
from ascendport.simulator.parse import parse
from ascendport.simulator.result import Counters, Finding, Kind, Result
from ascendport.simulator.trace import Trace

__all__ = [
    "ArgumentError",
    "Counters",
    "Finding",
    "Kind",
    "Location",
    "MalformedError",
    "Program",
    "Result",
    "Simulator",
    "Trace",
    "UnsupportedError",
    "parse",
    "run",
]
