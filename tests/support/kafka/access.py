"""Access control of a Kafka cluster in tests: what the user of a broker with logins may do."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.support.kafka.brokers import TIMEOUT_S, Kafka
from tests.support.processes import wait_for

Grant = tuple[ResourceType, AclOperation]
READ_GROUPS: Grant = (ResourceType.GROUP, AclOperation.READ)
READ_TOPICS: Grant = (ResourceType.TOPIC, AclOperation.READ)
WRITE_TOPICS: Grant = (ResourceType.TOPIC, AclOperation.WRITE)


def allow(kafka: Kafka, user: str, prefix: str, *grants: Grant) -> None:
    """
    Allow a user this with everything whose name begins with the prefix, in a cluster of one broker.

    Returns once the broker describes the rules: it learns of them after their creation was acknowledged, and refuses
    until then.
    """
    principal = f"User:{user}"
    admin = AdminClient(kafka.client_config())
    rules = [
        AclBinding(
            kind, prefix, ResourcePatternType.PREFIXED, principal, "*", operation, AclPermissionType.ALLOW
        )
        for kind, operation in grants
    ]
    for created in admin.create_acls(rules).values():
        created.result(TIMEOUT_S)
    those = AclBindingFilter(
        ResourceType.ANY,
        prefix,
        ResourcePatternType.PREFIXED,
        principal,
        "*",
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    wait_for(
        f"the broker knows what {user} may do",
        lambda: set(rules) <= set(admin.describe_acls(those).result(TIMEOUT_S)),
        within_s=TIMEOUT_S,
    )
