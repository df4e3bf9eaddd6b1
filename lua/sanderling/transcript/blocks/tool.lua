--- Tool uses in the transcript: their blocks, the files that these name, and the float that shows a whole tool use.
---
--- A block consists of a header, `edit src/app.py  +3 −1`, the output of the running tool, and its detail. When the
--- tool has ended the block becomes one fold, and the summary is appended to the header: a change within a row, so that
--- no row moves.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')

local blocks = require('sanderling.transcript.blocks')
local child = require('sanderling.transcript.blocks.child')
local diff = lazy('sanderling.transcript.diff')
local files = require('sanderling.access.files')
local page = require('sanderling.access.page')
local folds = require('sanderling.transcript.folds')
local icons = require('sanderling.ui.icons')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local ns = require('sanderling.transcript.writer').NS

local TORN = ' (continued)'

---@class (exact) sanderling.transcript.blocks.tool.Use a running tool use
---@field id string
---@field tool string
---@field title string
---@field row integer of its last header
---@field mark integer of the sign that it is running
---@field child? string the session that it has started

---@class (exact) sanderling.transcript.blocks.tool.Block
---@field id string of the tool use
---@field first integer row of the header
---@field last? integer row; nil while it grows
---@field title string
---@field child? string the session that the tool use started
---@field diff? integer row of the first line of a diff, which ends the block

-- blocks --------------------------------------------------------------------------------------------------------------

---@type table<string, sanderling.transcript.blocks.Draw> by event type
local draw = {}

---@param self sanderling.transcript.Transcript
---@param row integer
---@param col integer
---@param end_col integer
---@param hl string
local function paint_header(self, row, col, end_col, hl)
  api.nvim_buf_set_extmark(self.buf, ns, row, col, { end_col = end_col, hl_group = hl })
end

--- Start a block of a tool use. Consecutive ones have no blank line between them.
---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@param suffix string
local function open_block(self, use, suffix)
  self:end_block()
  local header = words.trimmed(use.tool .. ' ' .. use.title) .. suffix
  local follows_tool = self.last == self.tool_end and self.col == 0
  use.row = self:append_block(header, nil, follows_tool)
  paint_header(self, use.row, 0, #use.tool, 'AgentTool')
  use.mark = api.nvim_buf_set_extmark(self.buf, ns, use.row, #header, {
    id = use.mark,
    virt_text = { { icons.more, 'AgentBusy' } },
    virt_text_pos = 'eol',
  })
  local block = { id = use.id, first = use.row, title = use.title, child = use.child }
  table.insert(self.tool_blocks, block)
  self.open = { id = use.id, kind = 'tool', row = use.row, col = 0, block = block }
end

---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@return sanderling.transcript.OpenBlock
local function block_of(self, use)
  if not self.open or self.open.id ~= use.id then
    open_block(self, use, TORN)
  end
  return assert(self.open)
end

--- Append the summary to the header, as text, so that it can be searched and copied.
---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@param summary string
---@param hl string
local function write_summary(self, use, summary, hl)
  api.nvim_buf_del_extmark(self.buf, ns, use.mark)
  if summary ~= '' then
    local col = self:append_to_row(use.row, '  ' .. summary)
    paint_header(self, use.row, col, col + 2 + #summary, hl)
  end
end

---@param use sanderling.transcript.blocks.tool.Use
---@param first integer row
---@param last integer row
---@param summary string
---@param is_error boolean
---@param state 'open'|'closed unless read'
---@return sanderling.transcript.folds.Fold
local function fold_of(use, first, last, summary, is_error, state)
  return {
    first = first,
    last = last,
    name = use.tool,
    label = use.title,
    summary = summary,
    lines = last - first,
    hl = is_error and 'AgentError' or 'AgentThinking',
    state = is_error and 'open' or state,
  }
end

--- Fold the open block if there is anything below its header, and leave a blank line after it.
---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@param summary string
---@param is_error boolean
local function fold_block(self, use, summary, is_error)
  local open = assert(self.open)
  local last = self.col > 0 and self.last or self.last - 1
  if self.col > 0 then
    self:append('\n')
  end
  self.tool_end = self.last
  if last > open.row then
    local state = open.has_remark and 'open' or 'closed unless read'
    self:add_fold(fold_of(use, open.row, last, summary, is_error, state))
  end
  self:close_block()
end

--- Insert the detail of a call that has started a child session below its header, though later calls follow. The rows below move,
--- but this happens only once for each child.
---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@param detail string
---@return integer last row
local function insert_detail(self, use, detail)
  local first, lines = use.row, words.lines_of(detail)
  self:modify(function()
    api.nvim_buf_set_lines(self.buf, first + 1, first + 1, true, lines)
  end)
  blocks.shift(self, first + 1, #lines)
  self:paint(first + 1, first + #lines, 'AgentOutput')
  M.block_at(self, first).last = first + #lines
  return first + #lines
end

---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@param detail string
---@param filetype? string
local function write_detail(self, use, detail, filetype)
  local open = block_of(self, use)
  local row = self:append_lines(detail, 'AgentOutput')
  if filetype == 'diff' then
    diff.paint(self.buf, row, words.lines_of(detail))
    open.block.diff = row
  end
end

function draw.tool_started(self, event)
  local use =
    { id = event.id, tool = words.plain(event.tool), title = words.first_line(event.title) }
  self.tools[event.id] = use
  open_block(self, use, '')
  child.begin(self, event.id)
end

function draw.tool_output(self, event)
  local use = self.tools[event.id]
  if use and event.text ~= '' then
    self:append_output(block_of(self, use), event.text)
  end
end

function draw.tool_ended(self, event)
  local use = self.tools[event.id]
  if not use then
    return -- it was stopped
  end
  local is_error = event.is_error or false
  local summary = icons.translated(words.plain(event.summary or ''))
  if is_error then
    summary = words.trimmed(icons.failed .. ' ' .. summary)
  end
  local detail = words.without_end(event.detail or '')
  if event.filetype == 'diff' then
    detail = unseen.visible(detail)
  end
  local is_last, inserted = self.open ~= nil and self.open.id == event.id, nil
  if detail ~= '' and use.child and not is_last then
    inserted = insert_detail(self, use, detail)
  elseif detail ~= '' then
    write_detail(self, use, detail, event.filetype)
  end
  write_summary(self, use, summary, is_error and 'AgentError' or 'AgentStatus')
  if inserted then -- only now, because a change in the first line of a fold cuts it off
    self:insert_fold(fold_of(use, use.row, inserted, summary, is_error, 'closed unless read'))
  elseif self.open and self.open.id == event.id then
    fold_block(self, use, summary, is_error)
  end
  child.settle(self, event.id)
  if event.job then
    self.jobs_shown[event.job] = api.nvim_buf_set_extmark(self.buf, ns, use.row, 0, {})
  end
  self.tools[event.id] = nil -- last, because all of this is repeated if the buffer is not writable
end

--- Show the outcome of ended jobs after their lines. It is virtual text, because a change in the first line of a fold
--- would cut it off.
function draw.jobs_changed(self, event)
  for _, job in ipairs(event.jobs) do
    local mark = self.jobs_shown[job.id]
    local row = mark
      and job.outcome ~= ''
      and api.nvim_buf_get_extmark_by_id(self.buf, ns, mark, {})[1]
    if row then
      local text = icons.separator .. icons.translated(words.plain(job.outcome))
      api.nvim_buf_set_extmark(self.buf, ns, row, 0, {
        id = mark,
        virt_text = { { text:sub(2), 'AgentStatus' } },
        virt_text_pos = 'eol',
      })
      local fold = folds.at(self.folds, row)
      if fold and fold.first == row then
        fold.summary = (fold.summary or '') .. text
      end
      self.jobs_shown[job.id] = nil
    end
  end
end

--- Mark the running tool uses as stopped at the end of a turn.
---@param self sanderling.transcript.Transcript
function M.stop_all(self)
  local uses = vim.tbl_values(self.tools)
  table.sort(uses, function(a, b)
    return a.row < b.row
  end)
  for _, use in ipairs(uses) do
    self:draw({ type = 'tool_ended', id = use.id, summary = 'stopped', is_error = true })
  end
end

--- Return the block of a tool use that contains `row`.
---@param self sanderling.transcript.Transcript
---@param row integer
---@return sanderling.transcript.blocks.tool.Block?
function M.block_at(self, row)
  local shown = self.tool_blocks
  local low, high = 1, #shown
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if shown[middle].first <= row then
      low = middle
    else
      high = middle - 1
    end
  end
  local block = shown[low]
  if block and block.first <= row and row <= (block.last or self.last) then
    return block
  end
end

-- from a line to a file -----------------------------------------------------------------------------------------------

--- Return the file that the cursor's line is about. In a diff this includes the line number.
---@param self sanderling.transcript.Transcript
---@param row integer
---@param col integer
---@param project string
---@return sanderling.access.files.Place?
function M.place_at(self, row, col, project)
  local block = M.block_at(self, row)
  if block and block.diff and row >= block.diff then
    local place
    local lines = api.nvim_buf_get_lines(self.buf, block.diff, row + 1, true)
    diff.walk(lines, function(i, _, path, lnum)
      if i == #lines and lnum then
        local found = files.find(path or block.title, project)
        place = found and { path = found, lnum = lnum }
      end
    end)
    if place then
      return place
    end
  end
  if block and row == block.first then
    local path = files.find(block.title, project) -- may contain blanks
    if path then
      return { path = path }
    end
  end
  return files.place_in(api.nvim_buf_get_lines(self.buf, row, row + 1, true)[1], col, project)
end

--- Show the whole input and result of a tool use.
---@param use sanderling.WholeToolUse
function M.show(use)
  local lines = words.broken_lines_of(unseen.visible(use.input))
  local input_count = #lines
  lines[#lines + 1] = ''
  vim.list_extend(lines, words.broken_lines_of(unseen.visible(use.result)))
  diff.set_syntax(page.view(use.tool, lines, 'tool use'), 'json', 1, input_count)
end

blocks.register({
  draw = draw,
  new = function()
    return { tools = {}, tool_blocks = {}, jobs_shown = {} }
  end,
  rows = {
    tools = { is_list = true, of = { 'row' } },
    tool_blocks = { is_list = true, of = { 'first', 'last', 'diff' }, is_of_page = true },
    tool_end = { of = {} },
  },
})

return M
