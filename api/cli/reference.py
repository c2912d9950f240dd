"""The reference page of the command line, made from the commands themselves.

python -m api.cli.reference > docs/reference/cli.md
"""

from collections.abc import Iterator

import click

from api.cli.errors import MEANINGS
from api.cli.main import main

_WIDTH = 100

_INTRODUCTION = """\
# The command line `muster`

This page is made from the commands themselves: `python -m api.cli.reference > docs/reference/cli.md`.

## Which server, and as whom

The address is the first found of `--address`, `MUSTER_ADDRESS`, what `muster login` kept, and `http://127.0.0.1:8266`.

The token is the first found of `--token`, `MUSTER_TOKEN`, what `muster login` kept for this very address, and, for an
address on this machine, the admin token in the state folder (`MUSTER_STATE_DIR`).

`muster login` keeps both in `login.json` in the user's configuration folder, mode 0600. A kept token is never sent to
another address. An option or a variable that is there but empty is refused.

## Output

Results go to standard output, everything else to standard error. `-o json` and `-o yaml` are the bodies of the API,
`-o jsonl` is one item a line, `-o name` is what other commands take. A table never wraps: on a terminal its free text
is cut with `…`, then columns at the right are left out; `-o wide` shows everything. Colours are for terminals only, and
for none with `--no-color` or `NO_COLOR`. Messages are Chinese where `LC_ALL`, `LC_MESSAGES` or `LANG` is, else English.

Files given with `-f` are YAML 1.2 or JSON: `on`, `22:00` and `2026-01-02` are text.

## Following

`--follow` and `logs -f` outlive broken connections and restarts of Muster: they go on at the byte they had reached, say
so on standard error, and end only when the run has ended and its log is complete. They give up after ten minutes
without any answer. Ctrl-C leaves the run alone and prints the command that goes on at the same byte.

Requests that can be repeated safely are repeated when a connection breaks; creates carry an `Idempotency-Key`, so that
nothing is created twice.

## Exit codes

They hold with every flag.

"""

_COMPLETION = """
## Completion

- bash: `eval "$(_MUSTER_COMPLETE=bash_source muster)"` in `~/.bashrc`
- zsh: `eval "$(_MUSTER_COMPLETE=zsh_source muster)"` in `~/.zshrc`
- fish: `_MUSTER_COMPLETE=fish_source muster | source` in its configuration
"""


def reference() -> str:
    codes = "".join(f"| {code.value} | {meaning} |\n" for code, meaning in MEANINGS.items())
    table = f"| code | meaning |\n|---|---|\n{codes}"
    return _INTRODUCTION + table + _COMPLETION + "".join(_sections(main, None, "muster"))


def _sections(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(command, parent, name, terminal_width=_WIDTH, help_option_names=["-h", "--help"])
    yield f"\n## {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found  # noqa: S101  it was listed
            yield from _sections(found, context, below)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
