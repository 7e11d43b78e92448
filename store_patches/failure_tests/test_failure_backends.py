"""A backend's get on a store that answers for fewer or more keys than it was asked for.

Whoever loads pairs codes with blocks, one by one: a code that is not there is a block that nobody
looks at again.
"""

from __future__ import annotations

import importlib
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.ut.distributed.ascend_store.failure_support import STORE, defect, within

mooncake = importlib.import_module(f"{STORE}.backend.mooncake_backend")
memcache = importlib.import_module(f"{STORE}.backend.memcache_backend")

BACKENDS = {
    "mooncake": (mooncake, mooncake.MooncakeBackend, "batch_get_into_multi_buffers"),
    "memcache": (memcache, memcache.MemcacheBackend, "batch_get_into_layers"),
}
MENDED = all(hasattr(module, "_answers_for_every_key") for module, _, _ in BACKENDS.values())
KEYS = ["a", "b", "c"]
PLACES = [[16], [32], [48]]
SIZES = [[8], [8], [8]]


def answers(name: str, monkeypatch: pytest.MonkeyPatch, codes: Any) -> Any:
    """What get of the backend gives where its store gives ``codes``, or raises them."""
    module, cls, call = BACKENDS[name]
    if not hasattr(module, "MmcDirect"):
        monkeypatch.setattr(module, "MmcDirect", MagicMock(), raising=False)
    backend = cls.__new__(cls)
    backend._lazy_init = False
    backend._store_initialized = True
    backend.store = MagicMock()
    method = getattr(backend.store, call)
    method.side_effect = codes if isinstance(codes, Exception) else None
    method.return_value = codes
    return backend.get(KEYS, PLACES, SIZES)


@pytest.mark.parametrize("name", BACKENDS)
class TestGet:
    @within()
    def test_right_answers_stay(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(answers(name, monkeypatch, [0, 0, 0])) == [0, 0, 0]

    @within()
    def test_failed_keys_are_told(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found = list(answers(name, monkeypatch, [0, -704, 0]))
        assert [code != 0 for code in found] == [False, True, False]

    @within()
    def test_a_store_that_raises(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found = answers(name, monkeypatch, ConnectionError("gone"))
        assert found is None or (len(found) == 3 and all(code != 0 for code in found))

    @defect("a8", mended=MENDED)
    @pytest.mark.parametrize("given", [[], [0], [0, 0], [0, -704]], ids=str)
    @within()
    def test_a_key_without_an_answer_failed(
        self, name: str, monkeypatch: pytest.MonkeyPatch, given: list[int]
    ) -> None:
        found = list(answers(name, monkeypatch, given))
        assert len(found) == 3
        assert [code == 0 for code in found] == [
            *(code == 0 for code in given),
            False,
            False,
            False,
        ][:3]

    @defect("a8", mended=MENDED)
    @within()
    def test_more_answers_than_keys_are_none(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = list(answers(name, monkeypatch, [0, 0, 0, 0]))
        assert len(found) == 3 and all(code != 0 for code in found)
