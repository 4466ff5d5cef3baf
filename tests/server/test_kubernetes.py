"""deploy/kubernetes.yaml, as far as a machine without Kubernetes can tell: kubectl knows its fields, the parts fit."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leveret.__main__ import main

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes.yaml"
pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def kubectl(*command: str) -> list[dict[str, Any]]:
    """The objects of the manifest as kubectl prints them, without a server."""
    arguments = [*command, "--local", "-f", str(MANIFEST), "-o", "json"]
    text = subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=60).stdout
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        one, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(one)
    return found


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """By kind and name."""
    written = kubectl("annotate", "checked=yes")
    return {f"{one['kind']} {one['metadata']['name']}": one for one in written}


def unknown(written: Any, known: Any, path: str = "") -> list[str]:
    """Fields that are gone when kubectl has read an object by the types of its release."""
    if isinstance(written, dict):
        missing = [f"{path}.{key}" for key in written if key not in known]
        shared = written.keys() & known.keys()
        return missing + [one for key in shared for one in unknown(written[key], known[key], f"{path}.{key}")]
    if isinstance(written, list):
        return [one for index, pair in enumerate(zip(written, known)) for one in unknown(*pair, f"{path}[{index}]")]
    return []


def test_kubectl_knows_each_field_of_the_stateful_set(objects: dict[str, dict[str, Any]]) -> None:
    """What it does not know, it leaves out."""
    (typed,) = kubectl("set", "image", "leveret=other:1")
    assert unknown(objects["StatefulSet leveret"]["spec"], typed["spec"]) == []
    assert unknown({"replica": 3}, typed["spec"]) == [".replica"], "a slip is found"


def test_the_configuration_of_its_nodes(
    objects: dict[str, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker takes it; each pod has a node, under the name that the service of the nodes gives it."""
    stateful, nodes = objects["StatefulSet leveret"], objects["Service leveret-nodes"]
    configuration = tmp_path / "leveret.toml"
    (tmp_path / "cluster.secret").write_text("0123456789abcdef\n")
    (tmp_path / "cluster.secret").chmod(0o440)
    text = objects["ConfigMap leveret"]["data"]["leveret.toml"]
    configuration.write_text(text.replace("/etc/leveret-secret", str(tmp_path)))
    count, service = stateful["spec"]["replicas"], stateful["spec"]["serviceName"]
    port = nodes["spec"]["ports"][0]["port"]
    for index in range(count):
        name = f"{stateful['metadata']['name']}-{index}"
        assert f'"{name}={name}.{service}:{port}"' in configuration.read_text()
        (tmp_path / "node.toml").write_text(f'[cluster]\nnode = "{name}"\n')
        assert main(["check", "--strict", str(configuration), str(tmp_path / "node.toml")]) == 0, capsys.readouterr()
    assert nodes["spec"]["clusterIP"] == "None" and nodes["spec"]["publishNotReadyAddresses"] is True
    assert stateful["spec"]["podManagementPolicy"] == "Parallel", "else the first waits for the others, and they for it"


def test_the_parts_of_a_pod(objects: dict[str, dict[str, Any]]) -> None:
    """Ports, volumes and the time for a stop fit; its command writes the node's name."""
    spec = objects["StatefulSet leveret"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"amqp": 5672, "link": 5680, "metrics": 15692}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[name]["httpGet"]["port"] == "metrics"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    claims = objects["StatefulSet leveret"]["spec"]["volumeClaimTemplates"]
    volumes = {one["name"] for one in spec["volumes"]} | {one["metadata"]["name"] for one in claims}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    stop = container["lifecycle"]["preStop"]["exec"]["command"]
    waits_s = int(re.search(r"--timeout (\d+)", stop[-1]).group(1))  # type: ignore[union-attr]
    assert spec["terminationGracePeriodSeconds"] >= waits_s + 22
    for command in (container["command"], stop):
        assert subprocess.run(["sh", "-n", "-c", command[-1]]).returncode == 0
    printed = container["command"][-1].partition(" > ")[0]
    node = subprocess.run(["sh", "-c", printed], capture_output=True, text=True, env={"HOSTNAME": "leveret-1"}).stdout
    assert node == '[cluster]\nnode = "leveret-1"\n'
