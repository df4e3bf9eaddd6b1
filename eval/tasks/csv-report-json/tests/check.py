import json, pathlib, subprocess, sys, tempfile
def run(*args):
    return subprocess.run([sys.executable, "-B", "report.py", *args], capture_output=True, text=True, encoding="utf-8")
plain = run("sales.csv")
assert plain.returncode == 0 and plain.stdout == "north           0.60\nsouth        1050.25\nwest           -3.10\n", plain
found = run("--json", "sales.csv")
assert found.returncode == 0, found.stderr
assert list(json.loads(found.stdout).items()) == [("north", 0.6), ("south", 1050.25), ("west", -3.1)], found.stdout
assert "0.6000000" not in found.stdout
assert json.loads(run("sales.csv", "--json").stdout) == json.loads(found.stdout)
with tempfile.TemporaryDirectory() as name:
    path = pathlib.Path(name, "x.csv")
    path.write_text("region,amount\n" + "a,0.1\n" * 3 + 'b,2\n"Zürich ""1""",1.005\n' + "c,0.01\n" * 7, encoding="utf-8")
    data = run("--json", str(path))
    assert json.loads(data.stdout) == {"a": 0.3, "b": 2, "c": 0.07, 'Zürich "1"': 1.0} or json.loads(data.stdout)['Zürich "1"'] in (1.0, 1.01), data
    assert json.loads(data.stdout)["a"] == 0.3 and "0.30000" not in data.stdout
    path.write_text("region,amount\n")
    assert json.loads(run("--json", str(path)).stdout) == {}
assert run("--json").returncode != 0 and run("--xml", "sales.csv").returncode != 0
print("passed")
