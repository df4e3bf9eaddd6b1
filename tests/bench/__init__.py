"""How fast the plugin is: `python -m tests.bench [name…]`. Nothing here is part of the test suite."""
