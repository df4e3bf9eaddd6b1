#!/usr/bin/env bash
# fetch_plugins.sh DIRECTORY [VERSIONS]: check out the plugins of tests/plugins/versions.txt, or the repositories of another such file, into
# DIRECTORY, each at its commit.
#
# A plugin that is there at that commit is left alone. `PLUGINS=DIRECTORY make test ARGS=tests/plugins` then runs the tests.
set -euo pipefail

mkdir -p "${1:?usage: fetch_plugins.sh DIRECTORY [VERSIONS]}"
directory=$(cd "$1" && pwd -P)
versions=${2:-$(dirname "${BASH_SOURCE[0]}")/../tests/plugins/versions.txt}

while read -r name repository commit; do
  plugin=$directory/$name
  [[ $(git -C "$plugin" rev-parse --verify --quiet HEAD 2>/dev/null) != "$commit" ]] || continue
  git init --quiet "$plugin"
  git -C "$plugin" fetch --quiet --depth 1 "https://github.com/$repository" "$commit"
  git -C "$plugin" checkout --quiet --force "$commit"
done < <(grep -v '^#' "$versions")
