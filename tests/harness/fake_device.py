"""A device that is none: Triton's interpreter on the CPU, in the place of a GPU.

It lets the tests run the code that places tensors, repeats launches and looks for what changed,
and judge it. It says nothing of a device: programs run one after another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ascendport.harness.loading import Device
from ascendport.harness.on_device import Accelerator


class Interpreter(Accelerator):
    """Opened in the child process: triton must not be imported before."""

    def __init__(self, free: int | None = None) -> None:
        os.environ["TRITON_INTERPRET"] = "1"
        self.kind = "cpu"
        self.title = "interpreter"
        self.device = Device()
        self.free = free

    def synchronize(self) -> None:
        pass

    def free_bytes(self) -> int | None:
        return self.free

    @contextmanager
    def launching(self) -> Iterator[None]:
        from ascendport.harness import repairs
        from ascendport.harness.driver import stub_driver
        from ascendport.harness.executor import Log, interpreting

        repairs.apply()
        with ExitStack() as stack:
            stack.enter_context(stub_driver(self.device))
            stack.enter_context(interpreting(Log()))
            yield

    @contextmanager
    def beside_other_work(self) -> Iterator[None]:
        yield
