"""What reloads keep to with two virtual hosts, objects that clients deleted, and what operators changed meanwhile."""

from dataclasses import replace

import pytest
from configured_broker import FORCE, RING, bodies, load, make, publish, queue_of, reload, session_of

from leveret.configured.configured_users import DEFAULT_GUEST, new_hash
from leveret.engine import ConsumerCancelled, Delivered, VirtualHostLimits
from leveret.settings import Policies, make_policy

HOSTS = '[[vhost]]\nname = "v"\n[[vhost]]\nname = "w"\n'
QUEUES = "".join(f'[[queue]]\nname = "q"\nvhost = "{vhost}"\n' for vhost in ("/", "v", "w"))
LOGGED = '[[logged-topic]]\nname = "{}"\n'


def test_reloaded_settings_reach_the_queues_of_each_virtual_host() -> None:
    """An entry for all of them (address-settings page 3.8)."""
    objects = make(HOSTS + QUEUES)
    reload(objects, HOSTS + QUEUES + '[[address-setting]]\nmatch = "#"\nredelivery-delay = 5\n')
    delays = [queue_of(objects, "q", vhost).rules.redelivery_delay_ms for vhost in ("/", "v", "w")]
    assert delays == [5, 5, 5]


def test_changed_policies_reach_the_queues_of_each_virtual_host() -> None:
    """In one change (behaviour page 3.12)."""
    objects = make(HOSTS + QUEUES)
    policies = [make_policy("p", vhost, "", {"max-length": 1}) for vhost in ("/", "v", "w")]
    objects.broker.reloading.replace_policies(Policies(policies))
    while objects.broker.end_turn():
        pass
    assert [queue_of(objects, "q", vhost).rules.max_length for vhost in ("/", "v", "w")] == [1, 1, 1]


def test_a_virtual_host_that_is_made_later_has_its_diverts_and_its_log() -> None:
    """They were declared before it was there."""
    divert = '[[divert]]\nname = "d"\nvhost = "x"\naddress = "a"\nforwarding-address = "copy"\n'
    objects = make("")
    objects.broker.reloading.replace_diverts(load(divert).diverts)
    objects.broker.reloading.replace_logged_topics(load(LOGGED.format("t") + 'vhost = "x"\n').logged_topics)
    vhost = objects.broker.virtual_hosts.create("x")
    assert [one.name for one in vhost.router.diverts.of("a")] == ["d"]
    assert vhost.router.captures.is_logged(["t"])


def test_a_reload_that_adds_a_topic_and_its_leased_queue() -> None:
    """The topic is logged when the queue is made (queues page A.3.2)."""
    objects = make(LOGGED.format("t"))
    leased = '[[queue]]\nname = "u"\ntype = "amps"\n'
    assert reload(objects, LOGGED.format("t") + LOGGED.format("u") + leased).warnings == ()
    assert objects.is_managed(queue_of(objects, "u"))


def test_previews_leave_out_what_a_client_has_deleted() -> None:
    """Neither changed nor deleted: it is not there."""
    objects = make(RING)
    session = session_of(objects)
    session.client.vhost.queues.delete("ring", session.client)
    assert objects.arguments_after(load(RING.replace("= 3", "= 5"))) == {}
    assert objects.queues_deleted_by(load(FORCE)) == []


def test_a_divert_that_is_no_longer_declared_stays_over_all_reloads() -> None:
    """Until its address says FORCE (address-settings page 3.5)."""
    queues = '[[queue]]\nname = "q"\n[[queue]]\nname = "copy"\n'
    objects = make(queues + '[[divert]]\nname = "d"\naddress = "q"\nforwarding-address = "copy"\n')
    session = session_of(objects)
    for body in "abc":
        reload(objects, queues)
        publish(objects, session, "", "q", body)
    assert bodies(session, "copy") == "abc"


def test_a_consumer_gets_what_it_has_room_for_before_its_queue_is_deleted() -> None:
    """Only the rest is lost, and told."""
    objects = make(RING)
    session = session_of(objects)
    session.prefetch = 1
    session.consume(queue_of(objects, "ring"), "tag", no_ack=True, exclusive=False, arguments={})
    queue = queue_of(objects, "ring")
    queue.freeze()
    publish(objects, session, "", "ring", "A")
    queue.unfreeze()
    report = objects.apply(load(FORCE))
    objects.broker.end_turn()
    assert not any("lost" in line for line in report.warnings)
    assert [type(effect) for effect in session.client.take_outbox()] == [Delivered, ConsumerCancelled]


POLICY = '[[{}policy]]\nname = "p"\npattern = "^q"\ndefinition = {{ max-length = {} }}\n'


def test_a_cleared_operator_policy_comes_back_beside_a_policy_of_its_name() -> None:
    """The configuration says that both exist."""
    text = POLICY.format("", 5) + POLICY.format("operator-", 3)
    objects = make(text)
    policies = objects.broker.context.policies
    objects.broker.reloading.replace_policies(policies.without([("/", True, "p")]))
    reload(objects, text)
    assert objects.broker.context.policies.find("/", "p", is_operator=True) is not None


def test_what_an_operator_changed_of_a_policy_stays_until_its_entry_changes() -> None:
    """Also while another entry does (behaviour page 3.12)."""
    text = POLICY.format("", 5)
    objects = make(text)
    changed = make_policy("p", "/", "^q", {"max-length": 9})
    objects.broker.reloading.replace_policies(objects.broker.context.policies.with_these([changed]))
    other = text.replace('"p"', '"other"')
    for more in ("", other, other):
        reload(objects, text + more)
        assert objects.broker.context.policies.find("/", "p") == changed
    reload(objects, "")
    assert len(objects.broker.context.policies) == 0


LIMITED = '[[vhost]]\nname = "v"\nmax-queues = 3\n'


def test_limits_that_an_operator_sets_stay_after_the_files_left_them() -> None:
    """The reload that no longer has them resets them, once."""
    without = '[[queue]]\nname = "q"\nvhost = "v"\n'
    objects = make(LIMITED + without)
    vhost = objects.broker.virtual_hosts["v"]
    assert vhost.context.limits == VirtualHostLimits(max_queues=3) and vhost.context.limits.is_configured
    reload(objects, without)
    assert vhost.context.limits == VirtualHostLimits()
    objects.broker.virtual_hosts.limit(vhost, VirtualHostLimits(max_queues=7))
    reload(objects, without)
    assert vhost.context.limits == VirtualHostLimits(max_queues=7)


USER = '[[user]]\nname = "one"\npassword = "1"\n'


def test_a_guest_that_an_operator_made_stays_when_no_user_is_declared() -> None:
    """It is not the default one, which would be back else."""
    objects = make(USER)
    guest = replace(DEFAULT_GUEST, password=new_hash("of an operator"))
    objects.broker.connections.replace_user(guest)
    reload(objects, "")
    assert objects.broker.users.find("guest") == guest


def test_limits_and_topic_permissions_of_a_declared_user() -> None:
    """Each where it belongs: connections, channels, and the virtual host of the topics."""
    permissions = "".join(f'[[user.permission]]\nvhost = "{vhost}"\nread = ".*"\n' for vhost in ("/", "v"))
    topics = '[[user.topic-permission]]\nvhost = "v"\nexchange = "e"\nread = "^a"\nwrite = "^b"\n'
    objects = make(HOSTS + USER + "max-connections = 2\nmax-channels = 5\n" + permissions + topics)
    user = objects.broker.users.find("one")
    assert user is not None and user.permissions is not None
    assert (user.max_connections, user.max_channels) == (2, 5)
    assert {vhost: list(one.grant.topics) for vhost, one in user.permissions.items()} == {"/": [], "v": ["e"]}


@pytest.mark.parametrize("vhost", ["/", "x"])
def test_a_policy_reaches_the_exchanges_that_each_virtual_host_has(vhost: str) -> None:
    """Also those of one that is made later; the default exchange has no policy."""
    policy = make_policy("p", vhost, "", {"alternate-exchange": "amq.fanout"}, apply_to="exchanges")
    objects = make("")
    objects.broker.reloading.replace_policies(Policies([policy]))
    objects.broker.end_turn()
    exchanges = objects.broker.virtual_hosts.create(vhost).exchanges
    assert (exchanges["amq.direct"].alternate, exchanges[""].alternate) == ("amq.fanout", None)
