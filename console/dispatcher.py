"""Routes of the API, and the dispatcher that finds the route of a path.

In a pattern like `queues/V/Q/get`, words in capitals are variables. Literal words have precedence over variables. A
path is split before its segments are decoded, so that names may contain %2F. One trailing slash is allowed. An empty
segment is the default exchange where an exchange is expected, as rabbitmqadmin 2 sends it; elsewhere it is an error.
Source: management page 1.1, 1.2.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from urllib.parse import unquote

from .http_messages import Request, bad_request

#: The methods, in their order in the header `allow`.
METHODS = ("HEAD", "GET", "PUT", "POST", "DELETE", "OPTIONS")
#: The name of the default exchange in paths.
DEFAULT_EXCHANGE = "amq.default"
_NO_OCTET = re.compile("%(?![0-9A-Fa-f]{2})")
_EXCHANGES = frozenset({"X", "SOURCE", "TARGET"})
#: Variable in the path of a command -> names of arguments; the one that the command has gets the value.
_PATH_ARGUMENTS = {"V": ("vhost", "name"), "Q": ("queue",), "X": ("exchange",), "U": ("user", "name"), "N": ("node",)}


class Level(Enum):
    """Which users may use a route (management page 1.5)."""

    OPEN = auto()  # everybody, without a login
    ANY = auto()  # users with any of the four tags
    VHOST = auto()  # users with permissions in the path's virtual host, and administrators
    MONITORING = auto()  # users with the tag monitoring or administrator
    POLICYMAKER = auto()  # users with the tag policymaker or administrator; with a virtual host in the path, VHOST, too
    ADMINISTRATOR = auto()


#: Serves a request. Returns the answer, or the steps to it.
Handler = Callable[[Any, Request], Any]


@dataclass(slots=True, frozen=True)
class Action:
    """Serves one method of a route.

    `content_types`: those that are accepted, others get 415; empty: all are.
    `may_stream`: it answers with a stream of events if the client accepts one.
    `is_probe`: it is a health check. `reads`: it changes nothing, so it is cancelled when its client has gone.
    """

    level: Level
    handler: Handler
    content_types: tuple[str, ...] = ()
    may_stream: bool = False
    is_probe: bool = False
    reads: bool = False


@dataclass(slots=True, frozen=True)
class Route:
    """The actions of a pattern of paths, by method. `has_head`: HEAD is answered like GET."""

    pattern: str
    actions: Mapping[str, Action]
    has_head: bool = True

    @property
    def allow(self) -> str:
        """The methods, as the header `allow` lists them."""
        known = {*self.actions, "OPTIONS"}
        if self.has_head and "GET" in known:
            known.add("HEAD")
        return ", ".join(method for method in METHODS if method in known)

    def action(self, method: str) -> Action | None:
        """The action of a method; None: the route does not have the method."""
        return self.actions.get("GET" if method == "HEAD" and self.has_head else method)


@dataclass(slots=True, frozen=True)
class Http:
    """The route of a command. Its arguments are the variables of the path, and the body or query.

    `status`: of the answer, or a function from the result to it. The answer contains the result if it is 200.
    """

    method: str
    path: str
    level: Level
    status: int | Callable[[Any], int] = 200

    def path_arguments(self, arguments: Collection[str]) -> dict[str, str]:
        """The variables of the path -> the command's arguments."""
        found = {}
        for word in filter(str.isupper, self.path.split("/")):
            name = next((name for name in _PATH_ARGUMENTS.get(word, (word.lower(),)) if name in arguments), None)
            if name is not None:
                found[word] = name
        return found

    def path_of(self, arguments: Collection[str]) -> str:
        """The path, with arguments in braces under the names that they have as keys of a body."""
        named = self.path_arguments(arguments)
        words = (f"{{{named[word].replace('-', '_')}}}" if word in named else word for word in self.path.split("/"))
        return "/".join(words)


@dataclass(slots=True, frozen=True)
class CommandRoute:
    """A command with a route. `arguments`: name -> kind, as in usage lines. `reads`: it changes nothing."""

    words: str
    http: Http
    arguments: Mapping[str, str]
    reads: bool = False


@dataclass(slots=True)
class Dispatcher:
    """Finds routes. They are kept by their number of segments, those with the earliest literal words first."""

    _routes: dict[int, list[tuple[tuple[str, ...], Route]]] = field(default_factory=dict)

    def add(self, routes: list[Route]) -> None:
        for route in routes:
            words = tuple(route.pattern.split("/"))
            known = self._routes.setdefault(len(words), [])
            known.append((words, route))
            known.sort(key=lambda one: [word.isupper() for word in one[0]])

    def __iter__(self) -> Iterator[Route]:
        return iter([route for known in self._routes.values() for _, route in known])

    def find(self, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route of a raw path after `/api/`, and its variable parts; None: there is no such route.

        Raises: Refusal: a variable part is not percent-encoded UTF-8.
        """
        segments = path.split("/")
        if len(segments) > 1 and not segments[-1]:
            segments.pop()
        for words, route in self._routes.get(len(segments), ()):
            names = _match(words, segments)
            if names is not None:
                return route, names
        return None


def _name_of(text: str) -> str:
    """The name in a segment, without the NUL that a client has to add before the names `.` and `..`.

    Browsers would resolve the segments `.` and `..`, percent-encoded or not. A name of NULs and one or two dots is
    therefore sent with an additional NUL.
    """
    return text[1:] if text.startswith("\0") and text.strip("\0") in (".", "..") else text


def _decoded(segment: str) -> str:
    """A segment without percent-encoding. Raises: Refusal.

    Octets that are not UTF-8 are not replaced: the request would be about an object whose name has U+FFFD.
    """
    if _NO_OCTET.search(segment):
        raise bad_request("the path has a % that is not followed by two hexadecimal digits")
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise bad_request("the path has octets that are not UTF-8") from None


def _match(words: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    names = {}
    for word, segment in zip(words, segments):
        if word.isupper():
            if not segment and word not in _EXCHANGES:
                return None
            value = _name_of(_decoded(segment))
            names[word] = "" if word in _EXCHANGES and value == DEFAULT_EXCHANGE else value
        elif word != segment:
            return None
    return names
