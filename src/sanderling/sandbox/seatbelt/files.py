"""
The rules for the files of a project: which paths a policy and the protection of its repositories open, and which exceptions they have.

If several paths contain a file, the longest one decides. The user's grant wins over a protection of the same path.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from sanderling.paths import is_in_any, is_within
from sanderling.sandbox import names as listed
from sanderling.sandbox.kernel.layout import Protection
from sanderling.sandbox.policy import SandboxPolicy, private_home
from sanderling.sandbox.seatbelt.expressions import but, literal, plain, regex, rule, subpath
from sanderling.sandbox.seatbelt.spelling import (
    above_it,
    aliases,
    any_spelling,
    ignored_pattern,
    links_on,
    tree_pattern,
)
from sanderling.sandbox.seatbelt.system import READ

WRITE = "file-write*"


class Places(NamedTuple):
    """
    The paths that a command may use, all canonical. Everything else is hidden, its metadata included.

    Attributes:
        readable: can be read, and programs there be started.
        writable: can also be written.
        private: of these, the command's own directories, in which unix sockets work, too.
        read_only: exceptions from `writable`, with everything below.
        absent: names that may not exist yet and must not be created, as a directory and the name in it.
        pinned: directories that must not be renamed or removed.
        masked: cannot be read or written, but seen.
        links: lead to programs, and can be followed.
        hidden: HOME and Sanderling's own state, which are not the system's wherever they are.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    private: tuple[str, ...]
    read_only: tuple[str, ...]
    absent: tuple[tuple[str, str], ...]
    pinned: tuple[str, ...]
    masked: tuple[str, ...]
    links: tuple[str, ...]
    hidden: tuple[str, ...]


def places_of(
    policy: SandboxPolicy,
    protection: Protection,
    *,
    runtime: Iterable[str],
    canonical: Callable[[str], str],
    at_root: Collection[str] = listed.AT_ROOT,
) -> Places:
    """
    Return the places of `policy`, whose `tmp_dir` is set.

    `runtime` are directories of this Python, for the file worker. `canonical` spells a path as the kernel does.
    `at_root` are names that must not appear in the project's root.
    """

    def spelled(paths: Iterable[str], but: Iterable[str] = ()) -> tuple[str, ...]:
        return tuple(sorted({*map(canonical, paths)} - {*map(canonical, but)}))

    runtime = (*runtime,)
    private = (f"{policy.state_dir}/{private_home(policy)}", policy.tmp_dir)
    own = (policy.project, *protection.writable)
    is_read_only = policy.mode == "ro"
    settings = (f"{policy.state_dir}/{name}" for name in ("gitconfig", "gitignore"))
    absent = (*protection.absent, *((policy.project, name) for name in at_root))
    granted = {*policy.read_paths, *policy.write_paths} - {*policy.linked}
    return Places(
        readable=spelled(
            (
                *runtime,
                *policy.programs,
                *settings,
                *policy.read_paths,
                *protection.readable,
                *(own if is_read_only else ()),
            )
        ),
        writable=spelled((*private, *policy.write_paths, *(() if is_read_only else own))),
        private=spelled(private),
        read_only=(
            *spelled(protection.read_only, but=policy.write_paths),
            *spelled(policy.read_paths, but=(*own, *policy.write_paths)),
        ),
        absent=tuple(sorted({(canonical(directory), name) for directory, name in absent})),
        pinned=spelled(protection.pinned),
        masked=spelled((*protection.masked, *policy.masked), but=granted),
        links=tuple(
            sorted({link for path in (*runtime, *policy.programs) for link in links_on(path)})
        ),
        hidden=spelled(filter(None, (policy.home, policy.state_dir, policy.state_root))),
    )


def file_rules(places: Places) -> Iterator[str]:
    roots = (*places.readable, *places.writable)
    if places.links:
        yield "; links on the way to programs"
        yield rule("allow", "file-read*", map(literal, _all_aliases(places.links)))
    yield "; the directories above, for realpath() and getcwd()"
    above = sorted({each for root in (*roots, *places.links) for each in above_it(root)})
    yield rule("allow", "file-read-metadata", map(literal, _all_aliases(above)))
    yield "; what can be read"
    yield rule("allow", READ, _trees(roots, [], places.masked))
    if seen := [path for path in places.masked if is_in_any(path, roots)]:
        yield "; what holds a secret can only be seen"
        yield rule("allow", "file-read-metadata", _subpaths(seen))
    yield "; what can be written, except files that run something later"
    held = (*places.read_only, *places.masked)
    yield rule("allow", WRITE, _trees(places.writable, places.absent, held))
    yield "; no moving of directories around these, or of the roots"
    kept = sorted({*places.writable, *places.pinned, *_between(places)})
    yield rule(
        "deny", "file-write-unlink", [*map(literal, _all_aliases(kept)), *_kept_absent(places)]
    )
    if sockets := list(_sockets(places)):
        yield "; no socket of another program is moved to where one can be connected to"
        yield rule("deny", "file-write-unlink", sockets)
    yield "; no new set-id programs"
    yield rule("deny", "file-write-setugid", [subpath("/")])
    yield "; unix sockets of its own only"
    yield rule("allow", "network-bind network-inbound network-outbound", _subpaths(places.private))


def _sockets(places: Places) -> Iterator[str]:
    """Yield a filter for the sockets in each writable root that is not private: commands cannot bind any there."""
    for root in places.writable:
        for each in aliases(root) if root not in places.private else ():
            yield f"(require-all {subpath(each)} (vnode-type SOCKET))"


def _trees(
    roots: Sequence[str], absent: Sequence[tuple[str, str]], exceptions: Sequence[str]
) -> Iterator[str]:
    """Yield a filter for each root without the exceptions below it: a longer root is listed itself."""
    for root in roots:
        left_out = [each for each in exceptions if is_within(each, root)]
        below = [each for each in absent if _is_below("/".join(each), root)]
        named = {place: [name for at, name in below if at == place] for place, _ in below}
        filters = [
            *_subpaths(left_out),
            *(
                regex(tree_pattern(directory, name))
                for place, name in below
                for directory in aliases(place)
            ),
            *(
                regex(ignored_pattern(directory, names))
                for place, names in named.items()
                for directory in aliases(place)
            ),
        ]
        for each in aliases(root):
            yield but(subpath(each), filters)


def _is_below(path: str, root: str) -> bool:
    path, root = listed.folded(path), listed.folded(root)
    return path != root and is_within(path, root)


def _subpaths(paths: Iterable[str]) -> list[str]:
    return [subpath(path) for path in _all_aliases(paths)]


def _all_aliases(paths: Iterable[str]) -> list[str]:
    return [each for path in paths for each in aliases(path)]


def _between(places: Places) -> Iterator[str]:
    """Yield the directories between the writable roots and what must stay in its place below them: renaming one would make room."""
    for path in (*places.read_only, *places.masked, *places.pinned):
        for directory in above_it(path):
            if any(directory != root and is_within(directory, root) for root in places.writable):
                yield directory


def _kept_absent(places: Places) -> Iterator[str]:
    """Yield a filter for the first parts of absent names with several: they may exist already, in any spelling."""
    for place, name in places.absent:
        *parts, _ = name.split("/")
        for end in range(len(parts)):
            spelled = "/".join(map(any_spelling, parts[: end + 1]))
            for directory in aliases(place):
                yield regex(f"^{plain(directory)}/{spelled}$")
