"""Port blocks: whole, apart from each other, given back."""

import socket

from serve_app.deployments.port_block import BLOCK_SIZE, is_free, reserve_block


def test_two_blocks_never_meet():
    one, other = reserve_block(), reserve_block()
    try:
        assert abs(one.first - other.first) >= BLOCK_SIZE
    finally:
        one.close()
        other.close()


def test_a_block_is_guarded_until_it_is_closed():
    block = reserve_block()
    assert not is_free("0.0.0.0", block.first)
    block.close()
    assert is_free("0.0.0.0", block.first)


def test_its_ports_are_distinct_and_inside():
    block = reserve_block()
    block.close()
    first, end = block.replicas
    ports = [block.first, block.stats, block.metrics, block.fallback_proxy, *range(first, end)]
    assert sorted(set(ports)) == list(range(block.first, block.first + BLOCK_SIZE))


def test_a_port_that_is_listened_on_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free("127.0.0.1", server.getsockname()[1])
