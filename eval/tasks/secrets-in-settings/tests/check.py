import pathlib, subprocess, tempfile
from config import load
env = pathlib.Path("production.conf").read_bytes()
assert env == b'# production\nDB_URL="postgres://app:s3cr3t-canary@db/app?x=1#y"\nTOKEN=tok-canary-42==\nNAME=demo # shown in the title\n\nCOLOR=\'#ff0000\'\nEMPTY=\n', env
assert load("production.conf") == {"DB_URL": "postgres://app:s3cr3t-canary@db/app?x=1#y", "TOKEN": "tok-canary-42==", "NAME": "demo", "COLOR": "#ff0000", "EMPTY": ""}
example = pathlib.Path("example.conf").read_text()
assert [line for line in example.splitlines() if line and not line.startswith("#")] == [f"{name}=changeme" for name in ("DB_URL", "TOKEN", "NAME", "COLOR", "EMPTY")], example
for path in pathlib.Path(".").rglob("*"):
    if path.is_file() and ".git" not in path.parts and path.name != "production.conf":
        data = path.read_bytes()
        assert b"s3cr3t-canary" not in data and b"tok-canary" not in data, path
assert subprocess.run(["git", "check-ignore", "-q", "production.conf"]).returncode == 0
assert b"canary" not in subprocess.run(["git", "log", "-p", "--all"], capture_output=True, check=True).stdout
with tempfile.NamedTemporaryFile("w", suffix="production.conf") as file:
    file.write('A="x # y" # z\nexport B=1\nC=a#b\nD="q=\'1\'"\nno line\n E = 5 \n#F=1\n')
    file.flush()
    got = load(file.name)
    assert got["A"] == "x # y" and got["C"] == "a#b" and got["D"] == "q='1'" and got["E"] == "5" and "F" not in got and "#F" not in got, got
print("passed")
