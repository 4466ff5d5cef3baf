"""Users and permissions in the engine: hashes, grants, changes while people are connected."""

from collections.abc import Callable
from types import MappingProxyType

import pytest

from leveret.engine import (
    Broker,
    Client,
    Envelope,
    Grant,
    ManualClock,
    Permissions,
    TopicPermission,
    User,
    Users,
    VirtualHostLimits,
    hash_password,
    read_password_hash,
)
from leveret.engine.errors import (
    AllQueuesMaxReached,
    BindingsMaxReached,
    EngineError,
    ExchangeNotFound,
    LoginRefused,
    PermissionRefused,
    QueueNotFound,
    TopicRefused,
    TopicStatesMaxReached,
    VirtualHostNotFound,
    VirtualHostRefused,
)
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.options import BrokerOptions
from leveret.engine.users.passwords import PasswordHash
from leveret.settings import SettingsRepository, load_configuration


@pytest.mark.parametrize(
    "text, algorithm, password",
    [
        # RabbitMQ's own documentation: salt 90 8D C6 0A, password test12.
        ("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "sha256", "test12"),
        ("", "sha256", None),
        ("", "md5", None),
    ],
)
def test_known_hashes(text: str, algorithm: str, password: str | None) -> None:
    """A hash from elsewhere takes its password and no other; none takes none."""
    stored = read_password_hash(text, f"rabbit_password_hashing_{algorithm}")
    assert stored.text() == text
    assert not stored.is_right("") and not stored.is_right("guess")
    if password is not None:
        assert stored.is_right(password)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
@pytest.mark.parametrize("password", ["p", "\u00e4\u20ac\U0001f407", " ", "\x00", "x" * 10_000])
def test_hashes_take_their_password(algorithm: str, password: str) -> None:
    """Whatever it is made of."""
    stored = hash_password(password, b"\x00\xff\x10z", f"rabbit_password_hashing_{algorithm}")
    assert read_password_hash(stored.text(), stored.algorithm).is_right(password)
    assert not stored.is_right(password + "x")


@pytest.mark.parametrize(
    "text", ["=x=", "AAAA", "A" * 47, "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR!", "\u20ac"]
)
def test_what_is_no_hash(text: str) -> None:
    """It is refused, and not shown."""
    with pytest.raises(ValueError) as refused:
        read_password_hash(text)
    assert text not in str(refused.value)


def test_hashes_do_not_show_themselves() -> None:
    """Neither a hash nor a user with one says it in a log."""
    stored = hash_password("secret", b"salt")
    assert stored.text()[:8] not in repr(User("u", stored)) and "octets" not in repr(stored)
    assert repr(PasswordHash()) == "PasswordHash(none, rabbit_password_hashing_sha256)"


def test_logins() -> None:
    """Unknown users, wrong and empty passwords, users without one, guests from elsewhere: all the same refusal."""
    users = Users(
        [
            User("a", hash_password("p", b"salt")),
            User("none"),
            User("g", hash_password("g", b"salt"), loopback_only=True),
        ]
    )
    assert users.log_in("a", "p", mechanism="PLAIN", is_loopback=False).name == "a"
    assert users.log_in("g", "g", mechanism="PLAIN", is_loopback=True).name == "g"
    for name, password, is_loopback in (
        ("a", "q", True),
        ("a", "", True),
        ("none", "", True),
        ("none", "p", True),
        ("x", "p", True),
        ("g", "g", False),
    ):
        with pytest.raises(LoginRefused) as refused:
            users.log_in(name, password, mechanism="PLAIN", is_loopback=is_loopback)
        assert vars(refused.value) == {"mechanism": "PLAIN"}


# -- topics ---------------------------------------------------------------------------------------------------------

KINDS = ("direct", "fanout", "topic", "headers", "x-delayed-message", "x-consistent-hash", "x-random")


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_looked_at_in_topic_exchanges_alone(kind: str) -> None:
    """Behaviour page 3.14: writing needs the routing key, binding and unbinding the binding key; of no other type."""
    topics = MappingProxyType({"e": TopicPermission(write="^written$", read="^read$")})
    grant = Grant(".*", ".*", ".*", topics)
    user = User("u", permissions=MappingProxyType({"/": Permissions(grant, user="u", vhost="/")}))
    client = connect(user)
    vhost = client.vhost
    vhost.exchanges.declare("e", kind, arguments=_table(x_delayed_type="topic") if kind == "x-delayed-message" else {})
    ways: dict[str, Callable[[str], object]] = {
        "written": lambda key: vhost.router.route("e", key, user),
        "read": lambda key: vhost.bindings.add("queue", "mine", "e", key, {}, client),
        "read ": lambda key: vhost.bindings.remove("queue", "mine", "e", key, {}, client),
        "read  ": lambda key: vhost.bindings.add("exchange", "x", "e", key, {}, client),
        "read   ": lambda key: vhost.bindings.remove("exchange", "x", "e", key, {}, client),
    }
    for allowed, way in ways.items():
        for key in ("written", "read"):
            key = "7" if kind == "x-consistent-hash" and allowed != "written" else key
            if kind == "topic" and key != allowed.strip():
                with pytest.raises(TopicRefused):
                    way(key)
            else:
                way(key)


# -- grants ---------------------------------------------------------------------------------------------------------


def granted(vhost: str = "/", **texts: str) -> User:
    """The user u with these patterns in one virtual host; nothing where none is given."""
    grant = Grant(**{"configure": "", "write": "", "read": "", **texts})
    return User("u", permissions=MappingProxyType({vhost: Permissions(grant, user="u", vhost=vhost)}))


def connect(user: User, settings: str = "", **options: int) -> Client:
    """A client of `broker_with`."""
    return broker_with(user, settings, **options)[1]


def broker_with(user: User, settings: str = "", **options: int) -> tuple[Broker, Client]:
    """A broker, and a client in it, where `mine` is a queue, `x` and `t` (topic) exchanges."""
    configuration, faults = load_configuration([("f", settings)])
    assert not faults
    repository: SettingsRepository = configuration.repository
    broker = Broker(ManualClock(), Users([user]), settings=repository, options=BrokerOptions(**options))  # type: ignore[arg-type]
    vhost = broker.virtual_hosts["/"]
    vhost.queues.declare("mine", client=None)
    vhost.exchanges.declare("x", "direct")
    vhost.exchanges.declare("t", "topic")
    return broker, broker.connections.open("/", user, name="c", flush=lambda: None)


@pytest.mark.parametrize(
    "what, texts",
    [
        ("declare", {"configure": "^new$"}),
        ("declare_dlx", {"configure": "^new$", "read": "^new$", "write": "^dlx$"}),
        ("declare_dla", {"configure": "^new$", "read": "^new$", "write": "^(there|amq\\.default)$"}),
        ("declare_dla_exchange", {"configure": "^new$", "read": "^new$", "write": "^there$"}),
        ("declare_dla_queue", {"configure": "^new$", "read": "^new$", "write": "^amq\\.default$"}),
        ("declare_address", {"configure": "^(new|other)$", "read": "^other$"}),
        ("delete", {"configure": "^mine$"}),
        ("purge", {"read": "^mine$"}),
        ("consume", {"read": "^mine$"}),
        ("bind", {"write": "^mine$", "read": "^x$"}),
        ("unbind", {"write": "^mine$", "read": "^x$"}),
        ("declare_exchange", {"configure": "^e$"}),
        ("declare_exchange_ae", {"configure": "^e$", "read": "^e$", "write": "^ae$"}),
        ("delete_exchange", {"configure": "^x$"}),
        ("bind_exchange", {"write": "^t$", "read": "^x$"}),
        ("unbind_exchange", {"write": "^t$", "read": "^x$"}),
        ("publish", {"write": "^x$"}),
        ("publish_default", {"write": "^amq\\.default$"}),
    ],
)
def test_each_operation_needs_exactly_this(what: str, texts: dict[str, str]) -> None:
    """With these permissions it is done; without any one of them it is refused, and nothing has changed."""
    DO[what](connect(granted(**texts)))
    for missing in texts:
        for rest in _without(texts[missing]):
            client = connect(granted(**{**texts, missing: rest}))
            before = _names(client)
            with pytest.raises(PermissionRefused) as refused:
                DO[what](client)
            assert vars(refused.value)["action"] == missing
            assert _names(client) == before


def _without(pattern: str) -> list[str]:
    """Empty, and each of its alternatives left out."""
    names = pattern.strip("^$()").split("|")
    return [""] if len(names) == 1 else ["", *(f"^{name}$" for name in names)]


def _names(client: Client) -> tuple[object, ...]:
    vhost = client.vhost
    return (
        sorted(vhost.queues),
        sorted(vhost.exchanges),
        [len(exchange.bindings) for exchange in vhost.exchanges.values()],
        [
            vhost.router.route_of(exchange, "k") for exchange in vhost.exchanges.values()
        ],  # the same ones, unless one is stale
    )


def _table(**texts: str) -> FieldTable:
    return {key.replace("_", "-"): Field("S", text.encode()) for key, text in texts.items()}


def _declare(client: Client, **arguments: str) -> None:
    client.vhost.queues.declare("new", client=client, arguments=_table(**arguments))


DO = {
    "declare": _declare,
    "declare_dlx": lambda client: _declare(client, x_dead_letter_exchange="dlx"),
    "declare_dla": lambda client: _declare(client, x_dead_letter_address="there"),
    "declare_dla_exchange": lambda client: _declare(client, x_dead_letter_address="exchange:there/key"),
    "declare_dla_queue": lambda client: _declare(client, x_expiry_address="queue:there"),
    "declare_address": lambda client: _declare(client, x_address="other"),
    "delete": lambda client: client.vhost.queues.delete("mine", client),
    "purge": lambda client: client.vhost.queues.purge("mine", client),
    "consume": lambda client: client.vhost.queues.for_consumer("mine", client),
    "bind": lambda client: client.vhost.bindings.add("queue", "mine", "x", "k", {}, client),
    "unbind": lambda client: client.vhost.bindings.remove("queue", "mine", "x", "k", {}, client),
    "declare_exchange": lambda client: client.vhost.exchanges.declare("e", "direct", client=client),
    "declare_exchange_ae": lambda client: client.vhost.exchanges.declare(
        "e", "direct", arguments=_table(alternate_exchange="ae"), client=client
    ),
    "delete_exchange": lambda client: client.vhost.exchanges.delete("x", client=client),
    "bind_exchange": lambda client: client.vhost.bindings.add("exchange", "t", "x", "k", {}, client),
    "unbind_exchange": lambda client: client.vhost.bindings.remove("exchange", "t", "x", "k", {}, client),
    "publish": lambda client: client.vhost.router.route("x", "k", client.user),
    "publish_default": lambda client: client.vhost.router.route("", "mine", client.user),
}


def test_permission_is_asked_for_before_it_is_looked_what_is_there() -> None:
    """Who may not, does not learn whether there is such a thing (trap 69)."""
    client = connect(granted())
    for name in ("mine", "nothing"):
        with pytest.raises(PermissionRefused):
            client.vhost.queues.for_consumer(name, client)
        with pytest.raises(PermissionRefused):
            client.vhost.router.route(name, "k", client.user)
    everybody = connect(granted(configure=".*", write=".*", read=".*"))
    with pytest.raises(QueueNotFound):
        everybody.vhost.queues.for_consumer("nothing", everybody)
    with pytest.raises(ExchangeNotFound):
        everybody.vhost.router.route("nothing", "k", everybody.user)


AUTO = '[[address-setting]]\nmatch = "#"\nauto-create-queues = true\n'


def test_nobody_gets_a_queue_made_in_passing_that_he_could_not_declare() -> None:
    """Automatic queues: consuming and publishing need what they always need, the queue's making needs configure."""
    client = connect(granted(read=".*", write=".*"), AUTO)
    with pytest.raises(QueueNotFound):
        client.vhost.queues.for_consumer("auto", client)
    assert client.vhost.router.route("", "auto", client.user).queues == []
    client = connect(granted(read=".*", write=".*", configure="^auto$"), AUTO)
    assert client.vhost.queues.for_consumer("auto", client).name == "auto"


def test_nobody_gets_more_queues_by_publishing_than_a_limit_allows() -> None:
    """Else any publisher could make queues without end. What is published while there is room again makes its queue."""
    client = connect(granted(read=".*", write=".*", configure=".*"), AUTO, queues_max=2)
    queues, router = client.vhost.queues, client.vhost.router
    assert [queue.name for queue in router.route("", "second", client.user).queues or ()] == ["second"]
    refused = router.route("", "third", client.user)
    assert refused.queues == [] and "third" not in queues
    queues.delete("second", client)
    assert refused.is_stale  # a publisher that keeps it looks again
    assert [queue.name for queue in router.route("", "third", client.user).queues or ()] == ["third"]


def test_publishing_makes_no_queue_of_a_reserved_name() -> None:
    """An answer to a reply queue that is gone would make a durable queue of its name, which nobody may declare."""
    client = connect(granted(read=".*", write=".*", configure=".*"), AUTO)
    assert client.vhost.router.route("", "amq.gen-gone", client.user).queues == []
    assert "amq.gen-gone" not in client.vhost.queues


@pytest.mark.parametrize("configure, is_made", [("^new$", False), ("^(new|failed)$", True)])
def test_nobody_gets_a_dead_letter_queue_that_he_could_not_declare(configure: str, is_made: bool) -> None:
    """His queue may name it; it is made for the first dead letter only if he may declare it."""
    broker, client = broker_with(granted(read=".*", write=".*", configure=configure))
    _declare(client, x_dead_letter_address="failed")
    session = client.open_session()
    route = client.vhost.router.route("", "new", client.user, client)
    session.publish(route, Envelope("", "new"), (NATIVE.join(encode_header(1), b"x"),), mandatory=False)
    assert session.get(client.vhost.queues["new"], no_ack=False) is not None
    session.reject(1, requeue=False)
    while broker.end_turn():
        pass
    assert ("failed" in client.vhost.queues) is is_made


def test_permissions_count_as_topology() -> None:
    """A change makes routes stale; the client's next look-up is judged anew."""
    client = connect(granted(write=".*"))
    route = client.vhost.router.route("x", "k", client.user)
    client.broker.connections.replace_user(granted(write="^y$"))
    assert route.is_stale
    with pytest.raises(PermissionRefused):
        client.vhost.router.route("x", "k", client.user)
    client.broker.connections.replace_user(User("u", permissions=MappingProxyType({})))
    with pytest.raises(TopicRefused), pytest.MonkeyPatch.context() as patch:
        patch.setattr(User, "require", lambda *_: None)
        client.vhost.router.route("t", "k", client.user)


def test_a_deleted_user_may_nothing_at_once_and_is_sent_away_at_the_end_of_the_turn() -> None:
    """Also one that has logged in but not opened its virtual host."""
    broker, client = broker_with(granted(write=".*"))
    heard: list[EngineError] = []
    client.on_expelled = heard.append
    broker.connections.delete_user("u")
    with pytest.raises(PermissionRefused):
        client.vhost.router.route("x", "k", client.user)
    assert not heard
    while broker.end_turn():
        pass
    assert [vars(error) for error in heard] == [{"user": "u"}]
    with pytest.raises(VirtualHostRefused):
        client.broker.connections.open("/", granted(), name="late", flush=lambda: None)


def test_a_deleted_virtual_host_goes_with_all_that_is_in_it() -> None:
    """Nobody gets in; clients are closed, many at a time, then queues go; permissions in it are forgotten."""
    broker = Broker(ManualClock(), Users([granted("v", configure=".*")]))
    vhost = broker.virtual_hosts.create("v")
    clients = [broker.connections.open("v", granted(), name=str(number), flush=lambda: None) for number in range(120)]
    for number in range(450):
        vhost.queues.declare(f"q{number}", client=None)
    session = clients[0].open_session()
    session.consume(vhost.queues["q1"], "t", no_ack=False, exclusive=False, arguments={})
    broker.virtual_hosts.delete("v")
    with pytest.raises(VirtualHostNotFound):
        broker.connections.open("v", granted(), name="late", flush=lambda: None)
    turns = 1
    while broker.end_turn():
        turns += 1
    assert turns > 3  # in slices
    assert not broker.connections and not vhost.queues and all(client.closed for client in clients)
    again = broker.virtual_hosts.create("v")
    assert again is not vhost and not again.queues
    user = broker.users.find("u")
    assert user is not None and user.permissions == {}
    with pytest.raises(VirtualHostNotFound):
        broker.virtual_hosts.delete("nothing")


def test_limits_of_the_broker_are_for_clients() -> None:
    """[limits] queues and bindings: 406 for clients; what the configuration declares is there."""
    client = connect(granted(configure=".*", write=".*", read=".*"), queues_max=2, bindings_max=1)
    client.vhost.queues.declare("second", client=client)
    client.vhost.queues.declare("second", client=client)
    with pytest.raises(AllQueuesMaxReached):
        client.vhost.queues.declare("third", client=client)
    client.vhost.queues.declare("third", client=None)
    client.vhost.bindings.add("queue", "mine", "x", "k", {}, client)
    client.vhost.bindings.add("queue", "mine", "x", "k", {}, client)
    with pytest.raises(BindingsMaxReached):
        client.vhost.bindings.add("queue", "mine", "x", "other", {}, client)
    client.vhost.bindings.remove("queue", "mine", "x", "k", {}, client)
    client.vhost.bindings.add("queue", "mine", "x", "other", {}, client)


def test_topic_states_of_one_exchange_are_limited() -> None:
    """[limits] topic-states: for clients, for patterns that share all their words; the same once more is no other."""
    client = connect(granted(configure=".*", write=".*", read=".*"), topic_states_max=1000)
    vhost = client.vhost
    vhost.exchanges.declare("delaying", "x-delayed-message", arguments=_table(x_delayed_type="topic"))
    for exchange in ("t", "delaying"):
        bound = list(map(_hostile_pattern, range(3000 // 51)))  # a bundle of 2048 states and 1000 beyond
        for pattern in bound:
            vhost.bindings.add("queue", "mine", exchange, pattern, {}, client)
        vhost.bindings.add("queue", "mine", exchange, bound[-1], {}, client)
        with pytest.raises(TopicStatesMaxReached):
            for number in range(100, 103):
                vhost.bindings.add("queue", "mine", exchange, _hostile_pattern(number), {}, client)
        vhost.bindings.add("queue", "mine", exchange, "#.own.#", {}, client)
        vhost.bindings.add("queue", "mine", exchange, "a.*.a.#", {}, client)
        vhost.bindings.add("queue", "mine", exchange, _hostile_pattern(200), {})
        for pattern in bound[:2]:
            vhost.bindings.remove("queue", "mine", exchange, pattern, {}, client)
        vhost.bindings.add("queue", "mine", exchange, _hostile_pattern(201), {}, client)


def _hostile_pattern(number: int) -> str:
    """51 states, all of them under one word."""
    return "#." + ".".join("a*"[number >> place & 1] for place in range(9)) + ".a" * 41


def test_connection_limits_count_what_is_open() -> None:
    """One goes, one may come."""
    broker = Broker(ManualClock())
    broker.virtual_hosts["/"].context.limits = VirtualHostLimits(max_connections=1)
    first = broker.connections.open("/", User("a"), name="1", flush=lambda: None)
    with pytest.raises(EngineError):
        broker.connections.open("/", User("b"), name="2", flush=lambda: None)
    first.close()
    broker.connections.open("/", User("b"), name="2", flush=lambda: None)


def test_memories_are_bounded() -> None:
    """10^5 different names: the answers that are remembered do not grow with them."""
    user = granted(write="^x$", configure="^q[0-9]+$")
    client = connect(user)
    for number in range(100_000):
        user.may("configure", "queue", f"q{number}", "/")
    assert user.permissions is not None
    assert len(user.permissions["/"]._allowed) <= 1000
    assert client.user.may("write", "exchange", "x", "/")
