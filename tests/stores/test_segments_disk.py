"""Segments on disk when system calls fail, or when the process dies between two of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import MemstrataError, NameTaken, StorageFull, StoreUnavailable
from serve_app.stores.segments_disk import DiskCalls, DiskSegments

CREATE_STEPS = ["write", "fsync", "link", "fsync", "unlink"]
REPLACE_STEPS = ["write", "fsync", "unlink", "link", "rename", "fsync", "unlink"]


class Died(BaseException):
    """The process is gone: nothing after this runs, clean-up included."""


@dataclass
class Watched:
    """Real system calls, counted; `fault` may raise before the call of that position and name."""

    fault: Callable[[int, str], None] = lambda at, name: None
    seen: list[str] = field(default_factory=list)

    def calls(self) -> DiskCalls:
        return DiskCalls(
            write=self._watch("write", os.write),
            fsync=self._watch("fsync", os.fsync),
            link=self._watch("link", os.link),
            rename=self._watch("rename", os.replace),
            unlink=self._watch("unlink", os.unlink),
        )

    def _watch(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            self.seen.append(name)
            self.fault(len(self.seen), name)
            return call(*arguments)

        return watched


def dies_at(step: int) -> Callable[[int, str], None]:
    def fault(at: int, name: str) -> None:
        if at >= step:
            raise Died

    return fault


def fails_at(*steps: int, code: int = errno.EIO) -> Callable[[int, str], None]:
    def fault(at: int, name: str) -> None:
        if at in steps:
            raise OSError(code, os.strerror(code))

    return fault


def store_with(folder: Path, fault: Callable[[int, str], None]) -> tuple[DiskSegments, Watched]:
    DiskSegments(folder)
    watched = Watched(fault)
    return DiskSegments(folder, watched.calls()), watched


def test_the_steps_of_a_create_come_in_order(tmp_path: Path) -> None:
    store, watched = store_with(tmp_path, fails_at())
    store.create("1.seg", b"data")
    assert watched.seen == CREATE_STEPS


@pytest.mark.parametrize("step", range(1, len(CREATE_STEPS) + 2))
def test_a_process_that_dies_in_a_create_leaves_nothing_or_everything(tmp_path: Path, step: int) -> None:
    store, _ = store_with(tmp_path, dies_at(step))
    if step <= len(CREATE_STEPS):
        with pytest.raises(Died):
            store.create("1.seg", b"data")
    else:
        store.create("1.seg", b"data")
    linked = step > CREATE_STEPS.index("link") + 1
    again = DiskSegments(tmp_path)
    assert again.names() == (["1.seg"] if linked else [])
    assert os.listdir(tmp_path) == again.names(), "leftovers of the dead process are removed"
    if linked:
        assert again.read("1.seg") == b"data"
    else:
        again.create("1.seg", b"other")


@pytest.mark.parametrize("step", range(1, len(REPLACE_STEPS) + 1))
def test_a_replace_that_was_cut_short_can_be_done_again(tmp_path: Path, step: int) -> None:
    DiskSegments(tmp_path).create("1.seg", b"damaged")
    store, _ = store_with(tmp_path, dies_at(step))
    with pytest.raises(Died):
        store.replace("1.seg", b"repaired", "1.torn")
    again = DiskSegments(tmp_path)
    if again.read("1.seg") == b"damaged":
        again.replace("1.seg", b"repaired", "1.torn")
    assert (again.read("1.seg"), again.read("1.torn")) == (b"repaired", b"damaged")
    assert sorted(os.listdir(tmp_path)) == ["1.seg", "1.torn"]


@pytest.mark.parametrize("step", range(1, 5))
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.EIO, StoreUnavailable),
        (errno.EROFS, StoreUnavailable),
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EFBIG, StorageFull),
    ],
)
def test_a_step_that_fails_leaves_nothing_and_the_name_free(
    tmp_path: Path, step: int, code: int, expected: type[MemstrataError]
) -> None:
    store, _ = store_with(tmp_path, fails_at(step, code=code))
    with pytest.raises(expected) as caught:
        store.create("1.seg", b"data")
    assert type(caught.value) is expected
    assert os.listdir(tmp_path) == []
    store.create("1.seg", b"other")
    assert DiskSegments(tmp_path).read("1.seg") == b"other"


def test_a_name_that_cannot_be_taken_back_is_never_called_full(tmp_path: Path) -> None:
    """StorageFull promises that nothing is there; here the segment is."""
    store, watched = store_with(tmp_path, fails_at(4, 5, code=errno.ENOSPC))
    with pytest.raises(StoreUnavailable, match=r"1\.seg: may be stored"):
        store.create("1.seg", b"data")
    assert watched.seen[3:5] == ["fsync", "unlink"]
    assert DiskSegments(tmp_path).read("1.seg") == b"data"


def test_a_taken_name_is_durable_before_it_is_called_taken(tmp_path: Path) -> None:
    DiskSegments(tmp_path).create("1.seg", b"first")
    store, watched = store_with(tmp_path, fails_at())
    with pytest.raises(NameTaken):
        store.create("1.seg", b"second")
    assert watched.seen == CREATE_STEPS

    store, _ = store_with(tmp_path, fails_at(4))
    with pytest.raises(StoreUnavailable):
        store.create("1.seg", b"second")


def test_a_write_that_takes_a_part_is_continued(tmp_path: Path) -> None:
    calls = DiskCalls(write=lambda descriptor, data: os.write(descriptor, data[:7]))
    DiskSegments(tmp_path, calls).create("1.seg", bytes(range(100)))
    assert DiskSegments(tmp_path).read("1.seg") == bytes(range(100))


def test_the_temporary_file_of_another_process_is_not_a_segment(tmp_path: Path) -> None:
    store = DiskSegments(tmp_path)
    (tmp_path / ".1.seg.0123.tmp").write_bytes(b"half")
    assert store.names() == []


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        DiskSegments(tmp_path / "file" / "folder")
