"""pytest fixtures for a broker of one's own: `amqp_broker` and `amqp_url`.

Registered under the entry point `pytest11`, so it is loaded in every run: nothing heavy is imported before a test asks
for a broker. docs/testing-your-application.md shows how to use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from .testing import RunningBroker

#: The section of a test's report that names its leaks: reports come from xdist's workers, too.
_LEAKS = "left behind in the broker"
#: So many tests are named at the end of a run; all of them with -v.
LEAKY_TESTS_MAX = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--amqp-url`, `--amqp-fail-on-leak`, and the same in the ini file."""
    group = parser.getgroup("leveret", "an AMQP broker for tests (leveret)")
    group.addoption(
        "--amqp-url",
        metavar="URL",
        help="run on this broker instead of one of our own; tests that look into the broker skip",
    )
    group.addoption(
        "--amqp-fail-on-leak",
        action="store_true",
        help="a test that leaves connections, consumers, unacked messages or queues behind is an error",
    )
    parser.addini("amqp_fail_on_leak", "the same as --amqp-fail-on-leak", type="bool", default=False)
    parser.addini("amqp_clock", 'how time passes in the broker: "real" (the default) or "virtual"', default="real")
    parser.addini("amqp_config", "configuration file of the broker, from the root directory", default="")
    parser.addini("amqp_quiet_ms", "how long clients may take to react before virtual time goes on", default="")
    parser.addini("amqp_profile", "whose semantics the broker follows", default="")


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers", 'amqp(clock="real"|"virtual", leaks=False): how this test wants its broker; leaks=True allows them'
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What tests left behind in their virtual hosts."""
    left = [
        (report.nodeid, text)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown" and report.passed
        for name, text in report.sections
        if _LEAKS in name
    ]
    if not left:
        return
    terminalreporter.section(_LEAKS, sep="-")
    shown = left if config.get_verbosity() > 0 else left[:LEAKY_TESTS_MAX]
    for nodeid, text in shown:
        terminalreporter.line(nodeid)
        for leak in text.splitlines():
            terminalreporter.line(f"  {leak}")
    if len(shown) < len(left):
        terminalreporter.line(f"... and {len(left) - len(shown)} more tests; -v names them")


# -- fixtures -------------------------------------------------------------------------------------------------------


class RealBroker:
    """What `amqp_broker` is with `--amqp-url`: an address. Whoever wants to look inside has their test skipped."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip(f"amqp_broker.{name} looks into the broker, and --amqp-url names one that can't be looked into")


@pytest.fixture(scope="session")
def amqp_session_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker | RealBroker]:
    """The broker of the whole run (one in each xdist worker), never reset by itself."""
    config = request.config
    url = config.getoption("--amqp-url")
    if url:
        yield RealBroker(url)
        return
    from .testing import QUIET_MS_DEFAULT, start_broker

    file, quiet_ms = config.getini("amqp_config"), config.getini("amqp_quiet_ms")
    with start_broker(
        clock=config.getini("amqp_clock"),
        config=config.rootpath / file if file else None,
        profile=config.getini("amqp_profile") or None,
        quiet_ms=_number("amqp_quiet_ms", quiet_ms) if quiet_ms else QUIET_MS_DEFAULT,
    ) as broker:
        yield broker


@pytest.fixture
def amqp_broker(
    request: pytest.FixtureRequest, amqp_session_broker: RunningBroker | RealBroker
) -> Iterator[RunningBroker | RealBroker]:
    """A broker as new for each test, with a virtual host of the test's own as its default one."""
    broker = amqp_session_broker
    if isinstance(broker, RealBroker):
        if "clock" in _wishes(request):
            pytest.skip("this test sets the broker's clock, and --amqp-url names one that has none to set")
        yield broker
        return
    wishes = _wishes(request)
    broker.reset(clock=wishes.get("clock"))
    broker.default_vhost = vhost_name(request.node.name)
    broker.vhost()
    yield broker
    leaks = broker.leaks()
    broker.default_vhost = "/"
    if leaks and not wishes.get("leaks", False):
        _tell(request, leaks)


@pytest.fixture
def amqp_url(amqp_broker: RunningBroker | RealBroker) -> str:
    """amqp://... with the test's own virtual host; with `--amqp-url` that URL as it is."""
    return amqp_broker.url


# -- helpers --------------------------------------------------------------------------------------------------------


def vhost_name(test: str) -> str:
    """A virtual host's name that says whose it is."""
    return "test " + test[:120]


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"{key}: {text!r} is no number of milliseconds") from None


def _wishes(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("amqp")
    return dict(marker.kwargs) if marker is not None else {}


def _tell(request: pytest.FixtureRequest, leaks: list[str]) -> None:
    config = request.config
    text = "\n".join(leaks)
    request.node.add_report_section("teardown", _LEAKS, text)
    if config.getoption("--amqp-fail-on-leak") or config.getini("amqp_fail_on_leak"):
        pytest.fail(f"left behind in the broker:\n{text}", pytrace=False)
