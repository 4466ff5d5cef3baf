"""One night of an operator of a cluster, with the page and `leveret ctl` alone.

A node hangs; two are lost, so publishers are blocked; one of them comes back, the machine of the other is replaced;
in the morning somebody asks who led at 03:12.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from cluster_nodes import ClusterNodes, Publisher, others, until
from etcd_servers import ETCD, WHY_NOT
from page_person import Person

pytestmark = [
    pytest.mark.skipif(ETCD is None, reason=WHY_NOT),
    pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)"),
]


class Operator:
    """Sees the page of nodes through one node, and asks the same node by `leveret ctl`."""

    def __init__(self, context: Any, nodes: ClusterNodes, through: str) -> None:
        self._nodes, self._through = nodes, through
        self.person = Person(context, nodes.console(through)).log_in()
        context.set_default_timeout(45000)
        self.person.allowed += ["Failed to load resource", "net::ERR"]  # nodes are lost
        self.person.tab.get_by_label("Refresh").select_option("1")
        self.person.opens("nodes", heading="Nodes")

    def row(self, name: str) -> Any:
        """Of a node."""
        return self.person.tab.get_by_role("row", name=re.compile(f"^{name} "))

    def sees(self, name: str, text: str | re.Pattern[str]) -> None:
        """Wait until the row of a node says it."""
        self.row(name).get_by_text(text).first.wait_for()

    def ctl(self, *words: str) -> Any:
        """The answer of `leveret ctl`."""
        url = f"amqp://guest:guest@127.0.0.1:{self._nodes.ports[self._through]}/"
        command = [sys.executable, "-m", "leveret", "ctl", "--json", "--timeout", "60", "--url", url, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def state(self, name: str) -> str:
        """As `ctl cluster` says it."""
        return next(str(one["state"]) for one in self.ctl("cluster")["nodes"] if one["name"] == name)


def test_a_night(nodes: ClusterNodes, browser: Any) -> None:
    """Each question is answered by the page, and again by `leveret ctl`; each remedy works."""
    leader = nodes.leader()
    second, third = others(leader)
    with (
        browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as context,
        Publisher(nodes, (leader,)) as publisher,
    ):
        publisher.await_confirms(20)
        operator = Operator(context, nodes, leader)
        person = operator.person
        person.sees("3 of 3")

        # Which node lags, and why? One has no room, then it hangs.
        file = nodes.directory / third / "leveret.toml"
        file.write_text(file.read_text().replace("reserve = 0", 'reserve = "8000GiB"'))
        nodes.signal(third, signal.SIGHUP)
        operator.sees(third, "disk alarm")
        nodes.signal(third, signal.SIGSTOP)
        person.sees("2 of 3")
        operator.sees(third, re.compile("does not answer|its process has ended, or it is cut off"))
        assert operator.state(third) in ("lost", "absent")
        publisher.await_confirms(20)
        nodes.signal(third, signal.SIGCONT)
        person.sees("3 of 3")

        # Why are publishers blocked?
        held_ms = time.time() * 1000
        nodes.kill(second)
        nodes.kill(third)
        operator.sees(leader, "publishers are blocked")
        person.sees("1 of 2 nodes in sync")
        assert operator.ctl("cluster")["why"] == "replication: 1 of 2 nodes in sync"
        person.opens(heading="Overview")  # where anybody looks first
        person.sees("2 of 3 nodes", within=person.panel("Needs attention"))
        person.sees(f"rabbit@{leader}", within=person.panel("Listeners"))
        person.opens("nodes", heading="Nodes")
        assert "replication: 1 of 2 nodes in sync" in json.dumps(operator.ctl("status"))
        nodes.start(second)
        person.sees("2 of 3")
        publisher.await_confirms(20)

        # The third does not come back: it is taken out, and a machine with an empty disk takes its place.
        until(lambda: operator.state(third) == "absent", f"the end of the lease of {third}")
        operator.ctl("forget", third)
        shutil.rmtree(nodes.data(third))
        nodes.start(third)
        person.sees("3 of 3")
        operator.sees(third, "it may lead")
        assert operator.ctl("cluster", "wait-in-sync")["is-ready"]

        # Nobody could take over for a while: etcd is gone.
        nodes.etcd.kill(0)
        person.opens(heading="Overview")
        person.sees("No other node can lead: etcd is not reached", within=person.panel("Needs attention"))
        assert "no other node can lead" in operator.ctl("status")["trouble"][0]
        publisher.await_confirms(20)
        nodes.etcd.start(0)
        until(lambda: operator.ctl("cluster")["etcd"] == "answers", "etcd")
        person.opens("nodes", heading="Nodes")

        # The leader's machine is switched off.
        operator.person.button("Drain …", within=operator.row(leader)).click()
        person.confirms("Drain")
        following = nodes.leader(but=leader)
        person.log_in()  # a session is the leader's that began it
        person.opens("nodes", heading="Nodes")
        operator.sees(leader, "does not lead until it is revived")
        operator.sees(following, "serves clients")
        publisher.await_confirms(20)

        # Who led, when were publishers blocked, and since when does the other one lead?
        history = person.panel("History")
        person.sees(f"{following} leads, in term", within=history)
        changes = operator.ctl("cluster", "history")["changes"]
        led = [one for one in changes if one["what"] == "led" and one["at-ms"] <= held_ms]
        assert led[-1]["node"] == leader
        assert changes[-1]["node"] == following or "in sync" in changes[-1]["why"]
    assert person.complaints == []
