"""A child with its own process group: who hears which signal, and who outlives whom."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve_app.deployments.lifeline import SAME_SIGNAL_S, tied_program
from tests.deployments.served import ROOT, wait_until

CHILD = """
import os, signal, sys, time
from pathlib import Path
from serve_app.deployments.lifeline import run_apart
def work():
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    Path(sys.argv[1]).write_text(str(os.getpid()))
    while not heard:
        time.sleep(0.02)
    Path(sys.argv[1] + ".ended").write_text(str(len(heard)))
    return 7
sys.exit(run_apart(work))
"""


@pytest.fixture
def apart(tmp_path):
    told = tmp_path / "told"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", CHILD, str(told)], env=environment, start_new_session=True)
    assert wait_until(lambda: told.exists() and told.read_text(), 20)
    yield parent, int(told.read_text()), Path(f"{told}.ended")
    for number in (parent.pid, int(told.read_text())):
        if alive(number):
            os.kill(number, signal.SIGKILL)
    parent.wait(5)


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_signal_to_the_group_reaches_the_child_once_and_its_status_comes_back(apart):
    parent, _, ended = apart
    os.killpg(parent.pid, signal.SIGTERM)
    parent.send_signal(signal.SIGTERM)  # as make does after its own
    assert parent.wait(5) == 7
    assert ended.read_text() == "1"


def test_a_killed_parent_ends_the_child_in_order(apart):
    parent, child, ended = apart
    parent.kill()
    assert wait_until(lambda: not alive(child), 5)
    assert ended.exists()


def test_a_second_signal_later_on_kills(tmp_path):
    code = CHILD.replace("heard.append(number)", "None")
    told = tmp_path / "told"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", code, str(told)], env=environment, start_new_session=True)
    assert wait_until(lambda: told.exists() and told.read_text(), 20)
    parent.send_signal(signal.SIGINT)
    time.sleep(SAME_SIGNAL_S + 0.2)
    assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    assert parent.wait(5) == -signal.SIGKILL % 256
    assert wait_until(lambda: not alive(int(told.read_text())), 5)


def test_a_tied_program_dies_with_who_started_it(tmp_path):
    launcher = tied_program(Path("/bin/sleep"), tmp_path / "launcher")
    starter = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.argv[1], '60'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", starter, str(launcher)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert wait_until(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes(), 5)
        parent.kill()
    assert wait_until(lambda: not alive(child), 5)
