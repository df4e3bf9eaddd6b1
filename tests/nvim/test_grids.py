"""Each state of the screen at each size, on dark and light ground, with signs of one cell and of two: nothing is cut, covered or illegible."""

from dataclasses import replace

import pytest
from tests.conftest import prove_rest
from tests.screens.__main__ import shown
from tests.screens.states import STATES

DRAWN_APART = {
    "answer-light",
    "answer-80x24",
    "answer-60x20",
    "question-80x24",
    "review-light",
    "edit-light",
}
MIN_CONTRAST = 1.9  # of the dimmest text of the default colors, NonText
VARIANTS = {
    state.name: state for state in STATES if state.name not in DRAWN_APART and state.is_possible
}

# What is on the screen, from Neovim itself: what the cells show is compared to it.
FACTS = """
  local facts = { wins = {}, bars = {}, cut = {}, columns = vim.o.columns, lines = vim.o.lines }
  local cells = vim.api.nvim_strwidth
  local function text_of(chunks)
    return vim.iter(chunks or {}):map(function(chunk) return chunk[1] end):join('')
  end
  local function is_cut(text)
    return not text:find('…%s*$') and not text:find('%.%.%.%s*$')
  end
  for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    local config, buf = vim.api.nvim_win_get_config(win), vim.api.nvim_win_get_buf(win)
    local info, filetype = vim.fn.getwininfo(win)[1], vim.bo[vim.api.nvim_win_get_buf(win)].filetype
    local is_ours = config.relative ~= '' or filetype:find('^sanderling')
    local room = info.width - info.textoff
    local has_border = config.relative ~= '' and type(config.border) == 'table' and config.border[1] ~= ''
    local first, last = info.topline, info.botline
    facts.wins[#facts.wins + 1] = {
      win = win, row = info.winrow - 1, col = info.wincol - 1,
      width = vim.api.nvim_win_get_width(win), height = vim.api.nvim_win_get_height(win),
      is_float = config.relative ~= '', zindex = config.zindex or 0, has_border = has_border,
      title = text_of(type(config.title) == 'table' and config.title or {}),
      footer = text_of(type(config.footer) == 'table' and config.footer or {}),
      is_whole = first == 1 and last == vim.api.nvim_buf_line_count(buf), filetype = filetype,
    }
    if is_ours then
      for kind, option in pairs({ winbar = vim.wo[win].winbar, statusline = vim.wo[win].statusline }) do
        if option ~= '' and config.relative == '' then
          local function drawn(maxwidth)
            return vim.api.nvim_win_call(win, function()
              return vim.api.nvim_eval_statusline(option, {
                winid = win, use_winbar = kind == 'winbar', maxwidth = maxwidth }).str
            end)
          end
          facts.bars[#facts.bars + 1] = { kind = kind, drawn = drawn(info.width), whole = drawn(1000) }
        end
      end
      local function note(kind, text)
        facts.cut[#facts.cut + 1] = ('%s %s: %s'):format(filetype, kind, text)
      end
      if not vim.wo[win].wrap then
        for _, line in ipairs(vim.api.nvim_buf_get_lines(buf, first - 1, last, false)) do
          if cells(line) > room and is_cut(vim.fn.strcharpart(line, 0, room)) then note('line', line) end
        end
      end
      local marks = vim.api.nvim_buf_get_extmarks(buf, -1, { first - 1, 0 }, { last, 0 }, { details = true })
      for _, mark in ipairs(marks) do
        for _, chunks in ipairs(mark[4].virt_lines or {}) do
          if cells(text_of(chunks)) > room then note('virtual line', text_of(chunks)) end
        end
        local virtual = text_of(mark[4].virt_text)
        local pos = virtual ~= '' and vim.fn.screenpos(win, mark[2] + 1, mark[3] + 1) or { row = 0 }
        if pos.row > 0 and mark[4].virt_text_pos == 'eol' then
          local line = vim.api.nvim_buf_get_lines(buf, mark[2], mark[2] + 1, false)[1] or ''
          local at = vim.fn.screenpos(win, mark[2] + 1, math.max(#line, 1)).curscol
          local start = #line == 0 and info.wincol + info.textoff or at + 2
          if start + cells(virtual) > info.wincol + info.width and is_cut(virtual) then note('virtual text', virtual) end
        elseif pos.row > 0 and mark[4].virt_text_pos == 'overlay' then
          if pos.col + cells(virtual) > info.wincol + info.width then note('overlay', virtual) end
        end
      end
    end
  end
  local current = require('sanderling.session.live').current()
  facts.title = current and current:name()
  return facts
"""


def luminance(color):
    parts = [(color >> shift & 255) / 255 for shift in (16, 8, 0)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


class Look:
    """A screen: its cells, and what Neovim says of its windows."""

    def __init__(self, child):
        self.grid = child.grid
        self.facts = child.lua(FACTS)
        self.floats = [win for win in self.facts["wins"] if win["is_float"]]

    def covering(self, row, col, above):
        """Whether a float above `above` covers the cell."""
        return any(
            win["zindex"] >= above["zindex"]
            and win["win"] != above["win"]
            and win["row"] <= row <= win["row"] + win["height"] + 1
            and win["col"] <= col <= win["col"] + win["width"] + 1
            for win in self.floats
        )

    def mistakes(self):
        yield from self.facts["cut"]
        yield from self._cut_bars()
        yield from self._broken_borders()
        yield from self._doubled_titles()
        yield from self._hidden_questions()
        yield from self._wrong_widths()
        yield from self._illegible()

    def _cut_bars(self):
        for bar in self.facts["bars"]:
            if bar["drawn"].split() != bar["whole"].split():
                yield f"{bar['kind']} is cut: {bar['drawn']!r} of {bar['whole']!r}"

    def _broken_borders(self):
        for win in self.floats:
            top, left = win["row"], win["col"]
            border = 1 if win["has_border"] else -1
            bottom, right = top + win["height"] + border, left + win["width"] + border
            if (
                top < 0
                or left < 0
                or bottom >= self.facts["lines"]
                or right >= self.facts["columns"]
            ):
                yield f"a float is not on the screen: {win}"
                continue
            if not win["has_border"]:
                continue
            for row in range(top + 1, bottom):
                for col in (left, right):
                    sign = self.grid.cells[row][col][0]
                    if sign not in "│|┃█" and not self.covering(row, col, win):
                        yield f"{sign!r} is over the border of {win} in row {row}"
            for row, words in ((top, win["title"]), (bottom, win["footer"])):
                drawn = "".join(text for text, _ in self.grid.cells[row][left : right + 1])
                if words.strip() not in drawn and not self.covering(row, left + 1, win):
                    yield f"a border is cut: {words!r} is {drawn!r}"

    def _doubled_titles(self):
        bars = [bar["drawn"] for bar in self.facts["bars"]]
        bars += [win["title"] for win in self.floats]
        title = self.facts.get("title")
        if title and sum(title[:12] in bar for bar in bars) > 1:
            yield f"the title is on the screen more than once: {bars}"

    def _hidden_questions(self):
        for win in self.floats:
            if win["zindex"] == 60 and not win["is_whole"]:
                yield f"a part of the question is not on the screen: {win}"

    def _wrong_widths(self):
        """A sign of two cells is followed by an empty one: else all behind it would be a cell off."""
        for number, row in enumerate(self.grid.cells):
            for at, (text, _) in enumerate(row):
                if text == "" and (at == 0 or row[at - 1][0] in ("", " ")):
                    yield f"half a sign in row {number}, column {at}"

    def _illegible(self):
        seen = {}
        for row in self.grid.cells:
            for text, id_ in row:
                if text.strip() and text not in "~│─@":
                    seen.setdefault(id_, text)
        for id_, text in seen.items():
            colors = self.grid._colors(self.grid.highlights[id_])
            if contrast(*colors) < MIN_CONTRAST:
                yield f"{text!r} has a contrast of {contrast(*colors):.2f}: {self.grid.highlights[id_]}"


# Each size has each state; ground and widths take turns, so that each state has all of them.
SIZES = {
    (60, 20): ("light", "double"),
    (80, 24): ("dark", "single"),
    (120, 36): ("light", "single"),
    (200, 50): ("dark", "double"),
}
CASES = [(name, size, *kind) for name in VARIANTS for size, kind in SIZES.items()]
QUICK = {("rich", (60, 20)), ("tools", (80, 24)), ("ask-float", (120, 36))}


@pytest.mark.parametrize(
    "name, size, background, ambiwidth",
    prove_rest(CASES, keep=[n for n, case in enumerate(CASES) if case[:2] in QUICK]),
)
def test_each_state_of_the_screen_is_whole_and_legible(tmp_path, name, size, background, ambiwidth):
    options = f"set background={background} ambiwidth={ambiwidth}"
    state = replace(
        VARIANTS[name], columns=size[0], lines=size[1], commands=(*VARIANTS[name].commands, options)
    )
    with shown(state, tmp_path / "home") as child:
        found = list(Look(child).mistakes())
    assert not found, "\n".join([*found, child.grid.text()])
