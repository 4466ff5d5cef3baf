"""A reload replaces all that new connections read, and the files that are watched; a faulty one replaces nothing."""

import logging
from dataclasses import replace
from pathlib import Path

import trio
import trio.testing
from certificates import Authority
from certificates import configuration as configuration_with

from leveret.serving.file_watch import FileWatch, marks_of
from leveret.serving.logs import LogBudget
from leveret.serving.reloading import CurrentConfiguration, reload
from leveret.serving.tls_files import load_tls
from leveret.settings import Configuration, load_configuration


def loaded(text: str, file: str = "a.toml") -> tuple[Configuration, list[str]]:
    """A file with this text, and its faults."""
    configuration, faults = load_configuration([(file, text)])
    return configuration, [str(fault) for fault in faults]


def made(text: str = "") -> CurrentConfiguration:
    """What is in force at the start."""
    configuration, faults = loaded(text)
    assert not faults
    return CurrentConfiguration(configuration, load_tls(configuration))


def lines_per_second() -> int:
    """Of the frontend's log."""
    (budget,) = (one for one in logging.getLogger("leveret.amqp").filters if isinstance(one, LogBudget))
    return budget.lines_per_second


def test_options_of_the_next_connection_and_the_budget_of_lines_follow() -> None:
    """Each time; whoever waits for another configuration is woken."""
    current, woken = made(), []

    async def main() -> None:
        async def wait() -> None:
            await current.replaced.wait()
            woken.append(current.frontend_options().heartbeat_s)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                for seconds, lines in ((7, 3), (9, 4)):
                    text = f'[broker]\nheartbeat = "{seconds}s"\n[limits]\nlog-lines-per-second = {lines}\n'
                    report = reload(lambda text=text: loaded(text), None, current, None, needs_tls=False)
                    assert not report.faults
                    assert (current.frontend_options().heartbeat_s, lines_per_second()) == (seconds, lines)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(woken) == 1


def test_what_takes_effect_at_a_start_is_said() -> None:
    """Once, of the keys that were changed; of those that take effect at once nothing."""
    current = made('[journal]\nfsync-interval = "200ms"\n[broker]\nheartbeat = "60s"\n')
    text = '[journal]\nfsync-interval = "50ms"\n[broker]\nheartbeat = "7s"\n'
    reports = [reload(lambda: loaded(text), None, current, None, needs_tls=False) for _ in range(2)]
    assert [report.warnings for report in reports] == [
        ("[journal] fsync-interval: 200 -> 50 (when the broker starts anew)",),
        (),
    ]


def test_a_faulty_configuration_replaces_nothing() -> None:
    """Also one without a certificate where there are listeners with TLS. Of each reload the other nodes are told."""
    current, told = made('[broker]\nheartbeat = "7s"\n'), []
    current.on_reload = lambda: told.append((current.reloads, bool(current.faults)))
    for text, needs_tls in (("[broker]\nheartbeat = []\n", False), ('[broker]\nheartbeat = "8s"\n', True)):
        report = reload(lambda text=text: loaded(text), None, current, None, needs_tls=needs_tls)
        assert report.faults and current.frontend_options().heartbeat_s == 7
    assert not reload(lambda: loaded(""), None, current, None, needs_tls=False).faults
    assert told == [(1, True), (2, True), (3, False)]


def test_files_are_watched_as_they_were_read(tmp_path: Path) -> None:
    """A file that was loaded is not loaded again, faulty or not; files that it includes now are watched."""
    main, included = tmp_path / "a.toml", tmp_path / "b.toml"
    included.write_text("")
    main.write_text("")
    watch, current = FileWatch(marks_of([str(main)])), made()

    def read() -> tuple[Configuration, list[str]]:
        """As XML that includes another file."""
        configuration, faults = loaded(main.read_text(), str(main))
        return replace(configuration, included=(str(included),)), faults

    for text, is_faulty in (("[broker]\nheartbeat = []\n", True), ("[broker]\n", False)):
        main.write_text(text)
        report = reload(read, watch, current, None, needs_tls=False)
        assert bool(report.faults) is is_faulty, report
        assert not any(watch.look(marks_of(watch.files)).changed for _ in range(3))
    assert set(watch.files) == {str(main), str(included)}


def test_certificates_of_a_reload_are_served_and_watched(tmp_path: Path) -> None:
    """Those that the configuration names now, and none that it named before."""
    authority, current = Authority(tmp_path), made()
    for name in ("one", "two"):
        authority.issue(name)
        text = configuration_with(certificate=f"{name}.pem", key=f"{name}.key")

        def read(text: str = text) -> tuple[Configuration, list[str]]:
            return loaded(text, str(tmp_path / "a.toml"))

        before = current.frontend_options().tls
        assert not reload(read, None, current, None, needs_tls=True).faults
        assert current.frontend_options().tls is not before
        assert {Path(file).name for file in current.certificates.files} == {f"{name}.pem", f"{name}.key"}
