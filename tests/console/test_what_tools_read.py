"""What tools of others read and ask, found by running them: rates of the node, fields, paths.

Source: management page 4, 5.1.
"""

from api_client import ApiClient

from leveret.console.node_rates import INTERVAL_MS, RATED, NodeRates
from leveret.testing import start_broker

FIGURES = dict.fromkeys(RATED, 100)


def _rates(rates: NodeRates, now_ms: int, **figures: int) -> dict[str, float]:
    return {name: one["rate"] for name, one in rates.update(FIGURES | figures, now_ms).items() if one["rate"]}


def test_no_rate_at_first() -> None:
    """There is nothing to compare with."""
    assert _rates(NodeRates(), 0, mem_used=5) == {}


def test_a_rate_is_the_change_in_a_second() -> None:
    """Up and down, over the time since the request before."""
    rates = NodeRates()
    rates.update(FIGURES, 0)
    assert _rates(rates, 2 * INTERVAL_MS, mem_used=150, disk_free=0) == {
        "mem_used_details": 25.0,
        "disk_free_details": -50.0,
    }


def test_requests_that_follow_each_other_fast_see_the_same() -> None:
    """So that two tools do not spoil each other's rates."""
    rates = NodeRates()
    rates.update(FIGURES, 0)
    found = _rates(rates, INTERVAL_MS, fd_used=110)
    assert found == {"fd_used_details": 10.0}
    assert _rates(rates, INTERVAL_MS + 1, fd_used=999) == found


def test_every_figure_of_the_node_has_its_rate(api: ApiClient) -> None:
    """As RabbitMQ has them."""
    (node,) = api.ask("GET", "nodes").json
    for name in RATED:
        assert isinstance(node[name], int)
        assert isinstance(node[f"{name}_details"]["rate"], float)


def test_bindings_of_the_default_exchange(api: ApiClient) -> None:
    """Each queue is bound to it by its name."""
    api.ask("PUT", "queues/%2F/bound", {})
    rows = api.ask("GET", "exchanges/%2F/amq.default/bindings/source").json
    assert ("", "bound", "bound") in [(row["source"], row["destination"], row["routing_key"]) for row in rows]
    assert api.ask("GET", "exchanges/%2F/nope/bindings/source").json == []


def test_what_clients_of_newer_versions_cannot_do_without(api: ApiClient) -> None:
    """rabbitmqadmin 2 decodes no node, and no memory of one, in which these are missing."""
    (node,) = api.ask("GET", "nodes").json
    assert node["being_drained"] is False
    memory = api.ask("GET", f"nodes/{node['name']}/memory").json["memory"]
    assert (memory["metadata_store"], memory["metadata_store_ets"]) == (0, 0)


def test_the_default_exchange_as_an_empty_segment(api: ApiClient) -> None:
    """So rabbitmqadmin 2 publishes to it; RabbitMQ takes it wherever an exchange is named."""
    message = {"properties": {}, "routing_key": "empty", "payload": "a", "payload_encoding": "string"}
    api.ask("PUT", "queues/%2F/empty", {})
    assert api.ask("POST", "exchanges/%2F//publish", message).json == {"routed": True}
    assert api.ask("GET", "bindings/%2F/e//q/empty").json[0]["routing_key"] == "empty"
    assert api.ask("GET", "exchanges/%2F//").json["name"] == ""
    assert api.ask("GET", "queues/%2F//get").status == 404


def test_the_cluster_name_of_the_configuration_is_shown() -> None:
    """Until another one is set; dashboards select by it."""
    with start_broker(management=True, config={"broker": {"cluster-name": "shop"}}) as broker:
        api = ApiClient(broker.management_url)
        assert api.ask("GET", "cluster-name").json == {"name": "shop"}
        assert api.ask("GET", "overview").json["cluster_name"] == "shop"
        api.ask("PUT", "cluster-name", {"name": "other"})
        assert api.ask("GET", "global-parameters/cluster_name").json["value"] == "other"
        assert api.ask("GET", "global-parameters/internal_cluster_id").json["value"] == "leveret-shop"  # as before


def test_a_limit_of_memory_that_blocks_is_an_alarm() -> None:
    """It is on as long as publishers are blocked, also by the limit of one queue."""
    with start_broker(
        management=True, config={"system-usage": {"memory": "1KB", "store": "1MB", "temp": "1MB"}}
    ) as broker:
        api = ApiClient(broker.management_url)
        check, message = "health/checks/local-alarms", {"properties": {}, "routing_key": "full", "payload": "a" * 1100}
        api.ask("PUT", "queues/%2F/full", {})
        assert api.ask("GET", check).status == 200
        api.ask("POST", "exchanges/%2F/amq.default/publish", {**message, "payload_encoding": "string"})
        assert api.ask("GET", check).json["alarms"][0]["resource"] == "memory"
        assert api.ask("GET", "nodes").json[0]["mem_alarm"] is True
        api.ask("DELETE", "queues/%2F/full/contents")
        assert api.ask("GET", check).status == 200
        assert api.ask("GET", "nodes").json[0]["mem_alarm"] is False
