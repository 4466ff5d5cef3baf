"""What else can be done on the page: `make browser` runs these too. Source: management page 15, 19, 20."""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika.exceptions
import pytest
from api_client import ApiClient
from broker_process import leveret_serve
from page_person import Person

from leveret.testing import RunningBroker, start_broker

pytestmark = pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)")


def test_many_at_once(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """Several are deleted together; with more than 1,000 messages in them the number has to be typed."""
    for name in ("many-1", "many-2", "others"):
        api.ask("PUT", f"queues/%2F/{name}", {})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(1001):
            channel.basic_publish("", "many-1", b"x")
    person.opens("queues", heading="Queues")
    person.tab.get_by_label("Filter").fill("many")
    person.sees("2 queues of")
    person.tab.get_by_label("Choose all on this page").check()
    person.button("Delete").click()
    person.sees("Delete 2 queues with 1,001 messages", within=person.tab.get_by_role("dialog"))
    person.confirms("Delete", typed="1001")
    person.sees("Deleted: 2 queues.")
    assert [queue["name"] for queue in api.get("queues") if "many" in queue["name"]] == []
    api.ask("DELETE", "queues/%2F/others")


def test_a_connection_is_closed(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """With the reason that was typed; the client is told."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    (name,) = (one["name"] for one in api.get("connections"))
    person.opens("connections", name, heading=name)
    person.button("Close the connection …").click()
    person.confirms("Close the connection", asked="out of order")
    person.sees("The connection is closed.")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="out of order"):
        connection.process_data_events(30)


def test_policies(person: Person, api: ApiClient) -> None:
    """One is set, is told as the reason on the queue's page, and deleted; what is wrong is said."""
    api.ask("PUT", "queues/%2F/ruled", {})
    person.opens("policies", heading="Policies")
    form = person.unfolds("Add or replace a policy")
    person.fills(form, name="short", pattern="(", definition='{"max-length": 5}')
    person.allowed.append("status of 400")
    person.button("Save", within=form).click()
    person.sees("pattern should be regular expression")
    person.button("Close this message").click()
    person.fills(form, pattern="^ruled$")
    person.button("Save", within=form).click()
    person.sees("short holds from now on.")
    person.opens("queues", "/", "ruled", heading="ruled")
    person.tab.get_by_role("link", name="short").wait_for()
    person.turns_to("Settings")
    person.sees("policy", within=person.panel("Settings, and what gave them"))
    assert api.get("queues/%2F/ruled")["policy"] == "short"
    person.opens("policies", heading="Policies")
    person.button("Delete …").click()
    person.confirms("Delete")
    person.sees("short is deleted.")
    assert api.get("policies") == []


def test_a_policy_that_drops(person: Person, api: ApiClient) -> None:
    """It says how many before it is saved; cancelled, nothing is changed."""
    api.ask("PUT", "queues/%2F/long", {})
    for _ in range(7):
        body = {"properties": {}, "routing_key": "long", "payload": "x", "payload_encoding": "string"}
        api.ask("POST", "exchanges/%2F/amq.default/publish", body)
    person.opens("policies", heading="Policies")
    form = person.unfolds("Add or replace a policy")
    person.fills(form, name="short", pattern="^long$", definition='{"max-length": 5}')
    person.button("Save", within=form).click()
    dialog = person.tab.get_by_role("dialog")
    person.sees("2 of 7 messages are dropped from 1 queue", within=dialog)
    person.button("Cancel", within=dialog).click()
    person.sees_no(dialog)
    assert api.get("policies") == []
    person.button("Save", within=form).click()
    person.confirms("Save all the same")
    person.sees("short holds from now on.")
    assert api.get("leveret/preview/queues/%2F/long")["ready"] == 5
    api.ask("DELETE", "policies/%2F/short")
    api.ask("DELETE", "queues/%2F/long")


def test_a_change_is_put_back(person: Person, api: ApiClient) -> None:
    """A deleted policy is there again; who deleted it, and what it said, is told."""
    api.ask("PUT", "policies/%2F/was", {"pattern": "^was$", "definition": {"max-length": 5}})
    api.ask("DELETE", "policies/%2F/was")
    person.opens("changes", heading="Changes")
    row = person.row("deleted").first
    person.sees("guest by HTTP", within=row)
    person.button("Put back what was before …", within=row).click()
    person.confirms("Put back")
    person.sees("It is as before: policy was.")
    assert api.get("policies/%2F/was")["definition"] == {"max-length": 5}
    api.ask("DELETE", "policies/%2F/was")


def test_from_a_message_to_its_client(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """Clients are shown by their own names; a click leads from a queue to those that fill and empty it."""
    api.ask("PUT", "queues/%2F/named", {})
    connections = []
    for name in ("shop", "billing"):
        parameters = pika.URLParameters(broker.url)
        parameters.client_properties = {"connection_name": name}
        connections.append(pika.BlockingConnection(parameters))
    shop, billing = (one.channel() for one in connections)
    shop.confirm_delivery()
    shop.basic_publish("", "named", b"x", pika.BasicProperties(message_id="order-7"))
    billing.basic_consume("named", lambda *delivery: None, consumer_tag="bill")
    connections[1].process_data_events(0)
    person.opens("queues", "/", "named", heading="named")
    held: list[Any] = []
    person.tab.route("**/publishers", lambda route: held.append(route))
    person.turns_to("Clients")
    publishers = person.panel("Who publishes here")
    person.sees("Loading …", within=publishers)  # not that there is none, before the broker has said so
    for one in held:
        one.continue_()
    person.tab.unroute("**/publishers")
    person.sees("shop", within=publishers)
    person.turns_to("Messages")
    fold = person.panel("Browse messages")
    person.fills(fold.get_by_role("form"), state="unacked")
    person.button("Browse", within=fold).click()
    fold.get_by_role("link", name="billing", exact=True).click()
    person.sees_heading("billing")
    person.sees("bill", within=person.panel("Consumers"))
    person.panel("Messages that it has not acknowledged").get_by_role("link", name="order-7").click()
    person.sees_heading("Find a message")
    person.sees("1 message found")
    person.tab.get_by_role("searchbox").first.fill("sho")
    person.sees("shop", within=person.tab.locator(".found"))
    for one in connections:
        one.close()
    api.ask("DELETE", "queues/%2F/named")


def test_users(person: Person, api: ApiClient) -> None:
    """Added with permissions in one form, allowed something else, limited, given other tags, deleted."""
    person.opens("users", heading="Users")
    form = person.unfolds("Add a user")
    person.fills(form, name="bob", password="secret", vhost="")
    person.button("Add", within=form).click()
    person.sees("User bob is there, without permissions.")
    bob = api.get("users/bob")
    person.fills(form, name="bob", password="another", vhost="")
    person.button("Add", within=form).click()
    person.sees("User bob is there already.")
    assert api.get("users/bob") == bob
    assert api.get("users/bob/permissions") == [] and api.ask("DELETE", "users/bob").status == 204
    person.fills(form, name="ann", password="secret", tags="monitoring", vhost="/", configure="", write="^w$")
    person.button("Add", within=form).click()
    person.link("ann").click()
    person.sees_heading("ann")
    (given,) = api.get("users/ann/permissions")
    assert [given[key] for key in ("vhost", "configure", "write", "read")] == ["/", "", "^w$", ".*"]
    person.button("Edit", within=person.panel("Permissions")).click()
    form = person.tab.get_by_role("form", name="Set permissions")
    person.fills(form, read="^a$")
    person.button("Set", within=form).click()
    person.sees("^a$", within=person.panel("Permissions"))
    assert api.get("users/ann/permissions")[0]["write"] == "^w$"  # the form began with what there was
    limits = person.panel("Limits")
    person.fills(limits, max_channels="7")
    person.button("Set", within=limits).click()
    person.sees("The limits are set.")
    assert api.get("users/ann")["limits"] == {"max-channels": 7}
    form = person.unfolds("Password and tags")
    person.fills(form, tags="management, policymaker")
    person.button("Save", within=form).click()
    person.sees("Saved.")
    assert sorted(api.get("users/ann")["tags"]) == ["management", "policymaker"]
    assert api.get("whoami", user="ann", password="secret")["name"] == "ann"
    person.fills(form, password="other")
    person.button("Save", within=form).click()
    person.sees("Whoever is at this page as ann has to log in again", within=person.tab.get_by_role("dialog"))
    person.confirms("Set")
    person.tab.wait_for_function("() => !document.querySelector('[name=password]').value")
    assert form.locator("[name=tags]").input_value() == "management, policymaker"
    assert api.get("whoami", user="ann", password="other")["name"] == "ann"
    person.button("Clear …").click()
    person.confirms("Clear")
    person.sees("No permissions", within=person.panel("Permissions"))
    form = person.unfolds("Set topic permissions")
    person.fills(form, exchange="amq.topic", write="^b$")
    person.button("Set", within=form).click()
    person.sees("^b$", within=person.panel("Topic permissions"))
    assert api.get("topic-permissions/%2F/ann")[0]["write"] == "^b$"
    person.button("Clear …").click()
    person.confirms("Clear")
    person.sees("None: every routing key is allowed.")
    person.allowed.append("status of 404")  # the page may ask for it while it is deleted
    person.button("Delete the user …").click()
    person.confirms("Delete")
    person.sees("ann is deleted.")
    assert api.ask("GET", "users/ann").status == 404


def test_publishing_octets(person: Person, api: ApiClient) -> None:
    """A body that is no text is given in base64, and shown by its octets."""
    api.ask("PUT", "queues/%2F/octets", {"durable": True})
    person.opens("queues", "/", "octets", heading="octets")
    person.turns_to("Messages")
    form = person.unfolds("Publish to this queue")
    person.fills(form, payload="AAH/", payload_encoding="base64")
    person.button("Publish", within=form).click()
    person.sees("Published; a queue has it.")
    panel = person.panel("Browse messages")
    person.button("Browse", within=panel).click()
    person.sees("00 01 ff", within=panel)


def test_names_of_dots(person: Person, api: ApiClient) -> None:
    """A browser takes . and .. in addresses for steps; these are names as others are."""
    for name in (".", "..", "\0.."):
        api.ask("PUT", f"queues/%2F/{quote(chr(0) + name, safe='')}", {"durable": True})
    assert {".", "..", "\0.."} <= {one["name"] for one in api.get("queues")}
    for name, shown in ((".", "."), ("..", ".."), ("\0..", "⟨U+0000⟩..")):
        person.opens("queues", heading="Queues")
        person.link(shown).click()
        person.sees_heading(shown)
        person.turns_to("Bindings")
        person.sees("(default)", within=person.panel("Bindings"))
        person.turns_to("Overview")
        person.allowed.append("status of 404")
        person.button("Delete the queue …").click()
        person.confirms("Delete")
        person.sees("is deleted.")
        assert name not in {one["name"] for one in api.get("queues")}


def test_the_log(browser: Any, tmp_path: Path) -> None:
    """Lines appear by themselves, by level; a monitor may look."""
    with leveret_serve(tmp_path, management="127.0.0.1:0") as process, browser.new_context() as context:
        url = process.lines[-1].removeprefix("leveret ready ")
        ApiClient(url).ask("PUT", "users/watcher", {"password": "watcher", "tags": "monitoring"})
        person = Person(context, url).log_in("watcher")
        person.opens("log", heading="Log")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.URLParameters(f"amqp://guest:wrong@127.0.0.1:{process.port}/"))
        person.sees("ACCESS_REFUSED", within=person.row("warning").first)
        person.tab.get_by_label("Level").select_option("error")
        person.sees_no(person.row("warning"))
        person.sees("Nothing yet.")
        assert "level=error" in person.tab.evaluate("location.hash")
        assert person.complaints == []


def test_virtual_hosts(person: Person, api: ApiClient) -> None:
    """Added, limited, chosen in the frame, deleted by typing the name."""
    person.opens("vhosts", heading="Virtual hosts")
    form = person.unfolds("Add a virtual host")
    person.fills(form, name="a/b ö", description="tests")
    person.button("Add", within=form).click()
    person.link("a/b ö").click()
    person.sees_heading("a/b ö")
    limits = person.panel("Limits")
    person.fills(limits, max_queues="3", max_connections="5")
    person.button("Set", within=limits).click()
    person.sees("The limits are set.")
    place = "vhost-limits/a%2Fb%20%C3%B6"
    assert api.get(place)[0]["value"] == {"max-connections": 5, "max-queues": 3}
    person.fills(limits, max_connections="")
    with person.tab.expect_response(lambda answer: answer.request.method == "PUT"):
        person.button("Set", within=limits).click()
    assert api.get(place)[0]["value"] == {"max-queues": 3}
    api.ask("PUT", "queues/%2F/of-another", {})
    person.tab.reload()
    person.tab.locator(".choices").get_by_label("Virtual host").select_option("a/b ö")
    person.opens("queues", heading="Queues")
    person.sees("No queues here")
    person.tab.locator(".choices").get_by_label("Virtual host").select_option("")
    person.link("of-another").wait_for()
    person.opens("vhosts", "a/b ö", heading="a/b ö")
    person.button("Delete the virtual host …").click()
    person.confirms("Delete", typed="a/b ö")
    person.sees("a/b ö is deleted.")
    assert [one["name"] for one in api.get("vhosts")] == ["/"]


def test_definitions(person: Person, api: ApiClient, tmp_path: Path) -> None:
    """Saved as a file; a file is looked through, then imported; one that is none is refused."""
    api.ask("PUT", "queues/%2F/kept", {"durable": True})
    person.opens("definitions", heading="Definitions")
    with person.tab.expect_download() as saving:
        person.button("Export").click()
    exported = json.loads(Path(saving.value.path()).read_text())
    assert "kept" in [queue["name"] for queue in exported["queues"]]
    exported["queues"].append({"vhost": "/", "name": "imported", "durable": True, "arguments": {}})
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(exported))
    bad.write_text("[]")
    person.tab.get_by_label("A file of definitions").set_input_files(bad)
    person.sees("bad.json holds no definitions")
    person.tab.get_by_label("A file of definitions").set_input_files(good)
    assert person.row("queues").get_by_role("cell").first.inner_text() == "1"
    person.button("Import …").click()
    person.confirms("Import")
    person.sees("The definitions are imported.")
    assert api.get("queues/%2F/imported")["durable"] is True


def test_scheduled(person: Person, api: ApiClient) -> None:
    """What comes later comes now, later still, or never."""
    api.ask("PUT", "exchanges/%2F/later", {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}})
    api.ask("PUT", "queues/%2F/due", {})
    api.ask("POST", "bindings/%2F/e/later/q/due", {})
    for _ in range(3):
        properties = {"headers": {"x-delay": 3_600_000}}
        body = {"routing_key": "k", "properties": properties, "payload": "x", "payload_encoding": "string"}
        api.ask("POST", "exchanges/%2F/later/publish", body)
    person.opens("scheduled", heading="Scheduled")
    person.button("Fire now …").first.click()
    assert api.get("leveret/scheduled")["total"] == 3
    person.confirms("Fire")
    person.sees("1 message made ready.")
    person.button("Reschedule …").first.click()
    person.confirms("Reschedule", asked="7200")
    person.sees("1 message rescheduled.")
    assert api.get("leveret/scheduled")["items"][-1]["due_in_ms"] > 7_000_000
    person.button("Cancel …").first.click()
    person.confirms("Delete")
    person.sees("1 message deleted.")
    assert (api.get("leveret/scheduled")["total"], api.get("queues/%2F/due")["messages"]) == (1, 1)
    for _ in range(2):
        api.ask("POST", "exchanges/%2F/later/publish", body)
    person.tab.reload()
    person.tab.get_by_label("Choose all on this page").check()
    person.tab.get_by_label("Choose this row").first.uncheck()
    chosen = person.tab.get_by_role("group", name="What to do with those chosen")
    person.sees("2 messages chosen", within=chosen)
    person.button("Reschedule …", within=chosen).click()
    person.confirms("Reschedule", asked="9000")
    person.sees("2 messages rescheduled.")
    assert [one["due_in_ms"] > 8_000_000 for one in api.get("leveret/scheduled")["items"]] == [False, True, True]
    person.tab.get_by_label("Choose all on this page").check()
    person.button("Cancel …", within=chosen).click()
    person.sees("3 messages", within=person.tab.get_by_role("dialog"))
    person.confirms("Delete")
    person.sees("Nothing is scheduled.")
    assert api.get("leveret/scheduled")["total"] == 0
    api.ask("DELETE", "queues/%2F/due")


def test_leases(person: Person, broker: RunningBroker, api: ApiClient) -> None:
    """Who holds a message is shown; a lease is broken in two steps."""
    body = {"durable": True, "arguments": {"x-queue-type": "amps", "x-lease-period": 600_000}}
    api.ask("PUT", "queues/%2F/leased", body)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.basic_publish("", "leased", b"x")
        next(channel.consume("leased", inactivity_timeout=30))
        (lease,) = api.get("leveret/leases")["items"][0]["leases"]
        person.opens("leases", heading="Leases")
        person.sees(lease["bookmark"])
        person.button("Break …").click()
        person.confirms("Break")
        person.sees("The lease is broken.")
        assert api.get("leveret/leases")["items"][0]["leases"][0]["deliveries"] == 2
    api.ask("DELETE", "queues/%2F/leased")


def test_without_rights(browser: Any, broker: RunningBroker, api: ApiClient) -> None:
    """Who may not see something is told so, and is offered no way there."""
    api.ask("PUT", "users/plain", {"password": "plain", "tags": "management"})
    with browser.new_context() as context:
        person = Person(context, broker.management_url).log_in("plain")
        person.allowed.append("status of 401")
        pages = person.tab.get_by_role("navigation", name="Pages")
        assert pages.get_by_role("link", name="Queues").is_visible()
        assert pages.get_by_role("link", name="Users").count() == 0
        person.opens("users", heading="Users")
        person.sees("Not administrator user")
        assert person.complaints == []


def test_parameters(person: Person, api: ApiClient) -> None:
    """Set as any JSON, shown, and deleted; feature flags are only shown."""
    person.opens("parameters", heading="Parameters")
    form = person.unfolds("Set a parameter")
    person.fills(form, name="far", component="federation-upstream", value="{nonsense")
    person.button("Set", within=form).click()
    person.sees("The value is not JSON: a text stands in quotes.")
    person.fills(form, value='{"uri": "amqp://far"}')
    person.button("Set", within=form).click()
    person.sees("far is set.")
    assert api.get("parameters/federation-upstream/%2F/far")["value"] == {"uri": "amqp://far"}
    value = '{"pattern": ".*", "definition": {"max-length": 0}}'
    person.fills(form, name="short", component="operator_policy", value=value)
    person.button("Set", within=form).click()
    person.sees("Set it on the page Policies, which shows first what it does.")
    assert api.get("operator-policies") == []
    person.sees('{"uri":"amqp://far"}', within=person.panel("Of virtual hosts"))
    form = person.unfolds("Set a global parameter")
    person.fills(form, name="note", value='"kept"')
    person.button("Set", within=form).click()
    row = person.panel("Of the broker").get_by_role("row").filter(has_text="note")
    person.button("Delete …", within=row).click()
    person.confirms("Delete")
    person.sees("note is deleted.")
    assert api.ask("GET", "global-parameters/note").status == 404
    person.sees("quorum_queue", within=person.panel("Feature flags"))


def test_definitions_of_one_virtual_host(person: Person, api: ApiClient) -> None:
    """Without users; the others are not in the file."""
    api.ask("PUT", "vhosts/apart", {})
    api.ask("PUT", "queues/apart/only", {"durable": True})
    person.opens("definitions", heading="Definitions")
    person.panel("Export").get_by_label("Of").select_option(label="apart")
    with person.tab.expect_download() as download:
        person.button("Export").click()
    found = json.loads(download.value.path().read_text())
    assert [one["name"] for one in found["queues"]] == ["only"] and "users" not in found
    assert "apart" in download.value.suggested_filename


def test_definitions_into_one_virtual_host(person: Person, api: ApiClient, tmp_path: Path) -> None:
    """Whatever virtual host the file names, or none: what would be new and what stays is shown for the chosen one."""
    api.ask("PUT", "vhosts/into", {})
    api.ask("PUT", "queues/into/there", {"durable": True, "arguments": {"x-max-length": 5}})
    file = tmp_path / "export.json"
    queues = [{"name": "there", "durable": True, "arguments": {}}, {"name": "fresh", "durable": True, "arguments": {}}]
    file.write_text(json.dumps({"queues": queues}))
    person.opens("definitions", heading="Definitions")
    panel = person.panel("Import")
    panel.get_by_label("A file of definitions").set_input_files(file)
    person.sees("vhost: is missing")
    panel.get_by_label("Into").select_option(label="into")
    person.sees("stays as it is here", within=person.row("into / there"))
    person.sees("new", within=person.row("into / fresh"))
    person.button("Import …").click()
    person.confirms("Import")
    person.sees("The definitions are imported.")
    assert sorted(one["name"] for one in api.get("queues/into")) == ["fresh", "there"]


def test_keys_are_added_by_a_click(person: Person, api: ApiClient) -> None:
    """With an example, beside what is written; what is there says its value; what is no object takes none."""
    person.opens("queues", heading="Queues")
    form = person.unfolds("Add a queue")
    person.fills(form, queue="clicked", arguments='{"x-max-length": 3}')
    form.get_by_text("Keys to add").click()
    assert person.button("x-max-length", within=form).is_disabled()
    person.sees("now 3: messages at most", within=form)
    person.button("x-message-ttl", within=form).click()
    person.button("Add", within=form).click()
    person.sees("Queue clicked is there.")
    assert api.get("queues/%2F/clicked")["arguments"] == {"x-max-length": 3, "x-message-ttl": 60000}
    field = form.locator("[name=arguments]")
    for written, then in (
        ("", '{\n "x-expires": 1800000\n}'),
        (
            '{"n": 9007199254740993, "a": {}, "a": {} } ',
            '{"n": 9007199254740993, "a": {}, "a": {},\n "x-expires": 1800000\n} ',
        ),
        ("{ }", '{\n "x-expires": 1800000\n}'),
    ):  # an integer that is no number of the page's, and a name twice
        field.fill(written)
        person.button("x-expires", within=form).click()
        assert field.input_value() == then
    person.fills(form, arguments="[1")
    person.sees("no key can be added", within=form)
    assert person.button("x-message-ttl", within=form).is_disabled()


def test_a_half_filled_form_outlives_the_session(person: Person, api: ApiClient) -> None:
    """The same user finds it after the next login; after a logout it is gone."""
    person.tab.locator(".choices").get_by_label("Refresh").select_option("1")
    person.opens("queues", heading="Queues")
    form = person.unfolds("Add a queue")
    person.fills(form, queue="half", arguments='{"x-max-length": 3}')
    person.allowed.append("status of 401")
    person.tab.context.clear_cookies()
    person.sees("The session of guest is over.")
    assert not form.is_visible()
    login = person.tab.locator(".login")
    person.fills(login, user="guest", password="guest")
    person.button("Log in", within=login).click()
    person.button("Add", within=form).click()
    person.sees("Queue half is there.")
    assert api.get("queues/%2F/half")["arguments"] == {"x-max-length": 3}
    assert person.tab.title() == "Queues – Leveret"
    person.fills(form, queue="other")
    person.button("Log out").click()
    person.tab.get_by_label("Password").wait_for()
    assert person.tab.locator("[name=arguments]").count() == 0


def test_an_ended_session_leaves_nothing_in_sight(person: Person, api: ApiClient) -> None:
    """Neither rows nor messages, questions or passwords, also where they are hidden."""
    person.tab.locator(".choices").get_by_label("Refresh").select_option("1")
    api.ask("PUT", "queues/%2F/secret-queue", {})
    body = {"routing_key": "secret-queue", "payload": "secret-body", "payload_encoding": "string", "properties": {}}
    api.ask("POST", "exchanges/%2F/amq.default/publish", body)
    person.opens("queues", "/", "secret-queue", heading="secret-queue")
    person.turns_to("Messages")
    fold = person.panel("Browse messages")
    person.button("Browse", within=fold).click()
    person.sees("secret-body")
    form = person.unfolds("Get messages")
    person.fills(form, ackmode="ack_requeue_false")
    person.button("Get", within=form).click()
    person.tab.get_by_role("dialog").wait_for()
    person.allowed.append("status of 401")
    person.tab.context.clear_cookies()
    person.sees("The session of guest is over.")
    assert "secret" not in person.tab.content()
    login = person.tab.locator(".login")
    person.fills(login, user="guest", password="guest")
    person.button("Log in", within=login).click()
    person.sees_heading("secret-queue")
    person.opens("users", heading="Users")
    form = person.unfolds("Add a user")
    person.fills(form, name="half-typed", password="secret-word")
    person.tab.context.clear_cookies()
    person.sees("The session of guest is over.")
    values = "[...document.querySelectorAll('input')].map((one) => one.value).join()"
    assert "secret" not in person.tab.evaluate(values)
    person.fills(login, user="guest", password="guest")
    person.button("Log in", within=login).click()
    person.sees_heading("Users")
    assert form.locator("[name=name]").input_value() == "half-typed"
    assert form.locator("[name=password]").input_value() == ""
    api.ask("DELETE", "queues/%2F/secret-queue")


def test_what_is_answered_after_a_logout_brings_nothing_back(person: Person) -> None:
    """A question for the user of the session was under way."""
    held: list[Any] = []
    person.tab.route("**/leveret/may", lambda route: held.append(route))
    person.opens("queues", heading="Queues")
    with person.tab.expect_response("**/leveret/logout"):
        person.button("Log out").click()
    person.tab.get_by_label("Password").wait_for()
    assert held
    for route in held:
        with person.tab.expect_response("**/leveret/may"):
            route.fulfill(json={"hidden_vhosts": 1})
    person.tab.unroute("**/leveret/may")
    person.tab.evaluate("() => fetch('api/leveret/session').then((answer) => answer.text())")  # the page has drawn then
    person.tab.get_by_label("Password").wait_for()
    assert person.tab.locator("#places").count() == 0
    assert person.tab.get_by_text("The session of").count() == 0


def test_by_keyboard(person: Person, api: ApiClient) -> None:
    """A slash finds, Enter goes there, Escape leaves a question, the first Tab leads to the content."""
    api.ask("PUT", "queues/%2F/keyed", {})
    tab = person.tab
    tab.keyboard.press("/")
    tab.keyboard.type("KEYED")
    person.sees("queue in /")
    tab.keyboard.press("Enter")
    person.sees_heading("keyed")
    person.button("Delete the queue …").focus()
    tab.keyboard.press("Enter")
    tab.get_by_role("dialog").wait_for()
    assert tab.evaluate("document.activeElement.closest('dialog') !== null")
    tab.keyboard.press("Escape")
    person.sees_no(tab.get_by_role("dialog"))
    assert api.ask("GET", "queues/%2F/keyed").status == 200
    tab.reload()
    person.sees_heading("keyed")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "content"


def test_colours_and_paper(person: Person) -> None:
    """Dark when the system or the person says so; on paper there is only the content."""
    tab = person.tab
    back = "getComputedStyle(document.documentElement).backgroundColor"
    light = tab.evaluate(back)
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate(back) != light
    tab.get_by_label("Colours").select_option("light")
    tab.wait_for_function(f"{back} === {light!r}")
    tab.emulate_media(media="print")
    assert not tab.get_by_role("navigation", name="Pages").is_visible()
    assert tab.get_by_role("heading", name="Overview").is_visible()


def test_blocked(browser: Any) -> None:
    """Who waits, for which limit and for how long; how much of the limit is used."""
    settings = {"match": "full", "max-size-messages": 2, "address-full-policy": "BLOCK"}
    with (
        start_broker(management=True, config={"address-setting": [settings]}) as broker,
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
        browser.new_context() as context,
    ):
        channel = connection.channel()
        channel.queue_declare("full")
        for _ in range(5):
            channel.basic_publish("", "full", b"x")
        person = Person(context, broker.management_url).log_in()
        person.sees("1 connection blocked", within=person.panel("Needs attention"))
        person.opens("blocked", heading="Blocked and full")
        person.sees("127.0.0.1:", within=person.panel("Who waits"))
        person.sees("2 of 2", within=person.panel("Limits"))
        person.opens("queues", "/", "full", heading="full")
        person.button("Purge 2 messages …").click()
        person.confirms("Purge")
        person.sees("full is purged.")
        assert person.complaints == []


def test_ten_thousand_queues(person: Person, api: ApiClient) -> None:
    """A hundred rows are shown at a time; the broker sorts, filters and turns pages."""
    queues = [{"vhost": "/", "name": f"q-{number:05}", "durable": True, "arguments": {}} for number in range(10_000)]
    api.ask("PUT", "vhosts/many", {})
    api.ask("PUT", "permissions/many/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    given = {"queues": [{**queue, "vhost": "many"} for queue in queues]}
    assert api.ask("POST", "definitions", given).status == 204
    person.opens("queues", heading="Queues")
    person.tab.locator(".choices").get_by_label("Virtual host").select_option("many")
    person.sees("10,000 queues")
    rows = person.tab.locator("main tbody tr")
    assert rows.count() == 100
    person.button("Next").click()
    person.link("q-00100").wait_for()
    person.button("Last").click()
    person.link("q-09999").wait_for()
    assert "page=100" in person.tab.url
    person.button("Name").click()
    person.link("q-00000").wait_for()
    person.button("Name").click()
    person.link("q-09999").wait_for()
    person.tab.get_by_label("regular expression").check()
    person.tab.get_by_label("Filter").fill("^q-0123[45]$")
    person.sees("2 queues of 10000")
    person.tab.go_back()
    assert api.ask("DELETE", "vhosts/many").status == 204


def test_the_broker_goes_and_comes(browser: Any, tmp_path: Path) -> None:
    """The page says so, keeps what it has, and goes on by itself, in the same session."""
    data = tmp_path / "data"
    with leveret_serve(tmp_path, management="127.0.0.1:0", data=data) as process:
        url = next(line for line in process.lines if "http://" in line).split()[-1]
        with browser.new_context() as context:
            person = Person(context, url).log_in()
            person.allowed += ["ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "status of 401"]
            person.tab.get_by_label("Refresh").select_option("1")
            process.stop()
            person.sees("The broker has not answered since")
            assert person.tab.get_by_text("no answer").is_visible()
            assert person.panel("Listeners").is_visible()
            address = url.removeprefix("http://").rstrip("/")
            with leveret_serve(tmp_path, management=address, data=data):
                person.sees_no(person.tab.get_by_text("The broker has not answered since"))
                person.opens("users", "guest", heading="guest")
                person.button("Log out").click()
                person.tab.get_by_label("Password").wait_for()
                assert person.complaints == []
