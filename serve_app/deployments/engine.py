"""The Ray engine: serves one application on Ray Serve until a signal ends it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Collection
from functools import partial

from serve_app.asgi import Compose
from serve_app.deployments.environment import Proxy
from serve_app.deployments.lifeline import run_apart
from serve_app.deployments.place import Place
from serve_app.deployments.session import RaySession, StartFailed


def serve(
    compose: Compose,
    host: str,
    port: int,
    on_start: Callable[[], None],
    *,
    proxy: Proxy | None = None,
    beside: Collection[str] = (),
) -> int:
    """Serve on `host:port` until SIGINT or SIGTERM; gives the exit status.

    All of Ray lives in a child process; `on_start` is called there, before Ray starts. `compose` must be picklable.
    `proxy` None takes the fastest that is installed. `beside` names sections of the settings
    whose models have deployments of their own.
    """
    return run_apart(partial(_serve_here, partial(_run, compose, beside), host, port, on_start, proxy))


def serve_cluster(place: Place, host: str, port: int, on_start: Callable[[], None], writers: int) -> int:
    """The same with the applications of the cluster profile, all on this host: to try them."""
    return run_apart(partial(_serve_here, partial(_run_cluster, place, writers), host, port, on_start, None))


def _run_cluster(place: Place, writers: int, session: RaySession) -> None:
    session.run_cluster(place, writers)


def _run(compose: Compose, beside: Collection[str], session: RaySession) -> None:
    session.run(compose, beside=beside)


def _serve_here(
    run: Callable[[RaySession], None], host: str, port: int, on_start: Callable[[], None], proxy: Proxy | None
) -> int:
    _on_signal(_unwind)
    try:
        with RaySession(proxy) as session:
            on_start()
            session.start(host, port)
            _on_signal(_unwind)  # again: Ray has put its own in the place
            run(session)
            ended = threading.Event()
            _on_signal(lambda *_: ended.set())
            ended.wait()
    except StartFailed as failure:
        print(f"memstrata: {failure}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, SystemExit):  # the second is what Ray's own handler raises
        pass
    return 0


def _on_signal(act: Callable[[int, object], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, act)


def _unwind(*_: object) -> None:
    """A signal during the start: leave through the session, so that it is closed."""
    raise KeyboardInterrupt
