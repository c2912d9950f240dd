"""Jobs: saved definitions of what to run."""

from pathlib import Path

import click

from api.cli.documents import to_yaml
from api.cli.fields import MOUNT_FORM, WORKER, Field, Pair, Record, field, field_options, fill
from api.cli.package import upload_path
from api.cli.run import submit
from api.cli.session import Group, Session, output_option, pass_session
from api.cli.shapes import JOB
from api.cli.verbs import add_create, add_delete, add_edit, add_list, add_show, dry_run_option, print_change
from api.client import Json

_MODES = click.Choice(["on_demand", "cluster", "cluster_group"])

FIELDS: tuple[Field, ...] = (
    field("--mode", "run_mode", "Where runs go; follows from --cluster or --cluster-group.", kind=_MODES),
    field("--cluster", "cluster", "Cluster to run on."),
    field("--cluster-group", "cluster_group", "Cluster group to run in."),
    field("--resource-package", "resource_package", "Resource package of an on-demand cluster."),
    field("--resource-group", "resource_group", "Resource group of an on-demand cluster."),
    field("--priority", "priority", "1 to 9, on-demand only.", kind=int),
    field("--image", "image", "Image of an on-demand cluster."),
    field("--head", "head", "Head of an on-demand cluster: cpu=2,memory_gib=4.", kind=Record()),
    WORKER,
    field("--package", "package", "Id of a package, or a folder or ZIP file to upload."),
    field("--entrypoint", "entrypoint", "Command to run."),
    field("--tag", "tags", "A tag.", kind=Pair(), is_many=True),
    field("--mount", "mounts", f"A volume to mount: {MOUNT_FORM}.", kind=Record(), is_many=True),
    field("--env", "runtime_env.env_vars", "A variable of the job's environment.", kind=Pair(), is_many=True),
    field("--description", "description", "What it is for."),
    field("--max-wait-s", "max_wait_s", "Give up waiting after so many seconds.", kind=int),
    field("--max-runtime-s", "max_runtime_s", "Stop a run after so many seconds.", kind=int),
)


@click.group(cls=Group)
def job() -> None:
    """Jobs: saved definitions of what to run."""


def _prepare(session: Session, body: Json, dry_run: bool) -> None:
    if "run_mode" not in body:
        body["run_mode"] = next((mode for mode in ("cluster", "cluster_group") if body.get(mode)), "on_demand")
    package = body.get("package")
    if not isinstance(package, str) or not Path(package).exists():
        return
    if dry_run:
        raise click.UsageError("a dry run stores nothing: upload the package first and give its id")
    body["package"] = upload_path(session, Path(package))["id"]


add_create(job, JOB, FIELDS, _prepare)
add_list(job, JOB, ["name", "run_mode", "cluster", "cluster_group", "resource_group", "package", "created_by", "tag"])
add_show(job, JOB)
add_edit(job, JOB, FIELDS, _prepare)


@job.command()
@click.argument("ref", metavar="JOB")
@click.argument("name", required=False)
@field_options(FIELDS)
@click.option("--print", "only_print", is_flag=True, help="Print the copy for `job create -f`, create nothing.")
@dry_run_option
@output_option
@pass_session
def copy(session: Session, *, ref: str, name: str | None, only_print: bool, dry_run: bool, **values: object) -> None:
    """Create another job with everything this one has, and the options over it."""
    body = session.muster.jobs.copy(ref)
    if name is not None:
        body["name"] = name
    fill(body, FIELDS, values)
    if only_print:
        click.echo(to_yaml(body).rstrip())
        return
    _prepare(session, body, dry_run)
    print_change(session, JOB, session.muster.jobs.create(body, dry_run=dry_run), dry_run=dry_run)


add_delete(job, JOB)
job.add_command(submit, "run")
