"""Files of lines, cut into parts that are read apart from each other: each line is of the part in which it begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from serve_app.errors import InvalidRequest

PART_BYTES = 4 << 20
"""Of a file that one task reads. Larger files are cut into more parts, up to `PARTS_MAX`."""

PARTS_MAX = 4_096

LINE_BYTES_MAX = 16 << 20
"""A longer line is passed over: no turn is so long (a body of the API has half of it)."""

DOCUMENT_BYTES_MAX = 256 << 20
"""Of a file that is one JSON document, and is read as a whole."""


class Part(NamedTuple):
    """From `start` to before `end`. `whole`: the file is one document, not lines."""

    number: int
    path: str
    start: int
    end: int
    whole: bool = False


class Line(NamedTuple):
    """Its place in the file, and its bytes; None where they are too many."""

    offset: int
    text: bytes | None


def parts_of(files: Sequence[Path], documents: frozenset[Path] = frozenset()) -> list[Part]:
    """The parts of all files, in order. Raises InvalidRequest for what is no file, or too large a document."""
    sizes = {path: _size(path) for path in files}
    size = max(PART_BYTES, sum(sizes.values()) // (PARTS_MAX - min(len(files), PARTS_MAX // 2)))
    found: list[Part] = []
    for path in files:
        if path in documents and sizes[path] > DOCUMENT_BYTES_MAX:
            raise InvalidRequest(
                f"{path}: a document of {sizes[path]} bytes; at most {DOCUMENT_BYTES_MAX} are read at once: "
                "write one object a line instead"
            )
        step = max(1, sizes[path]) if path in documents else size
        for start in range(0, sizes[path], step):
            end = min(start + step, sizes[path])
            found.append(Part(len(found), str(path), start, end, path in documents))
    return found


def _size(path: Path) -> int:
    if not path.is_file():
        raise InvalidRequest(f"{path}: there is no such file")
    return path.stat().st_size


def lines_in(part: Part) -> Iterator[Line]:
    """The lines that begin in the part, blank ones left out. The whole file where that is one document."""
    with open(part.path, "rb") as file:
        if part.whole:
            yield Line(0, file.read(DOCUMENT_BYTES_MAX))
            return
        at = part.start
        if at > 0:  # the line that goes on here began before, unless this is where one ends
            file.seek(at - 1)
            at += _skipped(file) - 1
        while at < part.end:
            line = file.readline(LINE_BYTES_MAX)
            length = len(line)
            if length == LINE_BYTES_MAX and not line.endswith(b"\n"):
                length += _skipped(file)
                yield Line(at, None)
            elif line.strip():
                yield Line(at, line)
            if not length:
                return
            at += length


def _skipped(file: object) -> int:
    """Bytes up to and with the end of the line."""
    count = 0
    while chunk := file.readline(LINE_BYTES_MAX):  # type: ignore[attr-defined]
        count += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return count
