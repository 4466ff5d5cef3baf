"""The clients whose test suites are run, each pinned to an sdist by its hash."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suite:
    """The test suite of a client.

    `requires`: packages beside the client and pytest, pinned where the figures depend on them. `arguments`: select the
    tests. `deselect`: regular expressions, searched in pytest's node ids, each with its reason in a comment.
    `stand_in`: the suite's docker module, which `client_plugin` replaces.
    """

    name: str
    version: str
    sha256: str
    arguments: tuple[str, ...]
    requires: tuple[str, ...] = ()
    deselect: tuple[str, ...] = ()
    stand_in: str = ""
    test_seconds_max: int = 60
    suite_seconds_max: int = 1800


PYTEST = ("pytest==9.2.0", "pytest-timeout==2.4.0")

# fmt: off
_SUITES = (
    Suite("aio-pika", "10.2.1", "e4f77afd9179a3cca5a904c3b0a1190256a36d9f90650db908b1b2245eb27487",
        arguments=("tests", "--ignore=tests/test_amqps.py"),  # the same tests again over TLS
        requires=("aiormq==7.2.4", "pamqp==4.0.1", "aiomisc==18.0.37", "aiomisc-pytest==2.0.0", "shortuuid==1.0.13"),
        stand_in="tests.docker_client",
        suite_seconds_max=5400),  # six minutes on a quiet machine, ten times that on a busy one
    Suite("aiormq", "7.2.4", "5fd20bb9583d73de85572198496b65cf028f27527c1733c9840d458e0b40e8fa",
        arguments=("tests",),
        requires=("pamqp==4.0.1", "aiomisc==18.0.37", "aiomisc-pytest==2.0.0"),
        deselect=("amqps",),  # the same tests again over TLS
        test_seconds_max=130),  # one test opens every channel of a connection and gives the broker 120 s
    Suite("kombu", "5.7.0", "31e62fdfd2381caa3422f8e02b84a491d9a2180ddda74507b57f4cb1e1c2c2c9",
        arguments=("t/integration/test_py_amqp.py",),
        requires=("amqp==5.4.2", "vine==5.1.0")),
    Suite("amqp", "5.4.2", "9362660c4a31150cf18e78cae2ce8aa1e929fc6c6739e69f6dd5dbea9c3edc82",
        arguments=("t/integration",),
        requires=("vine==5.1.0",),
        deselect=("[Tt]ls",)),  # two connect to a public host, the others need certificates that the sdist lacks
    Suite("rabbitpy", "3.0.2", "9322a1e82b4d3d1afc21a617ce0b1e86b921174328735e7d54abc9525805ae5c",
        arguments=("tests",),
        requires=("pamqp==4.0.1", "python-dotenv==1.2.4")),
)
# fmt: on
SUITES = {suite.name: suite for suite in _SUITES}
