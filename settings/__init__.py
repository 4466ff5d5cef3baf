# mypy: implicit-reexport
# ruff: noqa: F401 - imported for others
"""Configuration and address settings. Pure: text in, frozen objects out.

Sub-packages; each imports only those before it: `rows` (the tables), `addresses`, `policies`, `declared`, `lint`,
`files` (TOML), `foreign` (XML, properties). `loading` recognises a file's format. `explain` and `difference` import
neither `files` nor `foreign`; `faults`, `lifetime`, `values`, `profiles` and `printable` import no sub-package.
`queue_types` registers the types with their own arguments. `leases` is such a type: only `queue_types` and
`files.file_hooks`, both by name, and the engine's package of leased queues import it.
"""

from .addresses.destinations import NO_DESTINATIONS, DestinationPolicies, parse_destination
from .addresses.entries import Entry, entry
from .addresses.matching import MatchFault, Wildcards
from .addresses.queue_arguments import OwnSettings, settings_of_arguments
from .addresses.repository import NO_SETTINGS, SettingsRepository
from .addresses.topics import merge_topics
from .declared.configuration import Configuration
from .declared.declarations import (
    Divert,
    ExchangeDeclaration,
    LimitsDeclaration,
    LoggedTopic,
    PermissionDeclaration,
    QueueDeclaration,
    UserDeclaration,
)
from .faults import ArgumentFault, Fault, Origin
from .loading import load_configuration
from .policies.effective_policy import NO_LAYER, NO_POLICY, EffectivePolicy, PolicyLayer, policy_layer
from .policies.policies import NO_POLICIES, Policies
from .policies.policy import Policy, PolicyFault, faults_of_policy, make_policy, read_policy
from .rows.address_settings import Layer, ResolvedSettings, layer_of
from .rows.flow_control import NO_WHOLE_LIMITS, Flow, SystemUsage, WholeLimits
from .rows.queue_attributes import QUEUE_ARGUMENTS
