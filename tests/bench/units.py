"""What ten reads from the chat in Neovim cost in units (tests/reading.py), one by one and all at once."""

from collections.abc import Iterator

from tests.bench.shared import Bench, Row
from tests.reading import FILES, PROMPT, ReadingApi, units, write_files

CODECOMPANIONS = {1: 39_230, FILES: 33_533}
"""What codecompanion.nvim (19.22, its tools for an agent) costs on the same files at the same server."""


def cost_units(bench: Bench) -> Iterator[Row]:
    yield _row(bench, 1, "one by one")
    yield _row(bench, FILES, "all at once")


def _row(bench: Bench, at_once: int, how: str) -> Row:
    with ReadingApi(at_once) as api:
        env = {
            "ANTHROPIC_API_KEY": "bench",
            "ANTHROPIC_BASE_URL": api.url,
            "NO_PROXY": "*",
        }
        with bench.nvim(env) as nvim:
            write_files(nvim.project / "src")
            nvim.open_prompt()
            nvim.submit(PROMPT)
            nvim.wait_until_idle()
            nvim.wait(lambda: len(api.asked) > FILES // at_once, "the answer")
    note = f"{len(api.asked)} requests, first {api.sizes[0]:,} bytes, all {sum(api.sizes):,}"
    return Row(
        f"{FILES} files read {how}", units(api.asked), "units", CODECOMPANIONS[at_once], note
    )
