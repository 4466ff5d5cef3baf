"""pytest fixtures for a broker: `amqp_broker`, `amqp_url` and others.

Every run of pytest loads it, by the entry point `pytest11`; so large modules are imported only when a test asks for
a broker. docs/testing-your-application.md shows how to use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from linecache import getline
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from .testing import RunningBroker
    from .testing.workers import Workers

#: The section of a test's report that lists its leaks. (Reports also come from xdist's workers.)
_LEAKS = "left behind in the broker"
#: Keyword of the marker -> its values.
_WORDS: dict[str, tuple[object, ...]] = {
    "clock": ("real", "virtual"),
    "leaks": (True, False),
    "reset": (True, False),
}
#: Fixtures of wider scopes that use the broker now; while there are any, the broker is not reset.
_HELD: pytest.StashKey[list[str]] = pytest.StashKey()
#: The directory of the frames that are cut from tracebacks.
_PACKAGE = Path(__file__).parent
#: Maximum tests in the list of leaks at the end of a run; with -v there is no limit.
LEAKY_TESTS_MAX = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--amqp-url`, `--amqp-fail-on-leak`, and the same keys in the ini file."""
    group = parser.getgroup("leveret", "an AMQP broker for tests (leveret)")
    group.addoption(
        "--amqp-url",
        metavar="URL",
        help="run on this broker instead of one of our own; tests that look into the broker skip",
    )
    group.addoption(
        "--amqp-fail-on-leak",
        action="store_true",
        help="a test that leaves connections, consumers or unacked messages behind is an error",
    )
    parser.addini("amqp_fail_on_leak", "the same as --amqp-fail-on-leak", type="bool", default=False)
    parser.addini("amqp_leaked_queues", "queues that a test leaves behind are leaks, too", type="bool", default=False)
    parser.addini("amqp_clock", 'how time passes in the broker: "real" (the default) or "virtual"', default="real")
    parser.addini("amqp_config", "configuration file of the broker, from the root directory", default="")
    parser.addini("amqp_quiet_ms", "how long clients may take to react before virtual time advances", default="")
    parser.addini("amqp_profile", "whose semantics the broker follows", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'amqp(clock="real"|"virtual", leaks=False, reset=True): how this test, or module, wants its broker; leaks=True '
        "allows them, reset=False leaves other virtual hosts alone",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker is invalid, even if it uses no broker."""
    for marker in item.iter_markers("amqp"):
        if problem := _problem_of(marker):
            pytest.fail(f"@pytest.mark.amqp: {problem}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Cut our own frames from tracebacks of intended errors, up to the test's call; `--full-trace` shows them."""
    if call.excinfo is None or item.config.getoption("fulltrace"):
        return
    entries = []
    entry: TracebackType | None = call.excinfo.tb
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    files = [Path(each.tb_frame.f_code.co_filename) for each in entries]
    if not _is_ours(files[-1]) or not getline(str(files[-1]), entries[-1].tb_lineno).lstrip().startswith("raise "):
        return
    count = next(index for index, file in enumerate(files) if _is_ours(file))
    while count and files[count - 1].name == "contextlib.py":  # `with start_broker(...)`
        count -= 1
    if not count or "_pytest" in files[count - 1].parts:
        return
    kept: TracebackType | None = None
    for each in reversed(entries[:count]):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    if kept is not None:
        call.excinfo.traceback = type(call.excinfo.traceback)(kept)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the objects that tests left behind in their virtual hosts."""
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
    """The value of `amqp_broker` with `--amqp-url`: it has only an address, and skips a test that asks for more."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        from .testing import RunningBroker

        if not hasattr(RunningBroker, name) and name not in ("clock", "default_vhost", "runtime", "recorder", "thread"):
            from .settings.faults import nearest

            raise AttributeError(f"amqp_broker has no attribute {name!r}{nearest(name, dir(RunningBroker))}")
        pytest.skip(f"amqp_broker.{name} looks into the broker, and --amqp-url names one that can't be looked into")


@pytest.fixture(scope="session")
def _amqp_process_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker | RealBroker]:
    """The broker of the whole run, one for each xdist worker."""
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
        config.stash[_HELD] = []
        yield broker


@pytest.fixture(scope="session")
def amqp_session_broker(
    request: pytest.FixtureRequest, _amqp_process_broker: RunningBroker | RealBroker
) -> RunningBroker | RealBroker:
    """The same broker for fixtures of the whole run. After it, tests reset only their own virtual hosts."""
    if not isinstance(_amqp_process_broker, RealBroker):
        request.config.stash[_HELD].append("amqp_session_broker")
    return _amqp_process_broker


@pytest.fixture(scope="session")
def amqp_session_url(amqp_session_broker: RunningBroker | RealBroker) -> str:
    """amqp://... with the virtual host `/`."""
    return amqp_session_broker.url


@pytest.fixture(scope="module")
def amqp_module_broker(
    request: pytest.FixtureRequest, _amqp_process_broker: RunningBroker | RealBroker
) -> Iterator[RunningBroker | RealBroker]:
    """The broker for fixtures of a module, with the module's own virtual host, which its tests do not use."""
    yield from _broker_of(request, _amqp_process_broker, "module " + request.node.name, holds=True)


@pytest.fixture(scope="module")
def amqp_module_url(amqp_module_broker: RunningBroker | RealBroker) -> str:
    """amqp://... with the module's own virtual host."""
    return amqp_module_broker.url


@pytest.fixture
def amqp_broker(
    request: pytest.FixtureRequest, _amqp_process_broker: RunningBroker | RealBroker
) -> Iterator[RunningBroker | RealBroker]:
    """A fresh broker for each test, with the test's own virtual host as its default.

    While fixtures of a wider scope use the broker, only that virtual host is new.
    """
    yield from _broker_of(request, _amqp_process_broker, vhost_name(request.node.name), holds=False)


@pytest.fixture
def amqp_url(amqp_broker: RunningBroker | RealBroker) -> str:
    """amqp://... with the test's own virtual host; with `--amqp-url` that URL."""
    return amqp_broker.url


@pytest.fixture
def amqp_worker(amqp_broker: RunningBroker | RealBroker) -> Iterator[Workers]:
    """A call starts a worker, a function in a thread or a command, that ends with the test: `testing.workers`."""
    yield from _workers(amqp_broker)


@pytest.fixture(scope="module")
def amqp_module_worker(amqp_module_broker: RunningBroker | RealBroker) -> Iterator[Workers]:
    """Like `amqp_worker`, for a module and its virtual host."""
    yield from _workers(amqp_module_broker)


def _workers(broker: RunningBroker | RealBroker) -> Iterator[Workers]:
    if isinstance(broker, RealBroker):
        pytest.skip("workers need a broker that says when they consume, and --amqp-url names another")
    from .testing.workers import Workers

    with ExitStack() as stack:
        yield Workers(broker, stack.enter_context)


def _broker_of(
    request: pytest.FixtureRequest, shared: RunningBroker | RealBroker, vhost: str, *, holds: bool
) -> Iterator[RunningBroker | RealBroker]:
    """The broker of the run with a virtual host for a test, or for a module (`holds`: no test resets it meanwhile)."""
    options = _marker_options(request)
    if isinstance(shared, RealBroker):
        if "clock" in options:
            pytest.skip("this test sets the broker's clock, and --amqp-url names one that has none to set")
        yield shared
        return
    held, clock = request.config.stash[_HELD], options.get("clock")
    keeps_objects = bool(held) or not options.get("reset", True)
    if not keeps_objects:
        shared.reset(clock=clock)
    elif clock not in (None, shared.clock.mode):
        because = f"{held[-1]} is in use" if held else "of reset=False"
        pytest.fail(
            f"@pytest.mark.amqp(clock={clock!r}): time can't change here, because {because}, on {shared.clock.mode} "
            "time; mark the whole module, or set amqp_clock in the ini file",
            pytrace=False,
        )
    broker: RunningBroker
    if keeps_objects or holds:
        broker = shared.at(vhost)
    else:
        broker, shared.default_vhost = shared, vhost
        broker.vhost()
    if holds:
        held.append("amqp_module_broker")
    yield broker
    if holds:
        held.remove("amqp_module_broker")
    leaks = broker.leaks(queues=request.config.getini("amqp_leaked_queues"))
    if keeps_objects or holds:
        broker.vhost().delete()
    else:
        shared.default_vhost = "/"
    if leaks and not options.get("leaks", False):
        _report(request, leaks)


# -- helpers --------------------------------------------------------------------------------------------------------


def vhost_name(test: str) -> str:
    """A name for a virtual host that contains the test's name."""
    return "test " + test[:120]


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"{key}: {text!r} is not a number of milliseconds") from None


def _marker_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The keywords of a test's `amqp` markers; of two, the one nearer to the test has precedence."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("amqp"))):
        options.update(marker.kwargs)
    return options


def _is_ours(file: Path) -> bool:
    return _PACKAGE in file.parents


def _problem_of(marker: pytest.Mark) -> str:
    """The reason why a marker is invalid; "": it is valid."""
    from .settings.faults import nearest

    if marker.args:
        return f"{marker.args[0]!r} has no keyword, expected one of {', '.join(_WORDS)}"
    for key, value in marker.kwargs.items():
        if key not in _WORDS:
            return f"unknown keyword {key!r}{nearest(key, _WORDS)}, expected one of {', '.join(_WORDS)}"
        allowed = _WORDS[key]
        if not any(type(value) is type(one) and value == one for one in allowed):
            hint = nearest(value, map(str, allowed)) if isinstance(value, str) else ""
            return f"{key}: {value!r} is invalid{hint}, expected {' or '.join(map(repr, allowed))}"
    return ""


def _report(request: pytest.FixtureRequest, leaks: list[str]) -> None:
    config = request.config
    text = "\n".join(leaks)
    if config.getoption("--amqp-fail-on-leak") or config.getini("amqp_fail_on_leak"):
        pytest.fail(f"left behind in the broker:\n{text}", pytrace=False)
    if isinstance(request.node, pytest.Item):
        request.node.add_report_section("teardown", _LEAKS, text)
    else:  # a module has no report
        warnings.warn(pytest.PytestWarning(f"{request.node.nodeid}: {_LEAKS}:\n{text}"), stacklevel=2)
