--- Drawing of hunks: signs, added lines, and the replaced lines as virtual lines above them.
---
--- Virtual lines are there from the start, because they count in scrolling. Signs, highlights and word differences are
--- made when a window is about to show them, and stay.
local M = {}

local api = vim.api
require('sanderling.ui.colors')
local hunks = require('sanderling.review.hunks')
local icons = require('sanderling.ui.icons')
local review_words = require('sanderling.review.words')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local MAX_REMOVED = 100 -- of a hunk are shown
local MAX_BYTES = 1000 -- of each of those; they do not wrap
local CONTEXT_CELLS = 4 -- shown around the difference of a line that is wider than the window
local MAX_RUNS = 1000 -- runs of invisible characters that a hunk shows as code points
local SIGN_PRIORITY, LINE_PRIORITY, WORD_PRIORITY = 9, 90, 210 -- diagnostics' signs: 10; syntax: 50 to 125

local ns = api.nvim_create_namespace('sanderling_hunks') -- virtual lines
local details_ns = api.nvim_create_namespace('sanderling_hunk_details')

---@class (exact) sanderling.review.draw.Drawn
---@field old string[]
---@field row integer
---@field is_below boolean
---@field mark? integer of the virtual lines
---@field details integer[] marks
---@field text? string[] the lines that `details` are for
---@field textoff integer width of the columns left of the text when the virtual lines were made
---@field width integer of the text beside them
---@field is_compared boolean a window in diff mode shows the difference already

---@type table<integer, table<integer, sanderling.review.draw.Drawn>> by buffer and id
local drawn = {}

-- removed lines -------------------------------------------------------------------------------------------------------

---@param line string
---@param tabstop integer
---@param spans sanderling.review.words.Span[]
---@return [string, string][] chunks
local function chunks_of(line, tabstop, spans)
  local chunks, col = {}, 0
  local function add(text, hl)
    text, col = words.expanded(unseen.visible(text), tabstop, col)
    chunks[#chunks + 1] = text ~= '' and { text, hl } or nil
  end
  local at = 1
  for _, span in ipairs(spans) do
    add(line:sub(at, span[1]), 'AgentHunkDelete')
    add(line:sub(span[1] + 1, span[2]), 'AgentHunkDeleteWord')
    at = span[2] + 1
  end
  add(line:sub(at, math.max(at, MAX_BYTES)), 'AgentHunkDelete')
  return chunks
end

---@param chunks [string, string][]
---@return integer cells
local function width_of(chunks)
  local cells = 0
  for _, chunk in ipairs(chunks) do
    cells = cells + api.nvim_strwidth(chunk[1])
  end
  return cells
end

--- Cut off the beginning of a line whose first difference would be beyond the window's edge: virtual lines do not wrap,
--- and without the difference a removed line looks like the new one.
---@param chunks [string, string][]
---@param width integer
local function show_difference(chunks, width)
  local first = 1
  while chunks[first] and chunks[first][2] ~= 'AgentHunkDeleteWord' do
    first = first + 1
  end
  local before = width_of(vim.list_slice(chunks, 1, first - 1))
  local behind = math.min(width_of(chunks), before + width_of({ chunks[first] }) + CONTEXT_CELLS)
  local cut = math.min(behind - width + api.nvim_strwidth(icons.more), before - CONTEXT_CELLS)
  if not chunks[first] or behind <= width or cut <= 0 then
    return
  end
  while cut > 0 do
    local text, hl = chunks[1][1], chunks[1][2]
    local gone = vim.fn.printf('%.*S', cut, text)
    if #gone < #text then
      gone = gone == '' and vim.fn.strcharpart(text, 0, 1, true) or gone -- a wide character
      chunks[1] = { text:sub(#gone + 1), hl }
      break
    end
    table.remove(chunks, 1)
    cut = cut - api.nvim_strwidth(text)
  end
  table.insert(chunks, 1, { icons.more, 'AgentHunkDelete' })
end

---@param buf integer
---@param one sanderling.review.draw.Drawn
---@param gone table<integer, sanderling.review.words.Span[]>
---@return [string, string][][]
local function virtual_lines(buf, one, gone)
  local old, textoff = one.old, one.textoff
  local tabstop = vim.bo[buf].tabstop
  local edge = {
    icons.minus .. (' '):rep(math.max(textoff, 2) - api.nvim_strwidth(icons.minus)),
    'AgentHunkDelete',
  }
  local lines = {}
  for i, line in ipairs(old) do
    if i > MAX_REMOVED then
      local text = ('%s %d more lines'):format(icons.more, #old - MAX_REMOVED)
      lines[i] = { edge, { text, 'AgentHunkDelete' } }
      break
    end
    local chunks = chunks_of(line, tabstop, gone[i] or {})
    show_difference(chunks, one.width)
    lines[i] = vim.list_extend({ edge }, chunks)
  end
  return lines
end

local blank = { { '' } }

--- Blank lines reserve the space until a window shows them.
---@param count integer
---@return [string][][]
local function blank_lines(count)
  local lines = {}
  for i = 1, math.min(count, MAX_REMOVED + 1) do
    lines[i] = blank
  end
  return lines
end

---@param buf integer
---@param one sanderling.review.draw.Drawn
---@param gone? table<integer, sanderling.review.words.Span[]> nil: not on the screen yet
local function set_virtual_lines(buf, one, gone)
  if #one.old == 0 or one.is_compared then
    return
  end
  one.mark = api.nvim_buf_set_extmark(buf, ns, one.row, 0, {
    id = one.mark,
    virt_lines = gone and virtual_lines(buf, one, gone) or blank_lines(#one.old),
    virt_lines_above = not one.is_below,
    virt_lines_leftcol = true,
    undo_restore = false,
    invalidate = false,
    strict = false, -- the screen can be drawn before the hunks have followed a change of the text
  })
end

-- visible hunks -------------------------------------------------------------------------------------------------------

--- Return the sign of a hunk's lines and its highlight. A pure deletion has a sign only at the top of the buffer:
--- virtual lines above the first line of a window are not visible.
---@param hunk sanderling.review.Hunk
---@param one sanderling.review.draw.Drawn
---@return string?
---@return string?
local function sign_of(hunk, one)
  if hunk.count == 0 then
    return one.row == 0 and not one.is_below and icons.gone_above or nil, 'AgentHunkSignDelete'
  elseif #hunk.old == 0 then
    return icons.added, 'AgentHunkSignAdd'
  end
  return icons.changed, 'AgentHunkSignChange'
end

---@param buf integer
---@param one sanderling.review.draw.Drawn
local function clear_details(buf, one)
  for _, mark in ipairs(one.details) do
    api.nvim_buf_del_extmark(buf, details_ns, mark)
  end
  one.details, one.text = {}, nil
end

--- Make invisible characters in a hunk visible, because accepting the hunk accepts them, too.
---@param text string[]
---@param mark fun(index: integer, col: integer, opts: vim.api.keyset.set_extmark) sets a mark on a line
local function mark_unseen(text, mark)
  local left = MAX_RUNS
  for i, line in ipairs(text) do
    for _, run in ipairs(unseen.runs(line, left)) do
      left = left - 1
      mark(i, run.end_col, {
        virt_text = { { run.text, 'AgentWarning' } },
        virt_text_pos = 'inline',
        priority = WORD_PRIORITY,
      })
    end
    if left == 0 then
      return mark(i, #line, {
        virt_text = { { '<more invisible characters>', 'AgentWarning' } },
        virt_text_pos = 'inline',
      })
    end
  end
end

---@param buf integer
---@param hunk sanderling.review.Hunk
---@param one sanderling.review.draw.Drawn
---@param text string[]
local function set_details(buf, hunk, one, text)
  clear_details(buf, one)
  one.text = text
  local function mark(row, col, opts)
    opts.strict, opts.undo_restore = false, false
    one.details[#one.details + 1] = api.nvim_buf_set_extmark(buf, details_ns, row, col, opts)
  end
  local sign, hl = sign_of(hunk, one)
  if hunk.count > 0 and not one.is_compared then
    mark(hunk.row, 0, {
      end_row = hunk.row + hunk.count,
      hl_group = 'AgentHunkAdd',
      hl_eol = true,
      priority = LINE_PRIORITY,
    })
  end
  for row = one.row, sign and one.row + math.max(hunk.count, 1) - 1 or -1 do
    mark(row, 0, { sign_text = sign, sign_hl_group = hl, priority = SIGN_PRIORITY })
  end
  mark_unseen(text, function(index, col, opts)
    mark(hunk.row + index - 1, col, opts)
  end)
  if one.is_compared then
    return
  end
  local differing = review_words.differing(hunk.old, text)
  for i, spans in pairs(differing.new) do
    for _, span in ipairs(spans) do
      mark(hunk.row + i - 1, span[1], {
        end_row = hunk.row + i - 1,
        end_col = span[2],
        hl_group = 'AgentHunkWord',
        priority = WORD_PRIORITY,
      })
    end
  end
  set_virtual_lines(buf, one, differing.old)
end

local draw_view ---@type fun(win: integer, buf: integer, top: integer, bottom: integer)

--- Draw the hunks that a window is about to show.
---@param win integer
---@param buf integer
---@param top integer
---@param bottom integer
function draw_view(win, buf, top, bottom)
  local info = vim.fn.getwininfo(win)[1]
  local textoff, width = info.textoff, info.width - info.textoff
  local is_first = vim.fn.win_findbuf(buf)[1] == win
  local is_new = false
  for _, hunk in ipairs(hunks.list(buf)) do
    local one = drawn[buf] and drawn[buf][hunk.id]
    if hunk.row > bottom + 1 then
      break
    elseif one and hunk.row + hunk.count >= top then
      local text = hunks.text_of(hunk)
      local is_other = is_first and (one.textoff ~= textoff or one.width ~= width)
      if is_other or not vim.deep_equal(one.text, text) then
        one.textoff = is_first and textoff or one.textoff
        one.width = is_first and width or one.width
        set_details(buf, hunk, one, text)
        is_new = true
      end
    end
  end
  if is_first and is_new then -- the first sign of a window adds the sign column
    vim.schedule(function()
      local is_shown = api.nvim_win_is_valid(win) and api.nvim_win_get_buf(win) == buf
      if is_shown and vim.fn.getwininfo(win)[1].textoff ~= textoff then
        draw_view(win, buf, top, bottom)
      end
    end)
  end
end

api.nvim_set_decoration_provider(ns, {
  on_win = function(_, win, buf, top, bottom)
    if drawn[buf] then
      draw_view(win, buf, top, bottom)
    end
    return false
  end,
})

-- changes of hunks ----------------------------------------------------------------------------------------------------

--- Return the row of a hunk's virtual lines. They go below the row if no line is left for them to be above.
---@param buf integer
---@param hunk sanderling.review.Hunk
---@return integer row
---@return boolean is_below
local function place_of(buf, hunk)
  local last = api.nvim_buf_line_count(buf) - 1
  local is_below = hunk.count == 0 and (hunk.row > last or last == 0)
  return math.min(hunk.row, last), is_below
end

---@param buf integer
---@return boolean
local function is_compared(buf)
  return vim.iter(vim.fn.win_findbuf(buf)):any(function(win)
    return vim.wo[win].diff
  end)
end

---@param buf integer
---@param one sanderling.review.draw.Drawn
---@param hunk sanderling.review.Hunk
---@param compared boolean
---@return boolean
local function is_in_place(buf, one, hunk, compared)
  local row, is_below = place_of(buf, hunk)
  local is_other = one.old ~= hunk.old or one.is_below ~= is_below
  if is_other or one.is_compared ~= compared then
    return false
  end
  one.row = row
  local pos = one.mark and api.nvim_buf_get_extmark_by_id(buf, ns, one.mark, {}) or { row }
  local first = one.details[1]
  local first_pos = first and api.nvim_buf_get_extmark_by_id(buf, details_ns, first, {}) or { row }
  return pos[1] == row and first_pos[1] == row
end

---@param buf integer
---@param one sanderling.review.draw.Drawn
local function remove(buf, one)
  clear_details(buf, one)
  if one.mark then
    api.nvim_buf_del_extmark(buf, ns, one.mark)
  end
end

--- Scroll lines removed above the buffer's first line into view. Not in the current window, nor in one that is scrolled
--- down.
---@param buf integer
---@param win integer
---@return boolean is_done
local function show_top(buf, win)
  local first = hunks.list(buf)[1]
  local is_at_top = first and first.row == 0 and #first.old > 0 and vim.fn.line('w0', win) == 1
  if not is_at_top or win == api.nvim_get_current_win() then
    return false
  end
  api.nvim_win_call(win, function()
    local topfill = math.min(#first.old, api.nvim_win_get_height(win) - 1)
    vim.fn.winrestview({ topline = 1, topfill = topfill })
  end)
  return true
end

--- Run `fn`, which changes lines or virtual lines, and keep the cursor of each window at its place on the screen.
---@param buf integer
---@param fn fun()
function M.keeping_views(buf, fn)
  local rows = {}
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    rows[win] = api.nvim_win_call(win, vim.fn.winline)
  end
  fn()
  for win, row in pairs(rows) do
    local is_here = api.nvim_win_is_valid(win) and api.nvim_win_get_buf(win) == buf
    if is_here and not show_top(buf, win) then
      api.nvim_win_call(win, function()
        local shift = vim.fn.winline() - row
        if shift ~= 0 then
          local cursor = api.nvim_win_get_cursor(win)
          local key = shift > 0 and '\5' or '\25' -- CTRL-E, CTRL-Y
          vim.cmd(('noautocmd keepjumps normal! %d%s'):format(math.abs(shift), key))
          pcall(api.nvim_win_set_cursor, win, cursor)
        end
      end)
    end
  end
end

---@param buf integer
function M.forget(buf)
  for _, one in pairs(drawn[buf] or {}) do
    remove(buf, one)
  end
  drawn[buf] = nil
end

--- Draw the hunks of a buffer in their current state.
---@param buf integer
function M.update(buf)
  local list = api.nvim_buf_is_loaded(buf) and hunks.list(buf) or {}
  local before, now, changed = drawn[buf] or {}, {}, {}
  local compared = is_compared(buf)
  for _, hunk in ipairs(list) do
    local one = before[hunk.id]
    if one and is_in_place(buf, one, hunk, compared) then
      now[hunk.id] = one
    else
      changed[#changed + 1] = hunk
    end
  end
  local gone = {}
  for id, one in pairs(before) do
    gone[#gone + 1] = now[id] == nil and one or nil
  end
  drawn[buf] = #list > 0 and now or nil
  if #changed + #gone == 0 or not api.nvim_buf_is_loaded(buf) then
    return
  end
  M.keeping_views(buf, function()
    for _, one in ipairs(gone) do
      remove(buf, one)
    end
    for _, hunk in ipairs(changed) do
      local row, is_below = place_of(buf, hunk)
      local one = { old = hunk.old, row = row, is_below = is_below, details = {} }
      one.textoff, one.width = 2, vim.o.columns
      one.is_compared = compared
      now[hunk.id] = one
      set_virtual_lines(buf, one)
    end
  end)
end

local group = api.nvim_create_augroup('sanderling_draw_hunks', {})

local function update_all()
  for buf in pairs(drawn) do
    M.update(buf)
  end
end

api.nvim_create_autocmd('OptionSet', {
  group = group,
  pattern = 'diff',
  desc = 'Agent: do not repeat what diff mode shows',
  callback = update_all,
})

api.nvim_create_autocmd({ 'BufWinEnter', 'WinClosed' }, {
  group = group,
  desc = 'Agent: do not repeat what diff mode shows',
  callback = vim.schedule_wrap(update_all),
})

return M
