from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.write.shards import OneShard


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., OneShard]]:
    """Opens shards in folders of this test's own; all are closed after it."""
    shards: list[OneShard] = []

    def open_shard(name: str = "store", **options: Any) -> OneShard:
        shards.append(OneShard(tmp_path / name, **options))
        return shards[-1]

    yield open_shard
    for shard in shards:
        shard.close()


@pytest.fixture
def shard(opened: Callable[..., OneShard]) -> OneShard:
    return opened()
