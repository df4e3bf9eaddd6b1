import hashlib, os, pathlib, subprocess, tarfile, time
def make(*args):
    return subprocess.run(["make", *args], capture_output=True, text=True)
def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
made = pathlib.Path("dist/hello-1.4.tar.gz")
assert b"\n\t" in pathlib.Path("Makefile").read_bytes()
done = make("dist")
assert done.returncode == 0, done
with tarfile.open(made) as tar:
    files = {member.name.rstrip("/") for member in tar if member.isfile()}
    assert files == {"hello-1.4/hello.sh", "hello-1.4/README.md", "hello-1.4/lib/words.txt", "hello-1.4/VERSION"}, files
    assert tar.getmember("hello-1.4/hello.sh").mode & 0o111 and not tar.getmember("hello-1.4/README.md").mode & 0o111
    assert all(member.uid == 0 for member in tar)
first, stamp = digest(made), made.stat().st_mtime_ns
assert make("dist").returncode == 0 and made.stat().st_mtime_ns == stamp, "packed again"
os.utime("README.md")
os.utime("README.md", (time.time() + 5, time.time() + 5))
assert make("dist").returncode == 0 and made.stat().st_mtime_ns != stamp, "not packed again"
assert digest(made) == first, "other bytes"
assert make("clean").returncode == 0 and not pathlib.Path("dist").exists()
assert make("dist").returncode == 0 and digest(made) == first
pathlib.Path("VERSION").write_text("2.0\n")
assert make("dist").returncode == 0 and pathlib.Path("dist/hello-2.0.tar.gz").is_file()
pathlib.Path("lib/words.txt").write_text("changed\n")
os.utime("lib/words.txt", (time.time() + 9, time.time() + 9))
assert make("dist").returncode == 0
with tarfile.open("dist/hello-2.0.tar.gz") as tar:
    assert tar.extractfile("hello-2.0/lib/words.txt").read() == b"changed\n"
assert make("check").stdout.strip().endswith("hello world") and make("-n", "dist").returncode == 0
print("passed")
