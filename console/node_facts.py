"""Facts about the process of a node: resources, listeners, certificates."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Listening:
    """A listener of the broker. `protocol`: in RabbitMQ's words: amqp, amqp/ssl, http, https, ..."""

    protocol: str
    ip_address: str
    port: int
    is_tls: bool = False


@dataclass(slots=True, frozen=True)
class Certificate:
    """The certificate of a TLS listener. `authority`: the file with the authorities of clients' certificates.

    `expires_ms`, `authority_expires_ms`: wall times, one for each certificate in the file.
    """

    listening: Listening
    file: str
    expires_ms: tuple[int, ...]
    authority: str = ""
    authority_expires_ms: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class HostFacts:
    """Facts about the process, from the operating system and the event loop. Memory and disk are in octets."""

    process_id: int
    descriptors: int
    descriptors_max: int
    memory: int
    memory_max: int
    disk_free: int
    processors: int
    tasks: int
    tasks_ready: int = 0
    context_switches: int = 0
