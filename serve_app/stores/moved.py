"""Which turns of one owner have left the hot tier, and how many of them are cold."""

from __future__ import annotations

from collections.abc import Iterable

from serve_app.stores.rows import COLD, HOT, WARM


class MovedTurns:
    """By seq the tier of each turn that is not to be in memory any more; the others are hot."""

    def __init__(self) -> None:
        self._tiers: dict[int, int] = {}
        self.cold = 0

    def __len__(self) -> int:
        return len(self._tiers)

    def tier(self, seq: int) -> int:
        return self._tiers.get(seq, HOT)

    def is_cold(self, seq: int) -> bool:
        return self._tiers.get(seq) == COLD

    def without_cold(self, seqs: list[int]) -> list[int]:
        """The seqs whose content is not in the cold table alone; the list itself where none is."""
        return [seq for seq in seqs if self._tiers.get(seq) != COLD] if self.cold else seqs

    def put(self, seq: int, tier: int) -> None:
        """A turn is in this tier now; it never goes back to a hotter one but by `edited`."""
        held = self.tier(seq)
        if tier > held:
            self._tiers[seq] = tier
            self.cold += tier == COLD

    def edited(self, seq: int) -> None:
        """A cold turn that is edited comes back to the warm tier."""
        if self.is_cold(seq):
            self._tiers[seq] = WARM
            self.cold -= 1

    def forget(self, seqs: Iterable[int]) -> None:
        if self._tiers:
            self.cold -= sum(self._tiers.pop(seq, HOT) == COLD for seq in seqs)

    def clear(self) -> None:
        self._tiers, self.cold = {}, 0
