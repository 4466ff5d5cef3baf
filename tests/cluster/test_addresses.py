"""Names with several addresses: a link tries each, whatever is wrong with the one before."""

import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
from in_trio import in_trio

from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.introduction import Reach, reach
from leveret.cluster.link.listener import LinkListener
from leveret.cluster.link.options import Address, LinkOptions
from leveret.cluster.resolver import Found, Resolver

CIRCLE = Credentials("orders", 0, b"a secret of the cluster")
NODE = Address("b.example", 5680)


def named(*addresses: Address, connect_s: float = 60.0) -> LinkOptions:
    """Options of a link to a node whose name has these addresses, in this order."""

    def look_up(host: str, port: int, **how: object) -> list[Found]:
        families = [socket.AF_INET6 if ":" in one.host else socket.AF_INET for one in addresses]
        return [(family, socket.SOCK_STREAM, 6, "", (one.host, one.port)) for family, one in zip(families, addresses)]

    return LinkOptions(connect_s=connect_s, resolver=Resolver(look_up))


@asynccontextmanager
async def a_node() -> AsyncIterator[Address]:
    """A node that listens for links."""
    listening = socket.create_server(("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        await nursery.start(LinkListener(CIRCLE, "b", lambda *client: None).serve, [listening])
        yield Address(*listening.getsockname()[:2])
        nursery.cancel_scope.cancel()


@contextmanager
def silent() -> Iterator[Address]:
    """An address at which connections are neither accepted nor refused, as behind a firewall."""
    with socket.socket() as listening, socket.socket() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting.connect(listening.getsockname())  # the only one for which there is room
        yield Address(*listening.getsockname())


@in_trio
async def test_a_link_tries_the_next_address_on_a_system_without_that_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` has ::1 in many files of hosts, also where IPv6 is switched off."""
    make = trio.socket.socket

    def refuse(family: int, *more: int) -> Any:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return make(family, *more)

    async with a_node() as address:
        monkeypatch.setattr(trio.socket, "socket", refuse)
        assert await reach(NODE, CIRCLE, None, named(Address("::1", 5680), address)) is Reach.REACHED


@in_trio
async def test_a_link_tries_the_next_address_if_one_does_not_answer() -> None:
    """The time to connect is for all of them."""
    async with a_node() as address:
        with silent() as nobody:
            assert await reach(NODE, CIRCLE, None, named(nobody, address, connect_s=2)) is Reach.REACHED


@in_trio
async def test_a_node_is_not_gone_if_only_one_of_its_addresses_says_so() -> None:
    """Its process may listen at the address that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        refusing = Address(*unused.getsockname()[:2])
    with silent() as nobody:
        assert await reach(NODE, CIRCLE, None, named(nobody, refusing, connect_s=0.5)) is Reach.UNREACHED
    assert await reach(NODE, CIRCLE, None, named(refusing, refusing)) is Reach.REFUSED
