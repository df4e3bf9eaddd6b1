"""
`python -m tests.screens [name…] [--to DIR]`: picture each state of the screen as an SVG, from the cells that Neovim draws.

`tour.svg` shows some of them in turn.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT
from tests.screens.states import CODE, STATES, Pictured, State

TOUR = ("empty", "streaming", "tools", "question", "review")
FRAME_S = 4
QUIET_S = 0.2  # a spinner turns four times a second


def settle(child: Pictured) -> None:
    """Wait until Neovim has drawn nothing more for a moment: highlighting goes on after the text has come."""
    drawn = -1
    while drawn != child.grid.drawn:
        drawn = child.grid.drawn
        child.rpc.pump(QUIET_S)
        if not child.is_blocked():
            child.screen()  # what it has to draw comes before its answer


@contextmanager
def shown(state: State, home: Path) -> Iterator[Pictured]:
    """Bring a Neovim into `state`; it ends with the block."""
    project = home / "calc"
    project.mkdir(parents=True)
    for name, text in {"calc.py": CODE, **state.files}.items():
        (project / name).write_text(text)
    (home / "script.json").write_text(json.dumps({"version": 1, "reply": state.replies}))
    plugin = [f"set runtimepath^={state.plugin_path}"] if state.plugin_path else []
    child = Pictured(
        home,
        project,
        {},
        columns=state.columns,
        lines=state.lines,
        commands=("set laststatus=2 noruler noshowcmd", *plugin, *state.commands),
    )
    try:
        child.record_events()
        provider = {"provider": "scripted", "script": str(home / "script.json")}
        child.setup(**provider | state.setup)
        child.command("edit calc.py | redraw | echo")
        state.act(child)
        settle(child)
        yield child
    finally:
        child.close()


def picture(state: State, home: Path) -> str:
    """Return the screen of a Neovim in `state`."""
    with shown(state, home) as child:
        return child.grid.svg(f"Sanderling: {state.title}")


def film(pictures: Sequence[str]) -> str:
    """Return an SVG that shows pictures of one size in turn, each for FRAME_S seconds."""
    [size] = {re.search(r'viewBox="[^"]+" width="\d+" height="\d+"', each)[0] for each in pictures}
    share, length_s = 100 / len(pictures), FRAME_S * len(pictures)
    style = (
        f"@keyframes turn{{0%{{visibility:visible}}{share:.2f}%,100%{{visibility:hidden}}}}"
        f".frame{{visibility:hidden;animation:turn {length_s}s steps(1) infinite}}.f0{{visibility:visible}}"
    )
    frames = ""
    for number, each in enumerate(pictures):
        body = re.sub(r"^<svg[^>]*>|</svg>\s*$|<title>[^<]*</title>", "", each.strip())
        body = re.sub(
            r'(class="|\.)c(\d+)\b', rf"\1f{number}c\2", body
        )  # styles hold for the whole file
        style += f".f{number}{{animation-delay:{FRAME_S * number}s}}"
        frames += f'<g class="frame f{number}">{body}</g>\n'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<title>Sanderling: a tour</title>'
    return f"{head}\n<style>{style}</style>\n{frames}</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="picture the states of the screen")
    parser.add_argument("names", nargs="*", metavar="name", help=" ".join(s.name for s in STATES))
    parser.add_argument("--to", type=Path, default=ROOT / "doc" / "screens", metavar="DIR")
    arguments = parser.parse_args()
    arguments.to.mkdir(exist_ok=True)
    for state in STATES:
        if arguments.names and state.name not in arguments.names:
            continue
        if not state.is_possible:
            print(f"{state.name} needs {state.plugin} in $PLUGINS: scripts/fetch_plugins.sh")
        else:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                path = arguments.to / f"{state.name}.svg"
                path.write_text(picture(state, Path(home) / "home"))
                print(path)
    if not arguments.names:
        frames = [(arguments.to / f"{name}.svg").read_text() for name in TOUR]
        (arguments.to / "tour.svg").write_text(film(frames))


if __name__ == "__main__":
    main()
