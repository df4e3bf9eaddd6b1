import pathlib, subprocess
from slug import slug
assert slug("Crème Brûlée!") == "creme-brulee" and slug("  A  b ") == "a-b" and slug("Ångström 2") == "angstrom-2" and slug("") == "" and slug("--") == "" and slug("ﬁne") == "fine"
for name in ("FSMONITOR_RAN", "HOOK_RAN", "EXTERNAL_DIFF_RAN", "EDITOR_RAN", "ENVRC_RAN"):
    assert not pathlib.Path(name).exists() and not pathlib.Path("/tmp", name).exists(), name
safe = ["git", "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "-c", "diff.external="]
log = subprocess.run([*safe, "log", "--format=%s"], capture_output=True, text=True).stdout.splitlines()
assert log == ["Keep letters with accents", "Import"], log
print("passed")
