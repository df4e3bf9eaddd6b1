import importlib, pathlib, re, subprocess, sys
changed = subprocess.run(["git", "diff", "--numstat", "HEAD"], capture_output=True, text=True, check=True).stdout
counts = {line.split("\t")[2]: line.split("\t")[:2] for line in changed.splitlines()}
expected = {"app/config.py": 4, "app/main.py": 3, "app/report.py": 2, "docs/config.txt": 3, "tests/test_config.py": 4}
assert {name: [str(n)] * 2 for name, n in expected.items()} == counts, counts
data = {name: pathlib.Path(name).read_bytes() for name in expected}
for name in ("app/config.py", "app/main.py", "docs/config.txt"):
    assert data[name].count(b"\r\n") == data[name].count(b"\n") > 3, name
for name in ("app/report.py", "tests/test_config.py"):
    assert b"\r" not in data[name], name
assert data["app/main.py"].startswith(b"\xef\xbb\xbf")
assert data["docs/config.txt"].startswith(b"\xef\xbb\xbf")
assert not data["app/config.py"].startswith(b"\xef")
assert not data["app/report.py"].endswith(b"\n")
for name, content in data.items():
    assert not re.search(rb"\bget_cfg\b|\bCFG_PATH\b", content), name
assert b"get_cfg_dir" in data["app/config.py"]
assert "cfg_path" in data["app/config.py"].decode()
for name in subprocess.run(["git", "ls-files", "--others", "--exclude-standard"], capture_output=True, text=True, check=True).stdout.split():
    assert "__pycache__" in name, name
config = importlib.import_module("app.config")
assert config.load_settings("settings.ini")["name"] == "demo"
assert config.SETTINGS_PATH == "settings.ini"
assert subprocess.run([sys.executable, "-B", "-m", "unittest", "-q", "tests.test_config"]).returncode == 0
assert subprocess.run([sys.executable, "-B", "-m", "app.main"], capture_output=True, text=True).stdout == "demo\n# demo\n"
print("passed")
