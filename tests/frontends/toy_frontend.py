"""A frontend in sixty lines: queues for telnet. It proves that the engine's façade is enough for another protocol.

PUT queue text      publish to the default exchange
TAKE queue          consume without acknowledging; messages come as lines "queue text"
BYE                 hang up
"""

import socket
from typing import Any

import trio

from leveret.engine import Client, Consumer, Delivered, Envelope
from leveret.engine.errors import EngineError
from leveret.engine.messages.content import NATIVE, encode_header


async def serve(
    runtime: Any,
    listeners: list[socket.socket],
    options: Any = None,
    *,
    stopping: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve lines on listening sockets until `stopping` is set (entry point group `leveret.frontends`)."""
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            listener.setblocking(False)
            accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
            nursery.start_soon(trio.serve_listeners, lambda stream: talk(runtime, stream), [accepting])
        task_status.started()
        await stopping.wait()
        nursery.cancel_scope.cancel()


async def talk(runtime: Any, stream: trio.SocketStream) -> None:
    """One peer, to its end."""
    broker = runtime.broker
    guest = broker.users.identify("guest", mechanism="TOY", is_loopback=True)
    to_send, wake = trio.open_memory_channel[bytes](100)
    client: Any = broker.connections.open("/", guest, name="toy", flush=lambda: to_send.send_nowait(render(client)))
    session = client.open_session()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, stream, wake, client)
        buffer = b""
        async for data in stream:
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                verb, _, rest = line.decode().strip().partition(" ")
                try:
                    if verb == "PUT":
                        name, _, text = rest.partition(" ")
                        content = NATIVE.join(encode_header(len(text.encode())), text.encode())
                        route = client.vhost.router.route("", name, guest)
                        session.publish(route, Envelope("", name), [content], mandatory=False)
                    elif verb == "TAKE":
                        queue = client.vhost.queues.named(rest)
                        session.consume(queue, rest, no_ack=True, exclusive=False, arguments={})
                except EngineError as error:
                    to_send.send_nowait(f"ERROR {type(error).__name__}\n".encode())
            runtime.end_turn()
        nursery.cancel_scope.cancel()
    client.close()
    runtime.end_turn()


def render(client: Client) -> bytes:
    """The engine's effects as lines."""
    lines = b""
    for effect in client.take_outbox():
        if isinstance(effect, Delivered) and isinstance(effect.consumer, Consumer):
            for _, envelope, contents in effect.runs():
                for content in contents:
                    lines += effect.consumer.tag.encode() + b" " + envelope.framing.split(content)[1] + b"\n"
    return lines


async def write(stream: trio.SocketStream, wake: "trio.MemoryReceiveChannel[bytes]", client: Client) -> None:
    """Send what turns left."""
    async for data in wake:
        await stream.send_all(data)
        client.drained()
