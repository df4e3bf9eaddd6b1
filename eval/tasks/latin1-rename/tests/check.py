import pathlib, re, subprocess, sys
for name in ("kasse.py", "bon.py"):
    old = subprocess.run(["git", "show", f"HEAD:{name}"], capture_output=True, check=True).stdout
    expected = re.sub(rb"\bsumme\b(?=\(|$|\n)", b"total", re.sub(rb"\bpreis\b", b"price", old))
    assert pathlib.Path(name).read_bytes() == expected, (name, pathlib.Path(name).read_bytes())
    assert b"\xe4" in expected or b"\xfc" in expected
done = subprocess.run([sys.executable, "-B", "-X", "utf8", "bon.py"], capture_output=True)
assert done.returncode == 0 and done.stdout.decode() == "Käse: 3.50\nBrötchen: 0.40\nfür alles: 3.90\n", done
assert subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True).stdout.split() == ["M", "bon.py", "M", "kasse.py"]
print("passed")
