"""A small service whose migrations are quick: `python migrating_service.py PORT DATA JOB`.

JOB is "ray" for the job of the product, else the address of a nursery that forks one without Ray.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from serve_app import local
from serve_app.config import Settings, StoreOptions
from serve_app.memory.due import SummaryOptions
from serve_app.memory.memory import MemoryOptions
from serve_app.migrate.control import ControlBounds
from serve_app.migrate.runner import JOB, JobPlace, RunnerBounds
from serve_app.models.embed import EncoderOptions
from serve_app.service import Service
from serve_app.write.housekeeping import FoldOptions
from tests.faults.nursery import job_words

HOST = "127.0.0.1"

RESIDENT = 24
"""Turns of one user that stay in memory: more of a user are read from the tables."""


def small_settings(data: Path) -> Settings:
    """Several shards, large users, and folds every moment."""
    return Settings(
        data=str(data),
        store=StoreOptions(shards=2),
        encoder=EncoderOptions(model="hash-64"),
        memory=MemoryOptions(turns_resident=120, owner_turns_resident=RESIDENT, summary=SummaryOptions(settle_s=3600)),
        fold=FoldOptions(records=40, age_s=0.5, round_s=0.1, purge_every_s=1.0),
    )


def quick(port: str, job: str) -> dict[str, Any]:
    return {
        "control": ControlBounds(poll_s=0.1, grace_s=1.0, again_s=0.5, ask_again_s=1.0),
        "job": JobPlace(
            f"http://{HOST}:{port}",
            job=JOB if job == "ray" else job_words(job),
            bounds=RunnerBounds(again_s=0.5, again_s_max=2.0, elsewhere_s=1.0, stop_s=2.0),
        ),
    }


def main(port: str, data: str, job: str) -> int:
    compose = partial(Service, small_settings(Path(data)), **quick(port, job))
    return local.serve(compose, HOST, int(port), lambda: None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
