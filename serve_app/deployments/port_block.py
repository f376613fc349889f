"""The ports that one Ray session needs beside its public one, taken as one block so that sessions on a host never meet.

Blocks lie below the kernel's ephemeral range (32768 on Linux), where nothing is given out by itself. The first port
of a block is bound, and never listened on, for as long as its session lives: that is the reservation.
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

FIRST_PORT = 20_000
LAST_PORT = 32_000
BLOCK_SIZE = 64
SERVICE_PORTS = 4
"""Guard, HAProxy statistics, HAProxy metrics, fallback proxy; the rest of a block is for replicas."""


@dataclass(frozen=True)
class PortBlock:
    """One reserved block. `close` gives it back."""

    first: int
    guard: socket.socket

    @property
    def stats(self) -> int:
        return self.first + 1

    @property
    def metrics(self) -> int:
        return self.first + 2

    @property
    def fallback_proxy(self) -> int:
        return self.first + 3

    @property
    def replicas(self) -> tuple[int, int]:
        """First port for replicas, and the one after the last."""
        return self.first + SERVICE_PORTS, self.first + BLOCK_SIZE

    def close(self) -> None:
        self.guard.close()


def reserve_block() -> PortBlock:
    """A block whose guard and service ports are free. Raises OSError when the host has none left."""
    blocks = list(range(FIRST_PORT, LAST_PORT - BLOCK_SIZE, BLOCK_SIZE))
    random.shuffle(blocks)
    for first in blocks:
        guard = _bound(first)
        if guard is None:
            continue
        if all(is_free("0.0.0.0", first + offset) for offset in range(1, SERVICE_PORTS + 1)):
            return PortBlock(first, guard)
        guard.close()
    raise OSError(f"no block of {BLOCK_SIZE} free ports between {FIRST_PORT} and {LAST_PORT}")


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on this address now; ports that only wait out old connections count as free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _bound(port: int) -> socket.socket | None:
    guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        guard.bind(("0.0.0.0", port))
    except OSError:
        guard.close()
        return None
    return guard
