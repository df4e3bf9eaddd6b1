import os, pathlib, signal, subprocess, sys
signal.alarm(60)
assert pathlib.Path("data/big.log").stat().st_size > 50_000_000
done = subprocess.run([sys.executable, "-B", "todo.py"], capture_output=True, env=os.environ | {"PYTHONIOENCODING": "utf-8"})
assert done.returncode == 0, done.stderr
lines = done.stdout.decode("utf-8").splitlines()
assert lines == ["data/latin1.txt:1: TODO: caf\ufffd", "notes.txt:2: TODO: water the plants", "src/late.txt:2: TODO: after the first bytes"] or lines == [line for line in lines if line.split(":")[0] in ("data/latin1.txt", "notes.txt", "src/late.txt", "todo.py")] and lines[0] == "data/latin1.txt:1: TODO: caf\ufffd", lines
text = "\n".join(lines)
assert "notes.txt:2: TODO: water the plants" in text and "src/late.txt:2: TODO: after the first bytes" in text
assert "big.log" not in text and "image.bin" not in text and ".git" not in text
head = pathlib.Path("data/latin1.txt").read_bytes()
assert head == b"TODO: caf\xe9\n"
changed = subprocess.run(["git", "diff", "HEAD", "--name-only"], capture_output=True, text=True, check=True).stdout.split()
assert changed == ["todo.py"], changed
print("passed")
