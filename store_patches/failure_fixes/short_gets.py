"""A get answers for every key that it was asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vllm.logger import logger


def _answers_for_every_key(get: Callable[..., Any]) -> Callable[..., Any]:
    """Count keys that the store says nothing about as failed; callers pair codes with blocks."""

    @functools.wraps(get)
    def answered(self: Any, keys: list[str], *places: Any) -> Any:
        codes = get(self, keys, *places)
        if codes is None or len(codes) == len(keys):
            return codes
        logger.error("The store gave %d answers for a get of %d keys.", len(codes), len(keys))
        # More answers than keys say nothing about any of them.
        given = list(codes) if len(codes) < len(keys) else []
        return [*given, *[-1] * (len(keys) - len(given))]

    return answered
