"""The context of commands: the broker, the configuration's objects in it, jobs, kept events, and the log.

A command runs with the permissions of a user, or with all permissions for the broker itself. Refusals of the engine
become a CommandError with their cause, from which HTTP takes the code. Source: ruling 24; management page 1.5, 6.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..configured.configured import ConfiguredObjects, Report, text_of
from ..console.permissions import may_see
from ..engine import Broker, Client, EngineError, Field, FieldTable, Queue, User, VirtualHost, table_of_json
from ..settings import Configuration
from ..settings.faults import nearest
from .command_error import CommandError
from .steps import Steps

if TYPE_CHECKING:
    from ..console.sampler import Sampler
    from ..journal import JournalStories
    from ..serving.cluster_admin import ClusterAdmin
    from .event_log import EventLog
    from .jobs import Jobs
    from .versions import Versions

#: The client's name in commands without a user.
BROKER_ITSELF = "leveret.control"


class Operator:
    """The first argument of each command; the composition root makes it.

    `reload`: reloads the configuration files; `load`: only reads them; returns the configuration and faults.
    """

    def __init__(
        self,
        *,
        reload: Callable[[], Report] | None = None,
        load: Callable[[], tuple[Configuration, list[str]]] | None = None,
        process_status: Callable[[], dict[str, Any]] | None = None,
        log_lines: Callable[[], list[dict[str, Any]]] | None = None,
    ) -> None:
        self._broker: Broker | None = None
        self.configured: ConfiguredObjects | None = None
        self.reload = reload
        self.load = load
        self.process_status = process_status or dict
        self.log_lines = log_lines or list
        self.started_ms = 0
        #: The console's samples of queues; None: it is off, or there was no connection and no queue yet.
        self.sampler: Sampler | None = None
        #: The user of the running command, and where it came from, e.g. "guest by ctl"; "": the broker itself.
        self.caller = ""
        #: Reads events from a journal, with the arguments of `journal.JournalStories`; None: there is no journal.
        self.stories: Callable[..., JournalStories] | None = None
        #: The cluster that this broker leads; None: it belongs to none.
        self.cluster: ClusterAdmin | None = None

    def attach(self, broker: Broker, configured: ConfiguredObjects | None = None) -> None:
        """Set the broker of the commands, and the configuration's objects in it.

        Jobs, versions and kept events of another broker are forgotten; numbers of jobs and events continue.
        """
        if self._broker not in (None, broker):
            if "jobs" in vars(self):
                self.jobs.forget()
            if "events" in vars(self):
                self.events.attach(broker)
            vars(self).pop("versions", None)
        self._broker = broker
        self.configured = configured
        self.started_ms = broker.context.clock.wall_ms()

    @cached_property
    def jobs(self) -> "Jobs":
        from .jobs import Jobs  # most brokers get no command: its modules are imported for the first one

        return Jobs()

    @cached_property
    def versions(self) -> "Versions":
        from .versions import Versions

        return Versions(self.broker)

    @cached_property
    def events(self) -> "EventLog":
        """The log of events, which the command `events` begins."""
        from .event_log import EventLog

        return EventLog(self.broker)

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def objects(self) -> ConfiguredObjects:
        """The configuration's objects. Raises: CommandError."""
        if self.configured is None:
            raise CommandError("this broker has no configuration")
        return self.configured

    # -- objects by name -----------------------------------------------------------------------------------------------

    def vhost(self, name: str = "/") -> VirtualHost:
        """Raises: CommandError."""
        found = self.broker.virtual_hosts.get(name)
        if found is None:
            raise CommandError(f"no virtual host {name!r}")
        return found

    def vhosts(self, name: str | None) -> list[VirtualHost]:
        """The virtual host of this name; None: all. Raises: CommandError."""
        return list(self.broker.virtual_hosts.values()) if name is None else [self.vhost(name)]

    def queue(self, vhost: str, name: str) -> Queue:
        """A queue by its full name. Raises: CommandError, which suggests the nearest name."""
        host = self.vhost(vhost)
        if name not in host.queues:
            scopes = host.context.scopes
            why = "" if scopes is None else scopes.refusal(name, None)
            hint = f": {why}" if why else nearest(name, host.queues)
            raise CommandError(f"no queue {name!r} in virtual host {vhost!r}{hint}")
        return host.queues[name]

    def user(self, name: str) -> User:
        """Raises: CommandError."""
        found = self.broker.users.find(name)
        if found is None:
            raise CommandError(f"no user {name!r}")
        return found

    def sight_of(self, as_user: str | None) -> Callable[[str], bool]:
        """Whether a user may see the objects in a virtual host; None: in all. Raises: CommandError."""
        if as_user is None:
            return lambda vhost: True
        user = self.user(as_user)
        return lambda vhost: may_see(user, vhost)

    @contextmanager
    def client(self, vhost: str, as_user: str | None) -> Iterator[tuple[Client, VirtualHost]]:
        """A client without a connection, with a user's permissions; None: with all. Raises: CommandError, also for
        refusals of the engine in the block.
        """
        host = self.vhost(vhost)
        user = User(BROKER_ITSELF, tags=("administrator",)) if as_user is None else self.user(as_user)
        with refusals():
            user.check_vhost(vhost)
            yield Client(host, user, BROKER_ITSELF, _discard, {}), host


def _discard() -> None:
    """The flush of a client without a connection."""


@contextmanager
def refusals() -> Iterator[None]:
    """Convert refusals of the engine to CommandError, with the refusal as cause."""
    try:
        yield
    except EngineError as error:
        raise CommandError(text_of(error)) from error


def until_idle(vhost: VirtualHost, name: str) -> Steps:
    """Wait until a queue has finished an expiry, a bulk delete or a bulk requeue, which no reader may see half done, or
    until the queue is gone.
    """
    while (queue := vhost.queues.get(name)) is not None and queue.is_busy():
        yield


def table_of(command: str, arguments: object) -> FieldTable:
    """The arguments of a declaration or binding; integers are long, as in RabbitMQ's API. Raises: CommandError."""
    try:
        return with_long_integers(table_of_json(arguments or {}))
    except ValueError as error:
        raise CommandError(f"{command}: arguments: expected {error}") from None


def with_long_integers(table: FieldTable) -> FieldTable:
    """The table with 64-bit integers for all integers."""
    return {key: _wide(field) for key, field in table.items()}


def _wide(field: Field) -> Field:
    value = field.value
    if field.tag == "I":
        return Field("l", value)
    if isinstance(value, list):
        return Field(field.tag, [_wide(item) for item in value])
    return Field(field.tag, with_long_integers(value)) if isinstance(value, dict) else field
