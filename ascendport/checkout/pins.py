"""The known releases of vllm-ascend and the vLLM that each one pins (``pins.toml``)."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path


@cache
def pins() -> dict[str, str]:
    """Release of vllm-ascend → version of vllm, oldest release first."""
    text = Path(__file__).with_name("pins.toml").read_text("utf-8")
    return dict(tomllib.loads(text)["vllm"])


def releases() -> tuple[str, ...]:
    """The known releases, oldest first."""
    return tuple(pins())
