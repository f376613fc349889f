"""The Ray that a job runs on: a private one on this host from start to a clean end, or a cluster that is there.

A private one has a folder, a token and an object store of its own, and is gone when the job ends; a cluster is joined
and left as it was. In both Ray Data streams in small blocks, in the order of its input, and lets no error pass.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serve_app.deployments.environment import MUST_BE_UNSET, session_environment

OBJECT_STORE_BYTES = 256 << 20
"""Of a private Ray. Blocks are small and few are under way; what does not fit waits, and is not read ahead."""

BLOCK_BYTES = 4 << 20
"""At most about so much leaves one step of Ray Data at once."""

NICENESS = 15
"""Of the processes of a private Ray: a service on the same host comes first."""

TOKEN_BYTES = 32


@contextmanager
def ray_session(address: str | None = None, *, cpus: int | None = None) -> Iterator[None]:
    """Ray, started or joined. Without `address` that of the environment counts, as `ray job submit` sets it.

    `cpus` is what a private Ray may give out; all of the host's otherwise. A process has one private Ray in its life:
    Ray reads its settings when it is imported.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    with _joined(address) if address else _started(cpus):
        _bound_data()
        yield


@contextmanager
def _joined(address: str) -> Iterator[None]:
    import ray

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _started(cpus: int | None) -> Iterator[None]:
    if "ray" in sys.modules:
        raise RuntimeError("Ray is imported already: a private one must be the first to import it")
    root = Path(tempfile.mkdtemp(prefix="msj-"))  # short: socket paths end at 107 characters
    try:
        _prepare_environment(root)
        import ray

        ray.init(
            address="local",
            num_cpus=cpus or os.cpu_count(),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(root),
        )
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _prepare_environment(root: Path) -> None:
    token = root / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(TOKEN_BYTES))
    for name in MUST_BE_UNSET:
        os.environ.pop(name, None)
    os.environ.update(session_environment(root))
    os.environ.update(RAY_worker_niceness=str(NICENESS))  # Ray reads it by this name


def _bound_data() -> None:
    """What Ray Data does with blocks, in this process and in every task that it starts."""
    from ray.data import DataContext

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.target_max_block_size = BLOCK_BYTES
    context.target_min_block_size = 1
    context.execution_options.preserve_order = True
    context.max_errored_blocks = 0
    context.enable_progress_bars = False
