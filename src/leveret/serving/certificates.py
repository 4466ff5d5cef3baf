"""Expiry of certificates. The standard library decodes only verified ones, so their validity is parsed here.

Source: RFC 5280, 4.1: a certificate is a sequence whose first part is another sequence: version, serial number,
algorithm, issuer, validity (two times), and more.
"""

import base64
import binascii
from datetime import UTC, datetime

from .tls_files import CERTIFICATE

_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18
#: Parts of a certificate before its validity, without the version.
_BEFORE_VALIDITY = 3
#: Years with two digits are from 1950 to 2049.
_CENTURY_FROM = 50


def expiry_times(text: str) -> tuple[int, ...]:
    """The expiry of each certificate in a PEM file, in milliseconds of wall time; invalid ones are left out."""
    found = []
    for body in CERTIFICATE.findall(text):
        try:
            found.append(expiry_of(base64.b64decode("".join(body.split()), validate=True)))
        except (ValueError, binascii.Error, IndexError):
            continue
    return tuple(found)


def expiry_of(certificate: bytes) -> int:
    """The expiry of one certificate in DER form. Raises: ValueError, IndexError."""
    signed, _ = _unwrapped(_unwrapped(certificate, _SEQUENCE)[0], _SEQUENCE)
    if signed[0] == _VERSION:
        signed = _unwrapped(signed, _VERSION)[1]
    for _ in range(_BEFORE_VALIDITY):
        signed = _unwrapped(signed, signed[0])[1]
    validity, _ = _unwrapped(signed, _SEQUENCE)
    after = _unwrapped(validity, validity[0])[1]
    if after[0] not in (_UTC_TIME, _TIME):
        raise ValueError("no time")
    digits, _ = _unwrapped(after, after[0])
    written = digits.decode("ascii")
    if after[0] == _UTC_TIME:
        written = ("19" if int(written[:2]) >= _CENTURY_FROM else "20") + written
    return round(datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)


def _unwrapped(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first DER element, and the octets after that element. Raises: ValueError."""
    if data[0] != tag:
        raise ValueError("another kind of element")
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start])
    if start + size > len(data):
        raise ValueError("cut off")
    return data[start : start + size], data[start + size :]
