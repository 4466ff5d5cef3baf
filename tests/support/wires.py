"""TCP relays on loopback that can be cut, in each direction: what is sent then arrives when they are mended."""

import socket
import threading
from contextlib import suppress


class Wire:
    """Relays connections to a port of 127.0.0.1. `port`: where to connect to."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._forth, self._back = threading.Event(), threading.Event()  # set: octets pass
        self._is_closed = False
        self._open: set[socket.socket] = set()
        self.mend()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, forth: bool = True, back: bool = True) -> None:
        """Let nothing pass: to the target (`forth`), from it (`back`). New connections get no answer."""
        if forth:
            self._forth.clear()
        if back:
            self._back.clear()

    def mend(self) -> None:
        """Let all pass again."""
        self._forth.set()
        self._back.set()

    def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        self.mend()
        for one in (self._listener, *tuple(self._open)):
            _hang_up(one)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._is_closed:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            target = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            # As a refused connection, as far as a relay can show that.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            return
        for one in (client, target):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(one)
        back = threading.Thread(target=self._copy, args=(target, client, self._back), daemon=True)
        back.start()
        self._copy(client, target, self._forth)
        back.join()
        for one in (client, target):
            self._open.discard(one)
            one.close()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, passes: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                passes.wait()
                sink.sendall(data)
        passes.wait()
        _hang_up(sink)


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
