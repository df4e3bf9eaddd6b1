--- Tool uses on the screen: their blocks in the transcript, diffs, and the float that shows something whole.
---
--- A block is a header, `edit src/app.py  +3 −1`, what the tool puts out while it runs, and its detail. All of it becomes one
--- fold when the tool has ended. The summary is put behind the header then: a change within a row, so that no row moves.
local M = {}

local api = vim.api
local files = require('sanderling.ui.files')
local folds = require('sanderling.transcript.folds')
local scratch = require('sanderling.ui.scratch')

local ns = api.nvim_create_namespace('sanderling_tools')

local MAX_LINE_CHARS = 300
local MAX_SHOWN_BYTES = 10000 -- of a line: Neovim goes through all of it for each part that it draws
local TORN = ' (goes on)'

---@class (exact) sanderling.transcript.blocks.tool.Use that runs
---@field id string
---@field tool string
---@field title string
---@field row integer of its last header
---@field mark integer says that it runs

---@class (exact) sanderling.transcript.blocks.tool.Block
---@field id string of the tool use
---@field first integer row of the header
---@field last? integer row; nil while it grows
---@field title string
---@field diff? integer row of the first line of a diff, which ends the block

-- words ---------------------------------------------------------------------------------------------------------------

--- `text` as one line in which nothing hides or turns around what follows.
---@param text string
---@return string
function M.plain(text)
  -- U+061C, U+200B-200F, U+2028-202E, U+2060-206F, U+FEFF: what has no width, and what changes the direction of writing
  return (
    text
      :gsub('[%z\1-\31\127]+', ' ')
      :gsub('\216\156', '·')
      :gsub('\226\128[\139-\143\168-\174]', '·')
      :gsub('\226\129[\160-\175]', '·')
      :gsub('\239\187\191', '·')
  )
end

--- The first line of `text`, cut where it is very long.
---@param text string
---@return string
function M.first_line(text)
  local line, rest = text:match('^([^\n]*)(.*)$')
  line = M.plain(line:sub(1, MAX_SHOWN_BYTES))
  if #line > MAX_LINE_CHARS then
    line, rest = vim.fn.strcharpart(line, 0, MAX_LINE_CHARS), '…'
  end
  return line .. (rest ~= '' and ' …' or '')
end

--- `text` without the line breaks at its end. (A pattern would take quadratic time on line breaks in its middle.)
---@param text string
---@return string
local function without_end(text)
  local last = #text
  while text:byte(last) == 10 do
    last = last - 1
  end
  return text:sub(1, last)
end

---@param text string
---@return string[] lines, without empty ones at the end
function M.lines_of(text)
  return vim.split(without_end(text), '\n', { plain = true })
end

-- diffs ---------------------------------------------------------------------------------------------------------------

--- Go through a unified diff. The counts of a hunk say where it ends, so that its lines cannot pass for the next file's name.
---@param lines string[]
---@param see fun(i: integer, hl: string?, path: string?, lnum: integer?) the line's highlight and the line of the file it is about
local function walk_diff(lines, see)
  local old_left, new_left = 0, 0
  ---@type string?, integer?
  local path, lnum
  for i, line in ipairs(lines) do
    local sign = line:sub(1, 1)
    if old_left > 0 or new_left > 0 then
      local is_added, is_deleted = sign == '+', sign == '-'
      local is_note = sign == '\\'
      see(i, is_added and 'AgentDiffAdd' or is_deleted and 'AgentDiffDelete' or nil, path, lnum)
      if not is_added and not is_note then
        old_left = old_left - 1
      end
      if not is_deleted and not is_note then
        new_left, lnum = new_left - 1, lnum + 1
      end
    else
      local old, first, new = line:match('^@@ %-%d+,?(%d*) %+(%d+),?(%d*) @@')
      if first then
        old_left, new_left = tonumber(old) or 1, tonumber(new) or 1
        lnum = tonumber(first)
      else
        lnum = nil
        path = line:match('^%+%+%+ ([^\t]+)') or path
      end
      see(i, first and 'AgentDiffHunk' or line ~= '' and 'AgentDiffHeader' or nil, path, lnum)
    end
  end
end

--- Highlight a diff.
---@param buf integer
---@param row integer of its first line
---@param lines string[]
function M.paint_diff(buf, row, lines)
  local run_hl, run_first ---@type string?, integer?
  local function finish(behind)
    if run_hl then
      api.nvim_buf_set_extmark(buf, ns, row + run_first - 1, 0, {
        end_row = row + behind - 1,
        end_col = 0,
        hl_group = run_hl,
        hl_eol = true,
        strict = false,
      })
    end
  end
  walk_diff(lines, function(i, hl)
    if hl ~= run_hl then
      finish(i)
      run_hl, run_first = hl, i
    end
  end)
  finish(#lines + 1)
end

--- Highlight lines of a scratch buffer as `filetype`; nothing of the user's runs for it.
---@param buf integer
---@param filetype string
---@param first_lnum integer
---@param last_lnum? integer the last of the buffer unless given
function M.set_syntax(buf, filetype, first_lnum, last_lnum)
  api.nvim_buf_call(buf, function()
    vim.cmd('syntax clear')
  end)
  if filetype == 'diff' then
    local lines = api.nvim_buf_get_lines(buf, first_lnum - 1, last_lnum or -1, true)
    M.paint_diff(buf, first_lnum - 1, lines)
  elseif filetype:find('^%w+$') then
    local behind = last_lnum and ([[\%%%dl]]):format(last_lnum + 1) or [[\%$]]
    local region = [[syntax region AgentText start=/\%%%dl/ end=/%s/ contains=@AgentText keepend]]
    api.nvim_buf_call(buf, function()
      local include = ('syntax include @AgentText syntax/%s.vim'):format(filetype)
      if pcall(vim.cmd, include) then -- else there is no such syntax
        vim.cmd(region:format(first_lnum, behind))
      end
    end)
  end
end

-- blocks --------------------------------------------------------------------------------------------------------------

---@alias sanderling.transcript.blocks.tool.Draw fun(self: sanderling.transcript.Transcript, event: any)
---@type table<string, sanderling.transcript.blocks.tool.Draw>
M.draw = {}

---@param self sanderling.transcript.Transcript
---@param row integer
---@param col integer
---@param end_col integer
---@param hl string
local function paint_header(self, row, col, end_col, hl)
  api.nvim_buf_set_extmark(self.buf, ns, row, col, { end_col = end_col, hl_group = hl })
end

--- Begin a block of a tool use; those that follow each other stand without a blank line in between.
---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@param suffix string
local function open_block(self, use, suffix)
  self:end_block()
  local header = vim.trim(use.tool .. ' ' .. use.title) .. suffix
  local follows_tool = self.last == self.tool_end and self.col == 0
  use.row = self:append_block(header, nil, follows_tool)
  paint_header(self, use.row, 0, #use.tool, 'AgentTool')
  use.mark = api.nvim_buf_set_extmark(self.buf, ns, use.row, #header, {
    id = use.mark,
    virt_text = { { '…', 'AgentBusy' } },
    virt_text_pos = 'eol',
  })
  local block = { id = use.id, first = use.row, title = use.title }
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

--- Put the summary behind the header, in the text: it can be searched and copied.
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

--- Fold the block that is open, if there is anything below its header, and leave a blank line behind it.
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
    self:add_fold({
      first = open.row,
      last = last,
      name = use.tool,
      label = use.title,
      summary = summary,
      lines = last - open.row,
      hl = is_error and 'AgentError' or 'AgentThinking',
      state = (is_error or open.has_remark) and 'open' or 'closed unless read',
    })
  end
  self:close_block()
end

---@param self sanderling.transcript.Transcript
---@param use sanderling.transcript.blocks.tool.Use
---@param detail string
---@param filetype? string
local function write_detail(self, use, detail, filetype)
  local open = block_of(self, use)
  local row = self:append_lines(detail, 'AgentOutput')
  if filetype == 'diff' then
    M.paint_diff(self.buf, row, M.lines_of(detail))
    open.block.diff = row
  end
end

function M.draw.tool_started(self, event)
  local use = { id = event.id, tool = M.plain(event.tool), title = M.first_line(event.title) }
  self.tools[event.id] = use
  open_block(self, use, '')
end

function M.draw.tool_output(self, event)
  local use = self.tools[event.id]
  if use and event.text ~= '' then
    self:append_output(block_of(self, use), event.text)
  end
end

function M.draw.tool_ended(self, event)
  local use = self.tools[event.id]
  if not use then
    return -- it was stopped
  end
  local is_error = event.is_error or false
  local summary = M.plain(event.summary or '')
  if is_error and not vim.startswith(summary, '✗') then
    summary = summary ~= '' and '✗ ' .. summary or '✗'
  end
  local detail = without_end(event.detail or '')
  if detail ~= '' then
    write_detail(self, use, detail, event.filetype)
  end
  write_summary(self, use, summary, is_error and 'AgentError' or 'AgentStatus')
  if self.open and self.open.id == event.id then
    fold_block(self, use, summary, is_error)
  end
  local job = summary:match('^→ (%S+)$')
  if job then
    self.jobs_shown[job] = api.nvim_buf_set_extmark(self.buf, ns, use.row, 0, {})
  end
  self.tools[event.id] = nil -- last: while the buffer cannot be written, all of this is tried again
end

--- Say behind the lines of jobs that have ended how they did; not in the text, for a change in its first line cuts a fold off.
function M.draw.jobs_changed(self, event)
  for _, job in ipairs(event.jobs) do
    local mark = self.jobs_shown[job.id]
    local row = mark
      and job.outcome ~= ''
      and api.nvim_buf_get_extmark_by_id(self.buf, ns, mark, {})[1]
    if row then
      local text = ' · ' .. M.plain(job.outcome)
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

--- The turn is over: what still runs, does no more.
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

--- The block of a tool use that `row` belongs to.
---@param self sanderling.transcript.Transcript
---@param row integer
---@return sanderling.transcript.blocks.tool.Block?
function M.block_at(self, row)
  local blocks = self.tool_blocks
  local low, high = 1, #blocks
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if blocks[middle].first <= row then
      low = middle
    else
      high = middle - 1
    end
  end
  local block = blocks[low]
  if block and block.first <= row and row <= (block.last or self.last) then
    return block
  end
end

-- from a line to a file -----------------------------------------------------------------------------------------------

--- The file that the cursor's line is about: the line of it, where that is one of a diff.
---@param self sanderling.transcript.Transcript
---@param row integer
---@param col integer
---@param project string
---@return sanderling.ui.files.Place?
function M.place_at(self, row, col, project)
  local block = M.block_at(self, row)
  if block and block.diff and row >= block.diff then
    local place
    local lines = api.nvim_buf_get_lines(self.buf, block.diff, row + 1, true)
    walk_diff(lines, function(i, _, path, lnum)
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
    local path = files.find(block.title, project) -- it may hold blanks
    if path then
      return { path = path }
    end
  end
  return files.place_in(api.nvim_buf_get_lines(self.buf, row, row + 1, true)[1], col, project)
end

-- something shown whole -----------------------------------------------------------------------------------------------

---@param what string for its name
---@param lines string[]
---@return integer buf that cannot be changed, and is gone with its window
function M.scratch(what, lines)
  local buf = scratch.new(what)
  api.nvim_buf_set_lines(buf, 0, -1, true, lines)
  scratch.set_buf_options(buf, { bufhidden = 'wipe', modifiable = false })
  files.guard(buf)
  return buf
end

--- Show `lines` in a float in the middle of the screen, and go there; `q` and <Esc> close it.
---@param title string
---@param lines string[]
---@param what string for the buffer's name
---@param stays_out? boolean the cursor stays where it is
---@return integer buf
---@return integer win
function M.view(title, lines, what, stays_out)
  local buf = M.scratch(what, lines)
  title = (' %s '):format(M.plain(title))
  local room = vim.o.lines - 6
  local function place(width, height)
    return {
      relative = 'editor',
      width = width,
      height = height,
      row = math.floor((vim.o.lines - height) / 2) - 1,
      col = math.floor((vim.o.columns - width) / 2) - 1,
    }
  end
  local height = math.max(1, math.min(#lines, room))
  local win = api.nvim_open_win(
    buf,
    not stays_out,
    vim.tbl_extend('error', place(1, height), {
      style = 'minimal',
      border = 'rounded',
      zindex = 70, -- above a chat that floats, and a question
    })
  )
  files.guard(buf, function()
    files.go_to_name_here(vim.fn.getcwd(), function() -- it would cover the file
      api.nvim_win_close(win, true)
    end)
  end)
  scratch.set_win_options(win, { wrap = true, smoothscroll = true })
  local width = math.max(20, api.nvim_strwidth(title))
  api.nvim_win_call(win, function() -- where a tab is as wide as it will be
    for i = 1, math.min(#lines, 200) do
      width = math.max(width, vim.fn.strdisplaywidth(lines[i]:sub(1, 200)))
    end
  end)
  width = math.max(1, math.min(width, vim.o.columns - 6, 100))
  api.nvim_win_set_config(win, place(width, height))
  if #lines <= room then -- lines that are wrapped need more rows
    height = math.max(1, math.min(api.nvim_win_text_height(win, {}).all, room))
    api.nvim_win_set_config(win, place(width, height))
  end
  api.nvim_win_set_config(win, { title = vim.fn.strcharpart(title, 0, width) })
  for _, lhs in ipairs({ 'q', '<Esc>' }) do
    vim.keymap.set(
      'n',
      lhs,
      '<Cmd>close<CR>',
      { buffer = buf, nowait = true, desc = 'Agent: close' }
    )
  end
  return buf, win
end

--- The lines of `text`; a very long one goes on in the next.
---@param text string
---@return string[]
local function broken_lines_of(text)
  local lines = {} ---@type string[]
  for _, line in ipairs(M.lines_of(text)) do
    local first = 1
    repeat
      local last = math.min(first + MAX_SHOWN_BYTES - 1, #line)
      if last < #line then
        last = last + vim.str_utf_start(line, last + 1) -- where a character ends
      end
      lines[#lines + 1] = line:sub(first, last)
      first = last + 1
    until first > #line
  end
  return lines
end

--- Show the whole input and result of a tool use.
---@param event sanderling.ToolUseShown
function M.show(event)
  local lines = broken_lines_of(event.input)
  local input_count = #lines
  lines[#lines + 1] = ''
  vim.list_extend(lines, broken_lines_of(event.result))
  M.set_syntax(M.view(event.tool, lines, 'tool use'), 'json', 1, input_count)
end

return M
