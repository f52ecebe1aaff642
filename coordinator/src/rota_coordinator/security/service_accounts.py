"""
Names of service accounts, as Kubernetes has them for users and groups: the principals of pods, and the subjects of grants. Pure.
"""

import re
from collections.abc import Sequence

from rota_service.pod_tokens import Pod

USER = "system:serviceaccount:"
# The group of all service accounts, and the prefix of the groups of those of one namespace.
EVERYBODY = "system:serviceaccounts"
SUBJECT = re.compile(r"system:serviceaccount:[^:*]+:[^:*]+|system:serviceaccounts(?::[^:*]+)?")
EXPECTED = f"{USER}NAMESPACE:NAME, {EVERYBODY}:NAMESPACE or {EVERYBODY}"


def user_of(pod: Pod) -> str:
    """Return the user name of the pod's service account."""
    return f"{USER}{pod.namespace}:{pod.service_account}"


def is_in(subject: str, namespace: str) -> bool:
    """Return whether a subject is a service account of the namespace, all of them, or those of all namespaces."""
    return subject in (EVERYBODY, f"{EVERYBODY}:{namespace}") or subject.startswith(f"{USER}{namespace}:")


def subjects_of(user: str) -> Sequence[str]:
    """Return the names under which a service account has grants and quotas, the most general first; none for other users."""
    if not user.startswith(USER):
        return ()
    namespace = user.removeprefix(USER).partition(":")[0]
    return (EVERYBODY, f"{EVERYBODY}:{namespace}", user)
