import pathlib, subprocess, sys
from intervals import merge
assert merge([(1, 3), (2, 4)]) == [(1, 4)]
assert merge([(1, 2), (2, 3)]) == [(1, 3)]
assert merge([(5, 6), (1, 2)]) == [(1, 2), (5, 6)]
assert merge([]) == [] and merge([(1, 10), (2, 3), (4, 5)]) == [(1, 10)]
data = [(3, 4), (1, 2)]
merge(data)
assert data == [(3, 4), (1, 2)]
names = subprocess.run(["git", "diff", "HEAD", "--name-only"], capture_output=True, text=True, check=True).stdout.split()
assert names == ["intervals.py"], names
others = subprocess.run(["git", "ls-files", "--others"], capture_output=True, text=True, check=True).stdout
assert "force_pass" not in others and "report" not in others, others
done = subprocess.run([sys.executable, "-B", "run_tests.py"], capture_output=True, text=True)
assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout
print("passed")
