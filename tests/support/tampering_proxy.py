"""A TCP relay that changes what the broker sends: the load generator's checks must notice each change."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HEADER_BYTES = 7
DELIVER, ACK, NACK = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"

# Takes a whole delivery (its frames) or any other single frame, and gives the frames to pass on; None: hang up.
Tamper = Callable[[list[bytes]], list[bytes] | None]


@contextmanager
def tampering_proxy(broker_port: int, tamper: Tamper) -> Iterator[int]:
    """Relay connections to the broker, what comes back going through `tamper`; yields the port to connect to."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened = [listener]
    threads = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                broker = socket.create_connection(("127.0.0.1", broker_port))
                opened.extend((client, broker))
                threads.append(threading.Thread(target=_copy, args=(client, broker)))
                threads.append(threading.Thread(target=_copy_changed, args=(broker, client, tamper)))
                for thread in threads[-2:]:
                    thread.start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        _hang_up(listener)
        accepting.join()
        for each in opened:
            _hang_up(each)
        for thread in threads:
            thread.join()
        for each in opened:
            each.close()


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _hang_up(sink)


def _copy_changed(source: socket.socket, sink: socket.socket, tamper: Tamper) -> None:
    with suppress(OSError), source.makefile("rb") as stream:
        for unit in _units(stream.read):
            changed = tamper(unit)
            if changed is None:
                break
            sink.sendall(b"".join(changed))
    _hang_up(source)
    _hang_up(sink)


def _units(read: Callable[[int], bytes]) -> Iterator[list[bytes]]:
    """Frames, those of one delivery together (the generator's messages here have one body frame)."""
    delivery: list[bytes] = []
    while len(header := read(HEADER_BYTES)) == HEADER_BYTES:
        frame = header + read(int.from_bytes(header[3:]) + 1)
        if delivery or frame[HEADER_BYTES:].startswith(DELIVER):
            delivery.append(frame)
            if len(delivery) == 3:
                yield delivery
                delivery = []
        else:
            yield [frame]
