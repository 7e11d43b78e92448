from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ascendport.ascend.bishengir import Program
from ascendport.ascend.diagnostics import Kind, Refusal, Stage
from ascendport.ascend.lowering import (
    Linalg,
    LoosePointer,
    LoweringRequest,
    lower,
    lower_all,
    refusal_of_import,
)
from ascendport.ascend.soc import soc
from ascendport.errors import UserError


def _arguments(**changes: object) -> dict[str, object]:
    return {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": 1000, "BLOCK": 64, **changes}


def _lowered(request: LoweringRequest, part: str = "A2") -> Linalg:
    made = lower(request, soc(part))
    assert isinstance(made, Linalg), made
    return made


@pytest.mark.ascend
class TestLaunch:
    """What a launch is specialised on."""

    @pytest.mark.parametrize(
        ("n", "kind", "constant", "divisible"),
        [
            pytest.param(1000, "i32", False, False, id="plain"),
            pytest.param(1, "i32", True, False, id="one"),
            pytest.param(64, "i32", False, True, id="multiple-of-16"),
            pytest.param(2**31, "i64", False, True, id="wide"),
            pytest.param(True, "i1", False, False, id="bool"),
            pytest.param(0.5, "fp32", False, False, id="float"),
            pytest.param(None, "*i8", True, True, id="none"),
        ],
    )
    def test_scalars(
        self, kernels: Any, n: object, kind: str, constant: bool, divisible: bool
    ) -> None:
        request = LoweringRequest.of_launch(kernels.add_one, _arguments(n=n))
        assert request.signature["n"] == kind
        assert ("n" in request.constants) == constant
        assert ("n" in request.divisible) == divisible
        assert request.constants["BLOCK"] == 64
        assert "BLOCK" not in request.signature

    def test_agrees_with_what_triton_derives(self, kernels: Any) -> None:
        from triton.backends.ascend.compiler import AscendAttrsDescriptor

        for n in (0, 1, 7, 16, True, False, None, 2.0, 2**40):
            request = LoweringRequest.of_launch(kernels.add_one, _arguments(n=n))
            tensor = SimpleNamespace(data_ptr=lambda: 32)
            triton_says = AscendAttrsDescriptor(kernels.add_one.params, (tensor, tensor, n, 64))
            divisible = {name for name in request.divisible if name != "BLOCK"}
            numbers = set(triton_says.arg_properties["tt.divisibility"]) - {3}
            assert {list(request.signature).index(name) for name in divisible} == numbers
            is_one = bool(triton_says.arg_properties["tt.equal_to"])
            assert ("n" in request.constants and n is not None) == is_one

    def test_pointers(self, kernels: Any) -> None:
        request = LoweringRequest.of_launch(
            kernels.add_one, _arguments(x_ptr="*bf16", y_ptr=LoosePointer("*fp16"))
        )
        assert (request.signature["x_ptr"], request.signature["y_ptr"]) == ("*bf16", "*fp16")
        assert request.divisible == {"x_ptr"}

    def test_unknown_argument(self, kernels: Any) -> None:
        with pytest.raises(UserError, match="no argument 'z_ptr'"):
            LoweringRequest.of_launch(kernels.add_one, _arguments(z_ptr="*fp32"))

    def test_missing_argument(self, kernels: Any) -> None:
        arguments = _arguments()
        del arguments["n"]
        with pytest.raises(UserError, match="'n'"):
            LoweringRequest.of_launch(kernels.add_one, arguments)


@pytest.mark.ascend
class TestLower:
    def test_text(self, kernels: Any) -> None:
        made = _lowered(LoweringRequest.of_launch(kernels.add_one, _arguments()))
        assert made.kernel_name == "add_one"
        assert made.mix_mode == "aiv"
        assert "func.func @add_one(" in made.text
        assert "mix_mode" not in made.text
        assert re.search(r'kernels\.py":\d+:\d+', made.text)

    def test_environment_is_left_as_it_was(
        self, kernels: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = LoweringRequest.of_launch(kernels.add_one, _arguments())
        monkeypatch.delenv("TRITON_DISABLE_LINE_INFO", raising=False)
        _lowered(request)
        assert "TRITON_DISABLE_LINE_INFO" not in os.environ
        monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
        assert "kernels.py" in _lowered(request).text
        assert os.environ["TRITON_DISABLE_LINE_INFO"] == "1"

    def test_key_is_that_of_the_content(self, kernels: Any) -> None:
        request = LoweringRequest.of_launch(kernels.add_one, _arguments())
        other = LoweringRequest.of_launch(kernels.add_one, _arguments(BLOCK=128))
        calm = LoweringRequest.of_launch(kernels.add_one, _arguments(), {"multibuffer": False})
        assert _lowered(request, "A2").key == _lowered(request, "A3").key
        keys = {_lowered(item).key for item in (request, other, calm)}
        assert len(keys) == 3

    @pytest.mark.parametrize("name", ["keep_positive", "repeated_square", "matrix_square"])
    def test_a2_and_a3_share_the_front_end(self, kernels: Any, name: str) -> None:
        arguments = _arguments(x_ptr="*fp32", y_ptr="*fp32")
        request = LoweringRequest.of_launch(getattr(kernels, name), arguments)
        parts = [soc("A2"), soc("A3"), soc("A5")]
        shared = lower_all(request, parts)
        assert list(shared) == parts
        assert shared[parts[0]] is shared[parts[1]]
        for part in parts:
            assert shared[part] == _lowered(request, part.name)

    @pytest.mark.parametrize(("part", "multibuffer"), [("A2", True), ("A3", True), ("A5", False)])
    def test_default_of_multibuffer(self, kernels: Any, part: str, multibuffer: bool) -> None:
        request = LoweringRequest.of_launch(kernels.add_one, _arguments())
        assert _lowered(request, part).multibuffer is multibuffer
        asked = LoweringRequest.of_launch(
            kernels.add_one, _arguments(), {"multibuffer": not multibuffer}
        )
        assert _lowered(asked, part).multibuffer is not multibuffer

    def test_options_become_flags(self, kernels: Any) -> None:
        request = LoweringRequest.of_launch(
            kernels.add_one, _arguments(), {"unit_flag": True, "num_warps": 4}
        )
        assert "--enable-hivm-unit-flag-sync=True" in _lowered(request).flags

    @pytest.mark.parametrize("option", ["not_an_option", "grf_mode"])
    def test_unknown_option_is_no_verdict(self, kernels: Any, option: str) -> None:
        request = LoweringRequest.of_launch(kernels.add_one, _arguments(), {option: 1})
        refused = lower(request, soc("A2"))
        assert isinstance(refused, Refusal)
        assert refused.kind is Kind.UNSUPPORTED_TOOLCHAIN
        assert option in refused.reason

    def test_simt_launch_is_no_verdict(self, kernels: Any) -> None:
        request = LoweringRequest.of_launch(
            kernels.add_one, _arguments(), {"compile_mode": "simt_only"}
        )
        refused = lower(request, soc("A5"))
        assert isinstance(refused, Refusal)
        assert not refused.is_verdict

    def test_plain_function_is_a_mistake_of_the_caller(self) -> None:
        with pytest.raises(TypeError, match="JITFunction"):
            lower(LoweringRequest(len, {}, {}), soc("A2"))

    def test_adapter_failure_is_explained(
        self, kernels: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import subprocess

        from triton.backends.ascend import compiler

        def fail(*_: object, **__: object) -> str:
            said = b"loc(\"kernels.py\":17:4): error: failed to legalize operation 'tt.scan'"
            raise subprocess.CalledProcessError(1, ["triton-adapter-opt"], stderr=said)

        monkeypatch.setattr(compiler, "ttir_to_linalg", fail)
        refused = lower(LoweringRequest.of_launch(kernels.add_one, _arguments()), soc("A2"))
        assert isinstance(refused, Refusal)
        assert refused.stage is Stage.ADAPTER
        assert refused.reason == "no lowering for tt.scan at line 17"


@pytest.mark.ascend
def test_bare_request_compiles_like_a_launch(kernels: Any, program: Callable[..., Program]) -> None:
    bare = LoweringRequest(
        kernels.add_one,
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"},
        {"BLOCK": 64},
        frozenset({"x_ptr", "y_ptr"}),
    )
    launch = LoweringRequest.of_launch(kernels.add_one, _arguments())
    assert _lowered(bare).key == _lowered(launch).key


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(
            ModuleNotFoundError(
                "No module named 'triton.language.extra.cann'",
                name="triton.language.extra.cann",
            ),
            Kind.UNSUPPORTED_TOOLCHAIN,
            id="newer-module",
        ),
        pytest.param(
            ImportError("cannot import name 'x' from 'triton.language'", name="triton.language"),
            Kind.UNSUPPORTED_TOOLCHAIN,
            id="newer-name",
        ),
        pytest.param(
            AttributeError("module 'triton.language.extra' has no attribute 'cann'"),
            Kind.UNSUPPORTED_TOOLCHAIN,
            id="newer-attribute",
        ),
        pytest.param(ModuleNotFoundError("No module named 'x'", name="x"), Kind.KERNEL, id="other"),
        pytest.param(SyntaxError("bad"), Kind.KERNEL, id="syntax"),
    ],
)
def test_module_that_cannot_be_imported(error: Exception, kind: Kind) -> None:
    refused = refusal_of_import(error)
    assert refused.stage is Stage.LOAD
    assert refused.kind is kind
    assert len(refused.reason.splitlines()) == 1


@pytest.mark.ascend
def test_module_of_a_newer_triton(kernels: Any) -> None:
    with pytest.raises(ImportError) as caught:
        from triton.language.extra.cann.extension import get_element  # noqa: F401
    assert refusal_of_import(caught.value).kind is Kind.UNSUPPORTED_TOOLCHAIN
