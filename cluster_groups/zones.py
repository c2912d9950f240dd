"""Time zones by their IANA names, always those of the `tzdata` package.

So a decision can say by which rules it was made, and is the same on every machine, whatever its system knows of them.
"""

import re
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # it has no types, and one name is all we want

TZDATA = str(tzdata.IANA_VERSION)

_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


class UnknownZoneError(ValueError):
    """There is no time zone of this name."""


@cache
def zone(name: str) -> ZoneInfo:
    if not _NAME.fullmatch(name):
        raise UnknownZoneError(name)
    try:
        with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
            return ZoneInfo.from_file(data, key=name)
    except (OSError, ValueError) as error:  # no such file, nor a name of one; or a list of zones, a text about them
        raise UnknownZoneError(name) from error


def is_zone(name: str) -> bool:
    try:
        zone(name)
    except UnknownZoneError:
        return False
    return True
