"""Each line of a file is of one part, wherever the cuts fall."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.source_parts import LINE_BYTES_MAX, Part, lines_in, parts_of
from serve_app.errors import InvalidRequest


@given(st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=9), st.integers(1, 30))
def test_the_lines_of_all_parts_are_those_of_the_file(lines, step):
    content = b"\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        cuts = range(0, len(content), step)
        parts = [Part(at, str(path), start, min(start + step, len(content))) for at, start in enumerate(cuts)]
        found = [line for part in parts for line in lines_in(part)]
    assert [line.text.rstrip(b"\n") for line in found] == [line for line in lines if line.strip()]
    assert all(content[line.offset :].startswith(line.text) for line in found)


def test_a_line_that_is_too_long_is_passed_over_and_the_next_one_is_found(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"first\n" + b"x" * (LINE_BYTES_MAX + 5) + b"\nlast\n")
    [*parts] = parts_of([path])
    found = [line for part in parts for line in lines_in(part)]
    assert [line.text for line in found] == [b"first\n", None, b"last\n"]
    assert parts[0].start == 0
    assert parts[-1].end == path.stat().st_size


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="no such file"):
        parts_of([tmp_path / "nothing"])
