"""Small files in a folder that several processes share."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from serve_app.stores.documents_disk import DiskDocuments


def test_what_a_writer_that_lives_has_half_written_is_not_cleared_away(tmp_path: Path) -> None:
    one, other = DiskDocuments(tmp_path), DiskDocuments(tmp_path)
    writing, may_end = threading.Event(), threading.Event()

    def made(held: bytes | None) -> bytes:
        writing.set()
        assert may_end.wait(10)
        return b"{}"

    work = threading.Thread(target=one.change, args=("golden/a.json", made))
    work.start()
    assert writing.wait(10)
    half = tmp_path / "golden" / ".a.json.123"
    half.write_bytes(b"half")
    clearing = threading.Thread(target=other.clear_leftovers, args=("golden",))
    clearing.start()
    time.sleep(0.1)
    assert half.exists()
    may_end.set()
    work.join(10)
    clearing.join(10)
    assert not half.exists()
    found = one.read("golden/a.json")
    assert found is not None
    assert found.data == b"{}"
