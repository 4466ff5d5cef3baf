"""A pytest plugin for the test suites of clients, which directs them to our broker only.

`suites` copies this file out of the package and names it with `-p`. It may import pytest and the standard library, and
in a fixture the modules of the suite. Its options are environment variables:

    PEER_PORT       port of the broker on 127.0.0.1
    PEER_DESELECT   tests to skip: regular expressions, one per line, searched in the node id
    PEER_SECONDS    after this time the suite ends with the current test, and writes its results
    PEER_STAND_IN   dotted name of a suite's docker module, which is then replaced by `_docker_module`
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

LOOPBACK = "127.0.0.1"
PORT = int(os.environ.get("PEER_PORT", "0"))
DEADLINE = time.monotonic() + float(os.environ.get("PEER_SECONDS", "inf"))
PORT_CLOSED = 1  # the suites' port for TLS, which is refused on loopback


@dataclass
class ContainerInfo:
    """A container, as in aio-pika's and aiormq's suites."""

    id: str
    ports: dict[str, int]
    host: str


BROKER = ContainerInfo("peer", {"5672/tcp": PORT, "5671/tcp": PORT_CLOSED}, LOOPBACK)


class DockerClient:
    """A client of docker whose containers are all our broker. Stopping, restarting or inspecting one fails the test."""

    def __init__(self, docker_host_info: object = None) -> None:
        pass

    def run(self, image: str, ports: list[str], environment: dict[str, str] | None = None) -> ContainerInfo:
        return BROKER

    def kill(self, container_id: str) -> None:
        """Do nothing: tests call it at their end."""

    def remove(self, container_id: str) -> None:
        pass

    def _request(self, *arguments: object) -> None:
        raise NotImplementedError("this broker is not a container")


def _docker_module(name: str) -> ModuleType:
    """The module with the names that aio-pika's conftest imports from its docker module."""
    module = ModuleType(name)
    module.__dict__.update(
        ContainerInfo=ContainerInfo,
        DockerClient=DockerClient,
        DockerHostInfo=object,
        DockerNotAvailableError=type("DockerNotAvailableError", (Exception,), {}),
        check_docker_available=lambda: None,
    )
    return module


def _stay_on_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook that refuses to resolve names of other machines and to connect to them."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in ("socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    else:
        return
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if name in (None, "", "localhost", "0.0.0.0", "::"):
        return
    try:
        if ipaddress.ip_address(name).is_loopback:
            return
    except ValueError:
        pass
    raise OSError(errno.ENETUNREACH, f"{name} is not this machine; the suite runs on loopback alone")


sys.addaudithook(_stay_on_loopback)
if _name := os.environ.get("PEER_STAND_IN"):
    sys.modules[_name] = _docker_module(_name)


# For aiormq, whose sdist lacks the conftest with these two fixtures. aio-pika's own ones have precedence.
@pytest.fixture(scope="session")
def rabbitmq_container() -> ContainerInfo:
    return BROKER


@pytest.fixture(scope="session")
def amqp_direct_url() -> Any:
    from yarl import URL

    return URL.build(scheme="amqp", user="guest", password="guest", path="//", host=LOOPBACK, port=PORT)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    patterns = [re.compile(line) for line in os.environ.get("PEER_DESELECT", "").splitlines() if line]
    left_out = [item for item in items if any(pattern.search(item.nodeid) for pattern in patterns)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _within_the_time(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if time.monotonic() > DEADLINE:
        request.session.shouldstop = "the suite is over its time"
