"""What each sandbox starts anew is light."""

import subprocess
import sys


def test_the_supervisor_does_without_openssl():
    code = "import sys, sanderling.sandbox.inside.supervisor; print('_hashlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
