"""Addresses to listen on: parsing, binding, and their text form."""

import errno
import os
import socket
import stat
from dataclasses import field

from ..settings.frozen import frozen


class AddressError(ValueError):
    """The text is not an address; the message names the expected form."""


class AddressTaken(Exception):
    """The address cannot be bound; its message is one sentence for the operator."""


@frozen
class Address:
    """An address to listen on: `path` for a Unix socket, else host and port (0: any free one), with or without TLS.

    `is_http`: for HTTP, not for AMQP.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    is_tls: bool = False
    is_http: bool = False

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        scheme = f"{_SCHEMES[self.is_http]}s://" if self.is_tls else ""
        return f"{scheme}[{self.host}]:{self.port}" if ":" in self.host else f"{scheme}{self.host}:{self.port}"


@frozen
class ConsoleAddresses:
    """The addresses of the console and of its metrics.

    `is_named`, `are_metrics_named`: whether a user named the addresses. If so, one that is taken is an error; otherwise
    its listener is left out.
    """

    listen: list[Address]
    is_named: bool = False
    metrics: list[Address] = field(default_factory=list)
    are_metrics_named: bool = False


#: The schemes of AMQP, and of HTTP.
_SCHEMES = ("amqp", "http")


def parse_address(text: str, *, is_http: bool = False) -> Address:
    """Parse HOST:PORT, [IPV6]:PORT, both optionally after amqp:// or amqps://, or unix:PATH. Raises: AddressError.

    `is_http`: the schemes are http:// and https://.
    """
    scheme = _SCHEMES[is_http]
    if text.startswith("unix:"):
        if len(text) == len("unix:"):
            raise AddressError(f"{text!r}: a path is missing, expected unix:PATH")
        return Address(path=text.removeprefix("unix:"), is_http=is_http)
    is_tls = text.startswith(f"{scheme}s://")
    host, colon, port = text.removeprefix(f"{scheme}s://" if is_tls else f"{scheme}://").rstrip("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or "/" in host or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
        raise AddressError(f"{text!r}: expected HOST:PORT (port 0 to 65535), {scheme}s://HOST:PORT or unix:PATH")
    return Address(host=host or "127.0.0.1", port=int(port), is_tls=is_tls, is_http=is_http)


def bind(
    address: Address,
    backlog: int,
    hint: str = "perhaps another broker runs: take another port, or 0 for any free one",
    hint_if_foreign: str = "0.0.0.0 stands for all that it has",
) -> socket.socket:
    """Open a listening socket. Raises: AddressTaken.

    `hint`: advice if another process uses the address; `hint_if_foreign`: advice if this machine does not have it.
    """
    try:
        if address.path:
            return _bind_unix(address.path, backlog)
        host = address.host.encode() if address.host.isascii() else address.host  # str would import IDNA
        family, kind, protocol, _, name = socket.getaddrinfo(
            host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name != "nt":  # on Windows it would share the port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(name)
            listener.listen(backlog)
        except OSError:
            listener.close()
            raise
        return listener
    except UnicodeError:
        raise AddressTaken(f"cannot listen on {address}: this is not a name of a host") from None
    except OSError as error:
        why = str(error.strerror or error)
        if error.errno == errno.EADDRINUSE and not address.path:
            why += f"; {hint}"
        elif error.errno == errno.EADDRNOTAVAIL:
            why = f"this machine does not have that address; {hint_if_foreign}"
        raise AddressTaken(f"cannot listen on {address}: {why}") from None
    except ValueError:  # a path with an octet 0
        raise AddressTaken(f"cannot listen on {address}: this is not a path") from None


def _bind_unix(path: str, backlog: int) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise AddressTaken(f"cannot listen on unix:{path}: this system has no Unix sockets")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode) and not _is_answered(path):
            os.unlink(path)  # left by a killed process
        listener.bind(path)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def url_of(address: Address, listener: socket.socket) -> str:
    """The address as clients write it, with the real port."""
    if address.path:
        return f"unix:{address.path}"
    host, port = listener.getsockname()[:2]
    scheme = _SCHEMES[address.is_http] + ("s" if address.is_tls else "")
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"
