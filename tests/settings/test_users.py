"""[[user]] and [[vhost]] of the configuration: what they say, and every fault with its line."""

import pytest

from leveret.settings import Configuration, LimitsDeclaration, PermissionDeclaration, load_configuration
from leveret.settings.declared.declarations import TopicPermissionDeclaration
from leveret.settings.difference import differences

HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
SECRET = "correct horse"
SHOP = f"""
[[vhost]]
name = "shop"
max-connections = 10
max-queues = 0

[[user]]
name = "shop"
password-hash = "{HASH}"
tags = ["monitoring", "management"]
loopback-only = true
max-connections = 3
max-channels = -1
  [[user.permission]]
  vhost = "shop"
  configure = "^shop\\\\."
  write = ".*"
  [[user.topic-permission]]
  vhost = "shop"
  exchange = "amq.topic"
  write = "^{{username}}\\\\."
"""


def load(text: str) -> Configuration:
    """A text without faults."""
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults, faults
    return configuration


def test_a_user_with_all_that_can_be_said() -> None:
    """A pattern that is not said allows nothing; virtual hosts of permissions are there."""
    configuration = load(SHOP)
    (user,) = configuration.users
    assert (user.name, user.password_hash, user.loopback_only) == ("shop", HASH, True)
    assert user.tags == {"monitoring", "management"}
    assert (user.max_connections, user.max_channels) == (3, None)
    assert user.permissions == (PermissionDeclaration("shop", "^shop\\.", ".*", ""),)
    assert (user.topic_permissions[0].write, user.topic_permissions[0].read) == ("^{username}\\.", ".*")
    assert configuration.limits == {"shop": LimitsDeclaration(10, 0)}
    assert configuration.vhosts == ("shop",)


def test_the_least_that_can_be_said() -> None:
    """No password: nobody logs in by one. No permission: no virtual host to open."""
    (user,) = load('[[user]]\nname = "x"').users
    assert (user.password, user.password_hash, user.permissions, user.tags) == ("", "", (), frozenset())
    (user,) = load('[[user]]\nname = "x"\ntags = "administrator, impersonator"\n[[user.permission]]\n').users
    assert user.tags == {"administrator", "impersonator"}
    assert user.permissions == (PermissionDeclaration("/"),)


def test_a_topic_permission_for_the_default_exchange() -> None:
    """It has no effect, but definitions of RabbitMQ may have one, and it can be set over HTTP."""
    text = '[[user]]\nname = "x"\n[[user.permission]]\n[[user.topic-permission]]\nexchange = ""\nread = "^a"\n'
    (user,) = load(text).users
    assert user.topic_permissions == (TopicPermissionDeclaration("/", "", ".*", "^a"),)
    _, faults = load_configuration([("f.toml", text.replace('""', "5"))])
    assert [str(one) for one in faults] == [
        'f.toml:5: exchange: 5 is invalid, expected a name of at most 255 octets, "" for the default exchange'
    ]


@pytest.mark.parametrize(
    "text, fault",
    [
        ("[[user]]\n", ":1: name: is missing in [[user]]"),
        ('[[user]]\nname = ""', ":2: name: '' is invalid, expected a name"),
        ('[[user]]\nname = "x"\npasword = "p"', ":3: pasword: unknown key in [[user]], did you mean 'password'?"),
        ('[[user]]\nname = "x"\npassword = ""', ":3: password: is invalid, expected text that is not empty"),
        ('[[user]]\nname = "x"\npassword = 5', ":3: password: is invalid, expected text that is not empty"),
        ('[[user]]\nname = "x"\npassword = "p"\npassword-hash = "h"', ":3: password: password-hash is given as well"),
        (
            '[[user]]\nname = "x"\ntags = ["admin"]',
            ":3: tags: ['admin'] is invalid, expected a list of",
        ),
        ('[[user]]\nname = "x"\nmax-channels = 1.5', ":3: max-channels: 1.5 is invalid, expected an integer"),
        (
            '[[user]]\nname = "x"\nhashing-algorithm = "md5"',
            ":3: hashing-algorithm: 'md5' is invalid",
        ),
        ('[[user]]\nname = "x"\npermission = 5', ":3: permission: expected tables [[user.permission]]"),
        ('[[user]]\nname = "x"\n[[user.permission]]\nread = "("', ":4: read: '(' is invalid, expected a regular"),
        (
            '[[user]]\nname = "x"\n[[user.permission]]\nreed = ""',
            ":4: reed: unknown key in [[user.permission]]",
        ),
        ('[[user]]\nname = "x"\n[[user.topic-permission]]\n', ":3: exchange: is missing in [[user.topic-permission]]"),
        (
            '[[user]]\nname = "x"\n[[user.topic-permission]]\nexchange = "e"',
            ":1: topic-permission: user 'x' has no [[user.permission]] in virtual host '/'",
        ),
        (
            '[[user]]\nname = "x"\n[[user.permission]]\n[[user.permission]]\n',
            ":1: permission: user 'x' has two for",
        ),
        ('[[user]]\nname = "x"\n[[user]]\nname = "x"', ":3: user: 'x' is already declared at f.toml:1"),
        ('[[vhost]]\nname = "v"\nmax-queues = -2', ":3: max-queues: -2 is invalid, expected an integer"),
        ('[[vhost]]\nname = "v"\nmax-qeues = 2', ":3: max-qeues: unknown key in [[vhost]], did you mean 'max-queues'?"),
        (
            '[[vhost]]\nname = "v"\n[[vhost]]\nname = "v"\nmax-queues = 2',
            ":3: vhost: 'v' is already declared elsewhere, with other limits",
        ),
        ("[user]\nname = 'x'", ":1: user: expected tables [[user]]"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    """With file and line."""
    _, faults = load_configuration([("f.toml", text)])
    assert any(f"f.toml{fault}" in str(one) for one in faults), [str(one) for one in faults]


def test_passwords_are_never_shown() -> None:
    """Neither by a declaration, nor in a fault, nor by `leveret diff`."""
    with_password = load(f'[[user]]\nname = "x"\npassword = "{SECRET}"')
    assert SECRET not in repr(with_password)
    assert SECRET not in "\n".join(map(str, differences(Configuration(), with_password)))
    _, faults = load_configuration([("f", f'[[user]]\nname = "x"\npassword = ["{SECRET}"]')])
    assert faults and SECRET not in "\n".join(map(str, faults))


def test_differences_name_users() -> None:
    """New, changed and gone."""
    changed = SHOP.replace('write = ".*"', 'write = ""')
    (change,) = [str(one) for one in differences(load(SHOP), load(changed))]
    assert change.startswith("user 'shop': tags management monitoring; permissions shop: '^shop\\\\.' '.*' '' -> ")
    gone = "user 'shop': no longer declared: deleted, its connections are closed (at once)"
    assert gone in [str(one) for one in differences(load(SHOP), load(""))]


@pytest.mark.parametrize(
    "line, change",
    [
        ('password = "one"', "another password (new connections only)"),
        ("loopback-only = true", "loopback-only: false -> true (new connections only)"),
        ("max-connections = 3", "max-connections: unset -> 3 (new connections only)"),
        ("max-channels = 3", "max-channels: unset -> 3 (at once)"),
        (
            '[[user.topic-permission]]\nexchange = "amq.topic"\nwrite = "a"',
            "topic permissions none -> / amq.topic: 'a' '.*' (at once)",
        ),
    ],
)
def test_differences_of_a_user(line: str, change: str) -> None:
    """Everything that a reload looks at."""
    user, permission = '[[user]]\nname = "u"\n', '\n[[user.permission]]\nconfigure = ""'
    changed = permission + "\n" + line if "[[" in line else line + permission
    before, after = load(user + permission), load(user + changed)
    assert [str(one) for one in differences(before, after)] == [f"user 'u': {change}"]
