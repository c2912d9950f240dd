"""Which hosts may be fetched from (requirements §4.3): none that means the machine itself, or its cloud's metadata.

Names are not resolved: they may mean something else tomorrow.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

HOST = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
HOST_NAME = re.compile(rf"(?=.{{1,253}}$){HOST}")
"""Of IPv4 addresses too."""

_LOOPBACK_NAME = re.compile(r"(.*\.)?local(host|domain)|ip6-(localhost|loopback)")
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.tencentyun.com"})
_UNIQUE_LOCAL = IPv6Network("fc00::/7")
"""Where clouds keep their metadata in IPv6: fd00:ec2::254."""
_IPV4_AT_THE_END = (IPv6Network("::/96"), IPv6Network("64:ff9b::/96"))
"""Of IPv4-compatible addresses and NAT64."""


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
        return not (_looks_like_number(name) or _LOOPBACK_NAME.fullmatch(name) or name in _METADATA_NAMES)
    meant = [address, *_ipv4_within(address)]
    if any(one in network for one in meant for network in allowed.networks):
        return True
    return not any(_is_near(one) for one in meant)


def _ipv4_within(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """Which IPv4 address a gateway or the system may send it to."""
    if isinstance(address, IPv4Address):
        return []
    if any(address in network for network in _IPV4_AT_THE_END):
        return [IPv4Address(int(address) & 0xFFFF_FFFF)]
    return [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]


def _is_near(address: IPv4Address | IPv6Address) -> bool:
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        return True
    return address in _UNIQUE_LOCAL


def _looks_like_number(name: str) -> bool:
    """The C library reads more than that as an address: 127.1, 2130706433, 0x7f.1."""
    return re.search(r"(^|\.)(\d+|0x[0-9a-f]*)$", name, re.IGNORECASE) is not None
