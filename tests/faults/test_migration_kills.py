"""A migration whose service and job are killed at random instants ends right without a hand, or is back at its start.

`MEMSTRATA_KILL_ROUNDS` says how many rounds are run, `MEMSTRATA_KILL_SEED` from which on: a round is all of its seed,
so one that failed is run again by itself.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.api.running import Running
from tests.faults.clients import Said, fill
from tests.faults.kill_rounds import Plan, Round
from tests.faults.migrating_service import small_settings
from tests.faults.nursery import Nursery

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("MEMSTRATA_KILL_ROUNDS", "4"))
FIRST = int(os.environ.get("MEMSTRATA_KILL_SEED", "1"))
RAY_EVERY = 16
"""Every so many rounds the job is that of the product, on a Ray of its own."""


class Template(NamedTuple):
    data: Path
    said: Said


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    data = tmp_path_factory.mktemp("template") / "data"
    running = Running(small_settings(data))
    try:
        said = fill(running)
    finally:
        running.stop()
    return Template(data, said)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with tempfile.TemporaryDirectory() as folder:  # a short one: the address of a socket may not be long
        one = Nursery(Path(folder))
        yield one
        one.close()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_a_migration_ends_right_whoever_is_killed(
    seed: int, template: Template, nursery: Nursery, tmp_path: Path
) -> None:
    plan, began = Plan.of(seed), time.monotonic()
    one = Round(plan, template.data, tmp_path, copy.deepcopy(template.said), nursery if seed % RAY_EVERY else None)
    faults = one.run()
    print(f"\n{plan}\nkilled: {one.killed}; {time.monotonic() - began:.0f} s")
    assert not faults, (plan, one.killed, faults)
