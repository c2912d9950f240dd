"""Resource packages (bought pools) and the resource groups cut from them."""

import click

from api.cli.fields import Field, field
from api.cli.session import Group, Session, output_option, pass_session
from api.cli.shapes import QUEUED, RESOURCE_GROUP, RESOURCE_PACKAGE
from api.cli.verbs import add_create, add_delete, add_edit, add_list, add_queue, add_show

PACKAGE_FIELDS: tuple[Field, ...] = (
    field("--cpu", "capacity.cpu", "CPUs in the pool.", kind=float),
    field("--memory-gib", "capacity.memory_gib", "Memory in the pool.", kind=float),
    field("--backend", "backend", "What makes clusters from it: local or kuberay."),
    field("--namespace", "namespace", "Kubernetes namespace of its clusters."),
)
GROUP_FIELDS: tuple[Field, ...] = (
    field("--resource-package", "resource_package", "Package it is cut from."),
    field("--kind", "kind", "Exclusive, or shared with other groups.", kind=click.Choice(["exclusive", "shared"])),
    field("--cpu", "quota.cpu", "CPUs at most.", kind=float),
    field("--memory-gib", "quota.memory_gib", "Memory at most.", kind=float),
)


@click.group(cls=Group)
def quota() -> None:
    """Resource packages and resource groups."""


@quota.group()
def package() -> None:
    """Bought pools of resources."""


@quota.group()
def group() -> None:
    """Shares of a pool, each with its own queue."""


for _group, _noun, _fields in ((package, RESOURCE_PACKAGE, PACKAGE_FIELDS), (group, RESOURCE_GROUP, GROUP_FIELDS)):
    add_create(_group, _noun, _fields)
    add_list(_group, _noun)
    add_show(_group, _noun)
    add_edit(_group, _noun, _fields)
    add_delete(_group, _noun)


@group.command()
@click.argument("ref", metavar="GROUP")
@output_option
@pass_session
def usage(session: Session, ref: str) -> None:
    """Show what of the quota is used, reserved and left, and by whom."""
    session.out.details(session.muster.resource_groups.usage(ref), "name")


add_queue(group, RESOURCE_GROUP, QUEUED)
