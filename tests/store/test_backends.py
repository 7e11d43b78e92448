"""put of every backend says what it stored: the patched methods on clients of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ascendport.checks.subject import Subject
from ascendport.harness.workspace import Tree, write_tree
from ascendport.store.loading import Loaded, loaded

pytestmark = pytest.mark.network

Made = Callable[[str], Subject]
RELEASES = ("0.24.0rc1", "0.27.1rc1", "0.30.0rc2")
KEYS = ["a", "b", "c"]
GIVEN = (KEYS, [[1]] * 3, [[4]] * 3)


@pytest.fixture(scope="module", params=RELEASES)
def store(
    request: pytest.FixtureRequest, made: Made, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    subject = made(request.param)
    folder = tmp_path_factory.mktemp("after")
    write_tree(folder, subject.after)
    with loaded(Tree(folder, subject.checkout.root)) as modules:
        yield modules


def _bare(module: ModuleType, name: str, **attributes: Any) -> Any:
    """A backend without its set-up, which needs a device."""
    backend = object.__new__(getattr(module, name))
    for key, value in {"_lazy_init": False, "_store_initialized": True, **attributes}.items():
        setattr(backend, key, value)
    return backend


def _answering(answer: Sequence[int] | Exception) -> Callable[..., Any]:
    def put(*given: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return put


@pytest.mark.parametrize(
    ("answer", "codes"),
    [
        ([0, 0, 0], [0, 0, 0]),
        ([0, -800, 0], [0, -800, 0]),
        ([0, -705, 4096], [0, 0, 0]),
        (ConnectionError("gone"), [-1, -1, -1]),
    ],
    ids=["stored", "one-failed", "already-there", "raises"],
)
def test_mooncake(store: Loaded, answer: Any, codes: list[int]) -> None:
    config = SimpleNamespace(preferred_segment=False, prefer_alloc_in_same_node=False)
    client = SimpleNamespace(batch_put_from_multi_buffers=_answering(answer))
    backend = _bare(store.mooncake, "MooncakeBackend", store=client, config=config)
    assert backend.put(*GIVEN) == codes
    assert backend.takes_address_views is True


@pytest.mark.parametrize(
    ("answer", "codes"),
    [([0, 3, 0], [0, 3, 0]), (ConnectionError("gone"), [-1, -1, -1])],
    ids=["one-failed", "raises"],
)
def test_memcache(store: Loaded, answer: Any, codes: list[int]) -> None:
    client = SimpleNamespace(batch_put_from_layers=_answering(answer))
    backend = _bare(store.module("backend.memcache_backend"), "MemcacheBackend", store=client)
    assert backend.put(*GIVEN) == codes
    assert not hasattr(backend, "takes_address_views")


def test_yuanrong(store: Loaded) -> None:
    module = store.module("backend.yuanrong_backend")
    sent: list[list[str]] = []

    def mset(keys: list[str], *rest: Any) -> None:
        if "c" in keys:
            raise RuntimeError("no space")
        sent.append(list(keys))

    helper = SimpleNamespace(
        normalize_keys=list, make_blob_lists=lambda addrs, sizes: list(addrs), _device_id=0
    )
    client = SimpleNamespace(mset_d2h=mset, mset_d2h_from_multi_buffers=mset)
    backend = _bare(
        module,
        "YuanrongBackend",
        store=client,
        _hetero_client=client,
        _helper=helper,
        _ds_set_param=None,
        _DS_MAX_BATCH_KEYS=2,
    )
    in_batches = hasattr(module, "YuanrongHelper")
    assert backend.put(*GIVEN) == ([0, 0, -1] if in_batches else [-1, -1, -1])
    assert sent == ([["a", "b"]] if in_batches else [])
    assert backend.put(["a"], [[1]], [[4]]) == [0]
    assert backend.put([], [], []) == []
