"""Users and limits of the configuration in a broker, over reloads; and in a real process with its log and commands."""

import json
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from configured_broker import load
from node_forge import leveret

from leveret.configured.configured import ConfiguredObjects, Report, faults_of
from leveret.configured.configured_users import new_hash
from leveret.engine import Broker, ManualClock, TopicPermission, User, Users, VirtualHostLimits
from leveret.serving.composition import default_users
from leveret.settings import load_configuration

SECRET = "correct-horse-battery-staple"
ONE = '[[user]]\nname = "one"\npassword = "1"\n[[user.permission]]\nread = ".*"\n'
TWO = '[[user]]\nname = "two"\npassword = "2"\n'


def start(text: str) -> ConfiguredObjects:
    """A broker that started with this, as `serve` does."""
    configuration = load(text)
    users = Users() if configuration.users else default_users()
    objects = ConfiguredObjects(Broker(ManualClock(), users), configuration)
    objects.apply(configuration)
    return objects


def reload(objects: ConfiguredObjects, text: str) -> Report:
    """Another configuration."""
    report = objects.apply(load(text))
    while objects.broker.end_turn():
        pass
    return report


def names(objects: ConfiguredObjects) -> list[str]:
    """Of all users."""
    return sorted(user.name for user in objects.broker.users)


def user_of(objects: ConfiguredObjects, name: str) -> User:
    """One that is there."""
    found = objects.broker.users.find(name)
    assert found is not None
    return found


def test_the_default_guest_is_there_while_no_user_is_declared() -> None:
    """At the start, and when a reload brings the first user or takes the last."""
    assert names(start("")) == ["guest"]
    objects = start(ONE)
    assert names(objects) == ["one"]
    reload(objects, "")
    assert names(objects) == ["guest"]
    reload(objects, TWO)
    assert names(objects) == ["two"]
    assert names(start('[[user]]\nname = "guest"\n')) == ["guest"]


def test_a_user_is_changed_when_its_entry_is() -> None:
    """What was done by hand holds until then; the hash of a password that is the same stays."""
    objects = start(ONE)
    before = user_of(objects, "one")
    assert before.password.is_right("1")
    assert before.may("read", "queue", "q", "/") and not before.may("write", "queue", "q", "/")
    assert reload(objects, ONE).done == ()
    assert user_of(objects, "one") is before
    report = reload(objects, ONE.replace("read", "write"))
    assert [line for line in report.done if "user" in line] == ["f.toml:1: user 'one' changed"]
    assert user_of(objects, "one").may("write", "queue", "q", "/")


def test_a_user_that_is_no_longer_declared_is_deleted_and_sent_away() -> None:
    """With its connections; users that were added by hand stay."""
    objects = start(ONE + TWO)
    objects.broker.connections.replace_user(User("by hand"))
    client = objects.broker.connections.open("/", user_of(objects, "one"), name="c", flush=lambda: None)
    report = reload(objects, TWO)
    assert "user 'one' is no longer declared: deleted" in report.done
    assert client.closed
    assert names(objects) == ["by hand", "two"]


def test_limits_follow_the_configuration() -> None:
    """Those of virtual hosts that it does not name are whatever was set by hand."""
    objects = start('[[vhost]]\nname = "v"\nmax-queues = 3\n')
    vhost = objects.broker.virtual_hosts["v"]
    assert vhost.context.limits.max_queues == 3
    reload(objects, "")
    assert vhost.context.limits.max_queues is None


def test_limits_that_were_set_by_hand_stay() -> None:
    """Of a virtual host that the configuration does not name, or no longer names."""
    objects = start('[[vhost]]\nname = "v"\nmax-queues = 3\nmax-connections = 7\n')
    hosts = objects.broker.virtual_hosts
    assert (hosts["v"].context.limits.max_queues, hosts["v"].context.limits.max_connections) == (3, 7)
    hosts.create("other")
    hosts.limit(hosts["other"], VirtualHostLimits(max_queues=5))
    reload(objects, "")
    hosts.limit(hosts["v"], VirtualHostLimits(max_queues=4))
    reload(objects, "")
    assert (hosts["v"].context.limits.max_queues, hosts["other"].context.limits.max_queues) == (4, 5)


def test_a_declared_user_that_was_deleted_by_hand_comes_back() -> None:
    """With the next reload, also of the same files."""
    objects = start(ONE)
    objects.broker.connections.delete_user("one")
    reload(objects, ONE)
    assert names(objects) == ["one"]


def test_the_default_guest_is_back_where_the_declared_user_was_deleted_by_hand() -> None:
    """No user is left otherwise, and nobody could log in."""
    objects = start("")
    reload(objects, ONE)
    objects.broker.connections.delete_user("one")
    assert "no user is declared: the default guest is back" in reload(objects, "").done
    assert names(objects) == ["guest"]


def test_a_guest_that_an_operator_has_changed_is_no_default() -> None:
    """It stays when the first user is declared."""
    objects = start("")
    objects.broker.connections.replace_user(User("guest", new_hash("safe"), ("administrator",)))
    reload(objects, ONE)
    assert names(objects) == ["guest", "one"]


def test_a_user_may_what_its_entry_says() -> None:
    """Each pattern for its action, topics in their virtual host; limits of connections and channels."""
    objects = start("""
[[user]]
name = "u"
password = "p"
loopback-only = true
max-connections = 2
max-channels = 9
  [[user.permission]]
  vhost = "v"
  configure = "c"
  write = "w"
  read = "r"
  [[user.topic-permission]]
  vhost = "v"
  exchange = "amq.topic"
  write = "^tw"
  read = "^tr"
  [[user.permission]]
  vhost = "/"
""")
    user = user_of(objects, "u")
    actions = ("configure", "write", "read")
    assert [[user.may(action, "queue", name, "v") for name in "cwr"] for action in actions] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    assert list(user.topics()) == [("v", "amq.topic", TopicPermission("^tw", "^tr"))]
    assert (user.loopback_only, user.max_connections, user.max_channels) == (True, 2, 9)


def test_a_hash_that_is_none_is_a_fault_with_its_line() -> None:
    """`check` and `serve` say so; the text is not shown."""
    configuration, faults = load_configuration([("f", f'[[user]]\nname = "x"\npassword-hash = "{SECRET}"')])
    assert not faults
    (fault,) = faults_of(configuration)
    assert fault.startswith("f:3: password-hash: expected the base64 text of 36 octets")


# -- a real process --------------------------------------------------------------------------------------------------


def ctl(broker: BrokerProcess, *words: str, typed: str = "") -> str:
    """What `leveret ctl` printed."""
    done = leveret("ctl", "--url", broker.url, *words, typed=typed)
    assert done.returncode == 0, done.stderr
    return done.stdout


def connect(broker: BrokerProcess, user: str, password: str) -> pika.BlockingConnection:
    """As a client does."""
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, "/", credentials))


def test_a_password_in_a_file_that_others_can_read_is_a_fault(tmp_path: Path) -> None:
    """Exit 2, file, line, what to do; not the password. A hash may stand anywhere."""
    file = tmp_path / "leveret.toml"
    file.write_text(f'[[user]]\nname = "x"\npassword = "{SECRET}"\n')
    for mode, code in ((0o644, 2), (0o640, 2), (0o600, 0)):
        file.chmod(mode)
        done = leveret("check", str(file))
        assert done.returncode == code, done.stdout
        assert SECRET not in done.stdout + done.stderr
        if code:
            assert f"{file}:3: password: is in a file that other users can read" in done.stdout


def test_users_by_hand_in_a_running_broker(tmp_path: Path) -> None:
    """Added with a password from standard input, allowed, refused, deleted while connected; the log says no secret."""
    with leveret_serve(tmp_path, "--log-level", "debug", config="[broker]\nrefused-login-delay = 0\n") as broker:
        assert "has_password: True" in ctl(broker, "users", "add", "shop", typed=SECRET + "\n")
        ctl(broker, "permissions", "set", "shop", "^shop", ".*", "^shop")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, "shop", "wrong-" + SECRET)
        connection = connect(broker, "shop", SECRET)
        channel = connection.channel()
        channel.queue_declare("shop.q")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("theirs")
        assert refused.value.reply_text == (
            "ACCESS_REFUSED - configure access to queue 'theirs' in vhost '/' refused for user 'shop'"
        )
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):  # the control table is for administrators
            other = connection.channel()
            other.confirm_delivery()
            other.basic_publish("leveret.control", "", b'{"command": "status"}')
        exported = json.loads(ctl(broker, "definitions", "export"))
        assert [user["name"] for user in exported["users"]] == ["guest", "shop"]
        assert ctl(broker, "users", "delete", "shop") == "name: shop\nconnections_closed: 1\n"
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            while True:  # pika comes back as soon as anything was there
                connection.process_data_events(time_limit=60)
        assert (closed.value.reply_code, closed.value.reply_text) == (
            320,
            "CONNECTION_FORCED - user 'shop' is deleted",
        )
        file = tmp_path / "all.json"
        file.write_text(json.dumps(exported))
        assert "imported: " in ctl(broker, "definitions", "import", str(file))
        connect(broker, "shop", SECRET).close()
        assert broker.stop() == 0
        log = broker.log()
    assert SECRET not in log
    assert exported["users"][1]["password_hash"] not in log


def test_definitions_at_the_start(tmp_path: Path) -> None:
    """[broker] definitions: taken in before anybody is accepted; what is wrong is left out, with its line."""
    file = tmp_path / "definitions.json"
    queue = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    lost = {"source": "amq.topic", "vhost": "/", "destination": "gone", "routing_key": "", "arguments": {}}
    document = {"queues": [queue, {**queue, "vhost": "nowhere"}], "bindings": [lost]}
    file.write_text(json.dumps(document, indent=1), encoding="utf-8-sig")
    config = f"[broker]\ndefinitions = '{file}'\n"
    wrong = f"{file}:10: queues[1]: no virtual host 'nowhere'"
    remark = f"{file}:19: bindings[0]: left out: no queue 'gone' in vhost '/'"
    with leveret_serve(tmp_path, config=config) as broker:
        connect(broker, "guest", "guest").channel().queue_declare("q", passive=True)
        assert wrong in broker.log() and remark in broker.log()
    done = leveret("check", str(tmp_path / "leveret.toml"))
    assert done.returncode == 0 and f"warning: {wrong}" in done.stdout and f"warning: {remark}" in done.stdout
    assert leveret("check", "--strict", str(tmp_path / "leveret.toml")).returncode == 2


def test_definitions_at_the_start_all_or_nothing(tmp_path: Path) -> None:
    """On request a fault is exit 2 with its line; a file that is not JSON always is."""
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"queues": [{"name": "q", "vhost": "nowhere"}]}))
    config = tmp_path / "leveret.toml"
    config.write_text(f"[broker]\ndefinitions = '{file}'\ndefinitions-all-or-nothing = true\n")
    serve = ("serve", "--memory", "--management", "off", "--listen", "127.0.0.1:0", "--config")
    for command in (("check",), serve):
        done = leveret(*command, str(config))
        assert done.returncode == 2
        assert f"{file}:1: queues[0]: no virtual host 'nowhere'" in done.stdout + done.stderr
    for text in ("{", '{"queues": [\n {"name": "q"},\n]}'):
        file.write_text(text)
        for command in (("check",), serve):
            done = leveret(*command, str(config))
            assert done.returncode == 2 and "FILE: is not JSON" in done.stdout + done.stderr
    assert f"{file}:2: FILE: is not JSON: a comma after the last entry (column 15)" in done.stderr


def test_one_wrong_entry_of_a_file_and_ctl(tmp_path: Path) -> None:
    """`ctl definitions import` takes the others, names both with their lines, and does not end as if all were well."""
    file = tmp_path / "d.json"
    queue = {"name": "good", "vhost": "/"}
    file.write_text(json.dumps({"queues": [{**queue, "name": "bad", "durable": "yes"}, queue]}, indent=1))
    with leveret_serve(tmp_path) as broker:
        words = ("ctl", "--url", broker.url, "definitions", "import", str(file))
        for more, is_there in (("all-or-nothing=true",), False), ((), True):
            done = leveret(*words, *more)
            assert done.returncode == 1
            assert f"{file}:3: queues[0]: durable: expected true or false" in done.stdout + done.stderr
            assert ("'queues': 1" in done.stdout or "queues: 1" in done.stdout) is is_there
            assert ("nothing was changed" in done.stderr) is not is_there
        connect(broker, "guest", "guest").channel().queue_declare("good", passive=True)
        file.write_text("[1, 2,\n]")
        assert f"{file}:1: is not JSON: a comma after the last entry (column 6)" in leveret(*words).stderr
