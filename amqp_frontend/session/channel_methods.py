"""Handlers of the classes channel, access, confirm and tx. Source: behaviour page 1.12, 2.14, 2.15."""

from pamqp import commands

from ..peer.channel import Channel, CommitUnderWay
from ..wire.codec import AccessRequest, AccessRequestOk, Method
from ..wire.peer_errors import FlowNotImplemented, TooManyChannels
from ..wire.states import ChannelState, ChannelStep
from .session import AmqpSession, Handler


def open_channel(session: AmqpSession, number: int) -> None:
    """Open a channel with any free number; only the number of open channels is limited.

    Raises: TooManyChannels, UserChannelsMaxReached.
    """
    connection = session.connection
    open_now = len(connection.channels)
    if open_now >= session.channel_max:
        raise TooManyChannels(count=open_now, limit=session.channel_max)
    connection.channels[number] = Channel(
        number,
        session.client.open_session(number),
        connection.publish_cache,
        frame_max=connection.frame_max,
        message_size_max=session.options.message_size_max,
    )
    session.output.send(number, commands.Channel.OpenOk, b"")


def _flow(session: AmqpSession, channel: Channel, method: commands.Channel.Flow) -> None:
    if not method.active and not session.options.honours_flow:
        raise FlowNotImplemented
    channel.session.set_flowing(bool(method.active))
    session.output.send(channel.number, commands.Channel.FlowOk, method.active)


def _flow_ok(session: AmqpSession, channel: Channel, method: commands.Channel.FlowOk) -> None:
    """The answer to the broker's channel.flow (`ChannelFlow`). It changes nothing."""


def _close(session: AmqpSession, channel: Channel, method: Method) -> None:
    if channel.state is not ChannelState.OPEN:  # the peer's close crossed the broker's
        session.output.send(channel.number, commands.Channel.CloseOk)
        channel.step(ChannelStep.CLOSE)
        return
    session.confirming.send_due()
    session.output.render()
    channel.step(ChannelStep.CLOSE)
    session.connection.drop_content(channel)  # the close may have waited, and a publish may have begun behind it
    session.backlog.parking.drop(channel)
    channel.session.close()
    del session.connection.channels[channel.number]
    session.output.send(channel.number, commands.Channel.CloseOk)


def _close_ok(session: AmqpSession, channel: Channel, method: Method) -> None:
    channel.step(ChannelStep.CLOSE_OK)
    del session.connection.channels[channel.number]


def _access_request(session: AmqpSession, channel: Channel, method: AccessRequest) -> None:
    session.output.send(channel.number, AccessRequestOk, 1)


def _confirm_select(session: AmqpSession, channel: Channel, method: commands.Confirm.Select) -> None:
    channel.session.select_confirms()
    if not method.nowait:
        session.output.send(channel.number, commands.Confirm.SelectOk)


def _tx_select(session: AmqpSession, channel: Channel, method: commands.Tx.Select) -> None:
    channel.session.select_transactions()
    session.output.send(channel.number, commands.Tx.SelectOk)


def _tx_commit(session: AmqpSession, channel: Channel, method: commands.Tx.Commit) -> CommitUnderWay | None:
    under_way = CommitUnderWay(channel, channel.session.commit())
    if not under_way.commit.is_done:
        return under_way
    answer_commit(session, under_way)
    return None


def answer_commit(session: AmqpSession, done: CommitUnderWay) -> None:
    """Send tx.commit-ok once the commit is in the journal. Raises: PartialCommit."""
    session.send_returns(done.channel, done.commit.outcome())
    session.output.send(done.channel.number, commands.Tx.CommitOk)
    if done.commit.sync_lsn:
        session.journal.send_answer_after(done.commit.sync_lsn, done.channel.number)


def _tx_rollback(session: AmqpSession, channel: Channel, method: commands.Tx.Rollback) -> None:
    channel.session.roll_back()
    session.output.send(channel.number, commands.Tx.RollbackOk)


CHANNEL_HANDLERS: dict[type[Method], Handler] = {
    commands.Channel.Flow: _flow,
    commands.Channel.FlowOk: _flow_ok,
    commands.Channel.Close: _close,
    commands.Channel.CloseOk: _close_ok,
    AccessRequest: _access_request,
    commands.Confirm.Select: _confirm_select,
    commands.Tx.Select: _tx_select,
    commands.Tx.Commit: _tx_commit,
    commands.Tx.Rollback: _tx_rollback,
}
