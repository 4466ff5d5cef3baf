"""Fields that are the same whatever happens: which they are, and why. Found by program in the views.

Source: management page 4, 5.
"""

import ast
from pathlib import Path
from typing import Any

import pika
import pytest
from api_client import ApiClient
from broker_process import leveret_serve

import leveret.console
from leveret.console.views.connections import cipher_parts
from leveret.testing import start_broker

ROOM = Path(leveret.console.__file__).parent

#: Field -> where it stands, by reason.
CONSTANT: dict[str, dict[str, set[str]]] = {
    "what Erlang's processes and stores have; nothing is like it here": {
        "connections.py": {"reductions", "pending_raft_commands"},
        "queues.py": {
            *("fullsweep_after", "max_heap_size", "min_bin_vheap_size", "min_heap_size", "minor_gcs", "reductions"),
            *("q1", "q2", "q3", "delta", "mode", "target_ram_count", "version"),
        },
        "sampler.py": {"reductions_details"},
        "nodes.py": {"gc_bytes_reclaimed", "metrics_gc_queue_length", "ra_open_file_metrics", "net_ticktime"},
        "overview.py": {"erlang_version", "statistics_db_event_queue", "cowboy_opts"},
    },
    "there is one node, without mirrors": {
        "queues.py": {"recoverable_slaves"},
        "nodes.py": {"cluster_links", "partitions", "running", "type"},
    },
    "dead letters leave a queue at once": {"queues.py": {"messages_dlx", "message_bytes_dlx"}},
    "counted by channel and exchange only in RabbitMQ's detailed mode, which `rates_mode` says is not on": {
        "connections.py": {"deliveries", "publishes"},
        "queues.py": {"deliveries", "incoming"},
        "nodes.py": {"rates_mode"},
        "overview.py": {"rates_mode"},
    },
    "so it is, always": {
        "bindings.py": {"source", "destination_type", "arguments"},  # of the one to the default exchange
        "connections.py": {"type"},
        "queues.py": {"state"},
        "nodes.py": {
            *("strategy", "mem_calculation_strategy", "enabled_plugins"),
            *("name", "description", "AMQPLAIN", "EXTERNAL", "PLAIN"),  # texts about ourselves and mechanisms
            "log_files",  # the log goes to standard error
        },
        "overview.py": {
            *("path", "product_name", "release_series_support_status", "enabled"),
            *("socket_opts", "backlog", "nodelay", "global", "basic", "detailed"),
            *("direct", "fanout", "topic", "headers"),  # texts about exchanges
        },
        # Which rate of ours stands for which of RabbitMQ's; and one that nobody has looked at yet.
        "sampler.py": {"avg_ingress_rate", "avg_egress_rate", "avg_ack_ingress_rate", "avg_ack_egress_rate", "rate"},
    },
}


def _literals(file: Path) -> set[str]:
    """Names in a file whose value is written there."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        for key, value in zip(node.keys, node.values) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and _is_literal(value):
                found.add(key.value)
    return found


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


FILES = [*sorted((ROOM / "views").glob("*.py")), ROOM / "sampler.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
def test_constants_are_listed(file: Path) -> None:
    """A field that is made up for want of something better is found here, with its reason."""
    listed: set[str] = set().union(*(names.get(file.name, set()) for names in CONSTANT.values()))
    assert _literals(file) == listed


def test_figures_of_the_node(tmp_path: Path) -> None:
    """What monitoring looks at: the limit of the disk, descriptors, tasks, how often the process was switched."""
    config = '[journal]\nreserve = "3MiB"\n[broker]\nmechanisms = ["PLAIN"]\n'
    with leveret_serve(tmp_path, config=config, data=tmp_path / "data", management="127.0.0.1:0") as broker:
        node: dict[str, Any] = ApiClient(broker.lines[1].removeprefix("leveret ready ")).get("nodes")[0]
        assert node["disk_free_limit"] == 3 * 1024**2 < node["disk_free"]
        assert node["context_switches"] > 0 and node["run_queue"] >= 0
        assert node["config_files"] == [str(tmp_path / "leveret.toml")]
        assert {one["name"] for one in node["auth_mechanisms"] if one["enabled"]} == {"PLAIN"}
        assert 0 < node["fd_used"] < node["fd_total"] and node["os_pid"] == str(broker.pid)


def test_sockets_of_the_node() -> None:
    """Connections and listeners."""
    with start_broker(management=True) as broker:
        api = ApiClient(broker.management_url)
        before = api.get("nodes")[0]["sockets_used"]
        with pika.BlockingConnection(pika.URLParameters(broker.url)):
            assert api.get("nodes")[0]["sockets_used"] == before + 1


@pytest.mark.parametrize(
    "cipher, exchange, digest",
    [
        ("TLS_AES_256_GCM_SHA384", "any", "sha384"),
        ("TLS_CHACHA20_POLY1305_SHA256", "any", "sha256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ecdhe_rsa", "sha384"),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "ecdhe_ecdsa", "sha256"),
    ],
)
def test_what_a_cipher_is_made_of(cipher: str, exchange: str, digest: str) -> None:
    """As RabbitMQ shows it of a connection over TLS."""
    assert cipher_parts(cipher) == {"ssl_key_exchange": exchange, "ssl_hash": digest}
