"""The newest leases, whatever becomes of the questions for them."""

from __future__ import annotations

import asyncio

from serve_app.cluster.messages import Beat, Leases
from serve_app.cluster.watch import LeaseWatch


class Defective:
    """Control whose first answers are defects."""

    def __init__(self, defects: int) -> None:
        self.left = defects

    async def beat(self, beat: Beat) -> Leases:
        raise NotImplementedError

    async def leases(self, after: int = -1) -> Leases:
        if self.left:
            self.left -= 1
            raise RuntimeError("a defect")
        return Leases(3, ("writer-1",))


def test_a_defect_does_not_end_the_watch_and_is_told() -> None:
    async def scene() -> None:
        control = Defective(2)
        watch = LeaseWatch(control)
        watch.start()
        await asyncio.sleep(0.05)
        assert watch.trouble == "Control cannot be asked: RuntimeError"
        await watch.news(0, 20.0)
        assert watch.newest == Leases(3, ("writer-1",))
        assert watch.trouble is None
        await watch.stop()

    asyncio.run(scene())
