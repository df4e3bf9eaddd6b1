"""The signs on the screen: in ASCII on request, and right where 'ambiwidth' makes some of them twice as wide."""

import re
from xml.etree import ElementTree as ET

import pytest
from tests.conftest import prove
from tests.nvim.test_trust_screen import RULES, open_page
from tests.screens.__main__ import picture
from tests.screens.grid import Grid
from tests.screens.states import STATES

ITEMS = [
    {"content": "look", "status": "completed"},
    {"content": "change", "status": "in_progress"},
    {"content": "test", "status": "pending"},
]
TOOL = {"id": "t", "tool": "bash", "title": "false"}
USAGE = {
    "type": "usage_updated",
    "total": {"input_tokens": 9000, "output_tokens": 400},
    "turn": {"input_tokens": 9000, "output_tokens": 400, "cache_read_input_tokens": 5000},
    "last_request": {"input_tokens": 9000, "output_tokens": 400},
    "context_window_tokens": 200000,
}


def say_all(screen):
    """Something with each kind of sign."""
    screen.send(
        {"type": "session_opened", "model": "a-model"},
        {"type": "turn_started", "prompt": {"id": "1", "text": "go"}},
        {"type": "thinking_delta", "block_id": 1, "text": "One.\nTwo.\n"},
        {"type": "text_delta", "block_id": 2, "text": "Now."},
        {"type": "tool_started", **TOOL},
        {"type": "tool_output", "id": "t", "text": "\n".join(map(str, range(3)))},
        {"type": "tool_ended", "id": "t", "summary": "exit status 1 · 2 s", "is_error": True},
        {
            "type": "compacted",
            "kind": "summary",
            "before_tokens": 9e4,
            "after_tokens": 9e3,
            "summary": "It.",
        },
        {"type": "tool_started", **TOOL, "id": "u"},
        {"type": "todo_changed", "items": ITEMS},
        {"type": "waiting_changed", "queued": [{"id": "2", "text": "later\nor"}]},
        USAGE,
        {
            "type": "history_shown",
            "events": [{"type": "notice", "level": "info", "text": "before"}],
            "start": 1,
            "has_earlier": True,
        },
    )


def test_every_sign_has_one_in_ascii(start_screen):
    screen = start_screen()
    screen.setup(icons="ascii", chat={"position": "tab"})
    screen.command("AgentChat")
    say_all(screen)
    text = screen.screen_text()
    assert text.isascii(), text
    for sign in (
        *("| You", "+ Thinking: One. - 2 lines", "-- context summarized: 90.0k -> 9.0k tokens --"),
        *("[x] look", "[~] change", "[ ] test", "-> later ...", "in 14.0k out 400"),
    ):
        assert sign in text, text
    assert any("x exit status 1 - 2 s" in line for line in screen.transcript())
    screen.feed("gg")
    assert "^ earlier messages" in screen.transcript()[0]


def test_a_line_fits_into_its_cells_whatever_the_signs_are(start_screen):
    screen = start_screen()
    for icons, ambiwidth in (("unicode", "single"), ("unicode", "double"), ("ascii", "single")):
        screen.setup(icons=icons)
        screen.command(f"set ambiwidth={ambiwidth}")
        widths = screen.lua("""
          return vim.tbl_map(function(cells)
            return vim.api.nvim_strwidth(require('sanderling.ui.words').fitting(('wörds '):rep(9), cells))
          end, vim.fn.range(0, 30))
        """)
        assert all(width in (cells, cells - 1) for cells, width in enumerate(widths[1:], 1))


@pytest.fixture
def wide(start_screen):
    screen = start_screen()
    screen.command("set ambiwidth=double")
    screen.setup(chat={"position": "tab"})
    screen.command("AgentChat")
    return screen


def test_signs_of_two_cells_hide_nothing_and_move_nothing(wide):
    say_all(wide)
    text = wide.screen_text()
    for row in wide.screen():
        if "You" in row or "Thinking" in row:
            assert "#" not in row, text
    assert "Thinking" in text
    assert wide.messages() == ""


def test_the_page_of_trust_opens_with_signs_of_two_cells(wide):
    wide.command("tabnew")
    wide.lua("""require('sanderling.chat').show({ position = 'right' })""")
    open_page(wide, [RULES])
    assert "| # Rules" in wide.lines()
    assert wide.lua("return vim.wo.showbreak") == "| ↪ "
    wide.wait_for_screen("| Be brief.")


# --- the pictures of the screen -----------------------------------------------------------------------------------------


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
