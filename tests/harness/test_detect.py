import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.errors import UserError
from ascendport.harness import detect


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_to(*names: str) -> None:
        def find_spec(name: str) -> object | None:
            return object() if name in names else None

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)

    return set_to


def test_a_machine_without_device_says_so(tmp_path: Path) -> None:
    found = detect.detect("auto", dev=tmp_path)
    assert found.kind == ""
    assert "no Ascend NPU; no CUDA GPU" in found.reason


def test_an_npu_is_taken_before_a_gpu(tmp_path: Path, installed: Callable[..., None]) -> None:
    (tmp_path / "davinci0").touch()
    (tmp_path / "nvidia0").touch()
    installed("torch", "torch_npu", "triton", "triton.backends.nvidia")
    assert detect.detect("auto", dev=tmp_path).kind == "npu"
    assert detect.detect("cuda", dev=tmp_path).kind == "cuda"


def test_the_management_device_is_no_npu(tmp_path: Path, installed: Callable[..., None]) -> None:
    (tmp_path / "davinci_manager").touch()
    installed("torch", "torch_npu", "triton")
    assert detect.detect("npu", dev=tmp_path).kind == ""


@pytest.mark.parametrize(
    ("device", "asked", "packages", "reason"),
    [
        pytest.param("davinci0", "npu", ("torch", "triton"), "torch_npu is not", id="no-torch-npu"),
        pytest.param("nvidia0", "cuda", ("triton",), "torch is not", id="no-torch"),
        pytest.param("nvidia0", "cuda", ("torch", "triton"), "no backend", id="triton-ascend"),
    ],
)
def test_a_device_without_its_packages_is_not_used(
    tmp_path: Path,
    installed: Callable[..., None],
    device: str,
    asked: str,
    packages: tuple[str, ...],
    reason: str,
) -> None:
    (tmp_path / device).touch()
    installed(*packages)
    found = detect.detect(asked, dev=tmp_path)
    assert found.kind == ""
    assert reason in found.reason


def test_the_simulator_is_not_passed_off_as_a_device() -> None:
    assert detect.detect("sim").kind == ""


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UserError, match="no such device"):
        detect.check("tpu")
