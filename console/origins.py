"""Pages elsewhere: what they may ask, and that they change nothing unless they are listed.

Source: management page 20 (CSRF, CORS).
"""

from .messages import Request
from .options import ConsoleOptions

#: All pages may ask, without the browser's login, and none may change anything.
ANY = "*"
#: What a script may send beside what every page may, and for how long a browser remembers the answer, in seconds.
_HEADERS, _MAX_AGE = "accept, authorization, content-type, x-requested-with, x-reason, x-vhost", "1800"


def may_change(request: Request, options: ConsoleOptions) -> bool:
    """Whether a request may change something: a page elsewhere must not do so with a browser's login."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is not None:
        host = request.headers.get("host", "")
        is_listed = origin in options.origins and origin != ANY
        return is_listed or origin.partition("://")[2].lower() == host.lower()
    return site is None or site in ("same-origin", "none")


def cross_origin(request: Request, allow: str | None, options: ConsoleOptions) -> tuple[tuple[str, str], ...]:
    """What lets the page that asks read the answer. `allow`: the methods of the path, where a browser asks for them
    beforehand."""
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
