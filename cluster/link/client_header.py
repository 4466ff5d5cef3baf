"""The PROXY header, version 2, with which a follower tells the leader about a client that it passes on.

It has the client's address, the fields for TLS if the client's TLS ends at the follower, and the names in the client's
certificate. Source: haproxy's doc/proxy-protocol.txt.
"""

import ipaddress
import json
import logging
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("leveret.cluster")

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_PROXY = 0x21
_UNSPECIFIED, _STREAM4, _STREAM6 = 0x00, 0x11, 0x21
_FIELD_TLS, _FIELD_TLS_VERSION, _FIELD_TLS_CIPHER = 0x20, 0x21, 0x23
#: The first of the types for custom fields: parts of the certificate, as JSON.
_FIELD_CERTIFICATE = 0xE0
_HAS_TLS, _HAS_CERTIFICATE, _HAS_CERTIFICATE_IN_SESSION = 0x01, 0x02, 0x04
#: Octets of a header at most (the message `Client` has it in hex, in at most 4096 characters), and of a TLS text.
_SIZE_MAX, _TEXT_MAX = 2048, 255
_HEAD_OF_FIELD = 3
#: Parts of a certificate that are passed on, and those of them that name a user.
_PARTS = ("subject", "issuer", "subjectAltName", "notBefore", "notAfter")
_PARTS_OF_USERS = ("subject", "subjectAltName")


@dataclass(slots=True, frozen=True)
class ClientTls:
    """The client's TLS, which ends at the follower.

    certificate: the client's verified certificate, as `ssl` decodes it; its `_PARTS` are passed on. None: there is
    none. Empty: there is one, of unknown content.
    """

    version: str
    cipher: str
    certificate: Mapping[str, Any] | None = None


def client_header(
    source: tuple[str, int] | None, destination: tuple[str, int] | None, tls: ClientTls | None = None
) -> bytes:
    """The PROXY header of a client. `source`: (host, port); None: a Unix socket. `destination`: None: it is unknown."""
    family, addresses = _UNSPECIFIED, b""
    if source is not None:
        destination = destination or (_anywhere(source[0]), 0)
        hosts = [_address(host) for host, _ in (source, destination)]
        if all(host.version == 4 for host in hosts):
            family, packed = _STREAM4, [host.packed for host in hosts]
        else:
            family, packed = _STREAM6, [_as_six(host).packed for host in hosts]
        addresses = b"".join(packed) + struct.pack(">HH", source[1], destination[1])
    room = _SIZE_MAX - 16 - len(addresses)
    content = addresses + (_tls_fields(tls, room) if tls is not None else b"")
    return _SIGNATURE + struct.pack(">BBH", _PROXY, family, len(content)) + content


def _anywhere(host: str) -> str:
    """No particular address, of the family of `host`."""
    return "0.0.0.0" if _address(host).version == 4 else "::"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; IPv4 over an IPv6 socket as IPv4, or else the leader would not see that it is loopback."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _as_six(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv6Address:
    return address if isinstance(address, ipaddress.IPv6Address) else ipaddress.IPv6Address(f"::ffff:{address}")


def _tls_fields(tls: ClientTls, room: int) -> bytes:
    """The field for TLS, and one with the certificate's names, in at most `room` octets.

    Names that do not fit are left out altogether: a part of a name would be the name of another user.
    """
    certificate = tls.certificate
    flags = _HAS_TLS | (_HAS_CERTIFICATE | _HAS_CERTIFICATE_IN_SESSION if certificate is not None else 0)
    # The 0 says that the certificate, if any, was verified.
    content = struct.pack(">BI", flags, 0) + _field(_FIELD_TLS_VERSION, tls.version.encode()[:_TEXT_MAX])
    content += _field(_FIELD_TLS_CIPHER, tls.cipher.encode()[:_TEXT_MAX])
    fields = _field(_FIELD_TLS, content)
    if certificate is None:
        return fields
    # Some kinds of alternative names are nested tuples, which name no user.
    names = {**certificate, "subjectAltName": [one for one in certificate.get("subjectAltName", ()) if _is_text(one)]}
    for parts in (_PARTS, _PARTS_OF_USERS):
        octets = json.dumps({part: names[part] for part in parts if part in names}, separators=(",", ":")).encode()
        if _HEAD_OF_FIELD + len(octets) <= room - len(fields):
            return fields + _field(_FIELD_CERTIFICATE, octets)
    logger.warning("a client's certificate has more names than can be passed on: it cannot log in by EXTERNAL here")
    return fields


def _field(kind: int, octets: bytes) -> bytes:
    return struct.pack(">BH", kind, len(octets)) + octets


def client_tls(header: bytes) -> ClientTls | None:
    """The client's TLS, from a header that `client_header` made; None: it has no fields for TLS, or they are cut.

    Only for a header from a link, whose other side has proven to be a node.
    """
    if header[12:13] != bytes((_PROXY,)) or header[13:14] not in (b"\x11", b"\x21", b"\x00") or len(header) < 16:
        return None
    start = 16 + {_STREAM4: 12, _STREAM6: 36, _UNSPECIFIED: 0}[header[13]]
    outer = _fields(header[start:])
    if len(content := outer.get(_FIELD_TLS, b"")) < 5:
        return None
    inner = _fields(content[5:])
    version, cipher = (
        inner.get(kind, b"").decode(errors="replace") for kind in (_FIELD_TLS_VERSION, _FIELD_TLS_CIPHER)
    )
    has_certificate = bool(content[0] & (_HAS_CERTIFICATE | _HAS_CERTIFICATE_IN_SESSION))
    return ClientTls(version, cipher, _certificate(outer.get(_FIELD_CERTIFICATE, b"")) if has_certificate else None)


def _certificate(octets: bytes) -> dict[str, Any]:
    """The certificate in its field; empty if that is malformed."""
    try:
        parts = json.loads(octets)
        if not isinstance(parts, dict):
            return {}
        found: dict[str, Any] = {}
        for part in ("subject", "issuer"):
            found[part] = tuple(tuple(map(_pair, one)) for one in parts.get(part, ()))
        found["subjectAltName"] = tuple(map(_pair, parts.get("subjectAltName", ())))
        for part in ("notBefore", "notAfter"):
            if isinstance(value := parts.get(part), str):
                found[part] = value
    except (ValueError, TypeError, RecursionError):
        return {}
    return found


def _pair(value: object) -> tuple[str, str]:
    """Raises: ValueError."""
    if not isinstance(value, list) or not _is_text(value):
        raise ValueError("no pair of texts")
    return value[0], value[1]


def _is_text(pair: Sequence[object]) -> bool:
    return len(pair) == 2 and all(isinstance(one, str) for one in pair)


def _fields(octets: bytes) -> dict[int, bytes]:
    """The fields of a header: kind -> content. A field that is cut short is left out."""
    found = {}
    while len(octets) >= _HEAD_OF_FIELD:
        kind, size = struct.unpack_from(">BH", octets)
        octets = octets[_HEAD_OF_FIELD:]
        if len(octets) >= size:
            found[kind] = octets[:size]
        octets = octets[size:]
    return found
