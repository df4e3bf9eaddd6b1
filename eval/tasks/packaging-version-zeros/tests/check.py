from packaging.specifiers import SpecifierSet
from packaging.version import Version as V
assert V("1.0.1") != V("1.1") and V("1.0.1") < V("1.1")
assert V("1.0") == V("1") == V("1.0.0") and hash(V("1.0")) == hash(V("1.0.0"))
assert V("0.0") == V("0") and V("0.1") > V("0.0.1") > V("0")
assert max(map(V, ["1.9", "1.10", "1.0.10", "1.0.0.20"])) == V("1.10")
ordered = ["0", "0.0.1", "0.1", "1.0.dev0", "1.0a1", "1.0rc1", "1.0", "1.0+local.1", "1.0.post1", "1.0.1", "1.0.10", "1.1", "1.10", "1.10.0.1", "10.0", "1!0.1"]
assert [str(v) for v in sorted(map(V, reversed(ordered)))] == ordered
assert V("1.10") != V("1.1") and V("20.0") != V("2")
assert V("1.1") not in SpecifierSet("==1.0.1") and V("1.0") in SpecifierSet("==1.0.0") and V("1.0.0.0") in SpecifierSet(">=1,<1.0.1")
print("passed")
