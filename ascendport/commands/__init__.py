"""What the commands do, as functions that return values. Imports are kept inside them: status must
not wait for what verify needs, and nothing here needs torch or triton."""

from ascendport.commands.benching import bench, bench_store, store_plan
from ascendport.commands.changing import Exported, apply, drifts, export, revert, status
from ascendport.commands.simulating import Simulation, simulate
from ascendport.commands.subjects import one_soc, options
from ascendport.commands.verifying import Verdict, verify

__all__ = [
    "Exported",
    "Simulation",
    "Verdict",
    "apply",
    "bench",
    "bench_store",
    "drifts",
    "export",
    "one_soc",
    "options",
    "revert",
    "simulate",
    "status",
    "store_plan",
    "verify",
]
