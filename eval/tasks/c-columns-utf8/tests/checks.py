import pathlib, random, subprocess, tempfile

def run(data, *args):
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name, "f")
        path.write_bytes(data)
        return subprocess.run(["./columns", *args, path], capture_output=True, text=True)

def columns(data, tab):
    most = 0
    for line in data.split(b"\n"):
        column = 0
        # surrogateescape gives one character for each byte that is not UTF-8
        for char in line.decode("utf-8", "surrogateescape"):
            column = (column // tab + 1) * tab if char == "\t" else column + 1
        most = max(most, column)
    return most

cases = [b"", b"abc\nde", "café\n".encode(), "€uro 😀\n".encode(), b"\tx", b"1234567\tx\n12345678\tx\n", b"\xff\xfe", b"\xe2\x82", b"a\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"x\r\n", b"a\0b\n", b"\n\n"]
random.seed(5)
cases += [bytes(random.choice(b"a\t\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff") for _ in range(60)) for _ in range(150)]
for data in cases:
    done = run(data)
    assert done.returncode == 0 and int(done.stdout) == columns(data, 8), (data, done, columns(data, 8))
for tab in (1, 3, 4, 64):
    for data in cases[:40]:
        assert int(run(data, "-t", str(tab)).stdout) == columns(data, tab), (tab, data)
for wrong in ("0", "65", "-1", "x", "", "4x", "99999999999999999999"):
    done = run(b"x", "-t", wrong)
    assert done.returncode == 2 and done.stderr and not done.stdout, wrong
assert subprocess.run(["./columns"], capture_output=True).returncode == 2
assert subprocess.run(["./columns", "/nothing/here"], capture_output=True).returncode == 1
long = run(b"x" * 300_000 + b"\n")
assert int(long.stdout) == 300_000
print("passed")
