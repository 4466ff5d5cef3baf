"""Requests of web pages from other origins. They may change something only if their origin is listed.

Source: management page 20 (CSRF, CORS).
"""

from .http_messages import Request
from .options import ConsoleOptions

#: In the list of origins: lets any page read what needs no login by the browser. It lets no page change anything.
ANY = "*"
#: Headers that scripts of other origins may send. Seconds for which a browser caches this permission.
_HEADERS, _MAX_AGE = "accept, authorization, content-type, x-requested-with, x-reason, x-vhost", "1800"


def may_change(request: Request, options: ConsoleOptions) -> bool:
    """Whether the origin of a request may change something. Unlisted pages must not do so with the browser's login."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is not None:
        host = request.headers.get("host", "")
        is_listed = origin in options.origins and origin != ANY
        return is_listed or origin.partition("://")[2].lower() == host.lower()
    return site is None or site in ("same-origin", "none")


def cors_headers(request: Request, allow: str | None, options: ConsoleOptions) -> tuple[tuple[str, str], ...]:
    """The headers that let a page of another origin read the answer. `allow`: methods of the path, for a preflight."""
    origin = request.headers.get("origin")
    if origin is None or not options.origins:
        return ()
    found: list[tuple[str, str]] = []
    if origin in options.origins and origin != ANY:
        found += [("access-control-allow-origin", origin), ("access-control-allow-credentials", "true")]
    elif ANY in options.origins:
        found += [("access-control-allow-origin", ANY)]
    else:
        return ()
    if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
        found += [
            ("access-control-allow-methods", allow or ""),
            ("access-control-allow-headers", _HEADERS),
            ("access-control-max-age", _MAX_AGE),
        ]
    return tuple(found)
