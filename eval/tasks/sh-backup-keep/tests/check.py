import subprocess, os, pathlib, tempfile, shutil
script = pathlib.Path("backup.sh").resolve()
assert os.access(script, os.X_OK)

def run(cwd, *args):
    return subprocess.run([script, *args], cwd=cwd, capture_output=True, text=True)

with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)
    store = here / "backups"
    store.mkdir()
    (here / "my data").mkdir()
    (here / "my data" / "x").write_text("1")
    (here / "web").mkdir()
    old = [f"20240101-00000{n}" for n in range(5)]
    names = ["my data", "web", "web-old", "my data-2"]
    for each in names:
        for stamp in old:
            (store / f"{each}-{stamp}.tar.gz").write_text("old")
    (store / "web-notes.txt").write_text("mine")
    (store / "web-20240101-000000.tar.gz.asc").write_text("mine")
    for wrong in ("0", "-1", "x", "", "1x", "1 2"):
        before = sorted(store.iterdir())
        done = run(here, "--keep", wrong, "web")
        assert done.returncode == 2 and done.stderr.strip(), (wrong, done)
        assert sorted(store.iterdir()) == before, wrong
    assert run(here, "--keep").returncode == 2
    assert run(here, "web").returncode == 0
    assert len(list(store.glob("web-2*.tar.gz"))) == 6
    # Times of files say nothing: the names do.
    os.utime(store / "web-20240101-000000.tar.gz", (4e9, 4e9))
    done = run(here, "--keep", "2", "web")
    assert done.returncode == 0, done
    kept = sorted(path.name for path in store.glob("web-2*.tar.gz"))
    assert len(kept) == 2 and kept[-1] > "web-2025", kept
    assert "web-20240101-000000.tar.gz" not in kept
    assert len(list(store.glob("web-old-*"))) == 5
    assert (store / "web-notes.txt").exists() and (store / "web-20240101-000000.tar.gz.asc").exists()
    done = run(here, "--keep", "1", "my data/")
    assert done.returncode == 0, done
    [left] = store.glob("my data-20*.tar.gz")
    listed = subprocess.run(["tar", "tzf", left], capture_output=True, text=True, check=True).stdout
    assert "my data/x" in listed
    assert len(list(store.glob("my data-2-*"))) == 5
    done = run(here, "--keep", "99", "web")
    assert done.returncode == 0
    assert run(here).returncode == 2
    assert run(here, "missing").returncode == 1
print("passed")
