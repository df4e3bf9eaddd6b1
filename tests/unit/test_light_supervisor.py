"""What the supervisor does without, for opening a sandbox waits for its imports."""

import subprocess
import sys


def test_the_supervisor_loads_neither_openssl_nor_what_it_can_load_while_it_waits():
    code = f"import sys; sys.path = {sys.path}; import sanderling.sandbox.inside.supervisor; print(*sys.modules)"
    isolated = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(isolated, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & {"_hashlib", "pathlib", "urllib", "landlock", "dataclasses", "inspect"} == set()
