"""Which hosts may be fetched from (requirements §4.3): none that means the machine itself, or its cloud's metadata.

Names are not resolved: they may mean something else tomorrow.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Self

HOST = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
HOST_NAME = re.compile(rf"(?=.{{1,253}}$){HOST}")
"""Of IPv4 addresses too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AllowedHosts:
    """Those that an operator allows all the same."""

    names: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, words: Iterable[str]) -> Self:
        """From names, addresses and networks (`10.0.0.0/8`). Raises ValueError on anything else."""
        names, networks = set(), []
        for word in words:
            try:
                networks.append(ip_network(word))
            except ValueError:
                if not HOST_NAME.fullmatch(word) or _looks_like_number(word):
                    raise ValueError(f"{word!r} is no host, address or network") from None
                names.add(word.lower())
        return cls(names=frozenset(names), networks=tuple(networks))


def may_fetch_from(host: str, allowed: AllowedHosts | None = None) -> bool:
    allowed = allowed or AllowedHosts()
    name = host.rstrip(".").lower()
    if name in allowed.names:
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return not _looks_like_number(name) and not re.search(r"(^|\.)localhost$", name)
    address = getattr(address, "ipv4_mapped", None) or address
    if any(address in network for network in allowed.networks):
        return True
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)


def _looks_like_number(name: str) -> bool:
    """The C library reads more than that as an address: 127.1, 2130706433, 0x7f.1."""
    return re.search(r"(^|\.)(\d+|0x[0-9a-f]*)$", name, re.IGNORECASE) is not None
