"""Who may come in, and who may do what."""

from quantumqtt.policy.access import Access
from quantumqtt.policy.admission import AdmissionRequest, Authenticate, check_verdicts, refuse_all
from quantumqtt.policy.explain import explain
from quantumqtt.policy.hooks import ClientNews, Hooks, overrides
from quantumqtt.policy.mechanisms import AuthRequest, AuthStep, Exchange, Mechanism

__all__ = [
    "Access",
    "AdmissionRequest",
    "AuthRequest",
    "AuthStep",
    "Authenticate",
    "ClientNews",
    "Exchange",
    "Hooks",
    "Mechanism",
    "check_verdicts",
    "explain",
    "overrides",
    "refuse_all",
]
