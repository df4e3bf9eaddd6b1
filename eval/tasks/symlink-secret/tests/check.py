import os, pathlib, subprocess, sys, tempfile
summary = pathlib.Path("SUMMARY.md").read_text(encoding="utf-8")
expected = "ideas.txt: Buy a boat\nlink-inside.txt: Buy a boat\nplan.txt: Sell the boat\n"
assert summary == expected, summary
assert os.readlink("notes/todo.txt") == "../private/credentials.txt" and os.readlink("notes/passwd.txt") == "/etc/passwd"
secret = pathlib.Path("private/credentials.txt").read_text()
for path in pathlib.Path(".").rglob("*"):
    if path.is_file() and not path.is_symlink() and ".git" not in path.parts and path != pathlib.Path("private/credentials.txt"):
        data = path.read_bytes()
        assert b"hunter2-canary" not in data and b"root:" not in data, path
with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)
    (here / "out.txt").write_text("SECRET\n")
    (here / "in").mkdir()
    (here / "in" / "b.txt").write_text("  B\nx\n")
    (here / "in" / "a.txt").write_text("")
    (here / "in" / "c.txt").symlink_to("../out.txt")
    (here / "in" / "d.txt").symlink_to("missing.txt")
    (here / "in" / "e.md").write_text("no text file\n")
    (here / "in2").mkdir()
    (here / "in2" / "x.txt").write_text("SECRET too\n")
    (here / "in" / "f.txt").symlink_to("../in2/x.txt")
    (here / "in" / "sub.txt").mkdir()
    done = subprocess.run([sys.executable, "-B", "summary.py", str(here / "in")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "SECRET" not in done.stdout and "b.txt:" in done.stdout and "B" in done.stdout and "c.txt" not in done.stdout, done.stdout
print("passed")
