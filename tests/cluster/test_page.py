"""The page of nodes with three real ones: who leads, what is behind, handover and drain in two steps."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import ClusterNodes, others, until
from etcd_servers import ETCD, WHY_NOT
from page_person import Person

pytestmark = [
    pytest.mark.skipif(ETCD is None, reason=WHY_NOT),
    pytest.mark.skipif("LEVERET_BROWSER" not in os.environ, reason="the long run (make browser)"),
]


def test_an_operator_takes_a_node_out(nodes: ClusterNodes, browser: Any, tmp_path: Path) -> None:
    """Through a follower: the leader's row says that it leads; a follower is drained and revived; another one leads."""
    leader = nodes.leader()
    second, third = others(leader)
    with browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as context:
        person = Person(context, nodes.console(second)).log_in()
        person.tab.get_by_label("Refresh").select_option("1")
        person.opens("nodes", heading="Nodes")
        person.sees("3 of 3")
        person.sees("leads", within=person.row("serves clients"))
        assert not person.is_too_wide()

        def row(name: str) -> Any:
            return person.tab.get_by_role("row", name=re.compile(f"^{name} "))

        person.button("Drain …", within=row(third)).click()
        person.confirms("Drain")
        person.sees("does not lead until it is revived", within=row(third))
        person.button("Revive …", within=row(third)).click()
        person.confirms("Revive")
        until(lambda: row(third).get_by_text("it may lead").count(), "a row in sync again")
        person.button("Hand over …", within=row(third)).click()
        person.sees(f"{leader} hands over to {third}", within=person.tab.get_by_role("dialog"))
        person.sees("0 connections end; clients connect again", within=person.tab.get_by_role("dialog"))
        person.confirms("Hand over")
        assert nodes.leader(but=leader) == third
        person.log_in()  # a session is the leader's that began it
        person.opens("nodes", heading="Nodes")
        person.sees("serves clients", within=row(third))
