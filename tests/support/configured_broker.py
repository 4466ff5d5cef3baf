"""A broker with configured objects, in virtual time: for tests of what the configuration declares."""

from leveret.configured.configured import ConfiguredObjects, Report, faults_of
from leveret.engine import Broker, ManualClock, Queue, User, Users
from leveret.engine.clients.session import Session
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.engine.messages.message import Envelope
from leveret.settings import Configuration, load_configuration

GUEST = User("guest")
RING = """
[[address]]
name = "ring"
  [[address.queue]]
  name = "ring"
  ring-size = 3
"""


def load(text: str, name: str = "f.toml") -> Configuration:
    """A text without faults."""
    configuration, faults = load_configuration([(name, text)])
    assert not faults, faults
    assert not faults_of(configuration)
    return configuration


def make(text: str) -> ConfiguredObjects:
    """A broker that started with this configuration."""
    configuration = load(text)
    objects = ConfiguredObjects(Broker(ManualClock(), Users([GUEST]), settings=configuration.repository), configuration)
    assert objects.apply(configuration).faults == ()
    return objects


def reload(objects: ConfiguredObjects, text: str) -> Report:
    """Another configuration."""
    report = objects.apply(load(text))
    objects.broker.end_turn()
    return report


def queue_of(objects: ConfiguredObjects, name: str, vhost: str = "/") -> Queue:
    """A queue that is there."""
    return objects.broker.virtual_hosts[vhost].queues.named(name)


def session_of(objects: ConfiguredObjects) -> Session:
    """A channel of a new client."""
    return objects.broker.connections.open("/", GUEST, name="test", flush=lambda: None).open_session()


def publish(objects: ConfiguredObjects, session: Session, exchange: str, key: str, *bodies: str) -> None:
    """Short texts."""
    vhost = session.client.vhost
    contents = [NATIVE.join(encode_header(len(body)), body.encode()) for body in bodies]
    session.publish(vhost.router.route(exchange, key, GUEST), Envelope(exchange, key), contents, mandatory=False)
    objects.broker.end_turn()


def bodies(session: Session, queue: str) -> str:
    """All ready bodies; they are gone then."""
    taken = ""
    while (got := session.get(session.client.vhost.queues.named(queue), no_ack=True)) is not None:
        taken += got[1].body.decode()
    return taken


FORCE = """
[[address-setting]]
match = "#"
config-delete-queues = "FORCE"
config-delete-addresses = "FORCE"
"""

SETTING = '[[address-setting]]\nmatch = "#"\nredelivery-delay = 100\ndefault-ring-size = 8\n'


def configured_queue(attributes: str) -> str:
    """One queue with these attributes."""
    return f'[[address]]\nname = "q"\n[[address.queue]]\nname = "q"\n{attributes}\n{SETTING}'
