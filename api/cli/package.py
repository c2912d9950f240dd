"""Packages: the ZIP files jobs run from."""

import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from api.cli.archive import pack_folder
from api.cli.session import Group, Session, output_option, pass_session
from api.cli.shapes import PACKAGE, UPLOAD
from api.cli.verbs import add_delete, add_list, add_show, listing_options, print_list
from api.client import Json
from api.client.errors import ApiError, ServerUnreachable
from api.client.http import Upload

_MIB = 2**20
_RESUMABLE_FROM_BYTES = 16 * _MIB


@click.group(cls=Group)
def package() -> None:
    """Packages: the ZIP files jobs run from."""


@package.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@output_option
@pass_session
def upload(session: Session, path: Path) -> None:
    """Upload a ZIP file, or a folder, which is packed first.

    Of a folder, `.git`, `.venv`, `__pycache__` and links to other folders are left out; what was left out is told.

    From 16 MiB on it is sent so that it can go on: after a cut by itself, after Ctrl-C when the same command is given
    again within a day.
    """
    session.out.record(upload_path(session, path), PACKAGE.columns, PACKAGE.key)


@package.command()
@click.argument("source", metavar="cos://BUCKET/KEY|s3://BUCKET/KEY")
@click.option("--credential", required=True, help="Name of the credential that may read it.")
@click.option("--region", help="Region of the bucket; with S3 us-east-1 without it.")
@click.option("--endpoint", help="Server of the bucket, where that is not the cloud's own; an operator must allow it.")
@output_option
@pass_session
def fetch(session: Session, source: str, **options: str | None) -> None:
    """Make a package from a ZIP in object storage, of whatever size an operator allows.

    The service fetches and keeps it: later changes of the object change no package.
    """
    kind, _, path = source.partition("://")
    bucket, _, key = path.partition("/")
    if kind not in {"cos", "s3"} or not bucket or not key:
        raise click.UsageError(f"{source} is not cos://BUCKET/KEY or s3://BUCKET/KEY")
    named = {name: value for name, value in options.items() if value is not None}
    answer = session.muster.packages.fetch({"type": kind, "bucket": bucket, "key": key, **named})
    session.warn(answer)
    session.out.record(answer, PACKAGE.columns, PACKAGE.key)


@package.command()
@listing_options
@pass_session
def unfinished(session: Session, *, show_all: bool, **query: Any) -> None:
    """List your uploads that stopped on their way; `upload` of the same file goes on with them."""
    print_list(session, UPLOAD, session.muster.uploads.page, show_all=show_all, query=query)


@package.command()
@UPLOAD.argument
@pass_session
def discard(session: Session, ref: str) -> None:
    """Give up an unfinished upload."""
    session.muster.uploads.delete(ref)
    click.echo(session.say("deleted", ref=ref))


add_list(package, PACKAGE, ["file_name", "sha256", "created_by"])
add_show(package, PACKAGE)
add_delete(package, PACKAGE)


@package.command()
@click.argument("ref", metavar="PACKAGE")
@click.option(
    "-O", "--to", "target", type=click.Path(path_type=Path), help="File to write, by default its own name here."
)
@pass_session
def download(session: Session, ref: str, target: Path | None) -> None:
    """Write the ZIP file as it was uploaded, checked by its hash."""
    about = session.muster.packages.get(ref)
    target = target or Path(Path(about.get("file_name") or f"{about['id']}.zip").name)
    digest, size = hashlib.sha256(), 0
    handle, unfinished = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "wb") as out, session.muster.packages.content(about["id"]) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                size += out.write(chunk)
        if digest.hexdigest() != about["sha256"]:
            raise ApiError(
                code="PACKAGE_CORRUPT", status=502, detail=f"what came is not {about['id']}: its hash differs"
            )
        Path(unfinished).replace(target)
    finally:
        Path(unfinished).unlink(missing_ok=True)
    session.tell("downloaded", file=target, size=_size(size))


def upload_path(session: Session, path: Path) -> Json:
    """Upload a ZIP or a folder from disk, a piece at a time, with progress on a terminal."""
    with ExitStack() as stack:
        file, name = path, path.name
        if path.is_dir():
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-"))
            name = f"{path.resolve().name or 'package'}.zip"
            file = Path(scratch) / name
            packed = pack_folder(path, file)
            session.tell("packed", folder=path, count=packed.count, size=_size(file.stat().st_size))
            if packed.left_out:
                session.tell("left_out", names=_some(packed.left_out))
        answer = _send(session, file, name)
    session.warn(answer)
    return answer


def _send(session: Session, file: Path, name: str) -> Json:
    size_bytes = file.stat().st_size
    label, is_hidden = session.say("uploading", name=name), not sys.stderr.isatty()
    with click.progressbar(length=size_bytes, label=label, file=sys.stderr, hidden=is_hidden) as bar:

        def report(sent_bytes: int) -> None:
            bar.update(sent_bytes - bar.pos)

        if size_bytes < _RESUMABLE_FROM_BYTES:
            with _Watched(file, report) as content:
                return session.muster.packages.upload(Upload(name=name, content=content))
        try:
            return session.muster.packages.get(session.muster.uploads.send(file, name, report))
        except (KeyboardInterrupt, ServerUnreachable):
            if bar.pos:
                session.tell("upload_kept")
            raise


class _Watched(io.FileIO):
    """A file that tells how far it was read. Sent again after a lost connection, it starts over."""

    def __init__(self, path: Path, report: Callable[[int], None]) -> None:
        super().__init__(path)
        self._report = report

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = super().read(-1 if size is None else size)
        self._report(self.tell())
        return chunk


def _some(names: Sequence[str], at_most: int = 5) -> str:
    more = f", … (+{len(names) - at_most})" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB" if size_bytes >= _MIB else f"{size_bytes / 1024:.1f} KiB"
