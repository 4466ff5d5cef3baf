"""Handlers of channel 0: header, start-ok, tune-ok, open, close, update-secret.

Source: behaviour page 1.1 to 1.10.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from pamqp import commands

from ...engine import Field, FieldTable, Route, errors
from ..flow.steps import ConnectionTurn, Step
from ..options import FrontendOptions
from ..peer.channel import KnownRoute
from ..peer.login import MECHANISMS, MalformedResponse
from ..wire.codec import Method, encode_method
from ..wire.events import HeaderReceived
from ..wire.peer_errors import TuneTooHigh, TuneTooLow
from ..wire.publish_cache import PublishCache
from ..wire.states import ConnectionState, ConnectionStep
from .session import AmqpSession

#: The parameter with the name that an operator gave to the cluster.
CLUSTER_NAME = ("", "", "cluster_name")
#: The smallest frame-max that a peer may request, in octets.
FRAME_MIN = 4096
#: Ids of connection.tune: for a wrong tune-ok RabbitMQ 4 closes with the ids of its own tune.
TUNE_IDS = (10, 30)

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


def header_received(session: AmqpSession, event: HeaderReceived, turn: ConnectionTurn) -> Step:
    """Answer the protocol header with connection.start."""
    session.connection.step(ConnectionStep.HEADER)
    options, given = session.options, session.broker.parameters.get(CLUSTER_NAME)
    name = given if isinstance(given, str) else options.cluster_name
    session.output.send_raw(0, _start_frame(options, session.login.peer.offered(options.mechanisms), name))
    return Step.DONE


@lru_cache(maxsize=8)
def _start_frame(options: FrontendOptions, offered: tuple[str, ...], cluster_name: str) -> bytes:
    """connection.start, which is the same for all connections with these arguments."""
    texts = {
        "product": options.product,
        "version": options.version,
        "platform": "Leveret on Python",
        "copyright": "The Leveret authors; Apache License 2.0",
        "information": "Leveret: an AMQP 0-9-1 broker in Python",
        "cluster_name": cluster_name,
    }
    properties: FieldTable = {"capabilities": Field("F", {name: Field("t", True) for name in CAPABILITIES})}
    properties.update({key: Field("S", text.encode()) for key, text in texts.items()})
    return encode_method(0, commands.Connection.Start, 0, 9, properties, " ".join(offered), "en_US")


def _start_ok(session: AmqpSession, method: commands.Connection.StartOk) -> None:
    login = session.login
    login.note_properties(method.client_properties)
    if method.mechanism not in login.peer.offered(session.options.mechanisms) or method.mechanism not in MECHANISMS:
        session.closing.refuse_silently(f"mechanism {method.mechanism!r} is not offered")
        return
    login.mechanism = method.mechanism
    _log_in(session, method.response)  # type: ignore[arg-type]


def _log_in(session: AmqpSession, response: bytes) -> None:
    """No mechanism here needs a challenge (connection.secure): the response of start-ok is all."""
    login, options = session.login, session.options
    mechanism = MECHANISMS[login.mechanism]
    try:
        login.user = mechanism(response, session.broker.users, login.peer, options.anonymous_user)
    except MalformedResponse as error:
        session.closing.refuse_silently(str(error))
        return
    except errors.LoginRefused as error:
        session.closing.refuse(error, None)
        return
    session.connection.step(ConnectionStep.LOGIN)
    session.output.send(0, commands.Connection.Tune, options.channel_max, options.frame_max, options.heartbeat_s)


def _tune_ok(session: AmqpSession, method: commands.Connection.TuneOk) -> None:
    options = session.options
    if method.frame_max < FRAME_MIN and method.frame_max:
        raise TuneTooLow(ids=TUNE_IDS, what="frame_max", value=method.frame_max, limit=FRAME_MIN)
    for what, value, limit in (
        ("frame_max", method.frame_max, options.frame_max),
        ("channel_max", method.channel_max, options.channel_max),
    ):
        if limit and (value > limit or value == 0):
            raise TuneTooHigh(ids=TUNE_IDS, what=what, value=value or "0 (no limit)", limit=limit)
    session.connection.frame_max = method.frame_max or (1 << 31)
    session.channel_max = method.channel_max
    session.connection.step(ConnectionStep.TUNE)
    session.heartbeat.start(method.heartbeat, session.closing.give_up)


def _open(session: AmqpSession, method: commands.Connection.Open) -> None:
    login = session.login
    assert login.user is not None
    login.client = session.broker.connections.open(
        method.virtual_host,
        login.user,
        name=login.peer.name,
        flush=session.output.wake,
        properties=login.client_properties,
        site=login.site,
    )
    if session.heartbeat.interval_s:
        login.client.liveness = session.heartbeat.is_alive
    connection_info = login.client.connection_info = login.connection_info
    connection_info.mechanism, connection_info.heartbeat_s = login.mechanism, session.heartbeat.interval_s
    connection_info.channel_max, connection_info.frame_max = session.channel_max, session.connection.frame_max
    login.client.on_expelled = session.closing.expel
    login.client.on_send_after = session.journal.send_after
    login.client.published_routes = partial(_published_routes, session.connection.publish_cache)
    login.vhost = session.broker.virtual_hosts[method.virtual_host]
    session.connection.step(ConnectionStep.OPEN)
    session.closing.logged_in()
    session.output.send(0, commands.Connection.OpenOk, "")


def _published_routes(cache: PublishCache) -> Iterator[Route]:
    """The routes of the client's latest publishes."""
    for kinds in cache.kinds.values():
        for kind in kinds.values():
            known = kind.known_route
            if isinstance(known, KnownRoute):
                yield known.route


def _close(session: AmqpSession, method: commands.Connection.Close) -> Step | None:
    if session.connection.state is ConnectionState.CLOSING:
        session.output.send(0, commands.Connection.CloseOk)  # the closes crossed, so both are answered
        return None
    parking = session.backlog.parking
    if parking.delays_close:
        parking.is_closing = True
        session.connection.skip_everything()
        return Step.CLOSING
    session.closing.answer_close()
    return None


def _close_ok(session: AmqpSession, method: commands.Connection.CloseOk) -> None:
    session.connection.step(ConnectionStep.CLOSE_OK)
    session.closing.finished = True


def _update_secret(session: AmqpSession, method: commands.Connection.UpdateSecret) -> None:
    """Accept the new secret without an effect: it is for tokens that expire, which no mechanism here has.

    Source: behaviour page 1.10.
    """
    session.output.send(0, commands.Connection.UpdateSecretOk)


#: Method class -> (session, method) -> CLOSING if the close waits for parked work, so that later input is dropped; else
#: None.
CONNECTION_HANDLERS: dict[type[Method], Callable[[AmqpSession, Any], Step | None]] = {
    commands.Connection.StartOk: _start_ok,
    commands.Connection.TuneOk: _tune_ok,
    commands.Connection.Open: _open,
    commands.Connection.Close: _close,
    commands.Connection.CloseOk: _close_ok,
    commands.Connection.UpdateSecret: _update_secret,
}
