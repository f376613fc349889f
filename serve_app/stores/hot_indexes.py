"""The hot indexes of a process by the name of their version: which there are may change while they are read.

Promises that an index is there as long as any of its holders, the shards, has not let go of it, and that whoever has
one in hand may go on with it. The vectors in an index leave with the blocks whose they are.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serve_app.core import EmbeddingVersion
from serve_app.errors import InvalidRequest
from serve_app.ports import HotIndex
from serve_app.stores.device import HostDevice
from serve_app.stores.hot_device import DeviceHotIndex, slots_within
from serve_app.stores.hot_faiss import FaissHotIndex
from serve_app.stores.spilling import SpillingHotIndex

__all__ = ["HotIndexes", "HotOptions"]

DEVICE = re.compile(r"cpu|host|cuda(?::(\d{1,2}))?")
MEMORY_MIB_MAX = 1 << 20

HOT_SHARDS_MAX = 256


class HotOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the vectors of users in memory lie: "cpu", in a block for each user; "cuda" or "cuda:1", on that GPU, in
    `memory_mib` of it for each embedding version; "host", as on a GPU but in the host's memory, to try that layout.

    With `placement = "deployment"` they lie so in hot shards, which the gateways of a cluster ask, and on the CPU in
    whatever else reads the file. There are as many hot `shards`, which share those of the store by the remainder of
    their numbers; or `declared` says which each of them has.
    """

    device: str = "cpu"
    memory_mib: Annotated[int, Meta(ge=1, le=MEMORY_MIB_MAX)] = 4_096
    placement: Literal["inside", "deployment"] = "inside"
    shards: Annotated[int, Meta(ge=1, le=HOT_SHARDS_MAX)] = 1
    declared: Annotated[tuple[tuple[Annotated[int, Meta(ge=0)], ...], ...], Meta(max_length=HOT_SHARDS_MAX)] = ()
    wait_s: Annotated[float, Meta(gt=0, le=10)] = 0.05
    """What a read gives its hot shard, once it has its query's vector and as long as its deadline's share lasts."""

    def __post_init__(self) -> None:
        """Raises ValueError for a device of no kind, and for a shard of the store that two hot shards have."""
        named = [shard for one in self.declared for shard in one]
        if len(set(named)) < len(named):
            raise ValueError("declared: a shard of the store is in one hot shard")
        if not DEVICE.fullmatch(self.device):
            raise ValueError(f'device: {self.device!r} is not "cpu", "host", "cuda" or "cuda:" and a number')

    def holder(self, shard: int) -> int | None:
        """The number of the hot shard that has this shard of the store; None where none was declared to."""
        if not self.declared:
            return shard % self.shards
        return next((number for number, held in enumerate(self.declared) if shard in held), None)

    def open(self, dimension: int) -> HotIndex:
        """Raises InvalidRequest where there is no such GPU, DeviceLost where it has too little memory."""
        if self.device == "cpu" or self.placement == "deployment":
            return FaissHotIndex(dimension)
        slots = slots_within(self.memory_mib << 20, dimension)
        if self.device == "host":
            return SpillingHotIndex(DeviceHotIndex(dimension, HostDevice, slots), dimension)
        try:
            on_gpu = DeviceHotIndex.on_gpu(dimension, slots, int(self.device.partition(":")[2] or 0))
        except ImportError as error:
            raise InvalidRequest(f"hot.device: {error}") from error
        return SpillingHotIndex(on_gpu, dimension)


class HotIndexes(Mapping[str, HotIndex]):
    def __init__(self, options: HotOptions | None = None) -> None:
        self._options = options or HotOptions()
        self._indexes: Mapping[str, HotIndex] = {}
        self._holders: dict[str, set[int]] = {}
        self._changing = threading.Lock()

    def hold(self, version: EmbeddingVersion, holder: int) -> HotIndex:
        """The version's index, empty where nobody held it before."""
        with self._changing:
            self._holders.setdefault(version.name, set()).add(holder)
            if version.name not in self._indexes:
                self._indexes = {**self._indexes, version.name: self._options.open(version.dimension)}
            return self._indexes[version.name]

    def release(self, name: str, holder: int) -> None:
        """It goes with its last holder."""
        with self._changing:
            holders = self._holders.get(name, set())
            holders.discard(holder)
            if not holders:
                self._holders.pop(name, None)
                _close(self._indexes.get(name))
                self._indexes = {key: index for key, index in self._indexes.items() if key != name}

    def on_devices(self) -> dict[str, SpillingHotIndex]:
        """By version, those that lie on a device."""
        return {name: one for name, one in self._indexes.items() if isinstance(one, SpillingHotIndex)}

    def troubles(self) -> list[str]:
        """Why vectors are not on the device where they should be."""
        full = [(name, one.refused) for name, one in self.on_devices().items()]
        return [
            *(f"{trouble}; searched on the CPU until a restart" for trouble in self.lost()),
            *(f"{name}: no room for {refused} users, who are searched on the CPU" for name, refused in full if refused),
        ]

    def lost(self) -> list[str]:
        """Which devices were lost, by version, and why."""
        found = [(name, one.bounded.trouble) for name, one in self.on_devices().items()]
        return [f"{name}: {trouble}" for name, trouble in found if trouble]

    def close(self) -> None:
        for index in self._indexes.values():
            _close(index)

    def __getitem__(self, name: str) -> HotIndex:
        return self._indexes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)


def _close(index: HotIndex | None) -> None:
    if isinstance(index, SpillingHotIndex):
        index.close()
