"""Interpreters and tools in HOME: shown with what they are installed with, for what PATH and the version managers' variables lead to."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from sanderling.sandbox.kernel import programs as programs_module
from sanderling.sandbox.kernel.programs import with_programs
from sanderling.sandbox.policy import resolve_policy
from tests.conftest import prove, prove_rest
from tests.sandbox.child import STRANGER, in_child, open_directory
from tests.sandbox.test_files import session_of
from tests.sandbox.test_grants import said
from tests.sandbox.test_programs import program
from tests.sandbox.test_sandbox import LEVELS, Place, names_in

pytestmark = pytest.mark.guard

SKIPPED = shutil.ignore_patterns(
    "site-packages", "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "__pycache__"
)
ROOTS = (
    *("PYENV_ROOT", "NVM_DIR", "RBENV_ROOT", "ASDF_DATA_DIR", "MISE_DATA_DIR", "CARGO_HOME"),
    *("RUSTUP_HOME", "VOLTA_HOME", "UV_TOOL_DIR", "UV_PYTHON_INSTALL_DIR", "PIPX_HOME", "GOROOT"),
)


@pytest.fixture(autouse=True)
def without_own_roots(monkeypatch) -> None:
    for name in ROOTS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def first(monkeypatch):
    """Put directories first on PATH."""

    def put(*directories: Path) -> None:
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, directories)), prepend=os.pathsep)

    return put


def shown(place: Place, **changes) -> list[str]:
    policy = with_programs(resolve_policy(place.policy(**changes)))
    return [
        path.removeprefix(f"{place.base}/") for path in policy.programs if is_below(path, place)
    ]


def is_below(path: str, place: Place) -> bool:
    return path.startswith(f"{place.base}/")


def python_prefix(at: Path) -> Path:
    """Install a real Python at `at`: this one, without its packages."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (at / "bin").mkdir(parents=True)
    shutil.copy2(os.path.realpath(sys.executable), at / "bin" / name)
    (at / "bin/python3").symlink_to(name)
    shutil.copytree(sysconfig.get_path("stdlib"), at / "lib" / name, ignore=SKIPPED, symlinks=True)
    library = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDLIBRARY"))
    if library.suffix != ".a" and library.is_file():
        for each in library.parent.glob(f"{library.name}*"):
            shutil.copy2(each, at / "lib" / each.name)
    return at


def layout(at: Path, *files: str) -> Path:
    """Make an installation of programs and of empty files."""
    for name in files:
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "bin/" in name:
            program(path, f"echo {path.name}")
        else:
            path.touch()
    return at


# --- installations to which PATH leads ----------------------------------------------------------------------------------


async def test_python_of_a_relocated_pyenv_runs_through_its_shim(place, first, monkeypatch):
    root = place.home / "tools/pyenv"
    python_prefix(root / "versions/3.99")
    layout(root, "libexec/pyenv", "version")
    (root / "shims").mkdir()
    program(root / "shims/mypython", 'exec "$PYENV_ROOT/versions/3.99/bin/python3" "$@"')
    monkeypatch.setenv("PYENV_ROOT", str(root))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(root / "versions/3.99/lib"))
    first(root / "shims")
    async with session_of(place) as session:
        assert await said(session, "mypython -c 'import json, sys; print(sys.prefix)' 2>&1") == (
            f"{root}/versions/3.99\n"
        )
        await said(session, f"touch {root}/shims/new 2>&1")
        assert await said(session, f"ls {root}/shims") == "mypython\n"


async def test_script_runs_by_the_virtual_environment_and_the_base_that_its_first_line_leads_to(
    place, first, monkeypatch
):
    base = python_prefix(place.home / "pythons/mine")
    environment = place.home / "venvs/tool"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(base / "bin/python3")
    (environment / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    (environment / "notes.txt").write_text("secret\n")
    packages = environment / f"lib/{(base / 'bin/python3').readlink()}/site-packages"
    packages.mkdir(parents=True)
    (packages / "mine.py").write_text("print('runs')\n")
    scripts = place.home / ".local/bin"
    scripts.mkdir(parents=True)
    (scripts / "mytool").write_text(f"#!{environment}/bin/python\nimport mine\n")
    (scripts / "mytool").chmod(0o755)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{base}/lib")
    first(scripts)
    async with session_of(place) as session:
        assert await said(session, "mytool 2>&1") == "runs\n"
        assert "secret" not in await said(session, f"cat {environment}/notes.txt 2>/dev/null")


async def test_node_of_a_relocated_nvm_runs_a_package_that_npm_installed_with_it(
    place, first, monkeypatch
):
    if not (node := shutil.which("node")):
        pytest.skip("needs node")
    root = place.home / "code/nvm"
    at = layout(root / "versions/node/v99", "lib/node_modules/npm/package.json", "include/node/a.h")
    layout(root, "nvm.sh")
    (at / "bin").mkdir()
    shutil.copy2(node, at / "bin/node")
    package = layout(at / "lib/node_modules/mytool", "cli.js")
    (package / "cli.js").write_text("#!/usr/bin/env node\nconsole.log(process.execPath)\n")
    (package / "cli.js").chmod(0o755)
    (at / "bin/mytool").symlink_to("../lib/node_modules/mytool/cli.js")
    layout(at, "etc/npmrc")
    (at / "etc/npmrc").write_text("//host/:_authToken=secret\n")
    monkeypatch.setenv("NVM_DIR", str(root))
    first(at / "bin")
    async with session_of(place) as session:
        assert await said(session, "mytool 2>&1") == f"{at}/bin/node\n"
        assert "secret" not in await said(session, f"cat {at}/etc/npmrc")


async def test_package_of_an_npm_prefix_in_home_runs_and_its_settings_are_hidden(place, first):
    prefix = layout(place.home / ".npm-packages", "lib/node_modules/mytool/bin/cli", "etc/npmrc")
    (prefix / "bin").mkdir()
    (prefix / "bin/mytool").symlink_to("../lib/node_modules/mytool/bin/cli")
    first(prefix / "bin")
    async with session_of(place) as session:
        assert await said(session, "mytool") == "cli\n"
        assert not await said(session, f"ls {prefix}/etc 2>/dev/null")


LAYOUTS = {
    "rbenv": ("RBENV_ROOT", "rbenv", ("shims/irb", "versions/3/bin/irb"), {"shims", "versions"}),
    "asdf": ("ASDF_DATA_DIR", "asdf", ("shims/x", "installs/a/1/bin/x"), {"shims", "installs"}),
    "mise": ("MISE_DATA_DIR", "mise", ("shims/x", "installs/a/1/bin/x"), {"shims", "installs"}),
    "cargo": ("CARGO_HOME", "cargo", ("bin/cargo", "credentials.toml"), {"bin"}),
    "rustup": ("RUSTUP_HOME", "rustup", ("toolchains/a/bin/rustc", "token"), {"toolchains"}),
    "volta": ("VOLTA_HOME", "volta", ("bin/node", "tools/image/node/1/bin/node"), {"bin", "tools"}),
    "go": ("GOROOT", "go", ("bin/go", "pkg/tool/x", "src/runtime/a.go"), {"bin", "pkg", "src"}),
    "uv tools": ("UV_TOOL_DIR", "uvt", ("black/pyvenv.cfg", "black/bin/black"), {"black"}),
    "uv": ("UV_PYTHON_INSTALL_DIR", "uvp", ("cpython-3/bin/python3",), {"cpython-3"}),
    "pipx": ("PIPX_HOME", "pipx", ("venvs/black/bin/black", "logs/log"), {"venvs/black"}),
}


@pytest.mark.parametrize("name", prove_rest(LAYOUTS, is_one=True))
@pytest.mark.parametrize("where", ["home", "elsewhere"])
def test_root_that_a_variable_names_is_shown_in_parts(place, monkeypatch, name, where):
    variable, directory, files, parts = LAYOUTS[name]
    root = layout(place.base / where / directory, *files)
    monkeypatch.setenv(variable, str(root))
    assert {*shown(place)} == {f"{where}/{directory}/{part}" for part in parts}


# --- what is not shown --------------------------------------------------------------------------------------------------


def test_variable_that_names_home_the_project_keys_or_no_such_root_shows_nothing(
    place, monkeypatch
):
    layout(place.home, "versions/a", "shims/a", ".ssh/versions/id", "notes/a")
    layout(place.project, "versions/a")
    for root in (place.home / ".ssh", place.home / "notes", place.project, Path("relative")):
        monkeypatch.setenv("PYENV_ROOT", str(root))
        assert shown(place) == []
    monkeypatch.setenv("UV_TOOL_DIR", str(place.home))
    assert shown(place) == []


@pytest.mark.parametrize("prefix", ["", ".local"])
def test_prefix_that_is_home_or_contains_the_data_of_all_programs_shows_none_of_it(
    place, first, prefix
):
    secrets = ("share/keyrings/login", "share/opencode/auth.json", "lib/notes", "bin/notes")
    at = layout(place.home / prefix, "lib/node_modules/npm/bin/npm-cli.js", *secrets)
    (at / "bin/npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    (at / "bin/notes").chmod(0o600)
    first(at / "bin")
    local = {"home/.local/bin", "home/.local/lib"}
    assert {*shown(place)} == (local if prefix else {"home/lib/node_modules"})


async def test_settings_with_a_token_beside_programs_appear_empty(place, first):
    venv = layout(place.home / ".local/share/pipx/venvs/tool", "pyvenv.cfg", "bin/tool")
    maven = layout(place.home / ".sdkman/candidates/maven/3", "bin/mvn", "conf/x").joinpath("conf")
    other = layout(place.home / ".sdkman/candidates/maven/4", "bin/mvn", "conf/x").joinpath("conf")
    (maven.parent.parent / "current").symlink_to("3")
    metadata = {"pip_args": ["--index-url", "https://me:secret@index.example/"]}
    (venv / "pipx_metadata.json").write_text(json.dumps(metadata))
    (maven / "settings.xml").write_text("<server><password>secret</password></server>")
    (other / "settings.xml").write_text("<a><!-- <password>example</password> --></a>")
    first(venv / "bin")
    async with session_of(place) as session:
        assert not await said(session, f"cat {venv}/pipx_metadata.json {maven}/settings.xml")
        assert "example" in await said(session, f"cat {other}/settings.xml")
        assert await said(session, "tool") == "tool\n"


def test_tokens_of_conda_and_of_plugins_count_as_settings(place, first, monkeypatch):
    conda = layout(place.home / "miniconda3", "conda-meta/history", "bin/conda")
    root = layout(place.home / ".pyenv", "versions/mini/.condarc", "plugins/own/.git/config")
    harmless = layout(root, "versions/other/conda-meta/history", "plugins/a/.git/config")
    (conda / "conda-meta/history").write_text("# cmd: conda install -c https://me:secret@host x")
    (root / "versions/mini/.condarc").write_text("channels: [https://host/t/ab-123456/x]")
    (root / "plugins/own/.git/config").write_text("url = https://secret@host/own")
    (harmless / "versions/other/conda-meta/history").write_text("# cmd: conda install x")
    monkeypatch.setenv("PYENV_ROOT", str(root))
    first(conda / "bin")
    masked = with_programs(resolve_policy(place.policy())).masked
    assert {Path(path) for path in masked} == {
        conda / "conda-meta/history",
        root / "versions/mini/.condarc",
        root / "plugins/own/.git/config",
    }


def test_directory_that_a_variable_names_for_data_is_not_shown(place, first, monkeypatch):
    prefix = layout(place.home / "own", "lib/node_modules/npm/a", "share/token", "bin/npm")
    first(prefix / "bin")
    assert "home/own/share" in shown(place)
    monkeypatch.setenv("XDG_DATA_HOME", str(prefix / "share"))
    assert {*shown(place)} == {"home/own/bin", "home/own/lib"}


def test_part_that_links_out_of_its_installation_is_not_shown(place, first, monkeypatch):
    keys = layout(place.home / ".ssh", "id")
    prefix = layout(place.home / "go-at", "pkg/tool/a", "bin/go")
    (prefix / "src").symlink_to(keys)
    root = layout(place.home / "tools/pyenv", "versions/a")
    (root / "shims").symlink_to(keys)
    monkeypatch.setenv("PYENV_ROOT", str(root))
    first(prefix / "bin")
    found = shown(place)
    assert {"home/go-at/bin", "home/go-at/pkg", "home/tools/pyenv/versions"} == {*found}


@pytest.mark.parametrize("mode", [0o777, 0o775])
@pytest.mark.parametrize("writable", prove_rest(["", "tool", "tool/lib"]))
def test_installation_that_others_can_write_is_not_shown(place, first, mode, writable):
    above = place.home / "above"
    prefix = layout(above / "tool", "pyvenv.cfg", "bin/a", "lib/b")
    first(prefix / "bin")
    assert "home/above/tool/lib" in shown(place)
    (above / writable).chmod(mode)
    assert "home/above/tool/lib" not in shown(place)


def test_project_cannot_name_what_is_shown_by_its_own_programs(place, first):
    layout(place.home / "private", "lib/node_modules/x/cli", "notes")
    bin_ = place.project / "node_modules/.bin"
    bin_.mkdir(parents=True)
    (bin_ / "x").symlink_to(place.home / "private/lib/node_modules/x/cli")
    first(bin_)
    assert shown(place) == []


def test_script_whose_interpreter_lies_next_to_keys_or_in_no_installation_shows_nothing_of_it(
    place, first
):
    layout(place.home / ".ssh/venv", "pyvenv.cfg", "bin/python")
    layout(place.home / "work", "bin/python", "lib/secret", "bin/notes.txt")
    scripts = place.home / "bin"
    scripts.mkdir()
    for name, where in (("a", ".ssh/venv"), ("b", "work")):
        (scripts / name).write_text(f"#!{place.home}/{where}/bin/python\n")
        (scripts / name).chmod(0o755)
    (place.home / "work/bin/notes.txt").chmod(0o600)
    first(scripts)
    assert shown(place) == ["home/bin"]


def test_group_that_only_the_user_is_in_may_write_an_installation(place, first, monkeypatch):
    prefix = layout(place.home / "tool", "pyvenv.cfg", "bin/a", "lib/b")
    for path in (prefix, prefix / "lib"):
        path.chmod(0o775)
    first(prefix / "bin")
    assert "home/tool/lib" not in shown(place)
    monkeypatch.setattr(programs_module, "_is_private_group", lambda _: True)
    assert "home/tool/lib" in shown(place)


# --- as another user ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to become another user")
def test_installations_of_a_user_without_privileges_are_shown_and_those_of_others_are_not(first):
    with open_directory() as base:
        place = Place(base)
        mine = layout(place.home / "mine", "pyvenv.cfg", "bin/a", "lib/b")
        other = layout(place.home / "other", "pyvenv.cfg", "bin/a", "lib/b")
        first(mine / "bin", other / "bin")
        for owner, top in ((STRANGER, place.home), (STRANGER + 1, other)):
            for path in (top, *top.rglob("*")):
                os.chown(path, owner, owner, follow_symlinks=False)
        found = in_child(lambda: shown(place), STRANGER)
    assert {*found} == {"home/mine/bin", "home/mine/lib", "home/mine/pyvenv.cfg"}


# --- the versions that the user has chosen ------------------------------------------------------------------------------

MISE_SETTINGS = """
[tools]
node = "20.1"
python = ["3.12", { version = "3.11", postinstall = "curl evil" }]
"npm:@scope/tool" = { version = "latest" }
"git+https://u:s3cret@example.com/x" = "1"
ruby = "{{ exec(command='id') }}"
go = { path = "/x" }
[env]
TOKEN = "s3cret"
[hooks]
enter = "id"
"""


async def test_asdf_and_mise_find_names_and_versions_inside_and_nothing_else(place):
    (place.home / ".tool-versions").write_text(
        "# mine: s3cret\nnodejs 20.1.0 system # old\nruby path:/opt/r\nalone\nx https://u:s3cret@h\n"
    )
    settings = place.home / ".config/mise"
    (settings / "conf.d").mkdir(parents=True)
    (settings / "conf.d/base.toml").write_text('[tools]\nnode = "18"\ndeno = "2"\n')
    (settings / "config.toml").write_text(MISE_SETTINGS)
    (settings / "config.local.toml").write_text("[tools\n")
    async with session_of(place) as session:
        assert await said(session, "cat ~/.tool-versions") == (
            "nodejs 20.1.0 system\nruby path:/opt/r\n"
        )
        assert await said(session, "cat ~/.config/mise/config.toml; ls -R ~/.config/mise") == (
            '[tools]\n"node" = ["20.1"]\n"deno" = ["2"]\n"python" = ["3.12", "3.11"]\n'
            f'"npm:@scope/tool" = ["latest"]\n{place.home}/.config/mise:\nconfig.toml\n'
        )
        await said(session, "echo 'nodejs 1' > ~/.tool-versions; rm -f ~/.tool-versions")
        assert await said(session, "head -1 ~/.tool-versions") == "nodejs 20.1.0 system\n"
    assert "alone" in (place.home / ".tool-versions").read_text()


async def test_versions_that_the_user_has_removed_are_gone_in_the_next_session(place):
    chosen = place.home / ".tool-versions"
    chosen.write_text("nodejs 20.1.0\n")
    async with session_of(place) as session:
        assert await said(session, "cat ~/.tool-versions") == "nodejs 20.1.0\n"
    chosen.unlink()
    async with session_of(place) as session:
        assert await said(session, "cat ~/.tool-versions 2>/dev/null") == ""


async def test_settings_of_mise_elsewhere_count(place, monkeypatch):
    elsewhere = place.home / "dotfiles"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text('[tools]\nnode = "22"\n')
    monkeypatch.setenv("MISE_CONFIG_DIR", str(elsewhere))
    async with session_of(place) as session:
        assert await said(session, "tail -1 ~/.config/mise/config.toml") == '"node" = ["22"]\n'


ASDF = r"""
version() { grep -s "^$1 " "$2" | cut -d' ' -f2; }
directory=$PWD found=
while [ -z "$found" ] && [ "$directory" != "" ]; do
    found=$(version nodejs "$directory/.tool-versions")
    directory=${directory%/*}
done
found=${found:-$(version nodejs "$HOME/.tool-versions")}
[ "$found" ] || { echo "No version is set for command $2"; exit 126; }
exec "$HOME/.asdf/installs/nodejs/$found/bin/$2"
"""
"""The search of `asdf exec`, as in its 0.15.0."""


async def test_shim_of_asdf_starts_the_version_that_the_user_has_chosen(place, first):
    root = place.home / ".asdf"
    for version in ("20.1.0", "22.0.0"):
        (root / f"installs/nodejs/{version}/bin").mkdir(parents=True)
        program(root / f"installs/nodejs/{version}/bin/node", f"echo {version}")
    for name in ("bin", "shims"):
        (root / name).mkdir()
    program(root / "bin/asdf", ASDF)
    program(root / "shims/node", f'exec {root}/bin/asdf exec node "$@"')
    (place.home / ".tool-versions").write_text("nodejs 20.1.0\n")
    first(root / "shims")
    async with session_of(place) as session:
        assert await said(session, "node 2>&1") == "20.1.0\n"
    (place.project / ".tool-versions").write_text("nodejs 22.0.0\n")
    async with session_of(place) as session:
        assert await said(session, "node 2>&1") == "22.0.0\n"


MISE = os.environ.get("MISE_PROGRAM", "")
"""The real one: `npm install @jdxcode/mise-linux-x64`."""


@pytest.mark.skipif(not MISE, reason="MISE_PROGRAM names no mise")
async def test_shim_of_mise_starts_the_version_that_the_user_has_chosen(place, first):
    data = place.home / ".local/share/mise"
    for version in ("20.1.0", "22.0.0"):
        (data / f"installs/node/{version}/bin").mkdir(parents=True)
        program(data / f"installs/node/{version}/bin/node", f"echo {version}")
    (data / "shims").mkdir()
    (place.home / ".local/bin").mkdir()
    shutil.copy2(MISE, place.home / ".local/bin/mise")
    (data / "shims/node").symlink_to(place.home / ".local/bin/mise")
    (place.home / ".config/mise").mkdir(parents=True)
    (place.home / ".config/mise/config.toml").write_text('[tools]\nnode = "20"\n[env]\nA = "b"\n')
    first(data / "shims", place.home / ".local/bin")
    async with session_of(place) as session:
        assert await said(session, "node 2>&1; echo $A") == "20.1.0\n\n"


# --- uv -----------------------------------------------------------------------------------------------------------------

WHEEL = {
    "mytool.py": "def main():\n    print('from the wheel')\n",
    "mytool-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: mytool\nVersion: 1\n",
    "mytool-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "mytool-1.dist-info/entry_points.txt": "[console_scripts]\nmytool = mytool:main\n",
    "mytool-1.dist-info/RECORD": "",
}


def wheel(directory: Path) -> Path:
    from zipfile import ZipFile

    path = directory / "mytool-1-py3-none-any.whl"
    with ZipFile(path, "w") as file:
        for name, text in WHEEL.items():
            file.writestr(name, text)
    return path


def install_tool(place: Place, directory: Path, source: Path) -> None:
    options = ["tool", "install", "--offline", "--python", directory / "python3", source]
    subprocess.run(
        [directory / "uv", *options],
        env={**os.environ, "HOME": str(place.home)},
        check=True,
        capture_output=True,
    )


@prove
@pytest.mark.parametrize("level", [LEVELS[0], LEVELS[-1]])
async def test_uvx_runs_a_package_while_tools_and_pythons_of_the_user_are_read_only(
    place, first, level, monkeypatch
):
    if not (uv := shutil.which("uv")):
        pytest.skip("needs uv on PATH")
    bin_ = place.home / ".local/bin"
    bin_.mkdir(parents=True)
    for name in ("uv", "uvx"):
        shutil.copy2(Path(uv).with_name(name), bin_ / name)
    share = place.home / ".local/share/uv"
    python = python_prefix(share / "python/cpython-3.99-linux-x86_64-gnu")
    (bin_ / "python3").symlink_to(python / "bin/python3")
    first(bin_)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{python}/lib")
    source = wheel(place.project)
    install_tool(place, bin_, source)
    (bin_ / "again").symlink_to(share / "tools/mytool/bin/mytool")
    async with session_of(place, level=level) as session:
        assert await said(session, "again") == "from the wheel\n"
        options = f"--offline --python {bin_}/python3"
        run = f"uvx {options} --from ./{source.name} mytool 2>&1"
        assert (await said(session, run)).endswith("from the wheel\n")
        before = names_in(share / "tools")
        await said(session, f"rm -rf {share}/tools/mytool; uv tool uninstall mytool 2>&1")
    assert names_in(share / "tools") == before
    assert (share / "tools/mytool/bin/mytool").exists()
