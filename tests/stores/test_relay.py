"""What a follower wants of its shard's writer next, wherever it read what came before."""

from __future__ import annotations

from serve_app.stores.relay import Relayed, Segment


def test_after_a_log_was_read_anew_in_the_store_what_follows_is_wanted_as_soon_as_it_is_shown() -> None:
    relayed = Relayed(1.0)
    relayed.take(9)
    relayed.applied(8)
    assert relayed.position(0) == 8
    relayed.deliver(8, [Segment(9, b"nine")], 0.0)
    relayed.judged(13)
    assert relayed.position(0) is None
    relayed.applied(13)
    assert relayed.position(0) == 13
    assert relayed.take(14) is None
    relayed.deliver(8, [Segment(9, b"nine")], 0.0)
    assert relayed.position(0) == 13
