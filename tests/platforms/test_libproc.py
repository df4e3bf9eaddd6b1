"""
The structures of macOS, parsed on any system.

The bytes are put together field by field from the declarations in the headers that each test names, with the C compiler's padding.
"""

import ctypes

import pytest

from sanderling.platforms import libproc


class ProcBsdInfo(ctypes.Structure):
    """`struct proc_bsdinfo` of bsd/sys/proc_info.h; MAXCOMLEN is 16."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("flags", "status", "xstatus", "pid", "ppid")),
        *((name, ctypes.c_uint32) for name in ("uid", "gid", "ruid", "rgid", "svuid", "svgid")),
        ("rfu_1", ctypes.c_uint32),
        ("comm", ctypes.c_char * 16),
        ("name", ctypes.c_char * 32),
        *((name, ctypes.c_uint32) for name in ("nfiles", "pgid", "pjobc", "e_tdev", "e_tpgid")),
        ("nice", ctypes.c_int32),
        ("start_tvsec", ctypes.c_uint64),
        ("start_tvusec", ctypes.c_uint64),
    )


class Xucred(ctypes.Structure):
    """`struct xucred` of bsd/sys/ucred.h; NGROUPS is 16."""

    _fields_ = (
        ("cr_version", ctypes.c_uint),
        ("cr_uid", ctypes.c_uint32),
        ("cr_ngroups", ctypes.c_short),
        ("cr_groups", ctypes.c_uint32 * 16),
    )


def test_layouts_have_the_sizes_that_the_kernel_checks():
    assert libproc.BSD_INFO.size == ctypes.sizeof(ProcBsdInfo) == 136
    assert libproc.XUCRED.size == ctypes.sizeof(Xucred) == 76


@pytest.mark.parametrize("status, is_zombie", [(2, False), (4, False), (5, True)])
def test_process_is_read_from_its_structure(status, is_zombie):
    data = ProcBsdInfo(
        flags=0x10, status=status, xstatus=9, pid=4711, ppid=77, uid=501, gid=20, ruid=502,
        rgid=21, svuid=503, svgid=22, rfu_1=0xFFFF_FFFF, comm=b"python3.11", name=b"x" * 31,
        nfiles=12, pgid=4700, pjobc=1, e_tdev=0x1000_0003, e_tpgid=99, nice=-5,
        start_tvsec=1_700_000_000, start_tvusec=250_000,
    )  # fmt: skip
    found = libproc.parsed_info(bytes(data))
    assert found == libproc.BsdInfo(4711, 77, 4700, 501, is_zombie, 1_700_000_000_250_000)


def test_peer_is_the_effective_user():
    data = Xucred(cr_version=0, cr_uid=501, cr_ngroups=2, cr_groups=(20, 12))
    assert libproc.parsed_peer(bytes(data)) == 501


def test_credentials_of_an_unknown_version_are_an_error():
    with pytest.raises(OSError, match="unknown version 7"):
        libproc.parsed_peer(bytes(Xucred(cr_version=7, cr_uid=501)))


# sysctl_procargsx: argc, the path that execve got, NULs up to the next word, then the strings.
ARGUMENTS = (
    b"\3\0\0\0/usr/local/bin/python3\0\0\0\0\0\0"
    b"python3\0-c\0pass\0HOME=/Users/me\0EMPTY=\0MARK=sanderling-1\0\0\0ptr_munge=\0stack_guard=\0"
)


def test_arguments_and_environment_are_told_apart():
    arguments, environment = libproc.parsed_arguments(ARGUMENTS)
    assert arguments == [b"python3", b"-c", b"pass"]
    assert environment == [b"HOME=/Users/me", b"EMPTY=", b"MARK=sanderling-1"]


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", ([], [])),
        (b"\1\0", ([], [])),
        (b"\1\0\0\0/bin/ls\0\0ls\0", ([b"ls"], [])),  # the environment is hidden
        (b"\2\0\0\0/bin/ls\0ls", ([b"ls"], [])),  # cut off
    ],
)
def test_hidden_or_truncated_answers_have_what_they_have(data, expected):
    assert libproc.parsed_arguments(data) == expected
