"""What an import, a command or a reload does not name stays as it is; what it names is replaced, and no more."""

from dataclasses import replace
from typing import Any

import pytest
from configured_broker import load

from leveret.configured.configured import ConfiguredObjects
from leveret.configured.configured_users import DEFAULT_GUEST
from leveret.engine import Broker, ManualClock, Users, VirtualHostLimits
from leveret.operator.control import ControlTable
from leveret.operator.definitions import import_steps
from leveret.operator.definitions_reader import DefinitionsFault
from leveret.operator.steps import finished

ALL = dict.fromkeys(("configure", "write", "read"), ".*")


class Ruled:
    """A broker with the default guest, and its commands."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock(), Users([DEFAULT_GUEST]))
        self.table = ControlTable()
        self.table.operator.attach(self.broker)

    def __call__(self, command: str, action: str, **arguments: Any) -> Any:
        """Arguments have underscores for dashes."""
        said = {key.replace("_", "-"): value for key, value in arguments.items()}
        return self.table.run(command, {"action": action, **said})

    def import_document(self, **document: Any) -> Any:
        """Import these sections."""
        return finished(import_steps(self.table.broker, document))

    def topics(self, user: str) -> list[tuple[str, str, str]]:
        """Virtual host, exchange and read pattern of each topic permission of a user, in force or waiting."""
        found = self.broker.users.find(user)
        assert found is not None
        return sorted((host, exchange, topic.read) for host, exchange, topic in found.topics())


@pytest.fixture
def ruled() -> Ruled:
    """With a user `a` that has topic permissions in force in one virtual host, and waiting in another."""
    made = Ruled()
    made("vhosts", "add", name="v")
    made("users", "add", name="a", password="p", tags="management")
    made("users", "limits", name="a", max_connections=3, max_channels=4)
    made("permissions", "set", user="a", **ALL)
    made("topic-permissions", "set", user="a", exchange="x", write=".*", read="^1")
    made("topic-permissions", "set", user="a", exchange="y", write=".*", read="^2", vhost="v")
    return made


def topic(exchange: str, vhost: str, read: str) -> dict[str, str]:
    """An entry of an import."""
    return {"user": "a", "vhost": vhost, "exchange": exchange, "write": ".*", "read": read}


def test_an_imported_user_keeps_its_permissions_of_topics() -> None:
    """And from where it may log in; password, tags and limits are those of the file."""
    ruled = Ruled()
    ruled("vhosts", "add", name="v")
    ruled("topic-permissions", "set", user="guest", exchange="x", write=".*", read="^1", vhost="/")
    guest = ruled.broker.users.find("guest")
    assert guest is not None and guest.loopback_only
    ruled.import_document(users=[{"name": "guest", "password": "other", "tags": "monitoring"}])
    guest = ruled.broker.users.find("guest")
    assert guest is not None and guest.loopback_only and guest.tags == ("monitoring",)
    assert ("/", "x", "^1") in ruled.topics("guest") and guest.permissions is not None and "/" in guest.permissions


def test_imported_users_and_permissions_keep_topics_in_force_and_waiting(ruled: Ruled) -> None:
    """Of the same virtual host and of another one."""
    both = [("/", "x", "^1"), ("v", "y", "^2")]
    assert ruled.topics("a") == both
    before = ruled.broker.users.find("a")
    assert before is not None
    ruled.broker.connections.replace_user(replace(before, loopback_only=True))
    ruled.import_document(users=[{"name": "a", "password": "p", "tags": ""}])
    after = ruled.broker.users.find("a")
    assert ruled.topics("a") == both and after is not None and after.loopback_only
    ruled.import_document(permissions=[{"user": "a", "vhost": "/", **ALL}])
    assert ruled.topics("a") == both
    ruled.import_document(topic_permissions=[topic("z", "/", "^3"), topic("z", "v", "^4")])
    assert ruled.topics("a") == [("/", "x", "^1"), ("/", "z", "^3"), ("v", "y", "^2"), ("v", "z", "^4")]
    ruled.import_document(topic_permissions=[topic("x", "/", "^5")])
    assert ("/", "x", "^5") in ruled.topics("a") and len(ruled.topics("a")) == 4


def test_commands_keep_topics_as_well(ruled: Ruled) -> None:
    """They wait while there are no permissions, and are in force with them again; each exchange alone is cleared."""
    both = ruled.topics("a")
    ruled("permissions", "set", user="a", configure="^a", write="^b", read="^c")
    assert ruled.topics("a") == both
    ruled("permissions", "clear", user="a")
    ruled("permissions", "set", user="a", vhost="v", **ALL)
    found = ruled.broker.users.find("a")
    assert ruled.topics("a") == both and found is not None and list(found.topics_before_permissions) == ["/"]
    ruled("topic-permissions", "set", user="a", exchange="other", write="", read="", vhost="v")
    ruled("topic-permissions", "clear", user="a", exchange="other", vhost="v")
    assert ruled.topics("a") == both
    ruled("topic-permissions", "clear", user="a", vhost="v")
    assert ruled.topics("a") == both[:1]
    ruled("users", "replace", name="a", password="q", tags="")
    found = ruled.broker.users.find("a")
    assert found is not None and (found.max_connections, found.max_channels) == (3, 4)
    assert ruled.topics("a") == both[:1]


def test_an_import_keeps_other_policies_and_the_hash_of_the_same_password(ruled: Ruled) -> None:
    """A policy of the same name is replaced."""

    def policy(name: str, length: int) -> dict[str, Any]:
        return {"vhost": "/", "name": name, "pattern": "^none$", "definition": {"max-length": length}}

    ruled.import_document(policies=[policy("p", 1)])
    ruled.import_document(policies=[policy("q", 2)])
    ruled.import_document(policies=[policy("p", 3)])
    found = {one.name: one.definition["max-length"] for one in ruled.broker.context.policies}
    assert found == {"p": 3, "q": 2}
    before = ruled.broker.users.find("a")
    ruled.import_document(users=[{"name": "a", "password": "p", "tags": ""}])
    after = ruled.broker.users.find("a")
    assert before is not None and after is not None and before.password == after.password
    ruled.import_document(users=[{"name": "a", "password": "other", "tags": ""}])
    after = ruled.broker.users.find("a")
    assert after is not None and after.password.is_right("other")


def test_limits_and_the_default_type_of_a_virtual_host_do_not_replace_each_other(ruled: Ruled) -> None:
    """By import and by command; and what is set by hand is no longer of the configuration."""
    host = ruled.broker.virtual_hosts["v"]
    ruled("vhosts", "default-queue-type", name="v", type="quorum")
    limits = {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 7}}
    ruled.import_document(parameters=[limits])
    assert host.context.limits == VirtualHostLimits(None, 7, "quorum")
    ruled.import_document(vhosts=[{"name": "v", "metadata": {"default_queue_type": "stream"}}])
    assert host.context.limits == VirtualHostLimits(None, 7, "stream")
    ruled("vhosts", "limits", name="v", max_connections=5)
    assert host.context.limits == VirtualHostLimits(5, 7, "stream")
    ruled("vhosts", "add", name="v", default_queue_type="classic")
    assert host.context.limits == VirtualHostLimits(5, 7, "stream")
    for command in (("vhosts", "limits", {"max_queues": 8}), ("vhosts", "default-queue-type", {"type": "quorum"})):
        configured = VirtualHostLimits(5, 7, "stream", is_configured=True)
        ruled.broker.virtual_hosts.limit(host, configured)
        ruled(*command[:2], name="v", **command[2])
        assert not host.context.limits.is_configured


def test_an_export_of_one_virtual_host_has_nothing_of_another(ruled: Ruled) -> None:
    """Nor what ends with its connection, which an import could not make again."""
    client = ruled.broker.connections.open("v", DEFAULT_GUEST, name="c", flush=lambda: None)
    for name, host in (("/", ruled.broker.virtual_hosts["/"]), ("v", ruled.broker.virtual_hosts["v"])):
        host.queues.declare("mine", client=None, durable=True)
        ruled("vhosts", "limits", name=name, max_queues=9)
        ruled("policies", "set", vhost=name, name="p", pattern="^none$", definition={"max-length": 1})
    host = ruled.broker.virtual_hosts["v"]
    host.queues.declare("theirs", client=client, exclusive=True)
    host.bindings.add("queue", "theirs", "amq.direct", "k", {})
    host.bindings.add("queue", "mine", "amq.direct", "k", {})
    exported = ruled("definitions", "export", vhost="v")
    assert [one["name"] for one in exported["queues"]] == ["mine"]
    assert [one["destination"] for one in exported["bindings"]] == ["mine"]
    assert [one["vhost"] for one in exported["policies"]] == ["v"]
    assert [one["vhost"] for one in exported["parameters"]] == ["v"]
    whole = ruled("definitions", "export")
    assert sorted(one["vhost"] for one in whole["policies"]) == ["/", "v"]
    assert [one["name"] for one in whole["queues"]] == ["mine", "mine"] and len(whole["bindings"]) == 1


def test_all_or_nothing_changes_nothing_for_one_fault(ruled: Ruled) -> None:
    """And all without one."""
    good, bad = {"name": "b", "password": "p", "tags": ""}, {"name": "", "password": "p", "tags": ""}
    with pytest.raises(DefinitionsFault):
        finished(import_steps(ruled.table.broker, {"users": [good, bad]}, is_whole=True))
    assert ruled.broker.users.find("b") is None
    finished(import_steps(ruled.table.broker, {"users": [good]}, is_whole=True))
    assert ruled.broker.users.find("b") is not None


# -- the configuration ------------------------------------------------------------------------------------------------


def start(text: str) -> ConfiguredObjects:
    """A broker with this configuration."""
    configuration = load(text)
    objects = ConfiguredObjects(Broker(ManualClock(), Users([DEFAULT_GUEST])), configuration)
    objects.apply(configuration)
    return objects


def reload(objects: ConfiguredObjects, text: str) -> None:
    """Another configuration, and the turns that it needs."""
    objects.apply(load(text))
    while objects.broker.end_turn():
        pass


def test_a_user_of_the_configuration_that_was_deleted_by_hand_is_back_with_a_reload() -> None:
    """Though its entry is the same; a user that was changed by hand stays changed until then."""
    text = '[[user]]\nname = "u"\npassword = "p"\n'
    objects = start(text)
    objects.broker.connections.delete_user("u")
    reload(objects, text)
    assert objects.broker.users.find("u") is not None


def test_topic_permissions_of_the_configuration_are_in_force() -> None:
    """Each in its virtual host."""
    text = '[[user]]\nname = "u"\npassword = "p"\n[[user.permission]]\nread = ".*"\n'
    text += '[[user.topic-permission]]\nexchange = "x"\nread = "^a"\nwrite = "^b"\n'
    user = start(text).broker.users.find("u")
    assert user is not None and user.permissions is not None
    granted = user.permissions["/"].grant.topics["x"]
    assert (granted.read, granted.write) == ("^a", "^b")


def test_logged_topics_policies_and_diverts_follow_a_reload() -> None:
    """Each of them, and not only at the start."""
    text = (
        '[[policy]]\nname = "p"\npattern = "^none$"\n[policy.definition]\nmax-length = 3\n'
        '[[divert]]\nname = "d"\naddress = "a"\nforwarding-address = "b"\n'
        '[[logged-topic]]\nname = "t"\n'
    )
    objects = start("")
    context = objects.broker.context
    reload(objects, text)
    assert [one.name for one in context.policies] == ["p"] and [one.name for one in context.logged_topics] == ["t"]
    diverts = objects.broker.virtual_hosts["/"].router.diverts
    assert [one.name for one in diverts.of("a")] == ["d"]
    reload(objects, "")
    assert not len(context.policies) and not context.logged_topics
    assert [one.name for one in objects.broker.virtual_hosts["/"].router.diverts.of("a")] == ["d"]  # it stays
