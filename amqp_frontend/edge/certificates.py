"""The names in a client's verified certificate: the user that it logs in (SASL EXTERNAL), and facts for operators.

Source: RabbitMQ's `ssl_cert_login_from`, and its implementation; RFC 4514 for distinguished names.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...engine import PeerCertificate

#: Names of attributes in OpenSSL -> in a distinguished name.
_SHORT = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET",
    "userId": "UID",
}

#: Values of `ssl-cert-login-san-type` -> OpenSSL's names of kinds of alternative names.
_SAN_KINDS = {"dns": "DNS", "email": "email", "uri": "URI", "ip": "IP Address"}

#: Result of `ssl.SSLSocket.getpeercert()`.
Certificate = Mapping[str, Any]


def user_name(certificate: Certificate, login_from: str, san_type: str = "dns", san_index: int = 0) -> str | None:
    """The name of the user, None when the certificate has no such name.

    Args: login_from: "common-name" (RabbitMQ joins several by commas), "distinguished-name", or
        "subject-alternative-name". Of the alternative names of `san_type`, `san_index` (from 0) is taken.
    """
    if login_from == "distinguished-name":
        return distinguished_name(certificate) or None
    if login_from == "subject-alternative-name":
        kind = _SAN_KINDS[san_type]
        names = [value for found, value in certificate.get("subjectAltName", ()) if found == kind]
        return names[san_index] if san_index < len(names) else None
    common_names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return ",".join(common_names) or None


def distinguished_name(certificate: Certificate, field: str = "subject") -> str:
    """The subject, or the issuer, as RFC 4514 writes it: the most specific part first."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in certificate.get(field, ())
    ]
    return ",".join(reversed(parts))


def certificate_facts(certificate: Certificate) -> PeerCertificate:
    """The facts of a certificate for lists of connections, in RabbitMQ's form."""
    return PeerCertificate(
        distinguished_name(certificate), distinguished_name(certificate, "issuer"), _validity(certificate)
    )


def _validity(certificate: Certificate) -> str:
    """`2026-01-01T00:00:00Z - 2027-01-01T00:00:00Z`; empty if a time is missing."""
    try:
        times = [ssl.cert_time_to_seconds(certificate[key]) for key in ("notBefore", "notAfter")]
        return " - ".join(f"{datetime.fromtimestamp(one, UTC):%Y-%m-%dT%H:%M:%SZ}" for one in times)
    except (KeyError, ValueError, TypeError, OverflowError, OSError):
        return ""


def _escaped(value: str) -> str:
    """Escape as RabbitMQ does: special characters with a backslash, octets of UTF-8 below 32 or above 125 as \\HH."""
    octets = value.encode("utf-8", "surrogateescape")
    written = "".join(
        f"\\{octet:02X}"
        if octet < 32 or octet >= 126
        else ("\\" + chr(octet) if chr(octet) in '"+,;<>\\' else chr(octet))
        for octet in octets
    )
    if written.endswith(" "):
        written = written[:-1] + "\\ "
    return "\\" + written if written[:1] in (" ", "#") else written
