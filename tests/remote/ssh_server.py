"""An sshd of this machine's own, with keys that are thrown away, for whoever runs the tests and for nobody else."""

import getpass
import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import reserved_port, wait_until
from tests.remote.conftest import program

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else "")


def has_sshd():
    return bool(SSHD and shutil.which("ssh") and shutil.which("ssh-keygen"))


@contextmanager
def serving(elsewhere, folder):
    """Serve at the address that this gives; `ssh` takes its configuration from here, and nothing of the person's."""
    place = folder / "ssh"
    place.mkdir(mode=0o700)
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(command, check=True)
    shutil.copy(place / "user.pub", place / "authorized")
    with reserved_port() as port:
        config = {
            "Port": port,
            "ListenAddress": "127.0.0.1",
            "HostKey": place / "host",
            "AuthorizedKeysFile": place / "authorized",
            "PidFile": place / "pid",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "SetEnv": f'"PATH={elsewhere.bin}:{os.environ["PATH"]}"',
        }
        (place / "sshd_config").write_text(
            "".join(f"{key} {value}\n" for key, value in config.items())
        )
        if os.geteuid() == 0:  # it gives up its rights there
            Path("/run/sshd").mkdir(exist_ok=True)
        host_key = (place / "host.pub").read_text().split()[:2]
        (place / "known").write_text(f"[127.0.0.1]:{port} {' '.join(host_key)}\n")
        options = f"-F none -i {place / 'user'} -o IdentitiesOnly=yes -o UserKnownHostsFile={place / 'known'} -o GlobalKnownHostsFile=none"
        real = shutil.which("ssh", path="/usr/local/bin:/usr/bin:/bin")
        program(elsewhere.bin / "ssh", f'exec {real} {options} "$@"')
        with (place / "log").open("w") as log:
            server = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(place / "sshd_config")], stderr=log
            )
        try:
            wait_until(lambda: is_listening(port), "sshd listens")
            yield f"ssh://{getpass.getuser()}@127.0.0.1:{port}{elsewhere.project}"
        finally:
            server.terminate()
            server.wait()


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
