"""Whether the vectors that a store holds are still those of its texts, by a sample that is embedded again:

    python -m jobs.alignment --data DIR [--config FILE] [--sample 32] [--seed 0] [--json]

Of each shard, embedding version, place and quarter of the shard's life so many turns are drawn, embedded by the
version's own encoder as the indexer does it, and compared with what is stored: cosine, parts, dimension, length, and
the digest of the text where it was kept. Every cosine has to reach 0.999. Exits 1 below that bar, or where a version
cannot be tested. To be run every month; see docs/jobs.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import ValidationError
from tqdm import tqdm

from jobs.command import Session, ended
from jobs.session import ray_session
from jobs.stored_rows import Source, Stretch, folded_seqs, stretches
from jobs.vector_sample import Compared, Draw, Group, compared, drawn, merged, stored
from serve_app.backup.layout import TABLES
from serve_app.config import Settings, load_settings
from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable
from serve_app.migrate.migration_file import MigrationFile
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.options import at_least
from serve_app.ports import Embedder
from serve_app.write.commit import microseconds

BAR: Final = 0.999
"""The least cosine of any vector: float16 and another batch cost less than a thousandth of what is left of it."""

SAMPLE: Final = 32
READERS: Final = 2
TURNS_A_BATCH: Final = 16
"""Embedded together."""

Results = dict[Group, list[Compared]]


def main(arguments: Sequence[str] | None = None, *, session: Session = ray_session) -> int:
    return ended("alignment", _arguments(arguments), Alignment, session, _table, "aligned")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m jobs.alignment", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="data folder of the store")
    parser.add_argument("--config", type=Path, help="TOML file of settings, as the service has it")
    parser.add_argument("--sample", type=at_least(1), default=SAMPLE, help="turns of each group")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other turns")
    parser.add_argument("--address", help="of a Ray cluster; else one is started on this host")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args(arguments)


class Alignment:
    """Raises MemstrataError where it cannot be begun, or not go on."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._settings = load_settings(args.data, args.config)
        shape = self._settings.layout.shape()
        self._shards, self._args = shape.shards, args
        self._source = Source(self._settings.layout, shape.held)

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        brought = MigrationFile(self._settings.files, microseconds).read().encoders
        ends = folded_seqs(self._source, self._shards)
        sample = _sampled(self._source, stretches(ends, [TABLES]), ends, self._args.sample, self._args.seed)
        left_out: dict[str, str] = {}
        results: Results = {}
        with tqdm(total=sum(map(len, sample.values())), unit=" turns", desc="embedding", disable=None) as bar:
            for group, tried, found, why in _embedded(self._source, sample, self._settings, brought):
                results.setdefault(group, []).extend(found)
                if why:
                    left_out[group.version] = why
                bar.update(tried)
        return self._result(results, left_out, ends) | {"seconds": round(time.monotonic() - began, 1)}

    def _result(self, results: Results, left_out: Mapping[str, str], ends: Sequence[int]) -> dict[str, Any]:
        versions = [_told(one, results, left_out.get(one.name, "")) for one in self._source.versions]
        return {
            "aligned": all(one["aligned"] for one in versions),
            "bar": BAR,
            "seed": self._args.seed,
            "folded_seqs": list(ends),
            "versions": versions,
        }


# ---- on Ray


def _sampled(
    source: Source, pieces: Sequence[Stretch], ends: Sequence[int], sample: int, seed: int
) -> dict[Group, list[Draw]]:
    import ray

    given = {"source": source, "pieces": ray.put(list(pieces)), "ends": list(ends), "sample": sample, "seed": seed}
    numbers = ray.data.range(len(pieces), override_num_blocks=len(pieces))
    rows = numbers.map_batches(_draw, batch_size=1, concurrency=min(READERS, len(pieces)), fn_kwargs=given)
    found: dict[Group, list[Draw]] = {}
    for row in tqdm(rows.iter_rows(), total=len(pieces), unit=" ranges", desc="sampling", disable=None):
        drawn_here = msgspec.msgpack.decode(row["drawn"], type=list[tuple[Group, list[Draw]]])
        found = merged(found, dict(drawn_here), sample)
    return found


def _draw(batch: dict[str, Any], pieces: Any, **given: Any) -> Iterator[dict[str, Any]]:
    import ray

    for number in batch["id"]:
        found = drawn(piece=ray.get(pieces)[int(number)], **given)
        yield {"drawn": [msgspec.msgpack.encode(list(found.items()))]}


def _embedded(
    source: Source, sample: Mapping[Group, list[Draw]], settings: Settings, brought: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[Group, int, list[Compared], str]]:
    """Of each batch its group, how many turns were asked for, what was compared, and why nothing was."""
    import ray

    asked = [
        (group, [seq for _, seq in draws[start : start + TURNS_A_BATCH]])
        for group, draws in sorted(sample.items())
        for start in range(0, len(draws), TURNS_A_BATCH)
    ]
    if not asked:
        return
    opens = {"source": source, "settings": settings, "brought": dict(brought)}
    items = [{"batch": number, "asked": msgspec.msgpack.encode(one)} for number, one in enumerate(asked)]
    rows = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        Aligner, batch_size=1, concurrency=1, num_cpus=1, fn_constructor_kwargs=opens
    )
    for row in rows.iter_rows():
        group, seqs = asked[row["batch"]]
        yield group, len(seqs), msgspec.msgpack.decode(row["compared"], type=list[Compared]), row["why"]


class Aligner:
    """Holds the encoders of all versions, each loaded with its first text; one process has all of them."""

    def __init__(self, source: Source, settings: Settings, brought: Mapping[str, dict[str, Any]]) -> None:
        self._source = source
        self._embedders, self._why = _opened(source.versions, settings, brought)

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number, asked in zip(batch["batch"], batch["asked"], strict=True):
            group, seqs = msgspec.msgpack.decode(asked, type=tuple[Group, list[int]])
            embedder, found = self._embedders.get(group.version), list[Compared]()
            why = "" if embedder else self._why.get(group.version, "the settings have no encoder of this version")
            if embedder:
                found = compared(list(stored(self._source, group, seqs)), embedder)
            yield {"batch": [number], "compared": [msgspec.msgpack.encode(found)], "why": [why]}


def _opened(
    versions: Sequence[EmbeddingVersion], settings: Settings, brought: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Embedder], dict[str, str]]:
    """Encoders by the name of their version, and why there is none. That of another record is none of this version."""
    found: dict[str, Embedder] = {}
    why: dict[str, str] = {}
    try:
        found = {one.version.name: one for one in settings.open_embedders()}
    except EncoderUnavailable as error:
        why = dict.fromkeys((one.name for one in versions), str(error))
    for name, options in brought.items():
        try:
            found[name] = open_embedder(msgspec.convert(options, EncoderOptions))
        except (EncoderUnavailable, ValidationError, ValueError) as error:
            why[name] = str(error)
    return {one.name: found[one.name] for one in versions if one.name in found and found[one.name].version == one}, why


# ---- told


def _told(version: EmbeddingVersion, results: Results, left_out: str) -> dict[str, Any]:
    mine = {group: found for group, found in results.items() if group.version == version.name}
    every = [one for found in mine.values() for one in found]
    groups = [{**group._asdict(), **_figures(found)} for group, found in sorted(mine.items())]
    figures = _figures(every)
    aligned = not left_out and not figures["faults"] and (not every or figures["min"] >= BAR)
    return {
        "version": version.name,
        "dimension": version.dimension,
        "aligned": aligned,
        "left_out": left_out,
        **figures,
        "groups": [{name: value for name, value in group.items() if name != "version"} for group in groups],
    }


def _figures(found: Sequence[Compared]) -> dict[str, Any]:
    """Of cosines: the least, some percentiles, and which share reaches the bar."""
    cosines = np.array([one.cosine for one in found])
    faults = Counter(one.fault for one in found if one.fault)
    figures: dict[str, Any] = {"turns": len(found), "faults": dict(faults), "digests": sum(one.digest for one in found)}
    if not len(found):
        return figures
    norms = [one.norm for one in found]
    return figures | {
        "min": round(float(cosines.min()), 6),
        "p1": round(float(np.percentile(cosines, 1)), 6),
        "p50": round(float(np.percentile(cosines, 50)), 6),
        "share": round(float((cosines >= BAR).mean()), 6),
        "norm_min": round(min(norms), 5),
        "norm_max": round(max(norms), 5),
    }


def _table(result: dict[str, Any]) -> str:
    head = f"{'':<44}{'turns':>7}{'min':>10}{'p1':>10}{'p50':>10}{'≥ ' + str(BAR):>9}  faults"
    lines = [head]
    for one in result["versions"]:
        lines.append(_line(f"{'' if one['aligned'] else '✗ '}{one['version']}", one))
        lines += [_line(f"  shard {g['shard']}, {g['place']}, quarter {g['quarter'] + 1}", g) for g in one["groups"]]
        if one["left_out"]:
            lines.append(f"  not tested: {one['left_out']}")
    return "\n".join(line.rstrip() for line in lines)


def _line(name: str, figures: dict[str, Any]) -> str:
    cosines = [f"{figures[key]:.5f}" if key in figures else "-" for key in ("min", "p1", "p50")]
    share = f"{figures['share']:.1%}" if "share" in figures else "-"
    faults = ", ".join(f"{count} {fault}" for fault, count in figures["faults"].items())
    return f"{name[:43]:<44}{figures['turns']:>7}" + "".join(f"{one:>10}" for one in cosines) + f"{share:>9}  {faults}"


if __name__ == "__main__":
    sys.exit(main())
