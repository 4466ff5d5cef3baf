"""Addresses of host names, found within a time limit: the system's own resolver may hang for half a minute."""

import errno
import socket
import threading
from collections.abc import Callable
from typing import Any

#: An address as `socket.getaddrinfo` returns it: family, kind, protocol, canonical name, address.
Found = tuple[Any, Any, int, str, Any]
LookUp = Callable[..., list[Found]]


class _Search:
    """One lookup of a name, by a thread that may outlive the call."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.found: list[Found] = []
        self.error: OSError | None = None


class Resolver:
    """Resolves host names, for any thread. Each name is looked up by one thread at a time.

    When a lookup takes too long, the last result for the name is returned.
    """

    def __init__(self, look_up: LookUp = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._lock = threading.Lock()
        self._searches: dict[tuple[str, int], _Search] = {}
        self._known: dict[tuple[str, int], list[Found]] = {}

    @staticmethod
    def numeric(host: str, port: int) -> list[Found] | None:
        """The address that `host` writes as numbers; None: it is a name. Does not block."""
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):  # UnicodeError: no host can have this name; `resolve` says so
            return None

    def resolve(self, host: str, port: int, seconds: float) -> list[Found]:
        """The addresses of a host. Raises: OSError: the name is unknown; TimeoutError: no result now or before."""
        if (numeric := self.numeric(host, port)) is not None:
            return numeric
        key = host, port
        with self._lock:
            search = self._searches.get(key)
            if search is None:
                search = _Search()
                try:
                    threading.Thread(target=self._search, args=(key, search), daemon=True).start()
                except RuntimeError as error:
                    raise OSError(errno.EAGAIN, f"no thread can look up {host}") from error
                self._searches[key] = search  # the thread removes it, and needs the lock for that
        if not search.is_over.wait(seconds):
            if (known := self._known.get(key)) is not None:
                return known
            raise TimeoutError(f"the address of {host} was not found in time")
        if search.error is not None:
            raise search.error
        return search.found

    def _search(self, key: tuple[str, int], search: _Search) -> None:
        host, port = key
        search.error = OSError(f"the search for {host!r} failed")
        try:
            search.found = self._look_up(host, port, type=socket.SOCK_STREAM)
            search.error = None
        except OSError as error:
            search.error = error
        except UnicodeError as error:
            search.error = OSError(f"{host!r} is not a name of a host: {error}")
        finally:
            with self._lock:
                if search.error is None:
                    self._known[key] = search.found
                del self._searches[key]
            search.is_over.set()
