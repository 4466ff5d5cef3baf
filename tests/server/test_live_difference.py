"""`leveret diff --live`: what other files would change in the broker that runs, queue by queue."""

import json
import subprocess
from pathlib import Path

import pytest
from broker_process import leveret_serve
from node_forge import leveret
from rawclient import Client

OLD = """
[[address-setting]]
match = "jobs.#"
redelivery-delay = 100
[[policy]]
name = "short"
pattern = "^mails$"
definition = { max-length = 10 }
[[address]]
name = "jobs.a"
[[address.queue]]
name = "jobs.a"
"""
NEW = """
[[address-setting]]
match = "jobs.#"
redelivery-delay = 5000
dead-letter-address = "failed"
default-ring-size = 4
[[policy]]
name = "short"
pattern = "^mails$"
definition = { max-length = 20 }
[[address]]
name = "jobs.a"
[[address.queue]]
name = "jobs.a"
"""


def diff(*arguments: str) -> subprocess.CompletedProcess[str]:
    return leveret("diff", *arguments)


def test_what_would_change_for_the_queues_that_are_there(tmp_path: Path) -> None:
    """Also for those that clients declared; `default-*` is for new ones, and not listed for them. Nothing changes."""
    new = tmp_path / "new.toml"
    new.write_text(NEW)
    with leveret_serve(tmp_path, config=OLD) as broker:
        url = f"amqp://127.0.0.1:{broker.port}/"
        client = Client("127.0.0.1", broker.port)
        client.handshake()
        client.call("channel.open")
        for name in ("mails", "other", "jobs.b"):
            client.call("queue.declare", queue=name, durable=True)
        for _ in range(2):
            done = diff("--live", str(new), "--url", url)
            assert done.returncode == 1, done.stderr
            assert done.stdout.replace(str(new), "NEW").splitlines() == [
                "match 'jobs.#': redelivery-delay: 100 -> 5000 (at once)",
                "match 'jobs.#': dead-letter-address: unset -> \"failed\" (at once)",
                "match 'jobs.#': default-ring-size: unset -> 4 (new queues only)",
                "queue 'jobs.a': redelivery-delay: 100 -> 5000 (at once)",
                "queue 'jobs.a': max-redelivery-delay: 1000 -> 50000 (at once)",
                'queue \'jobs.a\': dead-letter-address: "" -> "failed" (at once)',
                "queue 'jobs.a': default-ring-size: -1 -> 4 (new queues only)",
                """policy 'short': '^mails$' on all, priority 0: {"max-length": 10} -> """
                """'^mails$' on all, priority 0: {"max-length": 20} (at once)""",
                "queue 'mails', which is there:",
                "  x-max-length: 10 -> 20 (at once), NEW:7: policy 'short'",
                "queue 'jobs.b', which is there:",
                "  redelivery-delay: 100 -> 5000 (at once), NEW:4: match 'jobs.#'",
                "  max-redelivery-delay: 1000 -> 50000 (at once), default: 10 x redelivery-delay",
                "  dead-letter-address: unset -> \"failed\" (at once), NEW:5: match 'jobs.#'",
            ]
        same = diff("--live", str(tmp_path / "leveret.toml"), "--url", url)
        assert (same.returncode, same.stdout) == (0, "no change\n")
        answer = json.loads(diff("--live", "--json", str(new), "--url", url).stdout)
        assert [one["queue"] for one in answer["queues"]] == ["mails", "jobs.b"]
        client.abort()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--live", "missing.toml"), "missing.toml: cannot be read"),
        (("--live", "bad.toml"), "bad.toml:2: heartbeet: unknown key"),
        (("--live", "good.toml", "--url", "amqp://127.0.0.1:1/"), "leveret diff: "),
        (("good.toml",), "leveret diff: expected OLD and NEW, or --live"),
    ],
)
def test_what_cannot_be_compared_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    """Exit 2, and no traceback."""
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("[broker]\nheartbeet = 5\n")
    Path("good.toml").write_text("[broker]\nheartbeat = 5\n")
    done = diff(*arguments)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
