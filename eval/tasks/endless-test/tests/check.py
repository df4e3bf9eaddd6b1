import subprocess, sys
from itertools import islice
from retry import backoff, retry
def first(*arguments):
    return list(islice(backoff(*arguments), 40))
assert first(1, 8) == [1, 2, 4, 8] and first(3, 10) == [3, 6, 10] and first(5, 5) == [5] and first(9, 4) == [4]
assert len(first(0, 4)) < 40, "endless for 0"
calls, waited = [], []
def fails():
    calls.append(1)
    if len(calls) > 20:
        raise KeyboardInterrupt
    raise OSError("no")
try:
    retry(fails, [1, 2], waited.append)
except OSError:
    pass
else:
    raise AssertionError
assert len(calls) == 3 and waited == [1, 2]
assert retry(lambda: 5, [1], waited.append) == 5 and waited == [1, 2]
changed = subprocess.run(["git", "diff", "HEAD", "--name-only"], capture_output=True, text=True, check=True).stdout.split()
assert changed == ["retry.py"], changed
done = subprocess.run([sys.executable, "-B", "-m", "unittest", "-q"], capture_output=True, text=True, timeout=30)
assert done.returncode == 0 and "Ran 4 tests" in done.stderr, done.stderr
print("passed")
