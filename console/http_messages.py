"""HTTP messages: requests, answers, and refusals. Source: management page 1.4, 1.5."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

from ..engine import User, address_origin

T = TypeVar("T")

#: Headers of every answer. Source: management page 1.4, 20.
HEADERS = (
    ("cache-control", "no-cache, no-store"),
    ("vary", "accept, accept-encoding, origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
)
#: Maximum parameters of a query.
PARAMETERS_MAX = 200
#: The only content type that some routes accept.
JSON_MEDIA = ("application/json",)
JSON_TYPE = ("content-type", "application/json")
CHALLENGE = ("www-authenticate", 'Basic realm="RabbitMQ Management"')


class Work(Enum):
    """Kinds of work, each with its own limit on concurrent requests."""

    REQUEST = auto()
    METRICS = auto()
    PROBE = auto()  # a health check


@dataclass(slots=True, frozen=True)
class Peer:
    """The client. `address`: without a port. `is_secure`: it uses TLS, to this node or to a trusted proxy.

    `node`: the node of the cluster to which the client is connected; empty: this one.
    """

    address: str
    is_loopback: bool
    is_secure: bool = False
    node: str = ""

    @property
    def origin(self) -> str:
        """The origin by which connections and failed logins are counted: this machine, an IPv4 address, or an IPv6 /64.

        A host that is not an IP address is its own origin.
        """
        return address_origin(self.address, is_loopback=self.is_loopback)


@dataclass(slots=True, frozen=True)
class Request:
    """A request. `path`: percent-encoded, as sent. `headers`: by lower-case names; if one is repeated, the last.

    `user`: set when the login is checked. `names`: the variable parts of the path, decoded.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    peer: Peer
    body: bytes = b""
    user: User = field(default=User(""))
    names: Mapping[str, str] = field(default_factory=dict)
    raw_query: str = ""  # as sent

    def flag(self, name: str) -> bool:
        """Whether a parameter of the query is `true`."""
        return self.query.get(name) == "true"


@dataclass(slots=True, frozen=True)
class Answer:
    """An answer. `value`: to be encoded as JSON, unless there is a `body` or a `stream`; None: nothing to encode.

    `body`: a long one is a list of parts, which are never joined. `stream`: sent instead of a body, but not for HEAD.
    """

    status: int
    value: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | list[bytes] | None = None
    stream: "Stream | None" = None


class Stream(Protocol):
    """A body that is sent piece by piece while the connection is open. `has_piece`: the next piece is ready."""

    has_piece: bool

    def piece(self) -> bytes | None:
        """The next octets, b"" if there are none yet; None: the stream ends."""


class Refusal(Exception):
    """Answers a request with an error.

    `error`, `reason`: RabbitMQ's texts. Without `error` the answer has no body. `detail`: our text, such as which
    permission is missing.
    """

    def __init__(
        self,
        status: int,
        error: str = "",
        reason: Any = "",
        headers: tuple[tuple[str, str], ...] = (),
        *,
        detail: str = "",
    ) -> None:
        super().__init__(f"{status} {error} {reason}")
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers
        self.detail = detail

    def answer(self) -> Answer:
        """The answer to send."""
        value = {"error": self.error, "reason": self.reason} if self.error else None
        if value is not None and self.detail:
            value["detail"] = self.detail
        return Answer(self.status, value, self.headers)


def bad_request(reason: Any) -> Refusal:
    """A refusal with status 400 and RabbitMQ's error for that."""
    return Refusal(400, "bad_request", reason)


def not_found() -> Refusal:
    """A refusal with status 404 and RabbitMQ's text for unknown paths and objects."""
    return Refusal(404, "Object Not Found", "Not Found")


def existing(found: T | None) -> T:
    """The object that a path names. Raises: Refusal, with status 404, if it is None."""
    if found is None:
        raise not_found()
    return found


def not_authorised(reason: str, detail: str = "") -> Refusal:
    """A refusal with status 401 for a user without the permission: RabbitMQ has no 403 here (management page 1.5)."""
    return Refusal(401, "not_authorised", reason, detail=detail)


def access_refused(detail: str) -> Refusal:
    """RabbitMQ's refusal where AMQP would refuse the user or find no virtual host. `detail`: the reason, in words."""
    return not_authorised("Access refused.", detail)


def query_of(text: str) -> dict[str, str]:
    """The parameters of a query; of duplicates, the first one. `text`: after the question mark.

    Raises: Refusal, if there are more than `PARAMETERS_MAX`, or one is not UTF-8.
    """
    found: dict[str, str] = {}
    try:
        for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="strict"):
            found.setdefault(name, value)
    except UnicodeDecodeError:
        raise bad_request("the query has octets that are not UTF-8") from None
    except ValueError:
        raise bad_request("too many parameters") from None
    return found
