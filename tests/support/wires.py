"""TCP relays on loopback that can be slow, or cut in each direction: what is sent then arrives when they are mended."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

from leveret.interop.wire.loopback import free_ports


class Cut:
    """What does not pass a wire: octets to the target (`forth`), from it (`back`), of one client or of all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cuts: set[tuple[str | None, bool]] = set()  # whose (None: all), whether forth

    def add(self, whose: str | None, *, forth: bool, back: bool) -> None:
        """Cut."""
        with self._changed:
            self._cuts |= {(whose, way) for way, is_cut in ((True, forth), (False, back)) if is_cut}

    def clear(self) -> None:
        """Let all pass."""
        with self._changed:
            self._cuts.clear()
            self._changed.notify_all()

    @property
    def is_on(self) -> bool:
        """Whether anything is cut for all."""
        return any(whose is None for whose, _ in self._cuts)

    def await_passage(self, client: "Client | None", *, forth: bool) -> None:
        """Wait until octets of this client may pass. None: of one that is not known yet."""
        with self._changed:
            self._changed.wait_for(lambda: not self._holds(client, forth))

    def _holds(self, client: "Client | None", forth: bool) -> bool:
        cuts = self._cuts
        return bool(cuts) and bool({(None, forth), (None if client is None else client.name, forth)} & cuts)


class Client:
    """Who connected from a port of loopback: the name of one of some processes, looked up once, when it is asked for.

    A look-up takes 4 ms, more than all else that is done for a connection.
    """

    def __init__(self, port: int, pids: Callable[[], dict[str, int]]) -> None:
        self._port, self._pids = port, pids

    @cached_property
    def name(self) -> str | None:
        """None: it is none of these processes."""
        pids = self._pids()
        return owner(self._port, pids) if pids else None


def owner(port: int, pids: dict[str, int]) -> str | None:
    """Which of these processes connects from this port of loopback."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table]
    inodes = {f"socket:[{row[9]}]" for row in rows[1:] if int(row[1].rpartition(":")[2], 16) == port}
    for name, pid in pids.items():
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") in inodes:
                        return name
    return None


class Wire:
    """Relays connections to a port of 127.0.0.1. `port`: where to connect to. `pids`: of clients by name."""

    def __init__(self, target: int, pids: Callable[[], dict[str, int]] = dict) -> None:
        self._target = target
        self._pids = pids
        self.port: int = free_ports(1)[0]
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._cut = Cut()
        self.rates: dict[str | None, int] = {}  # octets a second that pass to a client, by its name
        self._is_closed = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, forth: bool = True, back: bool = True, whose: str | None = None) -> None:
        """Let nothing pass: to the target (`forth`), from it (`back`). New connections get no answer.

        whose: of this client alone.
        """
        self._cut.add(whose, forth=forth, back=back)

    def mend(self) -> None:
        """Let all pass again."""
        self._cut.clear()

    def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        self.mend()
        for one in (self._listener, *tuple(self._open)):
            _hang_up(one)
        self._listener.close()

    def _accept(self) -> None:
        """While the target refuses connections, so does the wire, unless it is cut."""
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed, here or by `_connect`
                if not self._is_closed and self._await_target():
                    self._listener = socket.create_server(("127.0.0.1", self.port))
                continue
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _await_target(self) -> bool:
        """Whether it accepts connections, or this wire is cut; asked again and again by the caller."""
        if self._cut.is_on:
            return True
        try:
            socket.create_connection(("127.0.0.1", self._target)).close()
        except OSError:
            threading.Event().wait(0.05)
            return False
        return True

    def _connect(self, client: socket.socket) -> None:
        self._cut.await_passage(None, forth=True)
        try:
            target = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            _hang_up(self._listener)
            self._listener.close()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            return
        for one in (client, target):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(one)
        who = Client(client.getpeername()[1], self._pids)
        back = threading.Thread(target=self._copy, args=(target, client, who, False), daemon=True)
        back.start()
        self._copy(client, target, who, True)
        back.join()
        for one in (client, target):
            self._open.discard(one)
            one.close()

    def _copy(self, source: socket.socket, sink: socket.socket, who: Client, forth: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536 if (rate := self._rate(who, forth)) is None else 512):
                self._cut.await_passage(who, forth=forth)
                sink.sendall(data)
                if rate is not None:
                    threading.Event().wait(len(data) / rate)
        self._cut.await_passage(who, forth=forth)
        _hang_up(sink)

    def _rate(self, who: Client, forth: bool) -> int | None:
        return self.rates.get(who.name) if self.rates and not forth else None


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
