"""Files in other formats that users try: recognition, and advice."""

import re

#: A line of Erlang that is a comment.
_COMMENT = re.compile(r"^\s*%[^\n]*", re.MULTILINE)
_LIST_OF_TUPLES = re.compile(r"\[(?:\s|%[^\n]*)*\{\s*['a-z]")
#: Sections of RabbitMQ's definitions, and keys before them.
_DEFINITIONS = re.compile(r'"(rabbit(mq)?_version|users|vhosts|permissions|policies|queues|exchanges|bindings)"\s*:')
#: Prefixes of lines in RabbitMQ's own configuration.
_RABBITMQ_CONF = re.compile(
    r"^[ \t]*(listeners|ssl_options|management|log|default_(user|pass|vhost|permissions)|loopback_users|"
    r"disk_free_limit|vm_memory_high_watermark|cluster_(formation|name)|channel_max|load_definitions|definitions|"
    r"auth_\w+|tcp_listen_options|max_message_size|consumer_timeout|queue_master_locator|collect_statistics|"
    r"(web_)?(mqtt|stomp)|prometheus|stream|raft|quorum_queue|classic_queue|default_queue_type)[.\w]*[ \t]*=",
    re.MULTILINE | re.ASCII,
)
_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_NOT_READ = "which is not read: docs/from-rabbitmq.md has its keys, and `leveret init` writes a file to begin with"


def other_format(content: str) -> str:
    """The text after the file's name: its format, and advice; empty if the format may be one of ours."""
    if content.lstrip()[:1] == "{":
        if _DEFINITIONS.search(content) is None:
            return "looks like JSON, expected TOML, XML or key=value lines"
        return (
            'is a file of RabbitMQ\'s definitions: name it in a configuration (definitions = "FILE" in [broker]) and '
            "run `leveret check` on that, or give it to a broker with `leveret ctl definitions import FILE`"
        )
    if _is_erlang(content):
        return f"is RabbitMQ's configuration in Erlang terms (rabbitmq.config, advanced.config), {_NOT_READ}"
    if _RABBITMQ_CONF.search(content) is not None and _HEADER.search(content) is None:
        return f"looks like rabbitmq.conf, {_NOT_READ}"
    return ""


def _is_erlang(content: str) -> bool:
    """Whether it is a list of tuples, or a list (of plug-ins) and a full stop; or a text that begins with %."""
    plain = _COMMENT.sub("", content).strip()
    if not plain.startswith("["):
        return content.lstrip().startswith("%")
    return _LIST_OF_TUPLES.match(plain) is not None or plain.endswith("].")
