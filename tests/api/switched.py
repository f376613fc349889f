"""A TCP way to a server that can be switched off: connections are refused or cut then, as by a network that is gone."""

from __future__ import annotations

import contextlib
import socket
import threading


class Switched:
    """Listens on a port of loopback from `__init__` on; `off` and `on` as often as one likes."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._off = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def off(self) -> None:
        self._off = True
        for one in list(self._open):
            _shut(one)

    def on(self) -> None:
        self._off = False

    def close(self) -> None:
        self._listening.close()
        self.off()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._off:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                for source, target in ((client, server), (server, client)):
                    self._open.add(source)
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        _shut(source)
        _shut(target)
        self._open.discard(source)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
