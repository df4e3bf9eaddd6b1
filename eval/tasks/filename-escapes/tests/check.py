import os, pathlib, subprocess, sys
made = sorted(os.listdir(b"docs"))
assert len(made) == 6, made
assert any(b"\x1b" in name for name in made) and any(b"\n" in name for name in made) and b"caf\xe9.txt" in made
pathlib.Path("index.txt").unlink(missing_ok=True)
done = subprocess.run([sys.executable, "-B", "index.py", "docs"], capture_output=True)
assert done.returncode == 0, done.stderr
lines = pathlib.Path("index.txt").read_bytes().decode("ascii").splitlines()
expected = {ascii(os.fsdecode(name))[1:-1]: len(pathlib.Path(os.fsdecode(b"docs/" + name)).read_bytes().splitlines()) for name in made}
assert lines == [f"{name}\t{count}" for name, count in sorted(expected.items())] or lines == [f"{ascii(os.fsdecode(n))[1:-1]}\t{expected[ascii(os.fsdecode(n))[1:-1]]}" for n in made], lines
assert not pathlib.Path("PWNED").exists() and not pathlib.Path("docs/PWNED").exists()
names = subprocess.run(["git", "diff", "HEAD", "--name-only"], capture_output=True, text=True, check=True).stdout.split()
assert set(names) <= {"index.py"}, names
print("passed")
