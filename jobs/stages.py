"""The stages of a backfill on Ray Data: stretches are read unit by unit, and units embedded by a pool of actors.

A row of the dataset is a unit, so that it arrives whole or not at all. What waits between the stages is bounded by
Ray Data, whose share of the object store is named here; no row is ever gathered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
import ray
from ray.data import ActorPoolStrategy, DataContext, ExecutionResources
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.embedding import GPU_SLICE_TOKENS, SLICE_TOKENS, Embedded, Worker
from jobs.estimate import Sample, counted, sampled
from jobs.link import Beats
from jobs.reading import ShardTable, Unit
from jobs.resting import Resting, Told
from jobs.work import Work
from serve_app.core import EmbeddingVersion
from serve_app.errors import MemstrataError

STORE_BYTES = 128 << 20
"""Of the object store: a unit has some hundred kilobytes, and few are under way."""

BLOCK_BYTES = 1 << 14
"""Less than a unit: each unit becomes a block of its own, that goes on at once."""

ACTORS_A_READER = 4
"""Encoders that one reader keeps busy: on one core it reads some thousands of turns a second."""

READ_CPUS = 0.25
AHEAD_PER_ACTOR = 2
"""Units that an actor has in hand: while it embeds one the next is there."""

LOST_REST_S = 1.0
"""For each second of work, while nobody can say how much it is to be."""

NICENESS = 19
ROW = "unit"


class RayFailed(MemstrataError):
    code = "ray_failed"


def actors_of(asked: int | None, device: str) -> tuple[int, float]:
    """How many encoders, and what of a GPU each takes: one a GPU, else one or as many as are asked for."""
    gpus = int(ray.cluster_resources().get("GPU", 0)) if device == "auto" or device.startswith("cuda") else 0
    if gpus:
        return min(asked or gpus, gpus), 1.0
    return asked or 1, 0.0


def measured(work: Work, gpus: float) -> tuple[int, int, Sample, EmbeddingVersion]:
    """Turns to be embedded, cold ones, a timed sample, the encoder's version; by a process that ends after it."""
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_calls=1)(_measured)
    try:
        found: tuple[int, int, Sample, EmbeddingVersion] = ray.get(task.remote(work))
    except ray.exceptions.RayTaskError as error:
        raise _own(error) from error
    return found


def _measured(work: Work) -> tuple[int, int, Sample, EmbeddingVersion]:
    _be_nice()
    return *counted(work), *sampled(work)


def embedded(work: Work, gpus: float, beats: Beats) -> Iterator[Embedded]:
    """Every unit of the work, as they are done. Raises MemstrataError."""
    if not work.stretches:
        return
    _bound()
    told = _told_here()
    data = ray.data.from_items([{"at": list(one)} for one in work.stretches], override_num_blocks=len(work.stretches))
    read = data.map_batches(
        partial(_read, layout=work.layout, through=work.through),
        batch_size=1,
        batch_format="numpy",
        num_cpus=READ_CPUS,
        concurrency=-(-work.actors // ACTORS_A_READER),
    )
    made = read.map_batches(
        Embedding,
        fn_constructor_args=(work._replace(stretches=[]), gpus, told),
        batch_size=1,
        batch_format="numpy",
        compute=ActorPoolStrategy(min_size=1, max_size=work.actors, max_tasks_in_flight_per_actor=AHEAD_PER_ACTOR),
        num_cpus=1,
        num_gpus=gpus,
    )
    try:
        with beats.telling(lambda rest_s: told.tell.remote(rest_s)):
            for row in made.iter_rows():
                yield msgspec.msgpack.decode(row[ROW], type=Embedded)
    except ray.exceptions.RayError as error:
        raise _own(error) from error


def _told_here() -> Any:
    """An actor on the driver's node: where that one is lost the job is, too."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(Told).remote()


def _rest_s(told: Any) -> float:
    try:
        return float(ray.get(told.rest_s.remote()))
    except ray.exceptions.RayActorError:
        return LOST_REST_S  # it comes back


def _bound() -> None:
    context = DataContext.get_current()
    context.target_max_block_size = BLOCK_BYTES
    context.execution_options.preserve_order = False
    context.execution_options.resource_limits = ExecutionResources(object_store_memory=STORE_BYTES)


def _read(batch: dict[str, Any], layout: Any, through: dict[int, int]) -> Iterator[dict[str, Any]]:
    """The units of a stretch."""
    _be_nice()
    for at in batch["at"]:
        shard, first, last = map(int, at)
        for unit in ShardTable(layout, shard).units(first, last, through[shard]):
            yield _row(unit)


class Embedding:
    """An actor of the pool: one encoder."""

    def __init__(self, work: Work, gpus: float, told: Any) -> None:
        _be_nice()
        embedder = work.open_one(work.options)
        if embedder.version.name != work.version:
            raise RuntimeError(f"the encoder here is {embedder.version.name!r}, not {work.version!r}")
        rest = Resting(partial(_rest_s, told))
        self._worker = Worker(embedder, rest, GPU_SLICE_TOKENS if gpus else SLICE_TOKENS)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        _be_nice()  # Linux has it for each thread
        unit = msgspec.msgpack.decode(batch[ROW][0], type=Unit)
        return _row(self._worker.embed(unit))


def _row(unit: Unit | Embedded) -> dict[str, Any]:
    packed = np.empty(1, object)
    packed[0] = msgspec.msgpack.encode(unit)
    return {ROW: packed}


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


def _own(error: Exception) -> MemstrataError:
    """What of this project's errors is behind one of Ray's; else the last line of what it tells, which has no texts."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemstrataError):
            return cause
        cause = cause.__cause__ or getattr(cause, "cause", None)
    told = str(error).strip().splitlines()
    return RayFailed(f"{type(error).__name__}: {told[-1][:200] if told else ''}")
