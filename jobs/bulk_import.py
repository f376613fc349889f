"""Brings conversations and memories into a running service, from files of any size:

    python -m jobs.bulk_import FILE... [--form turns|mem0] [--url URL] [--key KEY] [--resume FILE] [--json]

Ray Data reads the files in parts, each task one part; what a part holds goes on to lanes, each a task that writes all
of its users in the order of the files. In memory are a few parts and a few megabytes for each lane, whatever the size
of the files. Ids are stable, so a repeat stores nothing twice; with `--resume` it begins where the last run had come
to. What cannot be brought over is named in a file of dead letters by its place. Exits 0 only if all of it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from tqdm import tqdm

from jobs.command import Session, ended
from jobs.import_lanes import PATIENCE_S, Done, Lane
from jobs.import_rows import LANES, TALLY_LANE, Form, Letter, Reading, Tally, rows_of
from jobs.mem0_export import FACT_FIELD, memories_of
from jobs.session import ray_session
from jobs.source_parts import Part, parts_of
from serve_app.errors import InvalidRequest, MemstrataError
from serve_app.options import DEFAULT_URL, at_least, seconds
from serve_app.stores.durable import write_private

READERS: Final = 2
"""Parts that are read at once."""

LANE_CPUS: Final = 0.01
"""A lane waits for the service nearly all of the time."""

UNDER_WAY_MAX: Final = 2
"""Payloads of one lane that are with it; what follows waits, and what is read waits for that."""

KEPT_EVERY_S: Final = 1.0
"""How often the place that a run has come to is kept."""

HEAD_BYTES: Final = 1 << 20
"""Of a file, to see whether it is lines or one document."""


SHOWN: Final = ("turns", "stored", "duplicate", "rejected", "refused", "unread", "expired")


OUTCOMES: Final = ("stored", "duplicate", "rejected", "refused", "facts_set", "facts_there", "facts_replaced")
"""Each turn and each fact that was read has become one of these."""


class ImportStopped(MemstrataError):
    """The service takes nothing more; `code` is why."""

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        super().__init__(f"stopped; what came before is stored, and a repeat finds it: {reason}")


class Reached(msgspec.Struct, frozen=True):
    """How far an import is: every part before `part` of these files is written."""

    files: tuple[tuple[str, int, int], ...]
    """Path, bytes, and when it was changed last."""
    reading: Reading
    part: int = 0
    counts: dict[str, int] = {}


def main(arguments: Sequence[str] | None = None, *, session: Session = ray_session) -> int:
    return ended("bulk_import", _arguments(arguments), Import, session, _told, "complete")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m jobs.bulk_import", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="in this order; JSON lines, or JSON of mem0"
    )
    parser.add_argument("--form", choices=("turns", "mem0"), help="else what the first file looks like")
    parser.add_argument("--user", help="write all of it as this user's")
    parser.add_argument("--fact-field", default=FACT_FIELD, help="of mem0's metadata: what makes a memory a fact")
    parser.add_argument("--url", default=os.environ.get("MEMSTRATA_URL", DEFAULT_URL), help="the service")
    parser.add_argument("--key", default=os.environ.get("MEMSTRATA_KEY"), help="its API key; else MEMSTRATA_KEY")
    parser.add_argument("--lanes", type=at_least(1), default=LANES, help="tasks that write at once")
    parser.add_argument("--patience", type=seconds, default=PATIENCE_S, help="seconds to wait for a busy service")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keeps how far it is; begins there if it is there")
    parser.add_argument("--dead", type=Path, default=Path("bulk_import.dead.jsonl"), help="file for dead letters")
    parser.add_argument("--address", help="of a Ray cluster; else one is started on this host")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args(arguments)


class Import:
    """One run. Raises MemstrataError where it cannot be begun, or not go on."""

    def __init__(self, args: argparse.Namespace) -> None:
        if not args.key:
            raise InvalidRequest("no key: give --key or set MEMSTRATA_KEY")
        self._args = args
        documents = frozenset(path for path in args.files if _is_document(path))
        form: Form = args.form or _form_of(args.files[0])
        self._parts = parts_of(args.files, documents if form == "mem0" else frozenset())
        reading = Reading(form, args.lanes, args.user, args.fact_field)
        self._reached = _taken_up(args.resume, Reached(_stamps(args.files), reading))
        self._first = self._reached.part
        self._counts: Counter[str] = Counter(self._reached.counts)
        self._before = self._counts["stored"] + self._counts["duplicate"]
        self._open: dict[int, Counter[str]] = {}
        """What was counted of parts that are under way."""
        self._letters = DeadLetters(args.dead, append=self._first > 0)
        self._kept_at = 0.0

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        parts = self._parts[self._reached.part :]
        size = sum(part.end - part.start for part in parts)
        with tqdm(total=size, unit="B", unit_scale=True, disable=None) as bar, self._letters:
            lanes = Lanes(self._args.lanes, self._args.url, self._args.key, self._args.patience, self._first)
            for part, lane, payload in _read(parts, self._reached.reading):
                if lane == TALLY_LANE:
                    self._tally(part, msgspec.msgpack.decode(payload, type=Tally))
                    lanes.ended(part)
                    self._take(lanes.finished())
                    bar.update(self._parts[part].end - self._parts[part].start)
                else:
                    self._take(lanes.give(part, lane, payload))
                self._keep(lanes.written)
            self._take(lanes.rest())
            self._keep(len(self._parts), last=True)
        return self._result(time.monotonic() - began)

    def _take(self, done: Sequence[tuple[int, Done]]) -> None:
        for part, one in done:
            self._open.setdefault(part, Counter()).update(one.statuses)
            self._letters.put(one.letters)

    def _tally(self, part: int, tally: Tally) -> None:
        counted = msgspec.structs.asdict(tally)
        self._letters.put(counted.pop("letters"))
        self._open.setdefault(part, Counter()).update(counted)

    def _keep(self, written: int, *, last: bool = False) -> None:
        """Every part before `written` is done: what was counted of them counts."""
        for part in [part for part in self._open if part < written]:
            self._counts.update(self._open.pop(part))
        if self._args.resume is None or not (last or time.monotonic() - self._kept_at > KEPT_EVERY_S):
            return
        self._kept_at = time.monotonic()
        reached = msgspec.structs.replace(self._reached, part=written, counts=dict(self._counts))
        write_private(self._args.resume, msgspec.json.encode(reached))

    def _result(self, took_s: float) -> dict[str, Any]:
        counts = self._counts
        dead = counts["unread"] + counts["refused"] + counts["rejected"]
        read, became = counts["turns"] + counts["facts"], sum(counts[name] for name in OUTCOMES)
        cut = self._reached.reading.form == "turns" and (
            (counts["told_turns"], counts["told_facts"]) != (counts["exported"], counts["facts"])
        )
        written = counts["stored"] + counts["duplicate"] - self._before
        return {
            "form": self._reached.reading.form,
            **{name: counts[name] for name in SHOWN},
            "facts": counts["facts_set"],
            "dead": dead,
            "dead_letters": str(self._args.dead) if dead else None,
            "cut": cut,
            "resumed_at_part": self._first,
            "parts": len(self._parts),
            "seconds": round(took_s, 1),
            "turns_per_s": round(written / took_s, 1),
            "complete": not dead and not cut and read == became,
        }


class Lanes:
    """The tasks that write, each with what is under way to it; says up to which part everything is written."""

    def __init__(self, lanes: int, url: str, key: str, patience_s: float, first: int) -> None:
        import ray

        self._ray = ray
        made = ray.remote(num_cpus=LANE_CPUS)(Lane)
        self._actors = [made.remote(url, key, patience_s) for _ in range(lanes)]
        self._under_way: list[deque[tuple[int, Any]]] = [deque() for _ in range(lanes)]
        self._next = first

    @property
    def written(self) -> int:
        """Of every part before this one everything is written."""
        return min([self._next, *(waiting[0][0] for waiting in self._under_way if waiting)])

    def give(self, part: int, lane: int, payload: bytes) -> list[tuple[int, Done]]:
        """Hand a payload on; first waits, where the lane has enough. Gives what has been written meanwhile."""
        if part < self._next:
            raise RuntimeError(f"part {part} came after the end of part {self._next - 1}: the order is lost")
        waiting = self._under_way[lane]
        done = [self._oldest(lane)] if len(waiting) >= UNDER_WAY_MAX else []
        waiting.append((part, self._actors[lane].write.remote(payload)))
        return done

    def ended(self, part: int) -> None:
        """All of this part has been given."""
        self._next = part + 1

    def rest(self) -> list[tuple[int, Done]]:
        """Wait for all that is under way."""
        return [self._oldest(lane) for lane, waiting in enumerate(self._under_way) for _ in range(len(waiting))]

    def finished(self) -> list[tuple[int, Done]]:
        """What has been written without anybody waiting for it."""
        found: list[tuple[int, Done]] = []
        for lane, waiting in enumerate(self._under_way):
            while waiting and self._ray.wait([waiting[0][1]], timeout=0)[0]:
                found.append(self._oldest(lane))
        return found

    def _oldest(self, lane: int) -> tuple[int, Done]:
        part, answer = self._under_way[lane].popleft()
        done = msgspec.msgpack.decode(self._ray.get(answer), type=Done)
        if done.stopped != ("", ""):
            raise ImportStopped(*done.stopped)
        return part, done


class DeadLetters:
    """A file of JSON lines; made with the first letter."""

    def __init__(self, path: Path, *, append: bool) -> None:
        self._path, self._mode = path, "a" if append else "w"
        self._file: IO[str] | None = None

    def put(self, letters: Iterable[Letter]) -> None:
        for letter in letters:
            if self._file is None:
                self._file = open(self._path, self._mode, encoding="utf-8", opener=_private)  # noqa: SIM115 - see exit
            self._file.write(msgspec.json.encode(letter).decode() + "\n")

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(parts: Sequence[Part], reading: Reading) -> Iterator[tuple[int, int, bytes]]:
    """Part, lane and payload of each row, in the order of the parts."""
    import ray

    if not parts:
        return
    numbers = ray.data.range(len(parts), override_num_blocks=len(parts))
    rows = numbers.map_batches(
        _rows,
        batch_size=1,
        concurrency=min(READERS, len(parts)),
        fn_kwargs={"parts": ray.put(list(parts)), "reading": reading},
    )
    for batch in rows.iter_batches(batch_size=None, prefetch_batches=1, batch_format="pyarrow"):
        yield from zip(*(batch[name].to_pylist() for name in ("part", "lane", "payload")), strict=True)


def _rows(batch: dict[str, Any], parts: Any, reading: Reading) -> Iterator[dict[str, Any]]:
    import ray

    for number in batch["id"]:
        for row in rows_of(ray.get(parts)[int(number)], reading):
            yield {"part": [row.part], "lane": [row.lane], "payload": [row.payload]}


def _stamps(files: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    found = [(path, path.stat()) for path in files]
    return tuple((str(path.resolve()), stat.st_size, stat.st_mtime_ns) for path, stat in found)


def _taken_up(kept: Path | None, fresh: Reached) -> Reached:
    """What was kept, if it is of these files. Raises InvalidRequest where it is of others, or was read otherwise."""
    if kept is None or not kept.exists():
        return fresh
    try:
        found = msgspec.json.decode(kept.read_bytes(), type=Reached)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidRequest(f"{kept}: this is not where an import has come to: {error}") from error
    if (found.files, found.reading) != (fresh.files, fresh.reading):
        raise InvalidRequest(f"{kept}: this is of other files, or they have changed; remove it to begin anew")
    return found


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES).lstrip()
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}") from error


def _is_document(path: Path) -> bool:
    """Whether the file is one JSON value over several lines, or an array."""
    head = _head(path)
    if head.startswith(b"["):
        return True
    try:
        json.loads(head.partition(b"\n")[0] or b"0")
    except ValueError:
        return head.startswith(b"{") and path.suffix == ".json"
    return False


def _form_of(path: Path) -> Form:
    """By what the file begins with: memories of mem0 have neither conversation nor session."""
    head = _head(path)
    try:
        first = next(memories_of(head.partition(b"\n")[0]), {})
    except InvalidRequest:
        return "mem0" if _is_document(path) else "turns"
    named = first.keys() & {"conversation_id", "session_id", "kind", "key"}
    return "mem0" if first.keys() & {"memory", "hash"} and not named else "turns"


def _told(result: dict[str, Any]) -> str:
    counts = ", ".join(f"{result[name]} {name}" for name in (*SHOWN, "facts") if result[name])
    lines = [f"{counts or 'nothing'} in {result['seconds']} s, {result['turns_per_s']} turns/s"]
    if result["dead"]:
        lines.append(f"{result['dead']} could not be brought over: {result['dead_letters']}")
    if result["cut"]:
        lines.append("an export was cut short: what it holds is written, but it is not all")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
