"""`kubectl rota groups explain`: the reasons for a group's state, assignment and scale, from its status and its Events."""

from rota_cli.commands.explain import print_remarks
from rota_cli.commands.flags import with_flags
from rota_cli.commands.kubectl.api_flags import ApiFlags, ResourceName
from rota_cli.diagnosis.resource_explanation import explain_resource
from rota_cli.output.console import print_err
from rota_cli.output.render import OutputFormat, OutputOption


@with_flags
def explain_command(flags: ApiFlags, name: ResourceName, output: OutputOption = OutputFormat.TABLE) -> None:
    """Explain the state of a group: its last rebalance, its assignment, its replicas, and its last Events."""
    target = flags.open(name)
    from rota_cli.clusters.kubernetes.errors import Forbidden
    from rota_cli.clusters.kubernetes.groups import read_events, read_group

    with target.api as api:
        group = read_group(api, target.namespace, name)
        try:
            events = read_events(api, group)
        except Forbidden as error:
            print_err(f"Events are unknown: {error}")
            events = None
    print_remarks(explain_resource(group, events), output)
