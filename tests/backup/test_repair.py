"""A log with a hole: what a repair gives up is what was damaged, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from serve_app.backup.repair import Change, apply, work_out
from serve_app.errors import LogDamaged
from serve_app.stores.places import DiskPlace
from serve_app.stores.segment import Header, encode, segment_name
from serve_app.stores.segments_disk import DiskSegments
from serve_app.write.operations import EditTurn
from tests.write.shards import ANN, BOB, OneShard


def written(folder: Path) -> list[str]:
    """Six commits of one turn each, in segments 2 to 7 behind the fence; a service that was killed."""
    one = OneShard(folder)
    for number in range(6):
        one.say_as(ANN, "s", f"t{number}", f"turn {number}")
    one.close()
    return [f"turn {number}" for number in range(6)]


def segment(folder: Path, number: int) -> Path:
    return folder / "log" / segment_name(number)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    path.write_bytes(data)


def mended(folder: Path) -> list[Change]:
    """Work out, apply, and check that nothing is left to do."""
    segments = DiskSegments(folder / "log")
    before = {path.name: path.read_bytes() for path in (folder / "log").iterdir()}
    changes = work_out(segments, 0)
    assert {path.name: path.read_bytes() for path in (folder / "log").iterdir()} == before, "a dry run changes nothing"
    apply(segments, changes, DiskPlace(folder), "damaged/shard-0000")
    for change in changes:
        aside = folder / "damaged" / "shard-0000" / change.segment
        assert (aside.read_bytes() if aside.exists() else None) == change.old
    assert work_out(segments, 0) == []
    return changes


class Mended(OneShard):
    """Opened after a repair: the cut is told of once more, until a fence stands behind it."""

    told = False

    def open(self, *damages: str) -> None:
        super().open(*(() if self.told else ("torn_tail",)))
        self.told = True


def contents_after(folder: Path, owner: str = ANN) -> list[str]:
    """As a service reads them now, and after it has written, folded and started again."""
    one = Mended(folder)
    assert one.shard.log.writable
    found = one.contents(owner, "s")
    one.say_as(owner, "s", "new", "written after the repair")
    one.fold()
    one.restart()
    assert one.contents(owner, "s") == [*found, "written after the repair"]
    one.close()
    return found


@pytest.mark.parametrize("gone", [(4,), (3, 4), (3, 5), (2,), (2, 3, 4, 5)])
@pytest.mark.parametrize("how", ["missing", "unreadable", "damaged"])
def test_everything_but_the_damaged_commits_is_there_after_a_repair(
    tmp_path: Path, gone: Sequence[int], how: str
) -> None:
    said = written(tmp_path)
    for number in gone:
        path = segment(tmp_path, number)
        if how == "missing":
            path.unlink()
        elif how == "unreadable":
            path.write_bytes(b"rubbish" * 20)
        else:
            damage(path)
    changes = mended(tmp_path)
    assert [change.segment for change in changes] == [segment_name(number) for number in gone]
    assert {change.lost for change in changes} == ({1} if how == "damaged" else {None})
    kept = [content for number, content in enumerate(said, 2) if number not in gone]
    assert contents_after(tmp_path) == kept


def test_edits_and_vectors_of_lost_turns_go_with_them(tmp_path: Path) -> None:
    one = OneShard(tmp_path)
    one.say_as(ANN, "s", "lost", "will be lost")  # segment 2
    one.say_as(ANN, "s", "kept", "stays")
    lost, kept = one.turn(ANN, "s", "lost"), one.turn(ANN, "s", "kept")
    assert lost is not None
    assert kept is not None
    one.do(EditTurn(ANN, "s", "lost", "edited", None))
    one.say_as(BOB, "s", "other", "of somebody else")
    one.close()
    damage(segment(tmp_path, 2))
    assert [change.lost for change in mended(tmp_path)] == [1, 1]
    assert contents_after(tmp_path) == ["stays"]


def test_a_sound_log_has_nothing_to_repair(tmp_path: Path) -> None:
    written(tmp_path)
    assert mended(tmp_path) == []


def test_a_whole_segment_in_the_wrong_place_is_not_guessed_at(tmp_path: Path) -> None:
    """An older state of the log was put back over a newer one: nobody can know what stood there."""
    written(tmp_path)
    for number in range(2, 5):
        segment(tmp_path, number).unlink()
    segment(tmp_path, 4).write_bytes(encode(Header(4, 1, "", 900_000, 900_000, 0), ()))
    with pytest.raises(LogDamaged, match="restore a backup"):
        mended(tmp_path)
