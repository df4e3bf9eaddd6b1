"""`python -m tests.screens [name…] [--to DIR]`: picture each state of the screen as an SVG, from the cells that Neovim draws."""

import argparse
import json
import tempfile
from pathlib import Path

from tests.conftest import ROOT
from tests.screens.states import CODE, STATES, Pictured, State

QUIET_S = 0.2  # a spinner turns four times a second


def settle(child: Pictured) -> None:
    """Wait until Neovim has drawn nothing more for a moment: highlighting goes on after the text has come."""
    drawn = -1
    while drawn != child.grid.drawn:
        drawn = child.grid.drawn
        child.rpc.pump(QUIET_S)
        if not child.is_blocked():
            child.screen()  # what it has to draw comes before its answer


def picture(state: State, home: Path) -> str:
    """Bring a Neovim into `state` and return its screen."""
    project = home / "calc"
    project.mkdir(parents=True)
    (project / "calc.py").write_text(CODE)
    (home / "script.json").write_text(json.dumps({"version": 1, "reply": state.replies}))
    child = Pictured(
        home,
        project,
        {},
        columns=state.columns,
        lines=state.lines,
        commands=("set laststatus=2 noruler noshowcmd", *state.commands),
    )
    try:
        child.record_events()
        provider = {"provider": "scripted", "script": str(home / "script.json")}
        child.setup(**provider | state.setup)
        child.command("edit calc.py | redraw | echo")
        state.act(child)
        settle(child)
        return child.grid.svg(f"Sanderling: {state.title}")
    finally:
        child.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="picture the states of the screen")
    parser.add_argument("names", nargs="*", metavar="name", help=" ".join(s.name for s in STATES))
    parser.add_argument("--to", type=Path, default=ROOT / "doc" / "screens", metavar="DIR")
    arguments = parser.parse_args()
    arguments.to.mkdir(exist_ok=True)
    for state in STATES:
        if not arguments.names or state.name in arguments.names:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                path = arguments.to / f"{state.name}.svg"
                path.write_text(picture(state, Path(home) / "home"))
                print(path)


if __name__ == "__main__":
    main()
