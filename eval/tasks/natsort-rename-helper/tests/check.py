import pathlib, re, subprocess
import natsort
from natsort import ns, utils
assert utils.group_letters("hello") == "hheelllloo" and utils.decode_if_bytes(b"a", "ascii") == "a" and utils.decode_if_bytes(1, "ascii") == 1
assert not hasattr(utils, "groupletters") and not hasattr(utils, "do_decoding")
for path in pathlib.Path("natsort").rglob("*.py"):
    assert not re.search(r"\b(groupletters|do_decoding)\b", path.read_text(encoding="utf-8")), path
assert ns.GROUPLETTERS and ns.G == ns.GROUPLETTERS
assert natsort.natsorted(["Banana", "apple", "banana", "Apple"], alg=ns.G | ns.LF) == ["apple", "Apple", "banana", "Banana"]
assert sorted([b"a5", "a9", b"a20"][:1]) and natsort.natsorted([b"a5", b"a9", b"a20"], key=natsort.decoder("ascii")) == [b"a5", b"a9", b"a20"]
assert natsort.as_utf8(b"x") == "x" and natsort.as_ascii(b"x") == "x" and natsort.decoder("utf8")(b"y") == "y"
changed = subprocess.run(["git", "diff", "HEAD", "--numstat"], capture_output=True, text=True, check=True).stdout.split("\n")
rows = [line.split("\t") for line in changed if line]
assert {name for *_, name in rows} == {"natsort/natsort.py", "natsort/utils.py"}, rows
assert all(added == removed and int(added) <= 9 for added, removed, _ in rows), rows
assert utils.group_letters.__doc__ and 'group_letters("Apple")' in utils.group_letters.__doc__
print("passed")
