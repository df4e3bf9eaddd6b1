"""The progress of a batch on a terminal, drawn by rich, of the extra `sanderling[batch]`."""

from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

REDRAWS_PER_S = 4


class Display:
    """Lines with a bar at the bottom of the terminal. Other output of the run goes above them."""

    def __init__(self, lines: Callable[[], tuple[int, int, list[str]]]) -> None:
        self._lines = lines
        console = Console(stderr=True)
        self._live = Live(
            get_renderable=self._drawn,
            console=console,
            refresh_per_second=REDRAWS_PER_S,
            transient=True,
        )

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._live.console.print(Text(line), soft_wrap=True)

    def _drawn(self) -> Table:
        done, total, lines = self._lines()
        table = Table.grid(expand=True)
        table.add_row(ProgressBar(total=total, completed=done))
        for line in lines:  # `Text` takes no markup: a name can be "[red]"
            table.add_row(Text(line, no_wrap=True, overflow="ellipsis"))
        return table
