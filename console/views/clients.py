"""Names and addresses of connections and channels, which several views show."""

from ...engine import Client, Session


def given_name(client: Client) -> dict[str, str]:
    """The field with the name that the client gave to its connection; {}: it gave none."""
    name = client.given_name
    return {} if name is None else {"user_provided_name": name}


def peer_of(client: Client) -> tuple[str, int]:
    """Host and port of a client, from its name. A Unix socket has port 0."""
    return _address(client.name.partition(" -> ")[0])


def host_of(client: Client) -> tuple[str, int]:
    """Host and port to which the client is connected."""
    return _address(client.name.partition(" -> ")[2])


def node_of(client: Client, node: str) -> str:
    """The node to which a client is connected. `node`: this one."""
    return client.connection_info.node or node


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else (text, 0)


def channel_name(session: Session) -> str:
    """The name of a channel, as RabbitMQ makes it."""
    return f"{session.client.name} ({session.number})"
