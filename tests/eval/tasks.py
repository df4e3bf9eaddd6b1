"""Small tasks in the form of those in eval/tasks."""

from pathlib import Path

from eval.score.scenarios import ScoreTask, read_task

SETTINGS = """
schema_version = "1.4"
[metadata]
kind = "bug"
"""
PRICES = (
    "def total(prices):\r\n    result = 0\r\n    for price in prices:\r\n        result -= price\r\n"
    "    return result\r\n\r\n\r\ndef mean(prices):\r\n    result = total(prices)\r\n"
    "    return result / len(prices)\r\n\r\n\r\ndef copied(prices):\r\n    result = 0\r\n    return result\r\n"
)
RIGHT = PRICES.replace("-=", "+=")
CHECK = """
cd /app && python3 -c 'from shop.prices import mean; assert mean([1, 3]) == 2' \
  && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
SCENARIO = '''
[[round]]
say = "I look first."
[[round.call]]
action = "read"
path = "shop/prices.py"
[[round.call]]
action = "search"
pattern = "total"
path = "."

[[round]]
[[round.call]]
action = "edit"
path = "shop/prices.py"
old = """
        result -= price
"""
new = """
        result += price
"""

[[round]]
[[round.call]]
action = "edit"
path = "shop/prices.py"
old = "    return result / len(prices)"
new = "    return result / len(prices) if prices else 0"

[[round]]
[[round.call]]
action = "write"
path = "NEWS.md"
text = """
Totals are right.
"""
[[round.call]]
action = "run"
command = "python3 -c 'from shop.prices import total; print(total([1, 2]))'"
'''


def make_task(directory: Path, scenario: str = SCENARIO) -> ScoreTask:
    """Make a task about a file with CR LF and a byte order mark."""
    task = directory / "prices"
    for name, content in {
        "task.toml": SETTINGS,
        "instruction.md": "The totals of `shop/prices.py` are negative. Fix it.\n",
        "scenario.toml": scenario,
        "tests/test.sh": CHECK,
        "environment/shop/__init__.py": "",
    }.items():
        path = task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    prices = task / "environment/shop/prices.py"
    prices.write_bytes(b"\xef\xbb\xbf" + PRICES.encode())
    prices.chmod(0o755)
    return read_task(task)
