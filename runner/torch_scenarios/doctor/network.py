"""Names, addresses, interfaces and ports of one host, as Gloo, NCCL and the endpoint use them.

Nothing here waits for another host for longer than :data:`CONNECTS_S`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct

from torch_scenarios.doctor.check import Check, fine, note, wrong
from torch_scenarios.execution.rendezvous import Endpoint

#: seconds that a connection to another host may take
CONNECTS_S = 5.0
#: seconds after which a name server is slow
SLOW_S = 2.0
_SIOCGIFADDR = 0x8915
_LISTENS = "0A"


def addresses() -> dict[str, list[str]]:
    """Return the addresses of each interface, IPv4 first; link-local ones are left out."""
    found: dict[str, list[str]] = {}
    for _, name in socket.if_nameindex():
        found[name] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, suppress(OSError):
            answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            found[name].append(socket.inet_ntoa(answer[20:24]))
    with suppress(OSError):
        for row in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            digits, _, _, _, _, name = row.split()
            address = ip_address(bytes.fromhex(digits))
            if not address.is_link_local:
                found.setdefault(name, []).append(str(address))
    return found


def is_loopback(address: str) -> bool:
    """Whether no other host reaches an address."""
    return ip_address(address.partition("%")[0]).is_loopback


def has_ipv6() -> bool:
    """Whether a socket of IPv6 can be had here."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def look_at_ipv6() -> list[Check]:
    """Say which addresses of IPv6 this host has."""
    named = [
        f"{address} ({name})"
        for name, each in addresses().items()
        for address in each
        if ":" in address and not is_loopback(address)
    ]
    if named:
        return [fine("ipv6", ", ".join(named))]
    if has_ipv6():
        return [fine("ipv6", "the loopback interface alone has an address of IPv6")]
    return [fine("ipv6", "this host has no IPv6")]


def look_at_interfaces(environment: Mapping[str, str]) -> list[Check]:
    """Say whether the interfaces that Gloo and NCCL are told to use are there, with addresses."""
    here = addresses()
    checks = []
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        value = environment.get(variable, "")
        for name in _names_in(value):
            if name not in here and not (
                variable.startswith("NCCL") and _begins(name, here, value)
            ):
                message = f"{variable}={value}: this host has no interface {name!r}"
                there = ", ".join(sorted(here)) or "none"
                checks.append(wrong("interfaces", message, f"name one of: {there}"))
            elif name in here and not here[name]:
                message = f"{variable}={value}: {name} has no address"
                checks.append(wrong("interfaces", message, f"`ip addr add … dev {name}`"))
    listed = ", ".join(f"{name} {each[0]}" for name, each in here.items() if each)
    return checks or [fine("interfaces", listed or "no interface has an address")]


def _names_in(value: str) -> list[str]:
    """Return the names in a list of NCCL's or Gloo's; none where it says which not to use."""
    if value.startswith("^"):
        return []
    return [name.partition(":")[0] for name in value.removeprefix("=").split(",") if name]


def _begins(name: str, here: Mapping[str, list[str]], value: str) -> bool:
    """Whether NCCL takes the interfaces that begin so, of which there is one."""
    return not value.startswith("=") and any(each.startswith(name) for each in here)


class Resolution(Struct, frozen=True, kw_only=True):
    """What the resolver says of a name: addresses, or why there are none, and how long it took.

    >>> Resolution(addresses=("127.0.1.1",)).is_loopback
    True

    Debian's /etc/hosts gives a machine's own name that address. Gloo then listens where no other
    host reaches it, and every rank hangs in `init_process_group`.
    """

    addresses: tuple[str, ...] = ()
    why: str = ""
    seconds: float = 0.0

    @property
    def is_loopback(self) -> bool:
        """Whether no other host reaches any of them."""
        return bool(self.addresses) and all(map(is_loopback, self.addresses))


def resolve(name: str) -> Resolution:
    """Ask the resolver for a name."""
    began_s = time.monotonic()
    found: tuple[str, ...] = ()
    why = ""
    try:
        listed = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        found = tuple(dict.fromkeys(str(each[4][0]) for each in listed))
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
    return Resolution(addresses=found, why=why, seconds=time.monotonic() - began_s)


def look_at_own_name(nodes: int, environment: Mapping[str, str]) -> list[Check]:
    """Say whether this host's own name leads here: Gloo listens where it leads."""
    name = socket.gethostname()
    found = resolve(name)
    matters = nodes > 1 and not environment.get("GLOO_SOCKET_IFNAME")
    tell = wrong if matters else note
    fix = f"`export GLOO_SOCKET_IFNAME={outward() or 'eth0'}` on this host" if matters else ""
    checks = look_at_pace(name, found)
    if found.why:
        message = f"this host's name {name} does not resolve ({found.why})"
        return [*checks, tell("name", f"{message}: Gloo takes the loopback interface", fix)]
    listed = ", ".join(found.addresses)
    if found.is_loopback and nodes > 1:
        message = f"this host's name {name} leads to {listed}, which no other host reaches"
        return [*checks, tell("name", message, fix)]
    return checks or [fine("name", f"{name} is {listed}")]


def look_at_pace(name: str, found: Resolution) -> list[Check]:
    """Say where the resolver is slow: torch asks for the name of each host that connects."""
    if found.seconds < SLOW_S:
        return []
    message = f"the resolver took {found.seconds:.1f} s for {name}"
    return [note("name", message, "write the names of the nodes to /etc/hosts")]


def outward() -> str:
    """Return the first interface that has an address which other hosts may reach."""
    for name, each in addresses().items():
        if any(not is_loopback(address) for address in each):
            return name
    return ""


def gloo_address(environment: Mapping[str, str]) -> str:
    """Return the address at which Gloo listens here: of its interface, or of this host's name."""
    here = addresses()
    for name in _names_in(environment.get("GLOO_SOCKET_IFNAME", "")):
        if here.get(name):
            return here[name][0]
    for address in resolve(socket.gethostname()).addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe, suppress(OSError):
            probe.bind((address, 0))
            return address
    return "127.0.0.1"


def look_at_endpoint(endpoint: Endpoint, nodes: int) -> list[Check]:
    """Say whether the endpoint's name leads to addresses that the nodes can use."""
    found = resolve(endpoint.host)
    checks = look_at_pace(endpoint.host, found)
    if found.why:
        message = f"the name {endpoint.host} does not resolve ({found.why})"
        return [*checks, wrong("endpoint", message, "correct it, or name an address of the first")]
    listed = ", ".join(found.addresses)
    own = next((each for name in [outward()] for each in addresses().get(name, ())), "10.0.0.1")
    if found.is_loopback and nodes > 1:
        message = f"{endpoint.host} leads to {listed} alone, which no other host reaches"
        where = Endpoint(host=own, port=endpoint.port)
        fix = f"name an address that all reach, as in {where}; see /etc/hosts"
        return [*checks, wrong("endpoint", message, fix)]
    if all(":" in each for each in found.addresses) and not has_ipv6():
        message = f"{endpoint.host} has addresses of IPv6 alone ({listed}), and this host has none"
        return [*checks, wrong("endpoint", message, "give this host an address of IPv6")]
    return [*checks, fine("endpoint", f"{endpoint} is at {listed}")]


def look_at_port(endpoint: Endpoint) -> list[Check]:
    """Say whether this host has the endpoint's address, and can listen at its port.

    Nothing is said where it is another host's.
    """
    for address in resolve(endpoint.host).addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, endpoint.port))
                probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message = f"port {endpoint.port} is in use here: {holder(endpoint.port)} has it"
                fix = "end that, or name another port with --rdzv-endpoint on every node"
                return [wrong("port", message, fix)]
            if error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                continue
            message = f"this host cannot listen at {endpoint}: {error.strerror or error}"
            return [wrong("port", message, "name another port, of 1024 or more")]
        return [fine("port", f"port {endpoint.port} is free on this host, the first node")]
    return []


def holder(port: int) -> str:
    """Return which program listens at a port, as far as this user may know."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for row in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                words = row.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{words[9]}]")
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for link in (entry / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(link) in inodes:  # noqa: PTH115 -- it leads to no path
                        name = (entry / "comm").read_text(encoding="utf-8").strip()
                        return f"process {entry.name} ({name})"
    return "another user's process"


def explain_refusal(address: str, port: int) -> str:
    """Return why no connection to a port of another host can be made; nothing where one can."""
    try:
        with socket.create_connection((address, port), timeout=CONNECTS_S):
            return ""
    except TimeoutError:
        return f"no answer within {CONNECTS_S:.0f} s: a firewall may drop what this host sends"
    except OSError as error:
        return error.strerror or str(error)
