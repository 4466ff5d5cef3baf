"""Headers of answers that depend on the client or on the time. Source: management page 1.4, 20."""

import time

from .http_messages import Answer, Request
from .options import ConsoleOptions
from .origins import cors_headers

#: Makes browsers use only TLS for this host, for a year.
HSTS = ("strict-transport-security", "max-age=31536000")


def headers_for(request: Request, answer: Answer, options: ConsoleOptions) -> tuple[tuple[str, str], ...]:
    """The headers for CORS and HSTS that an answer needs."""
    found = cors_headers(request, dict(answer.headers).get("allow"), options)
    return (*found, HSTS) if request.peer.is_secure else found


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(seconds: float) -> str:
    """A date in HTTP's format, in seconds since 1970. `strftime` would use the locale's words."""
    at = time.gmtime(seconds)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year}"
    return f"{day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"


def clean(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers with control characters replaced, since names of objects may contain these."""
    return [(name, value if value.isascii() and value.isprintable() else _printable(value)) for name, value in headers]


def _printable(value: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in value)
