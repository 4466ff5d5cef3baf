"""A publisher and a consumer for large bodies, which copy little themselves, and check every octet."""

from __future__ import annotations

import socket
import struct

from pamqp import commands
from raw_client import RawClient, Unexpected, publish_octets

KIND_METHOD, KIND_HEADER, KIND_BODY = 1, 2, 3
FRAME_HEAD = struct.Struct(">BHL")
FRAME_END = 0xCE
PAYLOAD_MAX = 131072 - 8
ON_THEIR_WAY_OCTETS = 64 * 1024 * 1024
NUMBER = struct.Struct(">Q")


class Damaged(Exception):
    """A body is not what was published, or not the next one."""


def messages_on_their_way(size: int) -> int:
    """How many may be published and not yet delivered."""
    return max(2, ON_THEIR_WAY_OCTETS // size)


class Publisher:
    """Publishes bodies of one size; only the number in front of them differs."""

    def __init__(self, port: int, queue: str, size: int) -> None:
        self._client = RawClient(port)
        self._client.handshake()
        pattern = bytes((7 * index + (index >> 8)) % 251 for index in range(65536 + 1))
        self.body = bytearray((pattern * (size // len(pattern) + 1))[:size])
        first = self.body[:PAYLOAD_MAX]
        start = publish_octets("", queue, bytes(first))
        head_size = len(start) - len(first) - 8
        # The announced size of the body is in the header frame, 12 octets before its properties.
        header_at = start.index(b"\x02\x00\x01")
        octets = bytearray(start)
        octets[header_at + 11 : header_at + 19] = NUMBER.pack(size)
        for at in range(PAYLOAD_MAX, size, PAYLOAD_MAX):
            part = self.body[at : at + PAYLOAD_MAX]
            octets += FRAME_HEAD.pack(KIND_BODY, 1, len(part)) + part + b"\xce"
        self._octets = octets
        self._number_at = head_size + FRAME_HEAD.size

    def publish(self, number: int) -> None:
        """One message; returns when the kernel has it."""
        NUMBER.pack_into(self._octets, self._number_at, number)
        self._client.write(self._octets)

    def close(self) -> None:
        """Without connection.close."""
        self._client.finish()


class Consumer:
    """Consumes a queue of its own without acknowledgements."""

    def __init__(self, port: int, channel: int) -> None:
        self._client = RawClient(port)
        self._client.handshake()
        if channel != 1:
            self._client.send(commands.Channel.Open(), channel=channel)
            self._client.expect(commands.Channel.OpenOk)
        self._client.send(commands.Queue.Declare(exclusive=False, auto_delete=True), channel=channel)
        self.queue: str = self._client.expect(commands.Queue.DeclareOk).queue
        self._client.send(commands.Basic.Consume(queue=self.queue, no_ack=True), channel=channel)
        self._client.expect(commands.Basic.ConsumeOk)
        self._channel = channel
        self._socket: socket.socket = self._client.socket
        self._head = bytearray(8)
        self._body = self._expected = bytearray()

    def receive(self, number: int, body: bytearray) -> None:
        """The next message, which must have that number and otherwise this body. Raises: Damaged, Unexpected."""
        if len(self._body) != len(body):
            self._body, self._expected = bytearray(len(body)), bytearray(body)
        self._frame(KIND_METHOD)
        header = self._frame(KIND_HEADER)
        if NUMBER.unpack_from(header, 4) != (len(body),):
            raise Damaged(f"the header announces {header[4:12].hex()} octets")
        at = 0
        with memoryview(self._body) as view:
            while at < len(body):
                size = self._frame_head(KIND_BODY)
                if size > len(body) - at:
                    raise Damaged("more octets than were announced")
                self._fill(view[at : at + size])
                self._end()
                at += size
        if NUMBER.unpack_from(self._body) != (number,):
            raise Damaged(f"not message {number}")
        NUMBER.pack_into(self._expected, 0, number)
        if self._body != self._expected:
            raise Damaged(f"the body of message {number} differs")

    def close(self) -> None:
        """Without connection.close; the queue goes with its consumer."""
        self._client.finish()

    def _frame(self, kind: int) -> bytearray:
        payload = bytearray(self._frame_head(kind))
        self._fill(memoryview(payload))
        self._end()
        return payload

    def _frame_head(self, kind: int) -> int:
        with memoryview(self._head) as view:
            self._fill(view[: FRAME_HEAD.size])
        found, channel, size = FRAME_HEAD.unpack_from(self._head)
        if (found, channel) != (kind, self._channel):
            raise Unexpected(f"a frame of type {found} on channel {channel}")
        return int(size)

    def _end(self) -> None:
        with memoryview(self._head) as view:
            self._fill(view[:1])
        if self._head[0] != FRAME_END:
            raise Damaged("a frame without its end")

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            got = self._socket.recv_into(view[at:])
            if not got:
                raise Unexpected("the broker closed the connection")
            at += got
