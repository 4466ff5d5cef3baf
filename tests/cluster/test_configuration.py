"""A configuration with [cluster] on the command line."""

import os
import ssl
from pathlib import Path

import pytest
from certificates import Authority

from leveret.__main__ import main
from leveret.serving.cluster_files import load_cluster
from leveret.settings import load_configuration

NODE = """\
[cluster]
node = "a"
nodes = ["a=127.0.0.1:7001", "b=127.0.0.1:7002", "c=127.0.0.1:7003"]
etcd = ["http://127.0.0.1:2379"]
"""


def test_a_node_is_not_kept_in_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is confirmed is on its disk (docs/cluster.md)."""
    file = tmp_path / "node.toml"
    file.write_text(NODE)
    assert main(["serve", "--config", str(file), "--memory"]) == 2
    assert "--memory: a node of a cluster has what is confirmed on disk" in capsys.readouterr().err


def check(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> list[str]:
    """What `leveret check` says of a file."""
    file = tmp_path / "node.toml"
    file.write_text(text)
    main(["check", str(file)])
    return [line.removeprefix(f"{tmp_path}/") for line in capsys.readouterr().out.splitlines()]


def test_the_secret_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is long enough, and nobody else reads it."""
    text, secret = NODE + 'secret-file = "secret"', tmp_path / "secret"
    assert check(tmp_path, capsys, text)[0].endswith("cannot be read: No such file or directory")
    secret.write_text("\n")
    assert check(tmp_path, capsys, text)[0].startswith("node.toml:5: secret-file: ") and secret.chmod(0o644) is None
    secret.write_text("short\n")
    assert "its first line has 5 octets, expected 16 or more" in check(tmp_path, capsys, text)[0]
    secret.write_text("x" * 16)
    assert "all users can read it (chmod 600)" in check(tmp_path, capsys, text)[0]
    secret.chmod(0o600)
    assert check(tmp_path, capsys, text) == ["ok"]


@pytest.mark.parametrize("kind", ["device", "pipe", "directory"])
def test_a_secret_that_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """A device is never read, and a named pipe without a writer is not waited for."""
    secret = tmp_path / "secret"
    if kind == "device":
        secret.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(secret)
    else:
        secret.mkdir()
    (line,) = check(tmp_path, capsys, NODE + 'secret-file = "secret"')
    why = {"device": "it is a device", "pipe": "it is a named pipe", "directory": "Is a directory"}[kind]
    assert line == f"node.toml:5: secret-file: {str(secret)!r} cannot be read: {why}"


def test_the_page_begins_with_a_configuration_that_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/cluster.md, with the secret that it makes; only the owner may read the file, which has a password."""
    page = (Path(__file__).resolve().parents[2] / "docs/cluster.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    for name, content in (("cluster.secret", "0" * 32), ("node.toml", "")):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o600)
    assert check(tmp_path, capsys, text) == ["ok"]


def test_certificates_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are loaded by `check`, and each fault has its line."""
    authority = Authority(tmp_path)
    certificate = authority.issue("node", "127.0.0.1")
    text = NODE + f'[cluster.tls]\nca = "{authority.file.name}"\ncertificate = "node.pem"\nkey = "node.key"'
    assert check(tmp_path, capsys, text) == ["ok"]
    authority.issue("node", "127.0.0.1", age_h=3)
    warning, last = check(tmp_path, capsys, text)
    assert warning.endswith("node.toml:7: certificate: certificate has expired") and last == "ok"
    certificate.with_suffix(".key").write_text("nonsense")
    assert check(tmp_path, capsys, text)[0].startswith("node.toml:7: certificate: ")
    authority.file.write_text("nonsense")
    assert "cannot be used" in check(tmp_path, capsys, text)[0]


@pytest.mark.parametrize(
    "hosts, more, expected",
    [
        ("127.0.0", "", ["EXTERNAL through a node that follows"]), ("10.0.0", "", ["in clear"]),
        ("127.0.0", "secret", []), ("10.0.0", "tls", []), ("127.0.0", "tls", []),
    ],
)  # fmt: skip
def test_clients_with_tls_are_warned_of_links_that_prove_or_hide_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: str, more: str, expected: list[str]
) -> None:
    """Their TLS ends at the node that they are connected to."""
    authority = Authority(tmp_path)
    authority.issue("node", "127.0.0.1")
    (tmp_path / "secret").write_text("x" * 16)
    (tmp_path / "secret").chmod(0o600)
    secret = 'secret-file = "secret"\n' if more == "secret" or hosts == "10.0.0" else ""
    keys = f'certificate = "node.pem"\nkey = "node.key"\nca = "{authority.file.name}"\n'
    text = NODE.replace("127.0.0", hosts).replace('"http://10.0.0', '"http://127.0.0') + secret
    text += f"[cluster.tls]\n{keys}" if more == "tls" else ""
    text += '[tls]\ncertificate = "node.pem"\nkey = "node.key"\nclient-ca = "node.pem"\nverify = "optional"\n'
    found = check(tmp_path, capsys, text + '[broker]\nmechanisms = ["PLAIN", "EXTERNAL"]\n')
    warnings = [line for line in found if "nodes: " in line]
    assert len(warnings) == len(expected) and all(one in line for one, line in zip(expected, warnings)), found
    assert found[-1] == "ok"


def test_files_are_compared_with_a_cluster_that_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check --cluster`: of a broker alone, and where nothing answers."""
    file = tmp_path / "node.toml"
    file.write_text("[broker]\n")
    assert main(["check", "--cluster", str(file)]) == 2
    assert "[cluster] is missing: there is no cluster to compare with" in capsys.readouterr().out
    file.write_text(NODE)
    assert main(["check", "--cluster", "--url", "amqp://guest:guest@127.0.0.1:1/", str(file)]) == 2
    assert capsys.readouterr().err.startswith("leveret check: ")


def test_what_the_files_hold(tmp_path: Path) -> None:
    """Etcd's login and contexts for links, both of which ask for a certificate."""
    authority = Authority(tmp_path)
    authority.issue("node", "127.0.0.1")
    (tmp_path / "password").write_text("hush \n")
    text = NODE.replace("http:", "https:") + 'etcd-user = "u"\netcd-password-file = "password"\n'
    for table in ("tls", "etcd-tls"):
        text += f'[cluster.{table}]\nca = "{authority.file}"\ncertificate = "node.pem"\nkey = "node.key"\n'
    configuration, _ = load_configuration([(str(tmp_path / "f.toml"), text)])
    files, faults, _ = load_cluster(configuration)
    assert faults == [] and files is not None
    assert (files.etcd.user, files.etcd.password, files.secret) == ("u", "hush", b"")
    assert files.etcd.endpoints == ("https://127.0.0.1:2379",)
    assert files.tls.server is not None and files.tls.client is not None and files.etcd.tls is not None
    assert {context.verify_mode for context in (files.tls.server, files.tls.client, files.etcd.tls)} == {
        ssl.CERT_REQUIRED
    }
    assert (files.tls.client.check_hostname, files.tls.server.check_hostname) == (True, False)
