"""The syntax of labels that Kubernetes and Ray share."""

import re

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_RAYS_OWN = "ray.io/"


def is_label_key(key: str) -> bool:
    """Those that Ray gives to nodes itself are not for people to set."""
    prefix, slash, name = key.rpartition("/")
    if key.startswith(_RAYS_OWN) or (slash and not _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    return not value or _NAME.fullmatch(value) is not None
