"""The reason for a failure, in the output of programs that people start servers with."""

import pytest

from sanderling.tools.commands.last_words import reason_in

NPM_404 = """
npm error code E404
npm error 404 Not Found - GET https://registry.example/@m%2fserver-nope
npm error 404
npm error 404  The requested resource '@m/server-nope@*' could not be found or you do not have permission to access it.
npm error 404 Note that you can also install from a
npm notice New minor version of npm available!
npm error A complete log of this run can be found in: /home/u/.npm/_logs/x.log
"""
NPM_OFFLINE = """
npm error code ENOTFOUND
npm error syscall getaddrinfo
npm error network request to https://registry.example/x failed, reason: getaddrinfo ENOTFOUND registry.example
npm error network This is a problem related to network connectivity.
npm error network
npm error A complete log of this run can be found in: /home/u/.npm/_logs/x.log
"""
UV = """
error: Request failed after 3 retries in 10.3s
  cause: Failed to fetch: https://index.example/simple/x/
  cause: error sending request
  cause: Connection refused (os error 111)
"""
UV_BOXED = """
  \u00d7 No solution found when resolving tool dependencies:
  \u2570\u2500\u25b6 Because nope was not found in the package registry and you require
      nope, we can conclude that your requirements are unsatisfiable.
"""
DOCKER = """docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.

Run 'docker run --help' for more information
"""
NODE = """node:internal/modules/cjs/loader:1
  throw err;
  ^

Error: Cannot find module '/x'
    at Module._resolve (a) {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20
"""
PYTHON_GROUP = """  + Exception Group Traceback (most recent call last):
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "x", line 3, in <module>
    | ValueError: no key
    +------------------------------------
"""


@pytest.mark.parametrize(
    "output, reason",
    [
        (
            NPM_404,
            "npm: The requested resource '@m/server-nope@*' could not be found or you do not",
        ),
        (NPM_OFFLINE, "npm: request to https://registry.example/x failed, reason: getaddrinfo"),
        ("npm error could not determine executable to run\n", "npm: could not determine"),
        (UV, "Request failed after 3 retries in 10.3s: Failed to fetch: https://index.example/"),
        (UV_BOXED, "No solution found when resolving tool dependencies: Because nope was not"),
        (DOCKER, "docker: Cannot connect to the Docker daemon"),
        (NODE, "Error: Cannot find module '/x'"),
        (PYTHON_GROUP, "ValueError: no key"),
        ("usage: x [-h] a\nx: error: a is required\n", "x: error: a is required"),
        ("error: bad option\n\nUsage: x\n\nFor more information, try '--help'.\n", "error: bad"),
        ("   only indented\n", "only indented"),
    ],
)
def test_the_reason_is_found_wherever_it_is(output, reason):
    assert reason_in(output).startswith(reason)


def test_no_output_has_no_reason():
    assert reason_in("") == reason_in("\n  \n") == ""


def test_the_text_in_a_frame_is_the_reason_and_not_its_border():
    output = (
        "Usage: it [OPTIONS]\nTry 'it --help' for help.\n"
        "\u256d\u2500 Error \u2500\u2500\u2500\u2500\u2500\u2500\u256e\n\u2502 No such option: \u2502\n"
        "\u2502 --nope          \u2502\n\u2570\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u256f\n"
    )
    assert reason_in(output) == "No such option: --nope"
