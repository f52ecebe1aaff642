"""`kubectl rota groups upgrade`: asks for another image of a group's sidecars, which its status pins."""

from typing import Annotated

import typer

from rota_cli.clusters.kubernetes.kinds import CONSUMER_GROUP
from rota_cli.clusters.kubernetes.resource import ConsumerGroup
from rota_cli.commands.flags import with_flags
from rota_cli.commands.kubectl.api_flags import ApiFlags, ResourceName
from rota_cli.output.console import print_err, print_out
from rota_cli.output.render import OutputFormat, OutputOption, print_data

FIELD_MANAGER = "kubectl-rota"


@with_flags
def upgrade(
    flags: ApiFlags,
    name: ResourceName,
    image: Annotated[
        str, typer.Option("--image", help="Image of the sidecars.", metavar="IMAGE", show_default=False)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the API server check the change, and change nothing.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Set the image of a group's sidecars (spec.sidecar.image); the workload's pods are replaced by one rollout."""
    target = flags.open(name)
    from rota_cli.clusters.kubernetes.groups import read_group

    with target.api as api:
        group = read_group(api, target.namespace, name)
        # Of this very object: one that was deleted meanwhile is not created.
        metadata = {"name": name, "namespace": target.namespace, "uid": group.uid}
        # The creator owns the empty default of the schema; an image that was set meanwhile is not overridden.
        is_default = group.image_asked is None
        if is_default:
            metadata["resourceVersion"] = group.version
        fields = {
            "apiVersion": CONSUMER_GROUP.api_version,
            "kind": "ConsumerGroup",
            "metadata": metadata,
            "spec": {"sidecar": {"image": image}},
        }
        api.apply(CONSUMER_GROUP, fields, manager=FIELD_MANAGER, force=is_default, dry_run=dry_run)
    _report(group, image, output, dry_run=dry_run)


def _report(group: ConsumerGroup, image: str, output: OutputFormat, *, dry_run: bool) -> None:
    if output is not OutputFormat.TABLE:
        row = {
            "name": group.name, "namespace": group.namespace, "former_image": group.sidecar_image, "image": image,
            "dry_run": dry_run,
        }  # fmt: skip
        print_data(row, output)
        return
    print_out(f"{group.full_name}: sidecar image {group.sidecar_image or 'unknown'} → {image}")
    if dry_run:
        print_err("dry run: nothing was changed")
    elif image != group.sidecar_image:
        print_err(f"the operator replaces the pods by one rollout: follow it with {_follow_command(group)}")


def _follow_command(group: ConsumerGroup) -> str:
    target = group.spec.get("scaleTargetRef") or {}
    if not target.get("name"):
        return f"`kubectl rota groups watch {group.name} -n {group.namespace}`"
    kind = str(target.get("kind", "Deployment")).lower()
    return f"`kubectl rollout status {kind}/{target['name']} -n {group.namespace}`"
