"""Options that commands of several kinds have alike. Pure, like the arguments that they belong to."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8000"
PORT_MAX = 65_535
DIGITS_MAX = 18
MODE_HELP = "hybrid: by meaning and by words; dense: by meaning alone; lexical: by words alone"
DATA_HELP = "data folder of the service, to take its first key from"


def port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to {PORT_MAX}")
    return int(text)


def at_least(least: int) -> Callable[[str], int]:
    """What reads a whole number of that or more."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return read


def part(text: str) -> float:
    """Of a whole."""
    return _number(text, lambda value: 0 < value <= 1, "no part: a number above 0, at most 1")


def seconds(text: str) -> float:
    return _number(text, lambda value: 0 <= value < math.inf, "no number of seconds")


def rate(text: str) -> float:
    """Of something a second."""
    return _number(text, lambda value: 0 < value < math.inf, "no rate: a number above 0")


def _number(text: str, fits: Callable[[float], bool], otherwise: str) -> float:
    with contextlib.suppress(ValueError):
        if fits(value := float(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is {otherwise}")


def share(text: str) -> tuple[str, int]:
    """A zone and its percent."""
    zone, _, percent = text.partition("=")
    if not (zone and percent.isascii() and percent.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no share: write one like recent=40")
    return zone, int(percent)


def setting(text: str) -> tuple[str, Any]:
    """A name and its value: a number, true, false, null or a list as JSON has them, else the text itself."""
    name, mark, value = text.partition("=")
    if not (name and mark):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: write one like canary_s=600")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def remote(command: argparse.ArgumentParser, data_help: str = DATA_HELP) -> argparse.ArgumentParser:
    """Of every command that talks to a running service."""
    _service(command)
    command.add_argument("--key", help="API key; else MEMSTRATA_KEY, else the one in --data")
    command.add_argument("--data", type=Path, help=data_help)
    return json_too(command)


def measured(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Of every suite: which service, and with which key."""
    _service(command)
    command.add_argument("--key", help="API key; else MEMSTRATA_KEY")
    return json_too(command)


def _service(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--url", default=os.environ.get("MEMSTRATA_URL", DEFAULT_URL), help="the service; else MEMSTRATA_URL"
    )


def json_too(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--json", action="store_true", help="print one JSON object last")
    return command
