"""
What developers run gives inside the sandbox what it gives outside.

Each case runs twice in fresh copies of `developer_project`, at the same path: first outside, then inside. Exit status, output and
what the host's git says of the project afterwards must be equal. Only what no two runs share is normalised: durations and the
numbers of terminals.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from sanderling.sandbox.report import NEEDS
from sanderling.sandbox.sandbox import Sandbox
from tests.conftest import DEADLINE_S, ROOT, find_neovim, prove, prove_rest, running, wait_until
from tests.sandboxes import policy_below

DEVELOPER_PROJECT = Path(__file__).with_name("developer_project")
TIMEOUT_S = 60
UNPRIVILEGED = 12345  # a user and a group that own nothing
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHOWN_BYTES = 20_000  # of an output; a longer one is compared by its hash
UNSTEADY = (
    (re.compile(rb"\d+(\.\d+)? ?m?s\b"), b"<duration>"),
    (re.compile(rb"duration_ms[:]? [\d.]+"), b"<duration>"),
    (re.compile(rb"/dev/pts/\d+"), b"/dev/pts/<n>"),
)


# The cases ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """
    A shell script, or `argv`, and what there is to know about it.

    `before` runs outside in both copies. `wrapper` is a shell script outside that runs the command as `"$@"`. `lost_at` tells
    for each level that cannot do it why. `status` is what the command exits with outside. The core cases run at every level
    and as an unprivileged user too.
    """

    name: str
    script: str = ""
    argv: tuple[str | bytes, ...] = ()
    needs: tuple[str, ...] = ()
    before: str = ""
    wrapper: str = ""
    stdin: bytes = b""
    cwd: str = "."
    umask: int = 0o022
    status: int = 0
    is_core: bool = False
    lost_at: dict[str, str] = field(default_factory=dict)

    def command(self, tools: "Tools") -> list[str | bytes]:
        return list(self.argv) or ["/bin/sh", "-euc", tools.variables + self.script]


LEVELS = ("full", "full-bwrap", "namespaces", "landlock")
MOUNTED = LEVELS[:-1]
NO_TERMINALS = "a terminal of one's own is a device, which cannot be opened"
NO_SEMAPHORES = "/dev/shm is the host's"
NO_SERVERS = "only unix stream sockets can be made, and these cannot connect"
CONFIG_IS_PROTECTED = "`.git/config` can make git execute anything"


def without_namespaces(*reasons: str) -> dict[str, str]:
    return {"landlock": "; ".join(reasons)}


GIT = (
    Case(
        name="git: add, commit, log, show, blame",
        is_core=True,
        script="""
            git status --short
            echo more >> README.md && echo new > 'a new file' && git rm -q Cargo.toml
            git add -A && git status --short && git commit -qm 'a commit' && git status --short
            git log --format='%an <%ae> %s' --stat && git show --format=%s && git blame -s README.md | cut -d' ' -f2-
            git commit -q --amend -m 'another message' && git reset -q --hard HEAD~1 && git status --short
        """,
    ),
    Case(
        name="git: branch, stash, rebase, merge, cherry-pick, tag, bisect",
        is_core=True,
        script="""
            git switch -qc topic && echo topic >> README.md && git commit -qam topic
            echo dirty >> Makefile && git stash -q && git stash list && git stash pop -q && git diff --stat
            git checkout -q Makefile && git switch -q main && echo main > new && git add new && git commit -qm main
            git switch -q topic && git rebase -q main && git log --format=%s
            git switch -q main && git merge -q --no-ff -m merge topic && git tag -a v1 -m v1 && git describe
            git switch -qc conflict HEAD~1 && echo other >> README.md && git commit -qam other
            git merge topic || git diff --name-only --diff-filter=U
            git merge --abort && git revert --no-edit HEAD && git cherry-pick v1^2 && git rebase -q --onto main HEAD~1
            git bisect start HEAD HEAD~2 && git bisect run test -e nothing && git bisect reset
            git switch -q main && git log --oneline --graph --all
        """,
    ),
    Case(
        name="git: gc, pack-refs, fsck, reflog, clean, archive, notes, sparse patches",
        script="""
            git gc -q && git pack-refs --all && git fsck && git reflog --format=%gs && git repack -qad
            touch junk && git clean -fq && git archive HEAD | tar -t | tail -3
            git notes add -m note && git log -1 --format=%N
            echo more >> README.md && git diff > change && git checkout -q README.md && git apply change && git diff --stat
            git format-patch -q --stdout HEAD | wc -c && git hash-object -w change && git ls-files | wc -l
        """,
    ),
    *(
        Case(
            name=f"git: a repository shared with {shared}",
            is_core=shared == "group",
            before=f"git init -q --shared={shared} && find .git -type d -exec chmod g+s {{}} +",
            script="""
                for n in $(seq 20); do echo $n > file-$n; done
                git add -A && git commit -qm shared && git tag -a v1 -m v1 && git gc -q
                echo more > more && git add more && git commit -qm more && git fsck && git branch a/deep/branch
                find .git -type d -path '*objects*' -printf '%m\n' | sort -u
                stat -c %a .git/refs/heads/a .git/refs/heads/a/deep .git/refs/heads/a/deep/branch
            """,
        )
        for shared in ("group", "all", "0660", "0640")
    ),
    Case(
        name="files: what a directory with S_ISGID hands down, by mkdir, cp and tar",
        is_core=True,
        before="mkdir shared && chmod 2775 shared",
        script="""
            mkdir -p plain/a/b && touch plain/a/file && tar -cf plain.tar plain && cd shared
            mkdir -p made/b && cp -r ../plain copied && install -d installed && tar -xf ../plain.tar
            find . -printf '%m %p\n' | sort && chmod -R u+x plain/a/file && stat -c %a plain/a/file
        """,
    ),
    Case(
        name="git: worktrees below the project and in TMPDIR",
        script="""
            for tree in trees/one "$TMPDIR/two"; do
                git worktree add -q "$tree" -b "$(basename $tree)"
                (cd "$tree" && echo new > new && git add new && git commit -qm "in $tree" && git status --short)
            done
            git log --format=%s two | wc -l && git worktree remove "$TMPDIR/two" && git worktree prune && git branch
        """,
    ),
    Case(
        name="git: the project is a linked worktree",
        is_core=True,
        before="cd .. && mv project main && git -C main worktree add -q ../project -b topic",
        script="""
            echo more >> README.md && git add -A && git commit -qm 'in a worktree' && git status --short
            git log --format=%s && git branch && git stash list
            echo dirty >> README.md && git stash -q && git stash pop -q && git switch -qc second && git commit -qam second
            git rebase -q main && git log --format=%s main..second && git worktree list | wc -l
        """,
    ),
    Case(
        name="git: clones of the project, fetch and push between them",
        script="""
            git clone -q . copy && cd copy && echo more > more && git add more && git commit -qm more
            git push -q origin HEAD:refs/heads/pushed && cd .. && git log --format=%s pushed
            git clone -q --bare . "$TMPDIR/bare" && git fetch -q "$TMPDIR/bare" && git clone -q --shared . "$TMPDIR/shared"
            git ls-remote "$TMPDIR/bare" | cut -f2 && git pull -q copy HEAD && git log --format=%s
        """,
    ),
    Case(
        name="git: a submodule that is there",
        before="""
            git clone -q . ../library && git -c protocol.file.allow=always submodule --quiet add ../library sub
            git commit -qm 'a submodule'
        """,
        script="""
            git submodule status | cut -d' ' -f3- && git status --short
            cd sub && echo more >> README.md && git commit -qam 'in the submodule' && cd ..
            git status --short && git submodule summary | tail -n +2 && git add sub && git commit -qm 'the submodule moves'
            git submodule --quiet foreach 'git log -1 --format=%s'
        """,
    ),
    Case(
        name="git: what changes .git/config",
        script="git remote add other ../other && git config core.abbrev 12 && git remote",
        lost_at=dict.fromkeys(LEVELS, CONFIG_IS_PROTECTED),
    ),
    Case(
        name="git: branch -d, which works, but says that it cannot change .git/config",
        script="git branch topic && git branch -d topic && git branch",
        lost_at=dict.fromkeys(MOUNTED, CONFIG_IS_PROTECTED),
    ),
    Case(
        name="git: the user's name, defaults and aliases",
        is_core=True,
        before="git config --global alias.recent 'log --format=%s' && git config --global core.abbrev 12",
        script="git config user.name && git config user.email && git config core.abbrev && git config init.defaultBranch && git recent",
    ),
)

COMPILERS = (
    Case(
        name="C: make -j4, a second make, a run",
        needs=("gcc", "make"),
        is_core=True,
        script="make -s -j4 check && make -q && ./build/calculate 6 7 && touch parts/add.c && make -j4 | wc -l && make clean",
    ),
    Case(
        name="C: the address sanitizer and the leak sanitizer, which traces its process",
        needs=("gcc",),
        status=23,
        script="""
            gcc -fsanitize=address,undefined -Iparts parts/[a-k]*.c parts/[m-z]*.c -o calculate && ./calculate 1 2
            gcc -O0 -fsanitize=address parts/leak.c -o leaky
            ASAN_OPTIONS=log_path=report:exitcode=23 ./leaky || status=$?
            grep -h SUMMARY report.* && rm report.* && exit $status
        """,
    ),
    Case(
        name="C: gdb",
        needs=("gcc", "gdb"),
        script="""
            gcc -g -Iparts parts/[a-k]*.c parts/[m-z]*.c -o calculate
            gdb -q -batch -nx -ex 'break multiply' -ex run -ex 'print a * 21' -ex 'bt -frame-arguments none' ./calculate 2>/dev/null | grep '^[$#]'
        """,
    ),
    Case(
        name="C: strace",
        needs=("strace",),
        script="strace -f -o trace -e trace=execve sh -c '/bin/true; /bin/echo traced' && grep -c execve trace && rm trace",
    ),
    Case(
        name="Rust: cargo build, run and test",
        needs=("cargo",),
        lost_at=without_namespaces(NO_SERVERS),
        script="cargo run --offline -q && cargo test --offline -q --lib 2>&1",
    ),
)

PYTHON = (
    Case(
        name="Python: pytest, with servers, pools, managers, locks, terminals",
        is_core=True,
        lost_at=without_namespaces(NO_SERVERS, NO_SEMAPHORES, NO_TERMINALS),
        script='"$PYTHON" -m pytest -q -p no:asyncio -p no:xdist checks.py',
    ),
    Case(
        name="Python: pytest, with files, children and databases",
        script='"$PYTHON" -m pytest -q -p no:asyncio checks.py -k "file or child or database or interpreter or group"',
    ),
    Case(
        name="Python: pytest-xdist",
        lost_at=without_namespaces(NO_SERVERS, NO_SEMAPHORES, NO_TERMINALS),
        script='"$PYTHON" -m pytest -q -p no:asyncio -n 2 checks.py -k "not pool"',
    ),
    Case(
        name="Python: a virtual environment",
        needs=("python3",),
        is_core=True,
        script="""
            python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix, sys.base_prefix)'
            . v/bin/activate && command -v python && python -m json.tool package.json
        """,
    ),
    Case(
        name="Python: pip, offline",
        script="""
            "$PYTHON" -m pip --version | cut -d' ' -f1-2
            ! "$PYTHON" -m pip install --no-index nothing-like-this 2>/dev/null
        """,
    ),
)

NODE = (
    Case(
        name="npm: test",
        needs=("npm",),
        lost_at=without_namespaces(NO_SERVERS),
        script="npm test --silent",
    ),
    Case(
        name="npm: install of a local package, run of a script",
        needs=("npm",),
        script="""
            npm install --offline --no-audit --no-fund ./library && node -p 'require("library").answer()'
            npm ls --offline
        """,
    ),
    Case(
        name="node",
        needs=("node",),
        is_core=True,
        script="node -p 'process.version + require(\"os\").availableParallelism() + process.cwd()' && echo 'console.log(7)' | node",
    ),
)

TERMINALS = (
    Case(
        name="a terminal from script(1)",
        needs=("script",),
        is_core=True,
        lost_at=without_namespaces(NO_TERMINALS),
        script="script -qec 'tty && stty size && test -t 0 && echo terminal > /dev/tty' /dev/null",
    ),
    Case(
        name="tmux",
        needs=("tmux",),
        lost_at=without_namespaces(NO_TERMINALS),
        script="""
            tmux -f /dev/null -S s new-session -d -s mine -x 80 -y 24 'echo shown; exec sleep 60'
            timeout 10 sh -c 'until tmux -S s capture-pane -p -t mine | grep shown; do :; done'
            tmux -S s list-sessions -F '#{session_name} #{session_windows}' && tmux -S s kill-server
            timeout 10 sh -c 'while tmux -S s has-session 2>/dev/null; do :; done' && rm -f s
        """,
    ),
    Case(
        name="Neovim, and its own RPC over a socket in the project",
        needs=("nvim",),
        lost_at=without_namespaces(NO_SERVERS),
        script="""
            "$NEOVIM" --clean --headless +'lua print(vim.v.servername ~= "", vim.fn.system("echo child"))' +qa 2>&1
            "$NEOVIM" --clean --headless --listen ./socket &
            until test -S ./socket || ! kill -0 $!; do :; done
            sleep 1  # the socket is there before anybody listens
            timeout 30 "$NEOVIM" --clean --server ./socket --remote-expr 'execute("pwd") .. (6 * 7)'
            kill -KILL $! && rm -f socket
        """,
    ),
    Case(
        name="Neovim edits a file",
        needs=("nvim",),
        script='"$NEOVIM" --clean --headless README.md +"%s/little/lot/" +wq 2>&1 && git diff',
    ),
)

SYSTEM = (
    Case(
        name="devices",
        is_core=True,
        script="""
            echo gone > /dev/null && head -c 4 /dev/zero | od -c && head -c 4 /dev/urandom | wc -c && head -c 4 /dev/random | wc -c
            sh -c 'echo x > /dev/full' 2>/dev/null || echo full
            ls /dev/fd/ > /dev/null && echo fine
        """,
    ),
    Case(
        name="/dev/stdin, /dev/stdout, /dev/stderr, /dev/fd",
        script="echo out > /dev/stdout && echo err > /dev/stderr && cat /dev/stdin && cat /dev/fd/0",
        stdin=b"in\n",
    ),
    Case(
        name="/dev/shm",
        lost_at=without_namespaces(NO_SEMAPHORES),
        script="echo shared > /dev/shm/$$ && cat /dev/shm/$$ && rm /dev/shm/$$",
    ),
    Case(
        name="process substitution, here documents, coprocesses",
        needs=("bash",),
        argv=(
            "bash",
            "-euc",
            'diff <(echo a) <(echo b) || cat <<< here; coproc cat; echo co >&"${COPROC[1]}"; read -ru "${COPROC[0]}" x; echo $x',
        ),
    ),
    Case(
        name="questions to the system",
        is_core=True,
        script="""
            id -u && id -g && pwd && uname -srm && nproc && date +%Z && locale && umask && ulimit -n && hostname
            for command in 'df -h .' 'ps aux' free uptime 'cat /proc/cpuinfo' 'cat /proc/self/status' 'ls /sys'; do
                $command > /dev/null && echo "$command works"
            done
            getent passwd root && getent hosts localhost | grep -c localhost
            getent services ssh && command -v sh && env | grep -c ^PATH= && id -un || echo "no name: $?"
        """,
    ),
    Case(
        name="the list of what is in /",
        script="ls / | grep -x usr",
        lost_at=without_namespaces("who may list / may list everything below it"),
    ),
    Case(
        name="a Python server and curl on the loopback",
        needs=("curl", "python3"),
        is_core=True,
        lost_at=without_namespaces(NO_SERVERS),
        script="""
            python3 -u -m http.server --bind 127.0.0.1 0 > log 2>/dev/null &
            until grep -q port log || ! kill -0 $!; do :; done 2>/dev/null; port=$(grep -o 'port [0-9]*' log | cut -d' ' -f2)
            curl -sS --noproxy '*' -w '%{http_code}\\n' "http://127.0.0.1:$port/README.md" && kill $! && rm log
        """,
    ),
    Case(
        name="ssh-keygen",
        needs=("ssh-keygen",),
        script="ssh-keygen -q -t ed25519 -N '' -C mine -f key && ssh-keygen -l -f key.pub | cut -d' ' -f1,3- && stat -c %a key && rm key*",
    ),
    Case(
        name="tar, cp -a, find, grep, sed, xargs, sort, install, ln, patch, diff",
        is_core=True,
        script="""
            chmod 640 README.md && touch -d 2001-02-03T04:05:06Z README.md && ln -s README.md soft && ln README.md hard
            mkdir one && tar -cpf - README.md soft hard library | tar -xpf - -C one && cp -a one two && mv two/library two/moved
            cd two && stat -c '%a %s %Y %h' README.md hard && readlink soft && cd .. && rm -r one && chmod -R go-rwx two && ls -R two
            find . -name '*.c' | xargs grep -l main | sort && sed -i s/little/lot/ README.md && diff two/README.md README.md || true
            cp -a . "$TMPDIR/copy" && rm -rf "$TMPDIR/copy" && install -m 755 Makefile installed && stat -c %a installed
            seq 100000 | sort -R | sort -n | tail -1 && touch old -r README.md && truncate -s 1M old && du --apparent-size -k old
        """,
    ),
    Case(
        name="SQLite's shell, with a write-ahead log",
        needs=("sqlite3",),
        script="""
            sqlite3 d.db 'pragma journal_mode=wal; create table t(n); insert into t values(1),(2);' && sqlite3 d.db 'select sum(n) from t'
            ls d.db*
        """,
    ),
    Case(
        name="timeout, nice, setsid, nohup, background jobs, traps",
        is_core=True,
        script="""
            timeout 0.1 sleep 60 || echo $? && timeout -s KILL 0.1 sleep 60 || echo $?
            nice -n 5 nice && setsid -w echo session && nohup echo nohup 2>/dev/null
            sh -c 'trap "echo trapped; exit 0" TERM; kill -TERM $$; sleep 60'
            { sleep 60 & kill $! && wait $!; } 2>/dev/null || echo $?
            for n in 1 2 3; do sh -c "exit $n" & done; wait && echo waited
            exec 9> lock && flock 9 && flock -n lock true || echo locked; rm lock
        """,
    ),
    Case(
        name="names that are not UTF-8, long, or odd",
        is_core=True,
        script="""
            name=$(printf 'b\\377d\\nname') && echo odd > "$name" && cat "$name" && git add -A && git status --short && ls -b
            long=$(printf %0255d 0) && touch "$long" && ls | wc -l && mkdir -- -dash ' ' && ls -d -- -dash ' '
        """,
    ),
    Case(
        name="a git-ignored .env and committed editor settings are no obstacle",
        script="""
            git status --short && git add -A && git status --short && git stash list && cp -r .vscode copied
            git ls-files .vscode && cat .vscode/settings.json && test -e .env
        """,
    ),
)

PROTOCOL = (
    *(
        Case(name=f"exit status {n}", script=f"exit {n}", status=n)
        for n in (1, 42, 124, 126, 127, 255)
    ),
    *(
        Case(
            name=f"death by {name}",
            script=f"ulimit -c 0; kill -{name} $$",
            status=128 + number,
            is_core=name == "TERM",
        )
        for name, number in (("TERM", 15), ("KILL", 9), ("SEGV", 11), ("INT", 2), ("USR1", 10))
    ),
    Case(
        name="arguments arrive as they are",
        is_core=True,
        argv=(
            "/bin/sh",
            "-c",
            'printf "<%s>" "$@" | od -c',
            "sh",
            "a b",
            "c\nd",
            "",
            b"\xff\xfe",
            "é",
            "--project",
            "--",
            "$HOME",
            "'\"\\",
        ),
    ),
    Case(name="a command without a path", argv=("true",)),
    Case(
        name="an argument as long as the kernel takes",
        argv=("/bin/sh", "-c", 'echo "${#1}"', "sh", "x" * ((128 << 10) - 1)),
    ),
    Case(
        name="a thousand arguments of a kilobyte",
        argv=("/bin/sh", "-c", 'echo "$#"', "sh", *["x" * 1000] * 1000),
    ),
    Case(
        name="any byte through stdin and stdout",
        argv=("cat",),
        stdin=bytes(range(256)) * 8192,
        is_core=True,
    ),
    Case(
        name="stdin that ends, line by line",
        script='while read -r line; do echo "<$line>"; done; echo end',
        stdin=b"a\nb\nc\n",
    ),
    Case(name="stdin that nobody reads", argv=("true",), stdin=b"x" * (1 << 20)),
    Case(name="50 MB of output, whole", script="yes 0123456789 | head -c 50000000", is_core=True),
    Case(
        name="10 MB without a newline on stdout and on stderr",
        script="head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2",
    ),
    Case(
        name="stdout and stderr apart and in order",
        script="for n in 1 2 3; do echo out $n; echo err $n >&2; done",
        wrapper='"$@" 2>&1',
    ),
    Case(
        name="output to a pipe that is closed",
        argv=("yes",),
        wrapper='"$@" | head -n 1; echo "${PIPESTATUS[0]}"',
    ),
    Case(
        name="stdout to a file outside the project",
        script="echo out; echo err >&2",
        wrapper='"$@" > ../out 2>&1; cat ../out',
    ),
    Case(
        name="stdin from a file outside the project",
        script="cat",
        wrapper='echo in > ../in; "$@" < ../in',
    ),
    Case(name="stdin closed", script="echo fine", wrapper='"$@" <&-'),
    Case(name="stdout closed", script="true", wrapper='"$@" >&-'),
    Case(name="stderr closed", script="echo fine", wrapper='"$@" 2>&-'),
    Case(
        name="the working directory",
        before="mkdir -p 'a folder/ünd\n more'",
        cwd="a folder/ünd\n more",
        script="pwd && ls -ld --time-style=+ .",  # without the minute in which it was made
    ),
    Case(
        name="the mask of new files",
        script="umask && touch new && mkdir folder && stat -c %a new folder",
        umask=0o027,
    ),
    Case(
        name="no signal is blocked or ignored",
        # The lower 31: glibc's posix_spawn ignores the two signals that it keeps for its threads.
        script="grep -E '^Sig(Blk|Ign)' /proc/self/status | while read -r n mask; do echo $((0x$mask & 0x7fffffff)); done",
        is_core=True,
    ),
    Case(name="no descriptor but the three", argv=("/bin/sh", "-c", "ls /proc/$$/fd")),
)

CASES = (*GIT, *COMPILERS, *PYTHON, *NODE, *TERMINALS, *SYSTEM, *PROTOCOL)
CORE = [case for case in CASES if case.is_core]
USUAL = ("git: add, commit, log, show, blame", "names that are not UTF-8, long, or odd")
IS_USUAL = [n for n, case in enumerate(CASES) if case.name in USUAL]
assert len(IS_USUAL) == len(USUAL)


# Where they run -----------------------------------------------------------------------------------------------------


def is_hidden(path: str) -> bool:
    return not path.startswith(("/usr", "/opt"))


@dataclass(frozen=True)
class Tools:
    """A user's interpreter for Sanderling and for the cases, and where the rest is."""

    python: str
    path: str
    grants: tuple[str, ...]
    environment: dict[str, str]

    @property
    def variables(self) -> str:
        return (
            f"PYTHON='{self.python}' NEOVIM='{find_neovim()}'\n"
            "export npm_config_update_notifier=false "
            "GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'\n"
        )

    def has(self, name: str) -> bool:
        return name == "nvim" or shutil.which(name, path=self.path) is not None


def own_tools() -> Tools:
    path, grants = SYSTEM_PATH, {sys.prefix, sys.base_prefix}
    if rustc := shutil.which("rustc"):
        argv = [rustc, "--print", "sysroot"]
        sysroot = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
        path, grants = f"{path}:{sysroot}/bin", grants | {sysroot}
    return Tools(sys.executable, path, tuple(sorted(filter(is_hidden, grants))), {})


def unprivileged_tools() -> Tools:
    """A Python of the same version that any user can run; the packages of this one serve it."""
    python = shutil.which(
        f"python{sys.version_info.major}.{sys.version_info.minor}", path=SYSTEM_PATH
    )
    if os.geteuid() != 0 or python is None:
        pytest.skip(
            "takes root, to become another user, and a Python of this version in a system folder"
        )
    packages = (str(ROOT / "src"), sysconfig.get_path("platlib"))
    return Tools(python, SYSTEM_PATH, packages, {"PYTHONPATH": ":".join(packages)})


@dataclass(frozen=True)
class Result:
    """What a command did, as far as two runs can agree."""

    status: int
    stdout: bytes
    stderr: bytes
    git_status: str
    git_folder: tuple[str, ...]


def steady(output: bytes) -> bytes:
    if len(output) > SHOWN_BYTES:
        return b"%d bytes: %s" % (len(output), hashlib.sha256(output).hexdigest().encode())
    for pattern, name in UNSTEADY:
        output = pattern.sub(name, output)
    return output


def names_in(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()


class Workshop:
    """Runs cases as one user, each in a place of its own that is the same outside and inside."""

    def __init__(self, base: Path, tools: Tools, user: int | None) -> None:
        self.base, self.tools, self.user = base, tools, user
        self.template = self._make_template()
        self._outside: dict[str, Result] = {}

    def _make_template(self) -> Path:
        place = self.base / "template"
        (place / "home").mkdir(parents=True)
        (place / "tmp").mkdir()
        (place / "home" / ".gitconfig").write_text(
            "[user]\nname = A Developer\nemail = developer@example.org\n[init]\ndefaultBranch = main\n"
        )
        project = place / "project"
        shutil.copytree(DEVELOPER_PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
        (project / ".vscode").mkdir()
        (project / ".vscode" / "settings.json").write_text("{}\n")
        (project / ".env").write_text("SECRET=1\n")
        environment = self.environment(place)
        subprocess.run(
            "git init -q && git add -A && git commit -qm first",
            shell=True,
            check=True,
            cwd=project,
            env=environment,
        )
        return place

    def environment(self, place: Path) -> dict[str, str]:
        """The variables outside. Those that the sandbox sets are set here too."""
        return {
            "PATH": self.tools.path,
            "HOME": str(place / "home"),
            "TMPDIR": str(place / "tmp"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PAGER": "cat",
            "GIT_PAGER": "cat",
            "GIT_TERMINAL_PROMPT": "0",
            **self.tools.environment,
        }

    def prepare(self, case: Case) -> Path:
        """A fresh copy of the template, after what the case wants done `before`."""
        # Short: the path of a socket is 107 bytes at most.
        place = self.base / str(CASES.index(case))
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.template, place, symlinks=True)
        if self.user is not None:
            subprocess.run(["chown", "-R", f"{self.user}:{self.user}", place], check=True)
        if case.before:
            self.run(["/bin/sh", "-euc", case.before], place / "project", place, check=True)
        return place

    def run(
        self, argv: list[str | bytes], cwd: Path, place: Path, **options
    ) -> subprocess.CompletedProcess:
        if self.user is not None:
            options |= {"user": self.user, "group": self.user, "extra_groups": []}
        options = {"check": False, "timeout": TIMEOUT_S} | options
        return subprocess.run(argv, cwd=cwd, env=self.environment(place), **options)  # noqa: PLW1510

    @functools.cached_property
    def layers(self) -> dict[str, str]:
        """What the command line tells this user of each layer: why it does not work, empty where it does."""
        argv = [self.tools.python, "-m", "sanderling", "sandbox", "status", "--json"]
        run = self.run(argv, self.base, self.template, check=True, capture_output=True)
        return {name: layer["reason"] for name, layer in json.loads(run.stdout)["layers"].items()}

    def why_not(self, level: str) -> str:
        return "; ".join(filter(None, (self.layers[name] for name in NEEDS[level])))

    def command_line(self, place: Path, level: str, *options: str) -> list[str]:
        grants = [word for path in self.tools.grants for word in ("--ro", path)]
        project = str(place / "project")
        words = ["sandbox", "exec", "--project", project, "--level", level, *grants, *options, "--"]
        return [self.tools.python, "-m", "sanderling", *words]

    def outside(self, case: Case) -> Result:
        if case.name not in self._outside:
            self._outside[case.name] = self._result(case, self.prepare(case), [])
        return self._outside[case.name]

    def inside(self, case: Case, level: str) -> Result:
        place = self.prepare(case)
        return self._result(case, place, self.command_line(place, level))

    def _result(self, case: Case, place: Path, prefix: list[str]) -> Result:
        argv = [*prefix, *case.command(self.tools)]
        if case.wrapper:
            argv = ["bash", "-c", case.wrapper, "bash", *argv]
        project = place / "project"
        run = self.run(
            argv, project / case.cwd, place, input=case.stdin, capture_output=True, umask=case.umask
        )
        git_status = self.run(
            ["git", "status", "--porcelain"], project, place, capture_output=True, text=True
        )
        return Result(
            run.returncode if run.returncode >= 0 else 128 - run.returncode,
            steady(run.stdout),
            steady(run.stderr),
            git_status.stdout + git_status.stderr,
            names_in(project / ".git") + names_in(place / "main" / ".git"),
        )


@contextlib.contextmanager
def workshop(tools: Tools, user: int | None = None) -> Iterator[Workshop]:
    # pytest's own temporary folders are closed to other users.
    with tempfile.TemporaryDirectory(prefix="mw-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Workshop(Path(folder), tools, user)


@pytest.fixture(scope="module")
def own_workshop() -> Iterator[Workshop]:
    with workshop(own_tools()) as shop:
        yield shop


@pytest.fixture(scope="module")
def unprivileged_workshop() -> Iterator[Workshop]:
    with workshop(unprivileged_tools(), UNPRIVILEGED) as shop:
        yield shop


# The facts ----------------------------------------------------------------------------------------------------------


def assert_same(shop: Workshop, case: Case, level: str) -> None:
    if missing := [name for name in case.needs if not shop.tools.has(name)]:
        pytest.skip(f"missing: {', '.join(missing)}")
    if reason := shop.why_not(level):
        pytest.skip(f"no level {level} here: {reason}")
    outside = shop.outside(case)
    assert outside.status == case.status, f"it does not work outside either: {outside}"
    inside = shop.inside(case, level)
    if reason := case.lost_at.get(level):
        assert inside != outside, f"works now, although {reason}"
    else:
        assert inside == outside


@pytest.mark.parametrize("level", prove_rest(["full", "landlock"], keep=(0,)))
@pytest.mark.parametrize("case", prove_rest(CASES, keep=IS_USUAL), ids=lambda case: case.name)
def test_a_command_gives_inside_what_it_gives_outside(own_workshop, case, level):
    assert_same(own_workshop, case, level)


@prove
@pytest.mark.parametrize("level", LEVELS[1:-1])
@pytest.mark.parametrize("case", CORE, ids=lambda case: case.name)
def test_the_core_works_at_the_levels_between(own_workshop, case, level):
    assert_same(own_workshop, case, level)


@prove
@pytest.mark.parametrize("level", ["full", "landlock"])
@pytest.mark.parametrize("case", CORE, ids=lambda case: case.name)
def test_the_core_works_for_an_unprivileged_user(unprivileged_workshop, case, level):
    assert_same(unprivileged_workshop, case, level)


@pytest.fixture
def place(own_workshop) -> Path:
    return own_workshop.prepare(CASES[0])


@pytest.fixture
def sandboxed(own_workshop, place):
    """Run a shell script in the project, inside, at the full level."""

    def run(script: str, **options) -> subprocess.CompletedProcess:
        argv = [
            *own_workshop.command_line(place, "full"),
            "/bin/sh",
            "-euc",
            own_workshop.tools.variables + script,
        ]
        return own_workshop.run(
            argv, place / "project", place, capture_output=True, text=True, **options
        )

    return run


@prove
def test_a_cache_lasts_from_one_session_to_the_next(sandboxed, place):
    sandboxed("mkdir -p ~/.cache/tool && echo kept > ~/.cache/tool/file", check=True)
    assert sandboxed("cat ~/.cache/tool/file", check=True).stdout == "kept\n"
    assert not (place / "home" / ".cache" / "tool").exists()


@prove
def test_a_name_fails_at_once_while_the_network_is_off(sandboxed):
    run = sandboxed("timeout 5 getent hosts example.org || echo $?")
    assert run.stdout in ("2\n", "1\n"), run  # not found; 124 would be the timeout


@prove
def test_what_a_command_leaves_in_the_background_ends_with_it(sandboxed, marker):
    ways = ("", "nohup", "setsid", "setsid nohup")
    sleeps = [f"{how} {marker} >/dev/null 2>&1 &" for how in ways]
    assert sandboxed("\n".join([*sleeps, "echo started"])).stdout == "started\n"
    wait_until(lambda: not running(marker))


@prove
def test_a_background_job_that_holds_the_output_does_not_hold_up_the_end(sandboxed, marker):
    assert sandboxed(f"{marker} & echo started").stdout == "started\n"


@prove
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda n: n.name
)
def test_a_signal_to_the_command_line_leaves_nothing_behind(
    own_workshop, place, sandboxed, marker, number
):
    script = f"(setsid {marker} &); echo started; exec {marker}"
    argv = [*own_workshop.command_line(place, "full"), "/bin/sh", "-euc", script]
    project, environment = place / "project", own_workshop.environment(place)
    git_folder = names_in(project / ".git")
    with subprocess.Popen(argv, cwd=project, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"started\n"
        status = subprocess.check_output(
            ["git", "status", "--porcelain"], cwd=project, env=environment
        )
        process.send_signal(number)
        try:
            assert process.wait(DEADLINE_S) in (-number, 128 + number)
        finally:
            process.kill()
    assert status == b"", "no ghost while it runs"
    wait_until(lambda: not running(marker))
    wait_until(lambda: names_in(project / ".git") == git_folder, "what was placed is removed")
    assert sandboxed("git status --porcelain", check=True).stdout == ""


@prove
def test_two_sessions_share_a_project(own_workshop, place, sandboxed):
    argv = [*own_workshop.command_line(place, "full"), "/bin/sh", "-euc"]
    argv.append(
        "echo started; read line; echo first > first; git add first; git commit -qm first; git status --short"
    )
    project, environment = place / "project", own_workshop.environment(place)
    with subprocess.Popen(
        argv, cwd=project, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"started\n"
        sandboxed("echo second > second; git add second; git commit -qm second", check=True)
        assert process.communicate(b"\n", TIMEOUT_S)[0] == b""
    assert process.returncode == 0
    log = ["git", "log", "--format=%s"]
    assert subprocess.check_output(log, cwd=project, env=environment, text=True).split() == [
        "first",
        "second",
        "first",
    ]
    assert "commondir" not in names_in(project / ".git")


@contextlib.asynccontextmanager
async def session_in(place: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox.open(policy_below(place, "project")) as session:
        if session.level != "full":
            pytest.skip(f"no level full here: {session.report.why_not('full')}")
        yield session


async def output_of(session: Sandbox, *argv: str, **options) -> str:
    process = await session.spawn(argv, **options)
    output = b"".join([chunk async for chunk in process.stdout])
    assert await process.wait() == 0, await process.stderr.receive()
    process.close()
    return output.decode()


async def test_a_server_of_one_command_answers_the_next(place):
    async with session_in(place) as session:
        argv = ["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
        server = await session.spawn(argv)
        said = (await server.stdout.receive()).decode()
        url = f"http://127.0.0.1:{re.search(r'port ([0-9]+)', said)[1]}/README.md"
        assert "developer" in await output_of(session, "curl", "-sS", "--noproxy", "*", url)
        server.kill()
        assert await server.wait() == -signal.SIGKILL


@prove
async def test_commands_run_side_by_side(place):
    """Each waits for another one, the first for the last: one after the other they would never end."""
    async with session_in(place) as session:

        async def check(number: int) -> None:
            script = f"touch runs.{number}; until [ -e runs.{19 - number} ]; do sleep 0.01; done; echo {number}"
            assert await output_of(session, "sh", "-c", script) == f"{number}\n"

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(check, number)


@prove
async def test_commands_of_a_session_share_tmp_and_the_cache(place):
    async with session_in(place) as session:
        script = "mkdir -p ~/.cache; echo kept | tee /tmp/file > ~/.cache/file"
        await output_of(session, "sh", "-c", script)
        script = "cat /tmp/file ~/.cache/file"
        assert await output_of(session, "sh", "-c", script) == "kept\nkept\n"
