"""The modules of the tests: pytest collects no directory if two of them have one name."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent


def _module(path: Path) -> str:
    is_in_package = (path.parent / "__init__.py").exists()
    return str(path.relative_to(TESTS)) if is_in_package else path.name


def test_no_two_modules_have_one_name():
    modules = Counter(map(_module, TESTS.rglob("test_*.py")))
    assert [name for name, count in modules.items() if count > 1] == []
