"""The compiler of profiles: golden files, agreement with the policy, and that each rule matters."""

import os
import random
import sys
import unicodedata
from pathlib import Path

import pytest

from sanderling.errors import SandboxError
from sanderling.paths import real_path
from sanderling.sandbox import names
from sanderling.sandbox.kernel.layout import Protection
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.seatbelt import files, spelling
from sanderling.sandbox.seatbelt import profile as profile_module
from sanderling.sandbox.seatbelt.expressions import plain, quoted, rule
from sanderling.sandbox.seatbelt.profile import compile_profile, launcher
from sanderling.sandbox.seatbelt.spelling import FOLDED, aliases, any_spelling, links_on
from tests.fuzz import part
from tests.sandbox.seatbelt.expected import Expected
from tests.sandbox.seatbelt.sbpl import Profile, Request, parse

GOLDEN = Path(__file__).parents[2] / "golden" / "seatbelt"
STATE = "/Users/me/.local/state/sanderling/sandbox/app-1"
POLICY = SandboxPolicy(
    project="/Users/me/code/app",
    home="/Users/me",
    state_dir=STATE,
    tmp_dir=f"{STATE}/tmp/1-0",
    state_root="/Users/me/.local/state/sanderling",
)
PROTECTION = Protection(
    pinned=("/Users/me/code/app/.git",),
    read_only=("/Users/me/code/app/.git/config", "/Users/me/code/app/.git/hooks"),
    masked=("/Users/me/code/app/.env",),
    absent=(("/Users/me/code/app/.git", "commondir"),),
)


def compiled(policy: SandboxPolicy = POLICY, protection: Protection = PROTECTION, **options) -> str:
    return compile_profile(policy, protection, **{"canonical": os.path.normpath} | options)


@pytest.mark.parametrize(
    "name, policy, port",
    [
        ("off", POLICY, 0),
        ("plan", POLICY._replace(mode="ro"), 0),
        ("proxy", POLICY._replace(network="proxy", hosts=("example.org",)), 49152),
        (
            "granted",
            POLICY._replace(
                network="on",
                read_paths=("/Users/me/data",),
                write_paths=("/Users/me/code/app/.vscode", "/Users/me/out"),
                programs=("/Users/me/.nvm",),
                masked=("/Users/me/.nvm/token",),
            ),
            0,
        ),
    ],
)
def test_the_profile_of_a_policy_is_the_golden_one(name, policy, port):
    found = compiled(policy, proxy_port=port)
    golden = GOLDEN / f"{name}.sb"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found)
    assert found == golden.read_text()


# ---------------------------------------------------------------- quoting


AWKWARD = (
    'a "quoted" name',
    "back\\slash\\",
    "line\nbreak",
    "(allow default)",
    '") (allow default) ("',
    "; no comment",
    "#| neither |#",
    "é",
    unicodedata.normalize("NFD", "é"),
    "emoji \N{SANDWICH}",
    "$HOME^*+?[a-z]{2}|.",
    "tab\tand\rreturn",
)


@pytest.mark.parametrize("name", AWKWARD)
def test_any_name_is_quoted_so_that_it_stays_one_string(name):
    project = f"/Users/me/{name}"
    policy = POLICY._replace(project=project)
    held = Protection(read_only=(f"{project}/.git/hooks",), absent=((f"{project}/.git", name),))
    profile = Profile(compiled(policy, held))
    assert profile.allows(Request("file-write-data", f"{project}/main.py"))
    assert not profile.allows(Request("file-write-data", f"{project}/.git/hooks/pre-commit"))
    assert not profile.allows(Request("file-write-create", f"{project}/.git/{name}"))
    assert not profile.allows(Request("file-write-create", f"{project}/.envrc"))
    assert not profile.allows(Request("file-write-data", "/Users/me/other"))
    assert not profile.allows(Request("mach-lookup", name="com.apple.launchd"))


@pytest.mark.parametrize("name", ["nul\0", "\udc80"])
def test_a_name_that_no_profile_can_hold_is_refused(name):
    with pytest.raises(SandboxError, match="cannot be named in a sandbox profile"):
        compiled(POLICY._replace(project=f"/Users/me/{name}"))


def test_the_text_of_a_string_is_what_was_quoted():
    for name in AWKWARD:
        assert parse(quoted(name)) == [name]


def test_a_rule_without_a_filter_is_a_mistake():
    with pytest.raises(ValueError, match="has no filter"):
        rule("allow", "file-write*", [])


# ---------------------------------------------------------------- spelling


def test_the_table_of_folded_letters_is_unicodes():
    found: dict[str, str] = {}
    for char in map(chr, range(0x80, sys.maxunicode + 1)):
        if (folded := char.casefold()).isascii():
            found[folded] = found.get(folded, "") + char
    assert found == FOLDED


@pytest.mark.parametrize(
    "name, spelling",
    [
        (".envrc", ".ENVRC"),
        (".vscode", ".V\N{LATIN SMALL LETTER LONG S}code"),
        (".mise.toml", ".MISE.toml"),
        (".husky", ".hus\N{KELVIN SIGN}y"),
        (".Rprofile", ".rpro\N{LATIN SMALL LIGATURE FI}le"),
        ("sst", "s\N{LATIN SMALL LIGATURE ST}"),
        ("sst", "\N{LATIN SMALL LETTER SHARP S}t"),
        ("é.lua", "E\N{COMBINING ACUTE ACCENT}.LUA"),
        (".cargo/config", ".CARGO/Config"),
        ("a" + "s" * 40, "A" + "\N{LATIN CAPITAL LETTER SHARP S}" * 20),
    ],
)
def test_a_name_is_held_in_every_spelling_of_a_case_insensitive_volume(name, spelling):
    profile = Profile(compiled(protection=Protection(absent=((POLICY.project, name),))))
    project = POLICY.project
    for below in ("", "/x"):
        assert not profile.allows(Request("file-write-create", f"{project}/{spelling}{below}"))
    assert profile.allows(Request("file-write-create", f"{project}/x{spelling}"))
    assert profile.allows(Request("file-write-create", f"{project}/{spelling}x"))


@pytest.mark.parametrize(
    "name, spelling",
    [
        (".envrc", ".env\u200crc"),
        (".envrc", "\ufeff.E\u206fNVRC\u200d"),
        (".vscode", ".v\N{LATIN SMALL LETTER LONG S}co\u202ede"),
        (".cargo/config", ".cargo/con\u200efig"),
        (".cargo/config", ".car\u200ego/config"),
    ],
)
def test_a_name_is_held_with_characters_that_hfs_ignores(name, spelling):
    profile = Profile(
        compiled(protection=PROTECTION._replace(absent=(("/Users/me/code/app", name),)))
    )
    for below in ("", "/x"):
        path = f"{POLICY.project}/{spelling}{below}"
        assert not profile.allows(Request("file-write-create", path))
    assert names.folded(spelling) == name


def test_emoji_with_a_joiner_are_ordinary_names():
    profile = Profile(compiled())
    for name in ("\N{WOMAN}\u200d\N{PERSONAL COMPUTER}.md", "sub/sub/a\u200db"):
        assert profile.allows(Request("file-write-create", f"{POLICY.project}/{name}"))


def test_a_name_of_many_ligatures_has_a_short_pattern():
    assert len(any_spelling("s" * 240)) < 1000


def test_a_pattern_matches_its_text_only():
    assert plain("a.b*c(d)") == r"a\.b\*c\(d\)"


def test_links_are_resolved_and_what_is_missing_stays_below_them(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real = os.path.realpath(tmp_path)
    assert real_path(str(tmp_path / "link/new/file")) == f"{real}/real/new/file"


def test_links_on_the_way_to_programs_can_be_followed_but_not_changed(tmp_path):
    home = tmp_path.resolve()
    (home / "store/profile/bin").mkdir(parents=True)
    (home / "current").symlink_to("store/profile")
    (home / "bin").symlink_to(home / "current/bin")
    policy = POLICY._replace(home=str(home), programs=(str(home / "bin"),))
    profile = Profile(compiled(policy, canonical=real_path))
    assert links_on(str(home / "bin/tool")) == [str(home / "bin"), str(home / "current")]
    for link in ("bin", "current"):
        assert profile.allows(Request("file-read-metadata", f"{home}/{link}"))
        assert not profile.allows(Request("file-write-unlink", f"{home}/{link}"))
    assert profile.allows(Request("process-exec", f"{home}/store/profile/bin/tool"))
    assert profile.allows(Request("file-read-metadata", f"{home}/store"))
    assert not profile.allows(Request("file-read-data", f"{home}/store"))


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert len(links_on(str(tmp_path.resolve() / "a"))) == 40


def test_a_path_on_the_data_volume_has_two_spellings():
    assert aliases("/System/Volumes/Data/work/app") == [
        "/System/Volumes/Data/work/app",
        "/work/app",
    ]
    assert aliases("/Users/me") == ["/Users/me"]


def test_exceptions_hold_in_both_spellings_of_the_data_volume():
    project = "/System/Volumes/Data/work/app"
    policy = POLICY._replace(project=project)
    profile = Profile(compiled(policy, Protection(read_only=(f"{project}/.git/hooks",))))
    for path in (project, "/work/app"):
        assert profile.allows(Request("file-write-data", f"{path}/main.py"))
        assert not profile.allows(Request("file-write-data", f"{path}/.git/hooks/x"))
        assert not profile.allows(Request("file-write-unlink", f"{path}/.git"))
        assert not profile.allows(Request("file-write-create", f"{path}/.envrc"))
    assert not profile.allows(Request("file-read-data", "/System/Volumes/Data/Users/me/.netrc"))


# ---------------------------------------------------------------- the network and the launcher


def test_without_a_port_no_profile_lets_the_proxy_be_reached():
    with pytest.raises(SandboxError, match="is not listening"):
        compiled(POLICY._replace(network="proxy"))


def test_the_profile_is_an_argument_and_the_command_comes_after_it():
    assert launcher("(version 1)") == ("/usr/bin/sandbox-exec", "-p", "(version 1)", "--")


# ---------------------------------------------------------------- agreement with the policy

NAMES = ("a", "b", "c", ".git", "hooks", ".env", ".envrc", ".ENVRC", ".config", "mise", "é")
ROOTS = ("/Users/me", "/opt/work", "/Volumes/disk", "/System/Volumes/Data/w", "/private/tmp/x")
ABSENT_NAMES = (".envrc", "mise/config", ".git", "hooks", "É")


def random_path(chance: random.Random, below: str, *, least: int = 0, most: int = 3) -> str:
    return "/".join((below, *chance.choices(NAMES, k=chance.randint(least, most))))


def random_policy(chance: random.Random) -> Expected:
    home = chance.choice(ROOTS)
    project = random_path(chance, home, least=1)
    state = f"{home}/state"

    def some(below: str, most: int = 3) -> tuple[str, ...]:
        paths = (random_path(chance, below, least=1) for _ in range(chance.randint(0, most)))
        return tuple(dict.fromkeys(paths))

    policy = SandboxPolicy(
        project=project,
        home=home,
        state_dir=state,
        tmp_dir=f"{state}/tmp/1-0",
        mode=chance.choice(("rw", "rw", "ro")),
        read_paths=(*some(project, 2), *some(home, 2)),
        write_paths=(*some(project, 2), *some(home, 1)),
        programs=some(home),
        masked=some(home),
    )
    names = chance.sample(ABSENT_NAMES, chance.randint(0, 3))
    protection = Protection(
        writable=some(home, 1),
        readable=some(home, 1),
        pinned=some(project),
        read_only=some(project),
        masked=some(project),
        absent=tuple((random_path(chance, project, most=1), name) for name in names),
    )
    return Expected(policy, protection)


def profile_for(expected: Expected) -> Profile:
    places = files.places_of(
        expected.policy,
        expected.protection,
        runtime=(),
        canonical=lambda path: path,
        at_root=(),  # with them, the interpreter would take minutes
    )
    return Profile(profile_module.profile_of(places, "off", 0))


def disagreements(expected: Expected, profile: Profile, chance: random.Random) -> list[str]:
    policy, protection = expected.policy, expected.protection
    known = (policy.project, policy.state_dir, policy.tmp_dir, *policy.read_paths)
    known += (*policy.write_paths, *policy.programs, *policy.masked, *protection.read_only)
    known += (*protection.pinned, *protection.masked, *(f"{a}/{b}" for a, b in expected.absent))
    paths = {random_path(chance, chance.choice((policy.home, *known))) for _ in range(12)}
    paths |= {*known, *(path.rpartition("/")[0] for path in known)} - {""}
    decided = {
        "file-read-data": expected.can_read,
        "process-exec": expected.can_read,
        "file-read-metadata": expected.can_see,
        "file-write-data": expected.can_write,
        "file-write-create": expected.can_write,
        "file-write-unlink": expected.can_remove,
    }
    return [
        f"{operation} {path}"
        for path in sorted(paths)
        for operation, is_expected in decided.items()
        if profile.allows(Request(operation, path)) != is_expected(path)
    ]


def test_profile_and_policy_agree_on_random_paths():
    chance = random.Random(42)
    for _ in range(part(1000)):
        expected = random_policy(chance)
        wrong = disagreements(expected, profile_for(expected), chance)
        assert not wrong, expected


MUTATIONS = (
    (files, 'policy.mode == "ro"', "False"),
    (files, "held = (*places.read_only, *places.masked)", "held = places.read_only"),
    (files, "held = (*places.read_only, *places.masked)", "held = places.masked"),
    (files, "_trees(roots, [], places.masked)", "_trees(roots, [], [])"),
    (files, "_trees(places.writable, places.absent, held)", "_trees(places.writable, [], held)"),
    (files, ", *_between(places)}", "}"),
    (files, "*_kept_absent(places)", ""),
    (files, '_is_below("/".join(each), root)', "is_within(each[0], root)"),
    (files, " - {*map(canonical, but)}", ""),
    (files, "return path != root and is_within(path, root)", "return is_within(path, root)"),
    (spelling, ", name).casefold()", ", name)"),
    (spelling, 'yield f"[{text}{text.upper()}]"', "yield plain(text)"),
)


@pytest.fixture
def mutate(request):
    def apply(module, old: str, new: str) -> None:
        source = Path(module.__file__).read_text()
        assert source.count(old) == 1, f"the compiler has changed: adapt {old!r}"
        _execute(module, source.replace(old, new))
        request.addfinalizer(lambda: _execute(module, source))

    return apply


def _execute(module, source: str) -> None:
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    files.tree_pattern, files.any_spelling = spelling.tree_pattern, spelling.any_spelling
    profile_module.file_rules = files.file_rules


@pytest.mark.parametrize("module, old, new", MUTATIONS, ids=[each[1] for each in MUTATIONS])
def test_a_mistake_in_the_compiler_is_found(mutate, module, old, new):
    mutate(module, old, new)
    chance = random.Random(7)
    found = (random_policy(chance) for _ in range(400))
    assert any(disagreements(each, profile_for(each), chance) for each in found)
