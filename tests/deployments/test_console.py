"""The console pipe: whole lines of several writers reach standard error, to the last word."""

import subprocess
import sys

from serve_app.deployments.console import Console

WRITER = """
import os, sys
from pathlib import Path
from serve_app.deployments.console import write_to_console
write_to_console(Path(sys.argv[1]))
print("said on standard output 中文", flush=True)
os.write(2, b"said on standard error\\n")
os.abort()
"""


def test_what_a_dying_process_says_arrives(tmp_path, capsys):
    console = Console(tmp_path / "pipe")
    for _ in range(2):
        subprocess.run([sys.executable, "-X", "utf8", "-c", WRITER, str(tmp_path / "pipe")], timeout=20, check=False)
    console.close()
    told = capsys.readouterr().err
    assert told.count("said on standard output 中文\n") == 2
    assert told.count("said on standard error\n") == 2
