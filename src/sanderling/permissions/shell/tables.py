"""Tables: which programs run others, and which options make a program run or write something."""

import re

import msgspec

from sanderling.permissions.shell.grammar import Opaque, Words
from sanderling.text import name_set

WRAPPERS = name_set(
    # Programs that run another.
    "timeout nice nohup sudo doas su xargs watch ionice setsid stdbuf time strace ltrace gdb ssh parallel sem flock chroot unshare"
    " nsenter busybox toybox runuser pkexec systemd-run script expect chrt taskset numactl unbuffer dbus-run-session firejail bwrap"
    " proot fakeroot start-stop-daemon run-parts entr at batch crontab screen tmux rlwrap valgrind perf hyperfine caffeinate"
    " torsocks proxychains proxychains4 chronic ifne pee sg newgrp setarch linux32 linux64 prlimit capsh setpriv socat xvfb-run"
    " choom cgexec faketime dtach daemonize direnv sshpass mosh rsh telnet nc ncat netcat dc ld.so m4 ssh-agent dbus-launch"
    " watchexec nodemon concurrently cross-env foreman honcho overmind tini dumb-init gosu su-exec setuidgid chpst runcon eatmydata"
    " cpulimit run0 machinectl xdg-open open"
    # Interactive programs, which run what is typed into them.
    " vim vi view nvim ex rvim gvim vimdiff emacs emacsclient ed nano pico less more most man info ftp sftp lftp top htop"
    " psql mysql mariadb mongo mongosh redis-cli irb pry ghci jshell iex erl ipython bpython ptpython R octave gnuplot"
    # Builtins that run words, or change what later words mean.
    " command builtin exec eval source . coproc trap alias unalias set shopt enable hash declare typeset export readonly local unset"
    " let getopts bind complete compgen compopt fc history mapfile readarray pushd popd dirs logout suspend emulate zmodload"
    " autoload print noglob nocorrect"
)

SHELLS = name_set("bash sh dash zsh ksh mksh ash fish csh tcsh rbash pwsh nu xonsh elvish")

RUNNERS = [
    tuple(words.split())
    for words in re.split(
        r",\s*",
        "uv run, poetry run, pipenv run, pdm run, hatch run, rye run, bundle exec, npx, npm exec, npm x, pnpm exec, pnpm dlx, pnpx,"
        "yarn exec, yarn dlx, bunx, bun x, uvx, uv tool run, pipx run, conda run, mamba run, mise exec, asdf exec,"
        "nix run, nix shell, nix develop, nix-shell, opam exec, stack exec, cabal exec, dotenv run, doppler run, op run, tox exec",
    )
]
"""Programs that run another in an environment of its own. The inner one is judged like any other, by rules that name both."""

UNKNOWN_OPTION = "one of its arguments is only known when it runs, and may be an option"


class ProgramOptions(msgspec.Struct, frozen=True):
    """The options with which a program runs or writes something: long ones (also abbreviated), letters, whole words."""

    long: str = ""
    letters: str = ""
    words: str = ""

    def problem(self, arguments: Words) -> str:
        for word in arguments:
            if isinstance(word, Opaque):
                if word.can_be_option:
                    return UNKNOWN_OPTION
            elif self._names(word):
                return f"'{word[:80]}' can make it run or write something else"
        return ""

    def _names(self, word: str) -> bool:
        name = word.partition("=")[0]
        if name in self.words.split():
            return True
        if name.startswith("--"):
            return name != "--" and any(long.startswith(name) for long in self.long.split())
        return name[:1] == "-" and any(letter in self.letters for letter in name[1:])


_PACKAGES = ProgramOptions(
    "--script-shell --shell --node-options --prefix --userconfig --globalconfig --cwd --dir --git --call --registry --use-yarnrc",
    "C",
)

COMPILER = ProgramOptions(
    "--specs --ld-path",
    "B",
    "-wrapper -fplugin -specs -fuse-ld -load -Xclang -fpass-plugin",
)

BY_OPTION = {
    "fd": ProgramOptions("--exec --exec-batch", "xX"),
    "fdfind": ProgramOptions("--exec --exec-batch", "xX"),
    "rg": ProgramOptions("--pre --hostname-bin"),
    "sort": ProgramOptions("--output --compress-program", "o"),
    "base64": ProgramOptions("--output", "o"),
    "getconf": ProgramOptions(words="-v"),
    "shuf": ProgramOptions("--output", "o"),
    "tree": ProgramOptions("--output", "oR"),
    "file": ProgramOptions("--compile --magic-file --no-sandbox", "CmS"),
    "tar": ProgramOptions(
        "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script --rsh-command --rmt-command",
        "IF",
    ),
    "rsync": ProgramOptions("--rsh --rsync-path --log-file --write-batch --config", "e"),
    "zip": ProgramOptions("--unzip-command --test", "T", "-TT"),
    "split": ProgramOptions("--filter"),
    "ctest": ProgramOptions("--script --build-and-test", "S"),
    "cmake": ProgramOptions("--toolchain", "PECD"),
    "cargo": ProgramOptions(
        "--config --manifest-path --target-dir --artifact-dir --out-dir --lockfile-path --open",
        "CZ",
    ),
    "pip": ProgramOptions("--python --log"),
    "scp": ProgramOptions("", "SoFD"),
    "install": ProgramOptions("--strip-program"),
    "patch": ProgramOptions("--ed --get", "eg"),
    "ninja": ProgramOptions("", "Cf"),
    "just": ProgramOptions(
        "--justfile --working-directory --shell --shell-arg --command --edit --choose --chooser --set --dotenv-path --global-justfile",
        "fdceg",
    ),
    "rake": ProgramOptions("--rakefile --execute --require --libdir --rakelibdir", "fepErIRE"),
    "gradle": ProgramOptions(
        "--init-script --build-file --project-dir --settings-file --include-build --gradle-user-home",
        "Ibpcg",
    ),
    "mvn": ProgramOptions("--file --settings --global-settings --toolchains", "", "-f -s -gs -t"),
    "ssh-keygen": ProgramOptions("", "D"),
    "curl": ProgramOptions(
        "--output --output-dir --remote-name --remote-name-all --config --upload-file --trace --trace-ascii --libcurl --dump-header"
        " --cookie-jar --stderr --etag-save --hsts --alt-svc --engine",
        "oOKTDcJ",
    ),
    "wget": ProgramOptions(
        "--use-askpass --execute --post-file --body-file --input-file --config --output-document --output-file --append-output"
        " --directory-prefix --save-cookies --warc-file --rejected-log --hsts-file",
        "eioaPO",
    ),
    "yq": ProgramOptions("--inplace --in-place --split-exp", "is"),
    "xxd": ProgramOptions("", "r"),
    "date": ProgramOptions("--set", "s"),
    "npm": _PACKAGES,
    "pnpm": _PACKAGES,
    "yarn": _PACKAGES,
    "bun": ProgramOptions(f"{_PACKAGES.long} --eval --print --preload --require --import", "Cepr"),
    "mypy": ProgramOptions(
        "--config-file --python-executable --custom-typing-module --custom-typeshed-dir --shadow-file --junit-xml --cache-dir"
        " --install-types --non-interactive --any-exprs-report --cobertura-xml-report --html-report --linecount-report"
        " --linecoverage-report --lineprecision-report --txt-report --xml-report --xslt-html-report --xslt-txt-report"
        " --cache-map --line-checking-stats --timing-stats --custom-plugin",
    ),
    "pyright": ProgramOptions(
        "--pythonpath --venvpath --venv-path --typeshedpath --typeshed-path --createstub --writebaseline --baselinefile",
        "tv",
    ),
    "ruff": ProgramOptions("--output-file --config --cache-dir --extension --add-noqa", "o"),
    "black": ProgramOptions("--config --code", "c"),
    "eslint": ProgramOptions(
        "--config --rulesdir --plugin --parser --resolve-plugins-relative-to --format --output-file --cache-location --cache-file"
        " --init --inspect-config --mcp --flag --ignore-path --stdin-filename --eslintrc-path",
        "cfo",
    ),
    "prettier": ProgramOptions(
        "--config --plugin --plugin-search-dir --cache-location --ignore-path --find-config-path --find-config-file --file-info",
    ),
}

BY_OPTION["basedpyright"] = BY_OPTION["pyright"]

OF_THE_PROJECT = name_set(
    "pytest py.test mypy pyright basedpyright ruff black eslint prettier tsc cargo go npm pnpm yarn bun"
)
"""Programs that work on the project's files. If one of their words leads outside, only a rule for the exact command covers them."""

INTERPRETERS = SHELLS | name_set(
    "python perl ruby node nodejs tsx ts-node php lua luajit julia Rscript"
)
