"""What one search may look at inside the data of turns: counted as it goes, refused beyond a bound or a deadline."""

from __future__ import annotations

import time
from typing import Final

from serve_app.errors import DeadlinePassed, InvalidRequest

LOOKED_AT_MAX: Final = 4_000_000
"""Values of one search, over all turns and conditions: seconds of one thread, while others of the pool serve on."""

CHARACTERS_A_VALUE: Final = 256
"""To read so much JSON, or so much of a text, counts as one value more."""

CLOCK_EVERY: Final = 1_024
"""Values between two looks at the clock: a search that is done sooner is answered, however late it began."""


class Work:
    """Of one search, on one thread. `deadline` is on the monotonic clock."""

    __slots__ = ("_deadline", "_look_again", "looked_at")

    def __init__(self, deadline: float | None = None) -> None:
        self.looked_at = 0
        self._deadline = deadline
        self._look_again = CLOCK_EVERY

    def again(self) -> Work:
        """For who begins the same search anew: of the same deadline, nothing looked at."""
        return Work(self._deadline)

    def spend(self, values: int) -> None:
        """Asked for before they are looked at. Raises InvalidRequest, DeadlinePassed."""
        self.looked_at += values
        if self.looked_at >= self._look_again:
            self._check()

    def _check(self) -> None:
        if self.looked_at > LOOKED_AT_MAX:
            raise InvalidRequest(
                f"filters.data: more than {LOOKED_AT_MAX} values would have to be looked at; narrow the search "
                "(session_id, from and to, tool_name, fewer conditions, a path with less under [*])"
            )
        self._look_again = min(self.looked_at + CLOCK_EVERY, LOOKED_AT_MAX + 1)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise DeadlinePassed("deadline_ms passed before the filters had been applied to every turn")
