"""The composition root: a broker made from its configuration, for `leveret serve` and for test brokers."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..configured.configured import ConfiguredObjects, Report, start_faults
from ..configured.configured_users import DEFAULT_GUEST
from ..configured.options import broker_options
from ..engine import Broker, Clock, LoginThrottle, Message, TempStore, Users
from ..operator.control import EXCHANGE, ControlTable
from ..operator.operator import Operator
from ..settings import Configuration
from ..settings.declared.cluster import nodes_of
from ..settings.frozen import frozen
from .descriptors import descriptor_limits

if TYPE_CHECKING:
    from ..journal import ClusterJournal, Files, JournalStories
    from .supervisor import Supervisor


class DataUnusable(Exception):
    """The data directory is locked, foreign or damaged; the message is for the operator."""


@frozen
class Data:
    """The directory of a journal.

    `holds_reserve`: reserve space on disk, so that consumers can still free messages on a full disk.
    `files`: a simulated disk instead of the operating system's files, without a writer thread and a temp store: the
    simulation calls the commits of `supervisor.journal.writer`.
    `cluster`: set if this node leads a cluster, whose other nodes copy the journal.
    """

    path: str
    holds_reserve: bool = True
    files: "Files | None" = None
    cluster: "ClusterJournal | None" = None


@frozen
class BuiltBroker:
    """A broker that is ready to be served. `supervisor`: of its journal; None: everything is in memory.

    `report`: the results of applying the configuration.
    """

    broker: Broker
    control: ControlTable
    objects: ConfiguredObjects
    supervisor: "Supervisor | None"
    report: Report

    def close(self) -> None:
        """Close the files of a broker that has stopped; its durable state is on disk."""
        if self.supervisor is not None:
            self.supervisor.close()
        else:
            self.broker.context.storage.close()

    def abandon(self) -> None:
        """Close the files of a broker that no longer leads, without writing."""
        assert self.supervisor is not None, "a node of a cluster has a journal"
        self.supervisor.abandon()


def default_users(*, from_anywhere: bool = False) -> Users:
    """The administrator guest / guest. `from_anywhere`: not from loopback only, for test brokers."""
    return Users([replace(DEFAULT_GUEST, loopback_only=False) if from_anywhere else DEFAULT_GUEST])


def build_broker(
    configuration: Configuration,
    clock: Clock,
    chance: Callable[[], float],
    data: Data | None = None,
    *,
    users: Users | None = None,
    operator: Operator | None = None,
    is_forced: bool = False,
    rebuilds_all: bool = False,
) -> BuiltBroker:
    """Make a broker from its directory and its configuration.

    Args:
        chance: returns a number in [0, 1), see `Broker`.
        data: None: everything in memory.
        users: the users at the start; None: the journal's and the configured users (guest if there are none), with
            logins throttled against guessing.
        operator: the context of commands, with the facts of this process; None: without them.
        is_forced: replace recovery points that the log does not have by the present.
        rebuilds_all: build leased queues from their recovery points, and ignore their stored state.
    Raises: DataUnusable.
    """
    control = ControlTable(operator)
    site, groups = _sites(configuration) if data is not None and data.cluster is not None else ("", {})
    broker = Broker(
        clock,
        Users(login_throttle=LoginThrottle(clock.monotonic_ns)) if users is None else users,
        services={EXCHANGE: control.handle},
        settings=configuration.repository,
        options=broker_options(configuration),
        chance=chance,
        unsent_max=configuration.broker_limits.unsent_per_connection,
        site=site,
        groups=groups,
    )
    if data is None or data.files is None:
        directory = None if data is None else data.path
        broker.context.storage.open_temp = partial(_open_temp_store, broker, directory)
    supervisor = None if data is None else _open_journal(data, broker, configuration)
    try:
        if users is None and not configuration.users and not any(broker.users):
            broker.connections.replace_user(DEFAULT_GUEST)
        if not is_forced and (unknown := start_faults(broker, configuration)):
            if supervisor is not None and not supervisor.journal.leads_cluster:
                supervisor.close()
            raise DataUnusable("; ".join(unknown) + " (--force begins them at the present)")
        objects = ConfiguredObjects(broker, configuration)
        control.operator.attach(broker, objects)
        if data is not None:
            control.operator.stories = partial(_stories, data)
        report = objects.apply(configuration)
        broker.virtual_hosts.started(rebuilds=rebuilds_all)
        return BuiltBroker(broker, control, objects, supervisor, report)
    except BaseException:
        if supervisor is not None and supervisor.journal.leads_cluster:  # this process lives on: unlock the directory
            supervisor.abandon()
        raise


def _sites(configuration: Configuration) -> tuple[str, dict[str, str]]:
    """This node's site, and the groups of all nodes; the other nodes announce theirs later."""
    own = configuration.cluster.node or ""
    groups = dict.fromkeys((node.name for node in nodes_of(configuration.cluster)), "")
    return own, {**groups, own: configuration.cluster.group or ""}


def _stories(data: Data, takes: Callable[[Message], bool] | None, id_: int | None, **limits: int) -> "JournalStories":
    from ..journal import REAL, JournalReader, JournalStories

    return JournalStories(JournalReader(data.path, data.files or REAL), takes, id_, **limits)


def _open_temp_store(broker: Broker, directory: str | None) -> TempStore:
    from ..journal.recording.temp_store import FileTempStore

    return FileTempStore(
        directory,
        descriptor_max=descriptor_limits().temp,
        on_unreadable=lambda error: broker.context.storage.on_unreadable(error),
    )


def _open_journal(data: Data, broker: Broker, configuration: Configuration) -> "Supervisor":
    from ..journal import JournalError  # costs 15 ms, which a broker in memory saves
    from .supervisor import Supervisor, why_unusable

    try:
        return Supervisor.open(
            data.path, broker, configuration, holds_reserve=data.holds_reserve, files=data.files, cluster=data.cluster
        )
    except (JournalError, OSError) as error:
        raise DataUnusable(why_unusable(data.path, error)) from error
