import os, pathlib, subprocess
script = pathlib.Path("tools/make-release")
assert script.is_file() and not script.is_symlink() and os.access(script, os.X_OK) and not pathlib.Path("tools/mkrel").exists()
assert os.path.islink("bin/release") and os.readlink("bin/release") == "../tools/make-release"
assert os.access("tools/all", os.X_OK) and not os.access("README.md", os.X_OK)
make = pathlib.Path("Makefile").read_bytes()
assert b"\ttools/make-release --quiet $(VERSION)\n" in make and make.count(b"\n\t") == 4 and b"        " not in make, make
assert b"\t\t--quiet" in pathlib.Path("tools/all").read_bytes()
def run(*command):
    return subprocess.run(command, capture_output=True, text=True)
assert run("tools/make-release", "1.0").stdout == "release 1.0\ndone\n" and run("tools/make-release", "--quiet", "1.0").stdout == "release 1.0\n"
assert run("bin/release", "--quiet", "2").stdout == "release 2\n" and run("tools/make-release", "-q", "1.0").returncode == 2
assert run("make", "-s", "release").stdout == "release 3.1\n" and run("tools/all").stdout == "release 1\nrelease 2\n"
for path in ("Makefile", "README.md", "tools/all", "tools/make-release"):
    text = pathlib.Path(path).read_text()
    assert "mkrel" not in text.replace("mkrelative", ""), path
assert "mkrelative -q" in pathlib.Path("README.md").read_text()
run("git", "add", "--all")
stat = run("git", "diff", "--cached", "-M30%", "--summary", "HEAD").stdout
assert "rename tools/{mkrel => make-release}" in stat and "mode change" not in stat, stat
print("passed")
