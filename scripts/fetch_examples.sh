#!/usr/bin/env bash
# fetch_examples.sh DIRECTORY: check out the repositories of tests/examples/versions.txt into DIRECTORY, each at its commit, and install the
# packages of the reference validator in DIRECTORY/reference.
#
# `EXAMPLES=DIRECTORY make test ARGS=tests/examples` then runs the tests.
set -euo pipefail

scripts=$(dirname "${BASH_SOURCE[0]}")
"$scripts/fetch_plugins.sh" "${1:?usage: fetch_examples.sh DIRECTORY}" "$scripts/../tests/examples/versions.txt"
[[ -d $1/reference ]] || "$scripts/../.venv/bin/python" -m pip install --quiet --target "$1/reference" strictyaml==1.7.3 click==8.5.1
