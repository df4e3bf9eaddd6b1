--- The preview of an edit: virtual lines below the text to replace, with removed and added lines. The buffer is unchanged.
local M = {}

local api = vim.api
require('sanderling.ui.colors')
local hunks = require('sanderling.editing.hunks')
local icons = require('sanderling.ui.icons')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_rewrite')

local AROUND = 3 -- unchanged lines shown around changed ones
local MAX_ROWS = 300 -- Neovim draws all of them each time
local MAX_BYTES = 1000 -- of a line: virtual lines do not wrap

---@alias sanderling.inline.preview.Row [string, string] sign and text
---@alias sanderling.inline.preview.Chunks [string, string|string[]][]

---@class (exact) sanderling.inline.preview.Difference
---@field rows sanderling.inline.preview.Row[]
---@field added integer
---@field removed integer

--- Compare `new` with `old`. While `new` is incomplete, the rest of `old` after the last common line is assumed to follow.
---@param old string[]
---@param new string[]
---@param is_whole boolean
---@return sanderling.inline.preview.Difference
function M.difference(old, new, is_whole)
  local rows, at, added, removed = {}, 1, 0, 0
  local function add(sign, lines, first, last)
    for i = first, last do
      rows[#rows + 1] = { sign, lines[i] }
    end
  end
  for _, part in ipairs(hunks.differences(old, new)) do
    local from, count, new_from, new_count = unpack(part)
    local is_open = not is_whole and from + count - 1 == #old
    local gone = is_open and math.min(count, new_count) or count
    add(' ', old, at, from - 1)
    add('-', old, from, from + gone - 1)
    add('+', new, new_from, new_from + new_count - 1)
    at, added, removed = from + count, added + new_count, removed + gone
  end
  add(' ', old, at, #old)
  return { rows = rows, added = added, removed = removed }
end

--- Leave out unchanged lines, except near changed ones.
---@param rows sanderling.inline.preview.Row[]
---@return sanderling.inline.preview.Row[]
local function folded(rows)
  local is_near, kept, skipped = {}, {}, 0
  for i, row in ipairs(rows) do
    for near = row[1] ~= ' ' and i - AROUND or 1, row[1] ~= ' ' and i + AROUND or 0 do
      is_near[near] = true
    end
  end
  local function tell()
    if skipped > 0 then
      local text = ('%s %s unchanged'):format(icons.more, words.counted(skipped, 'line'))
      kept[#kept + 1], skipped = { '', text }, 0
    end
  end
  for i, row in ipairs(rows) do
    if is_near[i] then
      tell()
      kept[#kept + 1] = row
    else
      skipped = skipped + 1
    end
  end
  tell()
  return kept
end

--- Return at most `count` of `rows` as lines: the last ones while the text is written, the first ones when it is complete.
---@generic T
---@param rows T[]
---@param count integer
---@param is_whole boolean
---@param draw fun(row: T): sanderling.inline.preview.Chunks
---@return sanderling.inline.preview.Chunks[]
function M.bounded(rows, count, is_whole, draw)
  local hidden = math.max(0, #rows - count)
  local first = is_whole and 1 or hidden + 1
  local lines = vim.tbl_map(draw, vim.list_slice(rows, first, first + count - 1))
  if hidden > 0 then
    local text = ('  %s %s more'):format(icons.more, words.counted(hidden, 'line'))
    table.insert(lines, is_whole and #lines + 1 or 1, { { text, 'AgentPlaceholder' } })
  end
  return lines
end

local HIGHLIGHTS = { ['+'] = 'AgentHunkAdd', ['-'] = 'AgentHunkDelete', [' '] = 'AgentEditSame' }

---@param row sanderling.inline.preview.Row
---@param tabstop integer
---@return sanderling.inline.preview.Chunks
local function chunks_of(row, tabstop)
  local sign, text = unpack(row)
  local shown = ({ ['+'] = icons.added, ['-'] = icons.minus })[sign] or ' '
  local gap = (' '):rep(3 - api.nvim_strwidth(shown))
  text = words.expanded(unseen.visible(text:sub(1, MAX_BYTES)), tabstop, 0)
  return { { shown .. gap .. text, HIGHLIGHTS[sign] or 'AgentPlaceholder' } }
end

---@class (exact) sanderling.inline.preview.View
---@field title string
---@field difference sanderling.inline.preview.Difference
---@field is_whole boolean
---@field status sanderling.inline.preview.Chunks below it

--- Return how many rows a preview may have in a window of that height; more when it is complete.
---@param height integer
---@param is_whole boolean
---@return integer
function M.room(height, is_whole)
  return is_whole and MAX_ROWS or math.max(5, height - 8)
end

---@param view sanderling.inline.preview.View
---@param tabstop integer
---@param height integer
---@return sanderling.inline.preview.Chunks[]
local function lines_of(view, tabstop, height)
  local difference = view.difference
  local counts = '  ' .. words.counts(difference.added, difference.removed)
  local lines = { { { icons.header .. view.title, 'AgentEditTitle' }, { counts, 'AgentStatus' } } }
  local room = M.room(height, view.is_whole)
  local rows = M.bounded(folded(difference.rows), room, view.is_whole, function(row)
    return chunks_of(row, tabstop)
  end)
  vim.list_extend(lines, rows)
  lines[#lines + 1] = view.status
  return lines
end

---@param buf integer
---@return integer
function M.height_of(buf)
  local win = vim.fn.bufwinid(buf)
  return win ~= -1 and api.nvim_win_get_height(win) or vim.o.lines
end

--- Draw lines below row `row`, as extmark `mark`.
---@param buf integer
---@param row integer
---@param mark? integer to replace
---@param lines sanderling.inline.preview.Chunks[]
---@return integer mark
function M.put(buf, row, mark, lines)
  local options = { id = mark, virt_lines = lines, undo_restore = false, strict = false }
  mark = api.nvim_buf_set_extmark(buf, ns, row, 0, options)
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    -- Neovim redraws such lines with the line after them, which may be below the window.
    if vim.fn.line('w$', win) == row + 1 then
      api.nvim_win_call(win, function()
        vim.fn.winrestview(vim.empty_dict())
      end)
    end
  end
  return mark
end

---@param buf integer
---@param row integer
---@param mark? integer to replace
---@param view sanderling.inline.preview.View
---@return integer mark
---@return integer height in rows
function M.draw(buf, row, mark, view)
  local lines = lines_of(view, vim.bo[buf].tabstop, M.height_of(buf))
  return M.put(buf, row, mark, lines), #lines
end

--- If the cursor is in the region, scroll the current window until the lines below `last` are visible, and `first` still is.
---@param buf integer
---@param first integer row
---@param last integer
---@param height integer of the lines drawn below
function M.reveal(buf, first, last, height)
  local win = api.nvim_get_current_win()
  local lnum = api.nvim_win_get_cursor(win)[1]
  if api.nvim_win_get_buf(win) ~= buf or lnum < first + 1 or lnum > last + 1 then
    return
  end
  local top = vim.fn.line('w0') - 1
  if top > first or not api.nvim_get_mode().mode:find('^n') then
    return
  end
  local function below(from)
    return api.nvim_win_text_height(win, { start_row = from, end_row = last }).all + height
  end
  local room, wanted = api.nvim_win_get_height(win), top
  while wanted < math.min(first, lnum - 1) and below(wanted) > room do
    wanted = wanted + 1
  end
  if wanted > top then
    vim.fn.winrestview({ topline = wanted + 1 })
  end
end

---@param buf integer
---@param mark? integer
function M.clear(buf, mark)
  if mark and api.nvim_buf_is_loaded(buf) then
    api.nvim_buf_del_extmark(buf, ns, mark)
  end
end

return M
