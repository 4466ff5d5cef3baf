"""Messages that share their header go out as the same octets as those that have it each."""

import pytest
from pair import Pair
from pamqp import commands
from peer import method

from leveret.engine import Envelope
from leveret.engine.messages.content import NATIVE, CommonHeader, Framing, encode_header, scan_properties
from leveret.testing.harness import GUEST

FRAME_MAX = 4096


def received(body: bytes, *, common: bool, no_ack: bool) -> tuple[bytes, int]:
    """What comes of three such messages on channel 2: by a get and two deliveries, perhaps twice; ready after it."""
    pair = Pair()
    peer = pair.open(2, frame_max=FRAME_MAX)
    peer.call(2, commands.Queue.Declare, queue="q")
    vhost = pair.broker.virtual_hosts["/"]
    header = encode_header(len(body), {"content_type": b"a/b", "delivery_mode": 2})
    framing: Framing = CommonHeader(header) if common else NATIVE
    content = body if common else NATIVE.join(header, body)
    session = pair.broker.connections.open("/", GUEST, name="other", flush=lambda: None).open_session()
    envelope = Envelope("", "q", scan_properties(header[12:]), framing)
    session.publish(vhost.router.route("", "q", GUEST), envelope, [content] * 3, mandatory=False)
    peer.take()
    start = len(peer.incoming.octets)
    peer.send(method(2, commands.Basic.Get, queue="q", no_ack=True))
    peer.send(method(2, commands.Basic.Consume, queue="q", consumer_tag="c", no_ack=no_ack))
    if not no_ack:
        peer.send(method(2, commands.Basic.Nack, delivery_tag=3, multiple=False))
        peer.send(method(2, commands.Basic.Nack, delivery_tag=2, multiple=True))
    got = [one.body for one in peer.take() if one.body is not None]
    assert got == [body] * (3 if no_ack else 5)
    return bytes(peer.incoming.octets[start:]), vhost.queues.named("q").ready_count


@pytest.mark.parametrize("no_ack", [True, False])
@pytest.mark.parametrize("size", [0, 1, 1024, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])
def test_the_same_octets(size: int, no_ack: bool) -> None:
    """Bodies that need no frame, one that is just filled, and several; delivered first, again, and got."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert received(body, common=True, no_ack=no_ack) == received(body, common=False, no_ack=no_ack)
