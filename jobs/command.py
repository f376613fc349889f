"""What the commands of jobs that end by themselves have in common: Ray around the work, and how its end is told."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from serve_app.errors import MemstrataError

Session = Callable[[str | None], AbstractContextManager[None]]
"""Ray, at an address or a private one; see `session.py`."""


class Work(Protocol):
    def run(self) -> dict[str, Any]: ...


def ended(
    name: str,
    args: argparse.Namespace,
    make: Callable[[argparse.Namespace], Work],
    session: Session,
    told: Callable[[dict[str, Any]], str],
    sound: str,
) -> int:
    """The exit status. `make` may refuse before Ray is started; `sound` is the result's word for all being well."""
    try:
        work = make(args)
        with session(args.address):
            result = work.run()
    except MemstrataError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False) if args.json else told(result))
    return 0 if result[sound] else 1
