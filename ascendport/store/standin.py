"""The names that a checkout's ascend_store needs at import and that are not its own.

`NAMES` is the whole list: module → what it binds. Everything else that the store's code asks of
vllm, or of the rest of vllm_ascend, is refused by name, so that a result never rests on a guess.

Where vllm itself is installed at the version that the release pins, only the part below
``vllm_ascend`` is used (`ascendport.store.loading`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class Opaque:
    """A class that the code only names, in annotations and in ``isinstance``."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError(f"{type(self).__name__} is a stand-in that cannot be made")


def opaque(name: str) -> type[Opaque]:
    return type(name, (Opaque,), {})


@dataclass
class BlockStored:
    """The event that announces stored blocks; the fields that the store fills in."""

    block_hashes: list[Any]
    parent_block_hash: Any
    token_ids: Any
    block_size: int | None
    lora_id: int | None
    medium: str | None
    lora_name: str | None = None


class Metadata:
    """Base of connector metadata; has no behaviour of its own."""


@dataclass
class Stats:
    """Base of connector statistics: a dictionary of figures."""

    data: dict[str, Any] = field(default_factory=dict)


class Spec:
    """Base of KV-cache specifications."""


class Group:
    """A parallel group of one, for the dimensions that the harness does not vary."""

    world_size = 1
    rank_in_group = 0
    local_rank = 0
    rank = 0


class StoreLogger(logging.Logger):
    """vllm's logger has three more methods."""

    def _once(self, message: str, *args: object, **kwargs: object) -> None:
        self.debug(message, *args)

    info_once = warning_once = debug_once = _once


LOGGER = StoreLogger("ascendport.store")
LOGGER.addHandler(logging.NullHandler())


def cdiv(a: int, b: int) -> int:
    return -(a // -b)


def one() -> int:
    return 1


def zero(*args: object) -> int:
    return 0


def same(value: Any) -> Any:
    return value


def nothing(*args: object, **kwargs: object) -> None:
    return None


def no_gate() -> None:
    return None


class Environment:
    """``vllm.envs``: what the store reads there."""

    LOCAL_RANK = 0
    VLLM_PREFIX_CACHE_RETENTION_INTERVAL = None
    VLLM_RPC_BASE_PATH = "/tmp"


class AscendEnvironment:
    """``vllm_ascend.envs``: what the store reads there."""

    VLLM_ASCEND_KVPOOL_RANGE_DEBUG = False


class OneOwner:
    """``KVPPConfig``: layers are not spread over ranks."""

    size = 1

    @classmethod
    def from_vllm_config(cls, config: object) -> OneOwner:
        return cls()


class ReplicateConfig:
    """Mooncake's options of a put: where copies go. Only made where Mooncake is not installed."""

    def __init__(self) -> None:
        self.preferred_segment = ""
        self.prefer_alloc_in_same_node = False


def _specs() -> dict[str, Any]:
    spec = type("KVCacheSpec", (Spec,), {})
    attention = type("AttentionSpec", (spec,), {})
    return {
        "KVCacheSpec": spec,
        "AttentionSpec": attention,
        "FullAttentionSpec": type("FullAttentionSpec", (attention,), {}),
        "MambaSpec": type("MambaSpec", (spec,), {}),
        "SlidingWindowSpec": type("SlidingWindowSpec", (attention,), {}),
        "UniformTypeKVCacheSpecs": type("UniformTypeKVCacheSpecs", (spec,), {}),
        "KVCacheConfig": opaque("KVCacheConfig"),
        "KVCacheGroupSpec": opaque("KVCacheGroupSpec"),
        "KVCacheTensor": opaque("KVCacheTensor"),
    }


class Encoder:
    """``MsgpackEncoder``: frames of what it is given; of JSON, which the store's lists fit."""

    def encode(self, value: object) -> list[bytes]:
        return [json.dumps(value).encode()]


class Decoder:
    """``MsgpackDecoder``: what `Encoder` made frames of; raises on any others."""

    def decode(self, frames: Any) -> Any:
        first, *others = frames
        if others:
            raise ValueError(f"{len(others)} frames too many")
        return json.loads(bytes(getattr(first, "buffer", first)))


def make_socket(context: Any, path: str, kind: int, bind: bool | None = None, **_: object) -> Any:
    """``make_zmq_socket``: a socket that is bound or connected to ``path``."""
    socket = context.socket(kind)
    (socket.bind if bind else socket.connect)(path)
    return socket


def _version_is(*args: object) -> bool:
    return False


GATE = {
    "AttentionComputeStartGate": opaque("AttentionComputeStartGate"),
    "get_attention_compute_start_gate": no_gate,
    "reset_attention_compute_start_gate": nothing,
}

VLLM: Mapping[str, Mapping[str, Any]] = {
    "vllm": {},
    "vllm.config": {
        "ParallelConfig": opaque("ParallelConfig"),
        "VllmConfig": opaque("VllmConfig"),
    },
    "vllm.distributed": {
        "get_pcp_group": Group,
        "get_pp_group": Group,
        "get_dcp_group": Group,
        "get_tensor_model_parallel_rank": zero,
        "get_tensor_model_parallel_world_size": one,
    },
    "vllm.distributed.kv_events": {
        "BlockStored": BlockStored,
        "KVCacheEvent": opaque("KVCacheEvent"),
        "KVConnectorKVEvents": opaque("KVConnectorKVEvents"),
        "KVEventAggregator": opaque("KVEventAggregator"),
    },
    "vllm.distributed.kv_transfer.kv_connector.v1.base": {
        "KVConnectorBase_V1": opaque("KVConnectorBase_V1"),
        "KVConnectorRole": opaque("KVConnectorRole"),
        "SupportsHMA": opaque("SupportsHMA"),
        "KVConnectorMetadata": Metadata,
        "KVConnectorWorkerMetadata": Metadata,
    },
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": {
        "KVConnectorStats": Stats,
        "KVConnectorPromMetrics": opaque("KVConnectorPromMetrics"),
        "PromMetric": opaque("PromMetric"),
        "PromMetricT": opaque("PromMetricT"),
    },
    "vllm.distributed.parallel_state": {
        "get_dp_group": Group,
        "get_world_group": Group,
    },
    "vllm.envs": {
        name: value for name, value in vars(Environment).items() if not name.startswith("_")
    },
    "vllm.forward_context": {"ForwardContext": opaque("ForwardContext")},
    "vllm.logger": {"logger": LOGGER},
    "vllm.platforms": {"current_platform": SimpleNamespace()},
    "vllm.platforms.interface": {"set_assigned_physical_gpu_ids": nothing},
    "vllm.utils.math_utils": {"cdiv": cdiv},
    "vllm.utils.network_utils": {
        "get_ip": lambda: "127.0.0.1",
        "make_zmq_socket": make_socket,
        "split_host_port": nothing,
    },
    "vllm.v1.attention.backend": {"AttentionMetadata": opaque("AttentionMetadata")},
    "vllm.v1.core.block_pool": {"BlockPool": opaque("BlockPool")},
    "vllm.v1.core.kv_cache_manager": {"KVCacheBlocks": opaque("KVCacheBlocks")},
    "vllm.v1.core.kv_cache_utils": {
        "BlockHash": bytes,
        "BlockHashList": list,
        "KVCacheBlock": opaque("KVCacheBlock"),
        "maybe_convert_block_hash": same,
    },
    "vllm.v1.core.sched.output": {
        "NewRequestData": opaque("NewRequestData"),
        "SchedulerOutput": opaque("SchedulerOutput"),
    },
    "vllm.v1.core.single_type_kv_cache_manager": {
        "SingleTypeKVCacheManager": opaque("SingleTypeKVCacheManager"),
    },
    "vllm.v1.kv_cache_interface": _specs(),
    "vllm.v1.metrics.utils": {"create_metric_per_engine": nothing},
    "vllm.v1.outputs": {"KVConnectorOutput": opaque("KVConnectorOutput")},
    "vllm.v1.request": {"Request": opaque("Request")},
    "vllm.v1.serial_utils": {"MsgpackDecoder": Decoder, "MsgpackEncoder": Encoder},
    "vllm.v1.worker": {"mamba_utils": SimpleNamespace()},
}
"""vllm's part. `LOGGER` keeps no records of its own: the harness adds a handler."""

ASCEND: Mapping[str, Mapping[str, Any]] = {
    "vllm_ascend.envs": {
        name: value for name, value in vars(AscendEnvironment).items() if not name.startswith("_")
    },
    "vllm_ascend.ascend_config": {"KVPPConfig": OneOwner},
    "vllm_ascend.core.kv_cache_interface": {"is_prefix_cacheable": lambda spec: True},
    "vllm_ascend.core.kv_cache_placement": {"map_kvpp_layers_to_owners": nothing},
    "vllm_ascend.distributed.kv_transfer.utils.mooncake_transfer_engine": {
        "global_te": SimpleNamespace(),
    },
    "vllm_ascend.distributed.parallel_state": {"get_global_rank": zero},
    "vllm_ascend.distributed.utils": {
        "get_decode_context_model_parallel_rank": zero,
        "get_decode_context_model_parallel_world_size": one,
    },
    "vllm_ascend.memcache_comm_fence": GATE,
    "vllm_ascend.spec_decode.dspark_utils": {"get_dspark_aux_layer_ids": nothing},
    "vllm_ascend.utils": {
        "AscendDeviceType": opaque("AscendDeviceType"),
        "get_ascend_device_type": nothing,
        "get_kv_cache_tensor_layers": nothing,
        "vllm_version_is": _version_is,
    },
}
"""What the store takes from the rest of vllm_ascend; those parts need torch_npu or vllm."""

NAMES: Mapping[str, Mapping[str, Any]] = {**VLLM, **ASCEND}


class Event:
    """``torch.npu.Event`` for CPU tensors: writes are done when they return."""

    def record(self, *args: object) -> None:
        return None

    def synchronize(self) -> None:
        return None

    def wait(self, *args: object) -> None:
        return None

    def query(self) -> bool:
        return True


NPU = SimpleNamespace(
    Event=Event,
    Stream=opaque("Stream"),
    current_device=zero,
    set_device=nothing,
    current_stream=nothing,
)
"""``torch.npu`` without torch_npu: the calls that the store makes."""

Filler = Callable[[], Mapping[str, Any]]
