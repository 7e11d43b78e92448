"""A triton driver for a machine without an NPU, and autotuners that do not measure.

Both the recorder and the interpreter run launchers that ask triton for its device. This driver
answers as triton-ascend's does on an NPU, except that nothing can be launched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ascendport.harness.loading import Device

TARGET_ARCH = "Ascend910B3"
"""Name of the SoC in the launch target. Specialisation does not depend on it."""


class _Utils:
    def __init__(self, device: Device) -> None:
        self.device = device

    def get_device_properties(self, index: int = 0) -> dict[str, int]:
        return self.device.properties()


class StubDriver:
    """Answers who and what the device is."""

    def __init__(self, device: Device) -> None:
        self.utils = _Utils(device)

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("npu", TARGET_ARCH, 0)

    def get_benchmarker(self) -> Callable[..., NoReturn]:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise RuntimeError("cannot time kernels without a device")

        return refuse


@contextmanager
def stub_driver(device: Device) -> Iterator[None]:
    """Makes `StubDriver` triton's active driver, for the block."""
    from triton.runtime.driver import driver

    kept = driver.active
    driver.set_active(StubDriver(device))
    try:
        yield
    finally:
        driver.active = kept


@contextmanager
def first_configuration(note: Callable[[str], None]) -> Iterator[None]:
    """Autotuned kernels run their first configuration that pruning leaves, for the block.

    ``note`` is told which one of how many it was.
    """
    from triton.runtime.autotuner import Autotuner

    kept = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.configs
        if len(configs) > 1:
            configs = self.prune_configs(kwargs)
            note(f"autotuned: first of {len(configs)} configurations")
        config = configs[0]
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = kept
