"""Getting a word out: every address family, and every way to reach a unix socket of the user's."""

import array
import ctypes
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from .kernel import libc
from .registry import PATIENCE_S, Stopped, World, attack, fact, root

IPPROTO_MPTCP, MSG_FASTOPEN, AF_ALG = 262, 0x20000000, 38
VISIT_S = 5.0  # the victim knocks five times a second; behind a network of its own an attack waits in vain


def _tcp(
    host: str, port: int, payload: str, family: int = socket.AF_INET, protocol: int = 0
) -> str:
    with socket.socket(family, socket.SOCK_STREAM, protocol) as client:
        client.settimeout(PATIENCE_S)
        client.connect((host, port))
        client.sendall(payload.encode())
        time.sleep(0.05)
    return "sent"


for _name, _family, _host, _port, _need in (
    ("tcp-loopback", socket.AF_INET, "127.0.0.1", "tcp_port", ()),
    ("tcp-loopback-v6", socket.AF_INET6, "::1", "tcp6_port", (fact("tcp6_port"),)),
    ("tcp-mapped-v4", socket.AF_INET6, "::ffff:127.0.0.1", "tcp_port", (fact("tcp6_port"),)),
    ("tcp-host-address", socket.AF_INET, "", "tcp_any_port", (fact("host_address"),)),
    ("tcp-any-address", socket.AF_INET, "0.0.0.0", "tcp_port", ()),  # it means this host
):

    @attack(_name, kind="network", evidence="received", needs=_need)
    def tcp(world: World, family: int = _family, host: str = _host, port: str = _port) -> str:
        return _tcp(host or world.host_address, getattr(world, port), world.id, family)


@attack("mptcp", kind="network", evidence="received", needs=(fact("has_mptcp"),))
def mptcp(world: World) -> str:
    return _tcp("127.0.0.1", world.tcp_port, world.id, protocol=IPPROTO_MPTCP)


@attack("tcp-fastopen", kind="network", evidence="received")
def tcp_fastopen(world: World) -> None:
    """Data in the first packet: connected without connect()."""
    with socket.socket() as client:
        client.sendto(world.id.encode(), MSG_FASTOPEN, ("127.0.0.1", world.tcp_port))
        time.sleep(0.1)


@attack("tcp-reconnect", kind="network", evidence="received")
def tcp_reconnect(world: World) -> None:
    """AF_UNSPEC first, then the address: a check that looks once looks at the wrong one."""
    with socket.socket() as client:
        client.settimeout(PATIENCE_S)
        unspecified = struct.pack("=H14x", socket.AF_UNSPEC)
        libc.connect(client.fileno(), unspecified, len(unspecified))
        client.connect(("127.0.0.1", world.tcp_port))
        client.sendall(world.id.encode())
        time.sleep(0.05)


@attack("tcp-listen", kind="network", evidence="received")
def tcp_listen(world: World) -> None:
    """A door from the other side: the victim's client comes to us."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("0.0.0.0", world.listen_port))
        server.listen()
        server.settimeout(VISIT_S)
        client, _ = server.accept()
        client.sendall(world.id.encode())
        time.sleep(0.05)


for _name, _family, _protocol, _host, _port, _need in (
    ("udp-loopback", socket.AF_INET, 0, "127.0.0.1", "udp_port", ()),
    ("udp-loopback-v6", socket.AF_INET6, 0, "::1", "udp6_port", (fact("udp6_port"),)),
    ("udp-host-address", socket.AF_INET, 0, "", "udp_port", (fact("host_address"),)),
    ("udplite", socket.AF_INET, 136, "127.0.0.1", "udplite_port", (fact("udplite_port"),)),
):

    @attack(_name, kind="network", evidence="received", needs=_need)
    def udp(
        world: World,
        family: int = _family,
        protocol: int = _protocol,
        host: str = _host,
        port: str = _port,
    ) -> None:
        with socket.socket(family, socket.SOCK_DGRAM, protocol) as client:
            client.sendto(world.id.encode(), (host or world.host_address, getattr(world, port)))


@attack("udp-connected", kind="network", evidence="received")
def udp_connected(world: World) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", world.udp_port))
        client.send(world.id.encode())


@attack("dns", kind="network", evidence="received")
def dns(world: World) -> None:
    """A question whose name is the message, to the resolver that the victim runs."""
    name = b"".join(bytes([len(part)]) + part for part in (world.id.encode(), b"example")) + b"\0"
    query = struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + name + struct.pack(">HH", 1, 1)
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(query, ("127.0.0.1", world.udp_port))


@attack("multicast", kind="network", evidence="received", needs=(fact("multicast"),))
def multicast(world: World) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        loopback = socket.inet_aton("127.0.0.1")
        client.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        client.sendto(world.id.encode(), tuple(world.multicast))


for _name, _socket, _need in (
    ("icmp-raw", (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), (root,)),
    # every packet of every interface
    ("packet-socket", (socket.AF_PACKET, socket.SOCK_RAW, 0), (root,)),
    ("xdp-socket", (44, socket.SOCK_RAW, 0), (root, fact("has_xdp"))),
    ("netlink-audit", (socket.AF_NETLINK, socket.SOCK_RAW, 9), (fact("has_audit"),)),
    ("netlink-generic", (socket.AF_NETLINK, socket.SOCK_RAW, 16), ()),
    # the way to the machine that runs this one
    ("vsock", (40, socket.SOCK_STREAM, 0), (fact("has_vsock"),)),
    ("alg-socket", (AF_ALG, socket.SOCK_SEQPACKET, 0), (fact("has_alg"),)),
):

    @attack(_name, kind="network", needs=_need)
    def odd_socket(_world: World, arguments: tuple[int, ...] = _socket) -> str:
        socket.socket(*arguments).close()
        return "a socket"


@attack("netlink-interfaces", kind="network")
def netlink_interfaces(_world: World) -> str:
    names = [
        name
        for _, name in socket.if_nameindex()
        if name not in ("lo", "sit0", "ip6tnl0", "ifb0", "ifb1")
    ]
    if not names:
        raise Stopped("loopback only")
    return " ".join(names)


@attack("netlink-sockets", kind="network")
def netlink_sockets(world: World) -> str:
    """Which ports the host's programs listen on: sock_diag."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:
        request = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << 10) + bytes(48)
        header = struct.pack("=IHHII", 16 + len(request), 20, 0x301, 1, 0)
        diag.settimeout(PATIENCE_S)
        diag.send(header + request)
        if struct.pack(">H", world.tcp_port) not in diag.recv(1 << 16):
            raise Stopped("the victim's port is not among them")
    return "sees the victim's port"


@attack("netlink-uevent", kind="network")
def netlink_uevent(_world: World) -> str:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as events:
        events.bind((0, 1))
    return "hears of devices"


@attack("proc-net", kind="network")
def proc_net(world: World) -> str:
    if f":{world.tcp_port:04X} " not in Path("/proc/net/tcp").read_text():
        raise Stopped("the victim's port is not there")
    return "sees the victim's port"


@attack("proc-net-unix", kind="network", evidence="loot")
def proc_net_unix(_world: World) -> str:
    """Names of abstract sockets are as good as addresses."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return " ".join(line for line in lines if "CANARY" in line)


# --------------------------------------------------------------- unix sockets


def _unix(world: World, address: str | bytes, kind: int = socket.SOCK_STREAM) -> str:
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.settimeout(PATIENCE_S)
        client.connect(address)
        client.send(world.id.encode())
        time.sleep(0.05)
    return "sent"


_KINDS = {
    "stream": socket.SOCK_STREAM,
    "dgram": socket.SOCK_DGRAM,
    "seqpacket": socket.SOCK_SEQPACKET,
}

for _place, _what in (
    ("home", "an agent"),
    ("tmp", "a display"),
    ("run", "the system's bus"),
    ("visible", "a database below /var/lib"),
    ("project", "a dev server"),
    ("dev-shm", "a browser"),
):
    for _name, _kind in _KINDS.items():

        @attack(
            f"unix-{_name}-{_place}",
            kind="network",
            evidence="received",
            needs=(fact(f"sockets_{_place}".replace("-", "_")),),
        )
        def unix(world: World, name: str = _name, kind: int = _kind, place: str = _place) -> str:
            directory = getattr(world, f"sockets_{place}".replace("-", "_"))
            return _unix(world, f"{directory}/{name}.sock", kind)


for _name, _kind in _KINDS.items():

    @attack(f"unix-{_name}-abstract", kind="network", evidence="received")
    def abstract(world: World, name: str = _name, kind: int = _kind) -> str:
        return _unix(world, f"\0{world.abstract}-{name}", kind)


@attack("unix-dgram-sendto", kind="network", evidence="received")
def unix_dgram_sendto(world: World) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(world.id.encode(), f"{world.sockets_home}/dgram.sock")


@attack("unix-pair-redirected", kind="network", evidence="received")
def unix_pair_redirected(world: World) -> None:
    """A pair needs no address; each end can be given another one."""
    ours, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.connect(f"{world.sockets_home}/dgram.sock")
    ours.send(world.id.encode())


@attack("unix-pair-sendmsg", kind="network", evidence="received")
def unix_pair_sendmsg(world: World) -> None:
    ours, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendmsg([world.id.encode()], [], 0, f"{world.sockets_home}/dgram.sock")


@attack("unix-pair-sendmmsg", kind="network", evidence="received")
def unix_pair_sendmmsg(world: World) -> None:
    ours, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = f"{world.sockets_home}/dgram.sock".encode()
    address = ctypes.create_string_buffer(struct.pack("=H", 1) + path + b"\0")
    payload = ctypes.create_string_buffer(world.id.encode())
    vector = ctypes.create_string_buffer(
        struct.pack("QQ", ctypes.addressof(payload), len(world.id))
    )
    message = struct.pack(
        "QI4xQQQQiI",
        ctypes.addressof(address),
        len(path) + 3,
        ctypes.addressof(vector),
        1,
        0,
        0,
        0,
        0,
    ).ljust(64, b"\0")
    if libc.sendmmsg(ours.fileno(), ctypes.create_string_buffer(message, 64), 1, 0) != 1:
        raise OSError(ctypes.get_errno(), "sendmmsg")


@attack("unix-pair-abstract", kind="network", evidence="received")
def unix_pair_abstract(world: World) -> None:
    ours, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendmsg([world.id.encode()], [], 0, f"\0{world.abstract}-dgram")


@attack("unix-through-symlink", kind="network", evidence="received")
def unix_through_symlink(world: World) -> str:
    link = Path(world.project, "s")
    link.symlink_to(f"{world.sockets_home}/stream.sock")
    return _unix(world, str(link))


@attack("unix-through-hardlink", kind="network", evidence="received")
def unix_through_hardlink(world: World) -> str:
    """A second name, in the project, for a socket that lies outside."""
    link = Path(world.project, "h")
    os.link(f"{world.sockets_visible}/stream.sock", link)
    return _unix(world, str(link))


@attack("unix-project-hardlink", kind="network", evidence="received")
def unix_project_hardlink(world: World) -> str:
    """A socket in the project is covered by its name; here is another."""
    link = Path(world.project, "p")
    os.link(f"{world.sockets_project}/stream.sock", link)
    return _unix(world, str(link))


@attack("unix-project-rename", kind="network", evidence="received", scene="own")
def unix_project_rename(world: World) -> str:
    directory = Path(world.sockets_project)
    moved = directory.with_name("moved")
    directory.rename(moved)
    return _unix(world, str(moved / "stream.sock"))


@attack("unix-through-proc-root", kind="network", evidence="received")
def unix_through_proc_root(world: World) -> str:
    return _unix(world, f"/proc/{world.server_pid}/root{world.sockets_home}/stream.sock")


@attack("unix-through-descriptor", kind="network", evidence="received")
def unix_through_descriptor(world: World) -> str:
    fd = os.open(f"{world.sockets_visible}/stream.sock", os.O_PATH)
    return _unix(world, f"/proc/self/fd/{fd}")


@attack("unix-late", kind="network", evidence="received", scene="alone")
def unix_late(world: World) -> str:
    """A socket that the user makes in the project while the command runs."""
    Path(world.project, "please").touch()
    late = Path(world.project, "late.sock")
    deadline = time.monotonic() + PATIENCE_S
    while not late.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return _unix(world, str(late))


@attack("unix-receive-descriptor", kind="network", evidence="loot")
def unix_receive_descriptor(world: World) -> str:
    """The server hands a descriptor of a secret to whoever connects."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(f"{world.sockets_home}/stream.sock")
        client.send(b"give")
        fds = array.array("i")
        _data, ancillary, _flags, _address = client.recvmsg(16, socket.CMSG_SPACE(4))
        for _level, _type, data in ancillary:
            fds.frombytes(data[:4])
        return os.pread(fds[0], 4096, 0).decode()


def _nvim_writes(world: World, address: str) -> str:
    """Neovim's own RPC: `vim.fn.writefile()` in an editor that no sandbox holds."""
    code = f"vim.fn.writefile({{'planted'}}, '{world.outside}/written')".encode()
    method = b"nvim_exec_lua"
    packed = (
        b"\x94\x00\x01"
        + bytes([0xA0 | len(method)])
        + method
        + b"\x92\xd9"
        + bytes([len(code)])
        + code
        + b"\x90"
    )
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(address)
        client.sendall(packed)
        client.recv(4096)
    return "asked Neovim to write"


def _nvim_attack(place: str) -> Callable[[World], str]:
    def run(world: World) -> str:
        return _nvim_writes(world, world.nvim[place])

    return run


for _place in ("home", "tmp", "project"):
    attack(f"nvim-rpc-{_place}", kind="network", evidence="changed", needs=(fact("nvim"),))(
        _nvim_attack(_place)
    )
