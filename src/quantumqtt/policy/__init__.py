"""Who may do what: so far, who may come in."""

from quantumqtt.policy.admission import AdmissionRequest, Authenticate, check_verdicts, refuse_all

__all__ = ["AdmissionRequest", "Authenticate", "check_verdicts", "refuse_all"]
