"""What an operator may choose: configuration and, for each address, settings. Pure: text in, frozen objects out."""

from .access_declarations import LimitsDeclaration, PermissionDeclaration, UserDeclaration
from .configuration import Configuration
from .declarations import Divert, ExchangeDeclaration, QueueDeclaration
from .faults import Fault, Origin
from .loading import load_configuration
from .matching import MatchFault, Wildcards
from .model import AddressSettings
from .policies import (
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
from .queue_arguments import (
    QUEUE_ARGUMENTS,
    ArgumentFault,
    OwnSettings,
    settings_of_arguments,
)
from .repository import NO_SETTINGS, Entry, SettingsRepository, entry
from .resolved import ResolvedSettings

__all__ = [
    "NO_LAYER",
    "NO_POLICIES",
    "NO_POLICY",
    "NO_SETTINGS",
    "QUEUE_ARGUMENTS",
    "AddressSettings",
    "ArgumentFault",
    "Configuration",
    "Divert",
    "EffectivePolicy",
    "Entry",
    "ExchangeDeclaration",
    "Fault",
    "LimitsDeclaration",
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
    "UserDeclaration",
    "Wildcards",
    "entry",
    "load_configuration",
    "make_policy",
    "policy_layer",
    "settings_of_arguments",
]
