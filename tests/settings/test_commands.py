"""`leveret check`, `explain` and `diff` as a person or a script meets them. Source: interfaces page."""

import json
from pathlib import Path

import pytest
from node_forge import leveret

OLD = """\
[[address-setting]]
match = "#"
dead-letter-address = "DLA"

[[address-setting]]
match = "jobs.#"
redelivery-delay = "1s"
default-ring-size = 3

[[address]]
name = "jobs.mail"
  [[address.queue]]
  name = "jobs.mail"
  max-consumers = 2
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file to begin with."""
    file = tmp_path / "old.toml"
    file.write_text(OLD)
    return file


def rules(output: str) -> dict[str, tuple[str, str]]:
    """setting -> (value, rule) of what explain prints."""
    rows = [line.strip().split(" = ", 1) for line in output.splitlines() if " = " in line]
    return {name: (rest.split("  ", 1)[0].strip(), rest.split("  ", 1)[1].strip()) for name, rest in rows}


def test_explain_a_declared_queue(old: Path) -> None:
    """Value, file, line and match of every setting; the queue's own arguments stand above."""
    done = leveret("explain", str(old), "jobs.mail")
    assert done.returncode == 0
    first, second, *_ = done.stdout.splitlines()
    assert first == f"queue jobs.mail (address jobs.mail, vhost /), declared at {old}:12"
    assert second == "matches, most specific first: jobs.#, #"
    said = rules(done.stdout)
    assert said["dead-letter-address"] == ('"DLA"', f"{old}:3: match '#'")
    assert said["redelivery-delay"] == ("1000", f"{old}:7: match 'jobs.#'")
    assert said["max-redelivery-delay"] == ("10000", "default: 10 x redelivery-delay")
    assert said["max-delivery-attempts"] == ("10", "default where a match sets redelivery or dead letters")
    assert said["default-max-consumers"] == ("2", f"{old}:14: queue 'jobs.mail' (x-max-consumers)")
    assert said["default-ring-size"] == ("3", f"{old}:8: match 'jobs.#'")
    assert said["no-expiry"] == ("false", "default")
    assert said["durable"] == ("true", f"{old}:12: queue 'jobs.mail'")


def test_explain_an_address_that_nobody_declared(old: Path) -> None:
    """Any name has settings; a virtual host with entries of its own is explained too."""
    with old.open("a") as file:
        file.write('[[address-setting]]\nmatch = "other"\nvhost = "v"\nno-expiry = true\n')
    done = leveret("explain", str(old), "other")
    assert [line for line in done.stdout.splitlines() if line.startswith("address")] == [
        "address other (address other, vhost /)",
        "address other (address other, vhost v)",
    ]
    alone = leveret("explain", str(old), "other", "--vhost", "v", "--json")
    (one,) = json.loads(alone.stdout)
    assert one["matches"] == ["other", "#"]
    row = next(row for row in one["rows"] if row["name"] == "no-expiry")
    assert row == {"name": "no-expiry", "value": True, "rule": f"{old}:18: match 'other' in vhost 'v'"}


@pytest.mark.parametrize("verb", ["explain", "diff"])
def test_an_unusable_file_is_exit_2_with_all_faults(old: Path, verb: str) -> None:
    """Nothing is explained or compared by half."""
    bad = old.with_name("bad.xml")
    bad.write_text("<address-setting match='a.#.b'>\n<no-expiri>1</no-expiri></address-setting>")
    done = leveret(verb, str(bad), "q") if verb == "explain" else leveret(verb, str(old), str(bad))
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [f"{bad}:1", f"{bad}:2"]
    assert leveret(verb, str(old.with_name("missing")), str(old)).returncode == 2


def test_diff_of_the_same_meaning_is_exit_0(old: Path) -> None:
    """Order, comments, units and the form of the file are no change."""
    new = old.with_name("new.toml")
    blocks = OLD.split("\n\n")
    new.write_text("# comment\n" + "\n\n".join([blocks[2], blocks[1].replace('"1s"', "1000"), blocks[0]]))
    done = leveret("diff", str(old), str(new))
    assert (done.returncode, done.stdout) == (0, "no change\n")


@pytest.mark.parametrize(
    "change, expected",
    [
        (("DLA", "D2"), ["match '#': dead-letter-address: \"DLA\" -> \"D2\" (at once)",
                         "queue 'jobs.mail': dead-letter-address: \"DLA\" -> \"D2\" (at once)"]),
        (("ring-size = 3", "ring-size = 4"), ["match 'jobs.#': default-ring-size: 3 -> 4 (new queues only)",
                                              "queue 'jobs.mail': default-ring-size: 3 -> 4 (new queues only)"]),
        (("consumers = 2", "consumers = 3"), ["queue 'jobs.mail': default-max-consumers: 2 -> 3 "
          "(not on a queue that exists: delete it first)"]),
        (("  max-consumers = 2", "  durable = false\n  max-consumers = 2"),
         ["queue 'jobs.mail': durable: true -> false (not on a queue that exists: delete it first)"]),
        (('match = "jobs.#"', 'match = "work.#"'),
         ["match 'jobs.#': removed: redelivery-delay 1000 (at once), default-ring-size 3 (new queues only)",
          "match 'work.#': added: redelivery-delay 1000 (at once), default-ring-size 3 (new queues only)",
          "queue 'jobs.mail': redelivery-delay: 1000 -> 0 (at once)",
          "queue 'jobs.mail': max-redelivery-delay: 10000 -> 0 (at once)",
          "queue 'jobs.mail': default-ring-size: 3 -> -1 (new queues only)"]),
        (('  name = "jobs.mail"', '  name = "jobs.post"'),
         ["queue 'jobs.mail': no longer declared: stays, with config-delete-queues OFF",
          "queue 'jobs.post': declared at NEW:12 (at once)"]),
        ((OLD[OLD.index("[[address]]"):], '[[address-setting]]\nmatch = "jobs.mail"\nconfig-delete-queues = "FORCE"\n'),
         ["match 'jobs.mail': added: config-delete-queues \"FORCE\" (at once)",
          "queue 'jobs.mail': no longer declared: deleted with its messages (at once)"]),
        (("[[address]]", '[broker]\nnack-counts = false\n[[vhost]]\nname = "v"\n[[divert]]\nname = "d"\naddress = "a"\n'
          'forwarding-address = "b"\n[[address]]'),
         ["[broker] nack-counts: true -> false (at once)", "divert 'd': declared (messages that arrive later)",
          "virtual host 'v': declared (at once)"]),
        (("[[address]]", '[broker]\nlisten = ["127.0.0.1:5673"]\nframe-max = 8192\nglobal-max-messages = 7\n'
          'persist-id-cache = false\n[[user]]\nname = "u"\n[limits]\nbindings = 5\n'
          '[[policy]]\nname = "p"\npattern = ""\ndefinition = '
          '{ message-ttl = 5 }\n[[address]]'),
         ["[broker] listen: [\"127.0.0.1:5672\"] -> [\"127.0.0.1:5673\"] (when the broker starts anew)",
          "[broker] frame-max: 131072 -> 8192 (new connections only)",
          "[broker] persist-id-cache: true -> false (when the broker starts anew)",
          "[broker] global-max-messages: -1 -> 7 (at once)",
          "[limits] bindings: 0 -> 5 (new bindings only)",
          "user 'u': declared (at once)",
          "user 'guest': the default one: deleted, as users are declared (at once)",
          "policy 'p': declared (at once)",
          "policy 'p': message-ttl: unset -> 5 (messages that arrive later)"]),
    ],
)  # fmt: skip
def test_diff_says_what_changes_and_when(old: Path, change: tuple[str, str], expected: list[str]) -> None:
    """Address-settings page 3.8: live settings at once, `default-*` on new queues only; exit 1."""
    new = old.with_name("new.toml")
    new.write_text(OLD.replace(*change))
    done = leveret("diff", str(old), str(new))
    assert done.returncode == 1
    assert done.stdout.replace(str(new), "NEW").splitlines() == expected


def test_check_reads_every_form_and_warns(tmp_path: Path) -> None:
    """TOML, XML and properties together; a limit without dead-letter address is said."""
    files = {
        "a.toml": '[broker]\nheartbeat = "30s"\n',
        "b.xml": "<address-setting match='q'><max-delivery-attempts>3</max-delivery-attempts></address-setting>",
        "c.properties": "addressSettings.r.defaultRingSize=3\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = leveret("check", *(str(tmp_path / name) for name in files))
    assert done.returncode == 0
    warning, ok = done.stdout.splitlines()
    assert ok == "ok"
    assert warning == (
        f"warning: {tmp_path}/b.xml:1: match 'q': limit without dead-letter address: "
        "after 3 failed deliveries a message is removed"
    )


def test_a_file_that_is_not_utf8_is_one_clear_fault(tmp_path: Path) -> None:
    """Whatever the XML declaration says."""
    file = tmp_path / "latin.xml"
    file.write_bytes(b'<?xml version="1.0" encoding="ISO-8859-1"?><address-setting match="\xe9"/>')
    done = leveret("check", str(file))
    assert (done.returncode, done.stdout) == (2, f"{file}:1: FILE: is not UTF-8 text\n")
