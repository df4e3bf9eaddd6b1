--- Markdown highlighting whose cost depends on what is new or newly visible, not on the length of the chat.
---
--- A tree-sitter highlighter on the buffer would parse the whole text after each change. Here the text is split into
--- blocks at blank lines. A complete block is parsed separately when a window shows it, and gets static extmarks. The
--- block that is still growing is parsed again at most every `LIVE_MS`. There is no queue of work: each slice
--- highlights what windows show at that moment, so text that has already scrolled by costs nothing. Only the newest
--- marks are kept, plus all marks that a window shows.
---
--- With the option `chat.markdown = 'treesitter'` Neovim's highlighter has the buffer. Then this finds the borders of blocks
--- and fires TextChanged as often as it would draw: plugins that render Markdown wait for it, and Neovim fires it only in
--- the current window.
local M = {}

local api, uv = vim.api, vim.uv
local config = require('sanderling.config')
local lazy = require('sanderling.ui.lazy')
local paint = lazy('sanderling.transcript.paint')
local parsing = require('sanderling.access.parsing')
local scratch = require('sanderling.ui.scratch')
local time = require('sanderling.ui.time')
local words = require('sanderling.ui.words')

local LIVE_MS = 150
local LIVE_PAUSES = 10 -- the pause is this many times the time that the last drawing of the open block took
local SLICE_NS = 2e6 -- of highlighting at a time; with the block that begins last, at most 5 ms
local PAINT_MS = 3 -- a block that takes longer stays as it is while text streams
local MAX_LATE = 2 -- such blocks of a text; those after them wait at once
local LATE_MS = 20 -- for the late blocks of a text, and one more for each block. What is left then stays plain.
local PRELOAD_MS = 300 -- until queries are loaded, after the screen is drawn
local SLICE_PAUSE_MS = 8
local STREAM_PAUSES = 10 -- the pause is this many slices while an answer streams: at full speed text scrolls by before it is read
local MAX_BLOCK_LINES = 40
local MARGIN_LINES = 40 -- highlighted ahead of the visible lines, unless an answer streams
local MAX_MARKS = 10000 -- per transcript; each takes 0.4 kB, and the lines of a window have about 1,000

local ns = api.nvim_create_namespace('sanderling_markdown')

---@class (exact) sanderling.transcript.markdown.Block
---@field first integer row
---@field last integer row after the block
---@field fence? string the line that opened the code fence in which the block begins
---@field is_raw? boolean nothing is concealed
---@field is_fitted? boolean contains a table or wrapped code, whose layout depends on the width of the windows
---@field is_drawn? boolean was complete when it was parsed
---@field marks? integer number of its marks
---@field text sanderling.transcript.markdown.Text
---@field painting? sanderling.transcript.paint.Painting unfinished, goes on while no text streams
---@field is_slow? boolean has only the background of its code, because highlighting takes too long
---@field is_gone? boolean its text was removed, and the marks with it

---@class (exact) sanderling.transcript.markdown.Text a part of an answer
---@field late_count integer times that a block of it was not highlighted in one slice
---@field left_ms number CPU time for blocks that need more than one slice

---@class (exact) sanderling.transcript.markdown.Blocks
---@field buf integer
---@field private is_drawn_here boolean nobody else renders the buffer
---@field private closed sanderling.transcript.markdown.Block[]
---@field open? sanderling.transcript.markdown.Block its `last` is the row after its newest line
---@field private scanned integer the open block has been scanned up to this row
---@field private fence? string the open fence at `scanned`
---@field private bytes integer of the open block before `scanned`
---@field private is_armed boolean
---@field private took_ms number time of the last drawing of the open block
---@field private marked sanderling.transcript.markdown.Block[] blocks with marks, oldest first
---@field private mark_count integer number of all marks
---@field private max_marks integer
---@field private width? integer the width that tables were drawn for
local Blocks = {}
Blocks.__index = Blocks

---@alias sanderling.transcript.markdown.View [integer, integer] first row, and the row after the last

---@type table<sanderling.transcript.markdown.Blocks, true> those with visible blocks that may not be highlighted yet
local due = {}
local is_ticking = false

--- Highlight for the length of a slice.
local function tick()
  is_ticking = false
  local began, pauses = uv.hrtime(), 0
  for blocks in pairs(due) do
    pauses = blocks.open and STREAM_PAUSES or pauses
    if blocks:draw_seen(began + SLICE_NS) then
      due[blocks] = nil
    end
  end
  if next(due) then
    is_ticking = true
    local took_ms = math.floor((uv.hrtime() - began) / 1e6)
    vim.defer_fn(tick, math.max(SLICE_PAUSE_MS, pauses * took_ms))
  end
end

local is_loading = false

--- Load parsers and queries while nothing else happens.
---@param number integer
local function preload(number)
  is_loading = true
  vim.defer_fn(function()
    if not paint.preload(number) then
      preload(number + 1)
    end
  end, PRELOAD_MS)
end

---@param buf integer
---@return sanderling.transcript.markdown.Blocks
function M.new(buf)
  local is_drawn_here = config.options.chat.markdown == 'own'
  if is_drawn_here and not is_loading then
    preload(1)
  end
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  return setmetatable({
    buf = buf,
    is_drawn_here = is_drawn_here,
    closed = {},
    scanned = 0,
    bytes = 0,
    is_armed = false,
    took_ms = 0,
    marked = {},
    mark_count = 0,
    max_marks = MAX_MARKS,
  }, Blocks)
end

--- Continue in `buf`, which has the same text and marks.
---@param buf integer
function Blocks:move(buf)
  self.buf, self.is_armed = buf, false
  self:show()
end

---@param row integer
---@param is_raw? boolean conceal nothing
function Blocks:begin(row, is_raw)
  local text = { late_count = 0, left_ms = LATE_MS }
  self.open = { first = row, last = row + 1, is_raw = is_raw, text = text }
  self.scanned, self.fence, self.bytes = row, nil, 0
end

--- Update after the open text has grown to row `last`.
---@param last integer
function Blocks:grow(last)
  if not self.open then
    return
  end
  if last > self.scanned then
    local lines = api.nvim_buf_get_lines(self.buf, self.scanned, last, false)
    for i, line in ipairs(lines) do
      self:scan(self.scanned + i - 1, line)
    end
    self.scanned = last
  end
  self.open.last = last + 1
  if not self.is_armed then
    self.is_armed = true
    vim.defer_fn(function()
      self:draw_open_block()
    end, math.max(LIVE_MS, math.floor(LIVE_PAUSES * self.took_ms)))
  end
end

--- Close the open text, which ends in row `last`.
---@param last integer
function Blocks:finish(last)
  if self.open then
    self:grow(last)
    self:close_block(last + 1)
    self.open = nil
    self:show()
  end
end

---@return boolean
function Blocks:is_in_fence()
  return self.open ~= nil and self.fence ~= nil
end

---@private
---@param row integer
---@param line string a complete line
function Blocks:scan(row, line)
  self.fence = words.fence_behind(line, self.fence)
  local is_blank_between = line == '' and not self.fence
  self.bytes = self.bytes + #line + 1
  if
    is_blank_between
    or row - self.open.first >= MAX_BLOCK_LINES
    or self.bytes > parsing.MAX_BYTES / 2
  then
    local before = self.open
    self:close_block(row + 1)
    before.text.left_ms = before.text.left_ms + 1
    self.open = {
      first = row + 1,
      last = row + 2,
      fence = self.fence,
      is_raw = before.is_raw,
      text = before.text,
    }
    self.bytes = 0
  end
end

---@private
---@param last integer row after the block
function Blocks:close_block(last)
  self.open.last = last
  if last > self.open.first then
    self.closed[#self.closed + 1] = self.open
  end
end

--- Highlight the rows that windows show and some around them, after scrolling or new text.
function Blocks:show()
  if not self.is_drawn_here then
    return
  end
  due[self] = true
  if not is_ticking then
    is_ticking = true
    vim.defer_fn(tick, SLICE_PAUSE_MS)
  end
end

--- Redraw tables and wrapped code if the width of the windows has changed.
function Blocks:fit_tables()
  local width = words.width_of(self.buf)
  if width == self.width then
    return
  end
  self.width = width
  for _, block in ipairs(self.closed) do
    block.is_drawn = block.is_drawn and not block.is_fitted or nil
  end
  self:show()
end

---@private
---@param margin integer additional rows on both sides
---@return sanderling.transcript.markdown.View[]
function Blocks:views(margin)
  return vim.tbl_map(function(win)
    return { vim.fn.line('w0', win) - 1 - margin, vim.fn.line('w$', win) + margin }
  end, vim.fn.win_findbuf(self.buf))
end

---@param block sanderling.transcript.markdown.Block
---@param views sanderling.transcript.markdown.View[]
---@return boolean
local function is_seen(block, views)
  return vim.iter(views):any(function(view)
    return block.first < view[2] and block.last > view[1]
  end)
end

--- Return the index of the first complete block that ends after `row`.
---@private
---@param row integer
---@return integer
function Blocks:find(row)
  local low, high = 1, #self.closed + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if self.closed[middle].last <= row then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

---@private
---@return boolean text has grown since the open block was drawn
function Blocks:is_streaming()
  return self.open ~= nil and self.is_armed
end

--- Highlight a block that has not been, or go on with a late one.
---@private
---@param block sanderling.transcript.markdown.Block
---@param deadline integer
---@return boolean is_done there is nothing to do for the block now
function Blocks:draw_if_due(block, deadline)
  local is_late = block.painting and not self:is_streaming()
  if block.is_drawn and not is_late then
    return true
  elseif uv.hrtime() > deadline then
    return false
  elseif block.is_drawn then
    self:go_on(block)
  else
    block.is_drawn = true
    self:draw(block)
  end
  return not block.painting or self:is_streaming()
end

--- Highlight complete blocks in view, then those around them.
---@private
---@param deadline integer
---@return boolean is_done all of them were highlighted in time
function Blocks:draw_seen(deadline)
  for _, margin in ipairs(self.open and { 0 } or { 0, MARGIN_LINES }) do
    for _, view in ipairs(self:views(margin)) do
      for i = self:find(view[1]), #self.closed do
        local block = self.closed[i]
        if block.first >= view[2] then
          break
        elseif not self:draw_if_due(block, deadline) then
          return false
        end
      end
    end
  end
  if self.open and self.open.painting and not self:is_streaming() then
    self:go_on(self.open)
    return self.open.painting == nil
  end
  return true
end

---@private
---@param block sanderling.transcript.markdown.Block
function Blocks:draw(block)
  api.nvim_buf_clear_namespace(self.buf, ns, block.first, block.last)
  if not block.marks then
    self.marked[#self.marked + 1] = block
  end
  block.painting = paint.begin(self.buf, ns, block)
  if block.text.late_count < MAX_LATE then
    self:go_on(block)
    block.text.late_count = block.text.late_count + (block.painting and 1 or 0)
  else
    self:note_marks(block)
  end
end

--- Set marks for a slice. A block that needs more slices stays plain when its text has used up its time.
---@private
---@param block sanderling.transcript.markdown.Block
function Blocks:go_on(block)
  local painting, text, began = assert(block.painting), block.text, time.clock()
  painting.piece.buf = self.buf -- the text can move to another buffer between two slices
  local is_late = not painting:go_on(PAINT_MS)
  local took_ms = 1000 * (time.clock() - began)
  if is_late or took_ms > PAINT_MS then
    text.left_ms = text.left_ms - took_ms
  end
  if is_late and text.left_ms < 0 then
    block.is_slow = true
    painting:give_up()
  end
  self:note_marks(block)
end

---@private
---@param block sanderling.transcript.markdown.Block
function Blocks:note_marks(block)
  local painting, before = assert(block.painting), block.marks or 0
  local piece = painting.piece
  block.marks, block.is_fitted = piece.count, piece.is_wrapped or next(piece.rows) ~= nil
  block.painting = not painting:is_done() and painting or nil
  self.mark_count = self.mark_count + block.marks - before
  if self.mark_count > self.max_marks then
    self:drop_marks()
    -- Visible marks are kept, and may exceed the limit: a closed fold counts as showing all its lines.
    self.max_marks = math.max(MAX_MARKS, 2 * self.mark_count)
  end
end

--- Remove the older half of the marks, except visible ones.
---@private
function Blocks:drop_marks()
  local views, kept = self:views(MARGIN_LINES), {}
  for _, block in ipairs(self.marked) do
    if self.mark_count <= MAX_MARKS / 2 or is_seen(block, views) then
      kept[#kept + 1] = block
    else
      if not block.is_gone then
        api.nvim_buf_clear_namespace(self.buf, ns, block.first, block.last)
      end
      self.mark_count = self.mark_count - block.marks
      block.is_drawn, block.marks, block.painting = nil, nil, nil
    end
  end
  self.marked = kept
end

--- Shift blocks after rows were inserted before row `from`, or `-delta` rows directly before it were removed.
---@param from integer
---@param delta integer
function Blocks:shift(from, delta)
  for _, block in ipairs(vim.list_extend({ self.open }, self.closed)) do
    if block.first >= from then
      block.first, block.last = block.first + delta, block.last + delta
    end
  end
  if self.scanned >= from then
    self.scanned = self.scanned + delta
  end
end

--- Put the blocks of `page` before these. They are highlighted when a window shows them.
---@param page sanderling.transcript.markdown.Blocks
function Blocks:prepend(page)
  self.closed = vim.list_extend(page.closed, self.closed)
end

--- Forget the blocks in the rows from `first` to `last`, which will be removed. The range begins and ends at block
--- borders.
---@param first integer
---@param last integer
function Blocks:remove(first, last)
  self.closed = vim.tbl_filter(function(block)
    block.is_gone = block.first >= first and block.last <= last + 1
    return not block.is_gone
  end, self.closed)
end

---@private
function Blocks:draw_open_block()
  self.is_armed = false
  if not self.is_drawn_here then
    if api.nvim_buf_is_loaded(self.buf) then
      scratch.fire(self.buf, 'TextChanged')
    end
    return
  end
  self:show()
  if self.open and is_seen(self.open, self:views(0)) then
    local began = uv.hrtime()
    self:draw(self.open)
    self.took_ms = (uv.hrtime() - began) / 1e6
  end
end

return M
