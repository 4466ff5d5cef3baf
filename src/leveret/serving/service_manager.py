"""Notifications to a service manager (systemd, or another that sets NOTIFY_SOCKET): ready, reloading, stopping, alive.

They are datagrams of `KEY=value` lines, as in sd_notify(3). The broker continues if the manager does not listen. This
file is imported only if NOTIFY_SOCKET is set.
"""

import logging
import os
import socket
import time
from collections.abc import Mapping

import trio

logger = logging.getLogger("leveret")

_US_A_SECOND = 1_000_000


class ServiceManager:
    """Notifies `address`: a path or, with @ before it, an abstract name. `watchdog_s` None: no watchdog."""

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s
        self._has_failed = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ServiceManager | None":
        """The manager that the environment names; None: there is none, or its address has an unknown form."""
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")) or not hasattr(socket, "AF_UNIX"):
            return None
        period = environment.get("WATCHDOG_USEC", "")
        process = environment.get("WATCHDOG_PID", str(os.getpid()))
        is_watched = period.isascii() and period.isdigit() and int(period) > 0 and process == str(os.getpid())
        return cls(address, int(period) / _US_A_SECOND if is_watched else None)

    def ready(self, status: str) -> None:
        """Notify that clients are served. `status`: one line for people."""
        self._tell(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def reloading(self) -> None:
        """Notify that the configuration is being reloaded; call `ready` after it."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that connections are being closed and the journal is being written."""
        self._tell("STOPPING=1\nSTATUS=stopping")

    async def report_alive(self) -> None:
        """Notify twice in the watchdog's period, as long as the event loop runs."""
        if self.watchdog_s is None:
            return
        while True:
            self._tell("WATCHDOG=1")
            await trio.sleep(self.watchdog_s / 2)

    def _tell(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._has_failed:  # log it once
                self._has_failed = True
                logger.warning("the service manager at NOTIFY_SOCKET cannot be told: %s", error.strerror or error)
