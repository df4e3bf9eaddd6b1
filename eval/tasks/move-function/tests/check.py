import ast, importlib, pathlib, subprocess, sys
sizes, util = importlib.import_module("shop.sizes"), importlib.import_module("shop.util")
assert sizes.parse_size("1.5 kB") == 1500 and sizes.format_size(1500) == "1.5 kB" and sizes.UNITS
for name in ("parse_size", "format_size", "UNITS", "_split"):
    assert not hasattr(util, name), name
assert util.clean("  a  b ") == "a b" and util.SEPARATOR == " "
def functions(path):
    return {node.name: ast.unparse(node) for node in ast.parse(pathlib.Path(path).read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}
assert set(functions("shop/sizes.py")) == {"parse_size", "format_size", "_split"} and set(functions("shop/util.py")) == {"clean", "words"}
assert "1,000 and not 1,024" in pathlib.Path("shop/sizes.py").read_text(encoding="utf-8")
old = subprocess.run(["git", "show", "HEAD:shop/util.py"], capture_output=True, text=True, check=True).stdout
before = {node.name: ast.unparse(node) for node in ast.parse(old).body if isinstance(node, ast.FunctionDef)}
assert functions("shop/sizes.py") | functions("shop/util.py") == before
done = subprocess.run([sys.executable, "-B", "-m", "unittest", "-q"], capture_output=True, text=True)
assert done.returncode == 0 and "Ran 3 tests" in done.stderr, done.stderr
for module in ("shop.cart", "shop.cli", "shop.sizes", "shop.util"):
    done = subprocess.run([sys.executable, "-B", "-c", f"import {module}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
assert subprocess.run([sys.executable, "-B", "-m", "shop.cli", "2 MB"], capture_output=True, text=True).stdout == "2.0 MB in 1 part\n"
changed = subprocess.run(["git", "status", "--porcelain", "-uall"], capture_output=True, text=True, check=True).stdout
assert {line[3:] for line in changed.splitlines() if "__pycache__" not in line} == {"shop/cart.py", "shop/cli.py", "shop/sizes.py", "shop/util.py", "tests/test_sizes.py"}, changed
print("passed")
