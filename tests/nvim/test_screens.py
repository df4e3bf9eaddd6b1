"""The pictures of the screen: what Neovim draws stands in them."""

import re
from xml.etree import ElementTree as ET

from tests.conftest import prove
from tests.screens.__main__ import picture
from tests.screens.grid import Grid
from tests.screens.states import STATES

BY_NAME = {state.name: state for state in STATES}


def shown(svg):
    """The text of each row of a picture."""
    rows = {}
    for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        rows.setdefault(int(text.get("y")), []).append(text.text)
    return ["".join(parts) for _, parts in sorted(rows.items())]


@prove
def test_a_picture_has_the_text_of_the_screen_in_its_colors(tmp_path):
    svg = picture(BY_NAME["answer"], tmp_path / "home")
    assert any("A proposal" in row for row in shown(svg))
    assert re.search(r"\.c\d+\{fill:#[0-9a-f]{6};font-weight:bold\}", svg)
    assert len(svg) < 60_000


def test_cells_of_a_row_that_look_alike_are_one_text_and_wide_ones_stand_alone():
    grid = Grid()
    grid.on_notification(
        "redraw",
        [
            ["grid_resize", [1, 6, 1]],
            ["hl_attr_define", [7, {"bold": True, "reverse": True}, {}, []]],
            ["grid_line", [1, 0, 0, [["a", 0], ["é", 7, 1], ["猫"], [""], ["<"]], False]],
        ],
    )
    assert shown(grid.svg("x")) == ["aé猫<"]
    assert grid.text() == "aé猫<"
    assert 'fill="#ffffff"' in grid.svg("x")
