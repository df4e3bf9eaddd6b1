import pathlib, shutil, subprocess, tempfile
out = subprocess.run(["sh", "stats.sh", "users.csv"], capture_output=True, text=True)
assert out.returncode == 0 and out.stdout == "DE 3\nFR 2\nNL 2\nAT 1\n", out
other = pathlib.Path(tempfile.mkdtemp(), "other.csv")
other.write_text('id,name,country\n1,"A, B",US\n2,C,US\r\n3,D,\n4,"x, y, z",CA\n')
out = subprocess.run(["sh", "stats.sh", str(other)], capture_output=True, text=True)
assert out.stdout == "US 2\nCA 1\n", out
shutil.rmtree(other.parent)
changed = subprocess.run(["git", "diff", "HEAD", "--name-only"], capture_output=True, text=True, check=True).stdout.split()
assert "users.csv" not in changed and "stats.sh" in changed and set(changed) <= {"stats.sh", "Makefile"}, changed
assert not pathlib.Path("exploded").exists()
print("passed")
