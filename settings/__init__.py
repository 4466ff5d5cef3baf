"""What an operator may choose: configuration and, for each address, settings. Pure: text in, frozen objects out.

Rooms, each of which imports only those before it: `rows` < `addresses` < `policies` < `declared` < `leased` < `files`.
Beside them: `explain` and `difference`, which need no files; `faults`, `lifetime`, `values`, `profiles`, `printable`,
`help`, which import no room.
"""

from .addresses.destinations import NO_DESTINATIONS, DestinationPolicies, parse_destination
from .addresses.entries import Entry, entry
from .addresses.matching import MatchFault, Wildcards
from .addresses.queue_arguments import QUEUE_ARGUMENTS, ArgumentFault, OwnSettings, settings_of_arguments
from .addresses.repository import NO_SETTINGS, SettingsRepository
from .addresses.topics import strictest
from .declared.access_declarations import LimitsDeclaration, PermissionDeclaration, UserDeclaration
from .declared.configuration import Configuration
from .declared.declarations import Divert, ExchangeDeclaration, QueueDeclaration
from .declared.logged_topics import LoggedTopic
from .faults import Fault, Origin
from .files.loading import load_configuration
from .policies.policies import (
    NO_LAYER,
    NO_POLICIES,
    NO_POLICY,
    EffectivePolicy,
    Policies,
    Policy,
    PolicyFault,
    PolicyLayer,
    make_policy,
    policy_layer,
)
from .rows.address_settings import Layer, ResolvedSettings, layer_of
from .rows.flow_control import NO_WHOLE_LIMITS, Flow, SystemUsage, WholeLimits

__all__ = [
    "NO_DESTINATIONS",
    "NO_LAYER",
    "NO_POLICIES",
    "NO_POLICY",
    "NO_SETTINGS",
    "NO_WHOLE_LIMITS",
    "QUEUE_ARGUMENTS",
    "ArgumentFault",
    "Configuration",
    "DestinationPolicies",
    "Divert",
    "EffectivePolicy",
    "Entry",
    "ExchangeDeclaration",
    "Fault",
    "Flow",
    "Layer",
    "LimitsDeclaration",
    "LoggedTopic",
    "MatchFault",
    "Origin",
    "PermissionDeclaration",
    "OwnSettings",
    "Policies",
    "Policy",
    "PolicyFault",
    "PolicyLayer",
    "QueueDeclaration",
    "ResolvedSettings",
    "SettingsRepository",
    "SystemUsage",
    "UserDeclaration",
    "WholeLimits",
    "Wildcards",
    "entry",
    "layer_of",
    "load_configuration",
    "make_policy",
    "parse_destination",
    "policy_layer",
    "settings_of_arguments",
    "strictest",
]
