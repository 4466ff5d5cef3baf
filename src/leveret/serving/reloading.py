"""Reloading of configuration files and certificates, on request or when they have changed."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from ..amqp_frontend.options import FrontendOptions
from ..configured.configured import ConfiguredObjects, Report
from ..configured.options import frontend_options
from ..settings import Configuration
from ..settings.lifetime import RESTART
from .descriptors import descriptor_limits
from .file_watch import FileMark, FileWatch, marks_of
from .logs import limit_lines_about_peers
from .tls_files import TlsFiles, load_tls

if TYPE_CHECKING:
    from .cluster_files import ClusterFiles

logger = logging.getLogger("leveret")

#: Minimum period of checks of the configuration files.
PERIOD_MIN_MS = 50
#: Maximum time until a file that is being written is checked again.
SETTLING_S = 0.25

#: Reads the configuration files again: (configuration, faults).
Load = Callable[[], tuple[Configuration, list[str]]]


class CurrentConfiguration:
    """The configuration in force, which a reload replaces and new connections read."""

    def __init__(self, configuration: Configuration, tls: TlsFiles) -> None:
        self.replaced = trio.Event()
        self.cluster: ClusterFiles | None = None
        self.reloads = 0  # number of reloads, failed ones included
        self.faults: tuple[str, ...] = ()  # of the last reload; with faults it changed nothing
        self.on_reload: Callable[[], object] = lambda: None
        self.replace(configuration, tls)

    def replace(self, configuration: Configuration, tls: TlsFiles) -> None:
        """Put another configuration in force."""
        self.configuration = configuration
        self.tls = tls
        self.certificates = FileWatch(tls.marks | self._marks_of_cluster())
        self._frontend_options = frontend_options(
            configuration, tls=tls.context, descriptor_max=descriptor_limits().connections
        )
        limit_lines_about_peers(configuration.broker_limits.log_lines_per_second)
        self.replaced.set()
        self.replaced = trio.Event()

    def join(self, files: "ClusterFiles") -> None:
        """Reload the certificates of [cluster], too, from now on: this process is a node of a cluster.

        The files with secrets and passwords are not read again.
        """
        self.cluster = files
        self.certificates = FileWatch(self.tls.marks | self._marks_of_cluster())

    def _marks_of_cluster(self) -> dict[str, FileMark | None]:
        return {} if self.cluster is None else self.cluster.marks(self.configuration)

    def frontend_options(self) -> FrontendOptions:
        return self._frontend_options


def reload(
    load: Load,
    watch: FileWatch | None,
    current: CurrentConfiguration,
    objects: ConfiguredObjects | None,
    *,
    needs_tls: bool,
) -> Report:
    """Read the files, and put them in force if they have no fault. The caller ends the broker's turn.

    Args:
        watch: notes the state of the files that are read; None: the files are not watched.
        objects: the broker's; None: this process has no broker now.
        needs_tls: refuse a configuration without a certificate, because there are TLS listeners.
    """
    if watch is not None:
        watch.note_loaded(marks_of(watch.files))
    loaded, faults = load()
    if watch is not None:
        watch.follow(marks_of(loaded.included))
    tls = load_tls(loaded)
    faults += tls.faults
    if needs_tls and tls.context is None and not faults:
        faults.append("leveret: [tls] certificate is missing, but there are listeners with TLS")
    if current.cluster is not None and not faults:
        faults += current.cluster.renew(loaded)
    report = Report(faults=tuple(faults)) if faults else _put_in_force(loaded, tls, current, objects)
    current.reloads, current.faults = current.reloads + 1, report.faults
    current.on_reload()
    return report


def _put_in_force(
    loaded: Configuration, tls: TlsFiles, current: CurrentConfiguration, objects: ConfiguredObjects | None
) -> Report:
    from ..settings.difference import key_changes  # a start does not need it

    before, known = current.configuration, (*current.configuration.warnings, *current.tls.warnings)
    current.replace(loaded, tls)
    report = Report() if objects is None else objects.apply(loaded)
    new_warnings = tuple(warning for warning in (*loaded.warnings, *tls.warnings) if warning not in known)
    later = tuple(str(change) for change in key_changes(before, loaded) if change.acts is RESTART)
    report = replace(report, warnings=(*new_warnings, *later, *report.warnings))
    log_report(report)
    return report


async def watch_files(watch: FileWatch, current: CurrentConfiguration, reload_now: Callable[[str], None]) -> None:
    """Reload when a configuration file, or a certificate, has changed. Runs until cancelled.

    The files are looked at each `configuration-file-refresh-period`, at least 50 ms; never if it is below 0. A change
    counts when two looks in a row find the same.
    """
    is_settling = False
    while True:
        period_ms = current.configuration.broker.configuration_file_refresh_period_ms
        pause_s = max(period_ms, PERIOD_MIN_MS) / 1000 if period_ms >= 0 else float("inf")
        with trio.move_on_after(min(pause_s, SETTLING_S) if is_settling else pause_s):
            await current.replaced.wait()  # reloaded by hand: the period may have changed
            continue
        findings = [one.look(marks_of(one.files)) for one in (watch, current.certificates)]
        is_settling = any(finding.is_settling for finding in findings)
        for name in (name for finding in findings for name in finding.missing):
            logger.error("%s: cannot be read; what was loaded from it stays in force", name)
        if changed := [name for finding in findings for name in finding.changed]:
            reload_now(f"{', '.join(changed)} changed")


def log_report(report: Report) -> None:
    """Log the changes and the warnings of a report. Its faults are not logged: the caller reports them."""
    for line in report.done:
        logger.info("%s", line)
    for line in report.warnings:
        logger.warning("%s", line)
