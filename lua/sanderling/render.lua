--- Draws events into a transcript buffer. The transcript only ever grows at its end: an append reads nothing back, and no row
--- before the last block moves. While the buffer cannot be written (textlock, E565), frames wait here and are tried again.
---
--- The model and commands talk at the same time. What happens to a command while the model's block is open is held until that
--- has come to the end of a paragraph, so that no sentence and no code is torn. Two commands take turns, each under its header,
--- and so do a command and the tool that the model uses.
local M = {}

local api = vim.api
local highlight = require('sanderling.highlight')
local sandbox = require('sanderling.sandbox')
local tools = require('sanderling.tools')

local RETRY_MS = 20
local FOLDED_FROM_LINES = 21 -- of a command's output
local CLOSED_FROM_LINES = 201
local ns = api.nvim_create_namespace('sanderling')

---@class (exact) sanderling.render.Fold
---@field first integer row
---@field last integer row
---@field label string
---@field name? string of the tool, before the label
---@field summary? string of what it did, before the number of lines
---@field lines? integer how many there are to read; nil: what stands in the buffer, and it can grow
---@field hl? string of its line when it is closed
---@field state? 'open'|'closed unless read' at first; nil: closed
---@field is_deleted? boolean by the user

---@class (exact) sanderling.render.Job
---@field events table[]
---@field next integer index of the first event that is not drawn yet
---@field on_drawn? fun()

---@class (exact) sanderling.render.OpenBlock
---@field id integer|string
---@field kind 'text'|'thinking'|'command'|'tool'
---@field row integer where a thinking block grows; of a command's or a tool's header
---@field col integer
---@field fold? sanderling.render.Fold
---@field label? string a command's header
---@field output? { row: integer, mark: integer } the output that grows
---@field block? sanderling.tools.Block of a tool use
---@field has_remark? boolean

---@class (exact) sanderling.render.Transcript
---@field buf integer
---@field headers integer[] rows of the messages' headers
---@field folds sanderling.render.Fold[]
---@field last integer row of the last line
---@field col integer its length in bytes
---@field private before integer length of the line before it
---@field open? sanderling.render.OpenBlock
---@field tools table<string, sanderling.tools.Use> those that run, by id
---@field tool_blocks sanderling.tools.Block[]
---@field tool_end? integer the blank row behind the last tool block that has ended
---@field private held table[] events beside the model's block that is open
---@field private when_held_are_drawn fun()[]
---@field private commands table<string, string> label of each that was started, by id
---@field private refused table<string, true> what the sandbox refused since the last turn or command began
---@field private sandbox { level: string, network: string, problem: string } as it was drawn last
---@field private jobs sanderling.render.Job[]
---@field private is_waiting boolean
---@field private markdown sanderling.highlight.Blocks
---@field private on_defect fun(err: string)
local Transcript = {}
Transcript.__index = Transcript

---@type table<integer, sanderling.render.Transcript> by buffer
local transcripts = {}

---@param err string
local function is_locked(err)
  return err:find('E565', 1, true) or err:find('E523', 1, true) or err:find('E11:', 1, true)
end

--- Change the buffer, which nobody else may.
---@param buf integer
---@param change fun()
local function modify(buf, change)
  vim.bo[buf].modifiable = true
  local ok, err = pcall(change)
  vim.bo[buf].modifiable = false
  if not ok then
    error(err, 0)
  end
end

---@param buf integer its text is replaced
---@param on_defect fun(err: string) told what could not be drawn
---@return sanderling.render.Transcript
function M.new(buf, on_defect)
  local self = setmetatable({
    buf = buf,
    headers = {},
    folds = {},
    last = 0,
    col = 0,
    before = 0,
    held = {},
    when_held_are_drawn = {},
    commands = {},
    tools = {},
    tool_blocks = {},
    refused = {},
    sandbox = { level = '', network = 'off', problem = '' },
    jobs = {},
    is_waiting = false,
    on_defect = on_defect,
  }, Transcript)
  modify(buf, function()
    api.nvim_buf_set_lines(buf, 0, -1, false, {})
  end)
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  self.markdown = highlight.new(buf)
  if transcripts[buf] then
    transcripts[buf].jobs = {} -- what waits for a lock belongs to the transcript before
  end
  transcripts[buf] = self
  return self
end

---@param buf integer
function M.forget(buf)
  transcripts[buf] = nil
end

-- writing -------------------------------------------------------------------------------------------------------------

--- Is `lnum` of `win` inside a closed fold that ends the buffer?
local function is_in_last_fold(win, lnum, last_lnum)
  return api.nvim_win_call(win, function()
    return vim.fn.foldclosedend(lnum) == last_lnum
  end)
end

--- The windows that go along with the text: their cursor is at the end. A selection or a pending operator must not grow.
---@private
---@return { win: integer, is_at_end: boolean }[]
function Transcript:followers()
  local followers = {}
  local current = api.nvim_get_current_win()
  local last_fold = self.folds[#self.folds]
  local ends_in_fold = last_fold and last_fold.last == self.last
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    local lnum, col = unpack(api.nvim_win_get_cursor(win))
    local is_last = lnum == self.last + 1
      or (ends_in_fold and lnum > last_fold.first and is_in_last_fold(win, lnum, self.last + 1))
    local is_busy = win == current and api.nvim_get_mode().mode:find('^[vVsS\22\19]') ~= nil
      or win == current and vim.startswith(api.nvim_get_mode().mode, 'no')
    if is_last and not is_busy then
      local sees_end = vim.fn.screenpos(win, self.last + 1, math.max(self.col, 1)).row > 0
      followers[#followers + 1] = { win = win, is_at_end = sees_end or col >= self.col - 1 }
    end
  end
  return followers
end

--- Put `text` behind the last character.
---@param text string
function Transcript:append(text)
  local count = api.nvim_buf_line_count(self.buf) - 1
  if count ~= self.last then -- somebody else wrote here
    self.last = count
    self.col = #api.nvim_buf_get_lines(self.buf, count, count + 1, true)[1]
  end
  local lines = vim.split(text, '\n', { plain = true })
  local followers = self:followers()
  modify(self.buf, function()
    -- Two steps, because a fold that ends in the last line would lose it if that line were split.
    if lines[1] ~= '' or #lines == 1 then
      api.nvim_buf_set_text(self.buf, self.last, self.col, self.last, self.col, { lines[1] })
    end
    if #lines > 1 then
      api.nvim_buf_set_lines(self.buf, self.last + 1, self.last + 1, true, vim.list_slice(lines, 2))
    end
  end)
  if #lines > 1 then
    self.before = #lines == 2 and self.col + #lines[1] or #lines[#lines - 1]
    self.last = self.last + #lines - 1
    self.col = #lines[#lines]
  else
    self.col = self.col + #text
  end
  for _, follower in ipairs(followers) do
    if #lines > 1 or follower.is_at_end then
      api.nvim_win_set_cursor(follower.win, { self.last + 1, self.col })
    end
  end
end

--- Put `text`, without line breaks, behind what stands in `row`.
---@param row integer
---@param text string
---@return integer col where it begins
function Transcript:append_to_row(row, text)
  if row == self.last then
    local col = self.col
    self:append(text)
    return col
  end
  local col = #api.nvim_buf_get_lines(self.buf, row, row + 1, true)[1]
  modify(self.buf, function()
    api.nvim_buf_set_text(self.buf, row, col, row, col, { text })
  end)
  if row == self.last - 1 then
    self.before = col + #text
  end
  return col
end

--- Put `text` into the open thinking block, whose fold keeps a line behind it: lines inserted into a fold grow it.
---@private
---@param text string
function Transcript:grow_thinking(text)
  local open = assert(self.open)
  local lines = vim.split(text, '\n', { plain = true })
  local followers = self:followers()
  modify(self.buf, function()
    -- One step: the fold grows with a line of it that is split, but not with lines put before its last one.
    api.nvim_buf_set_text(self.buf, open.row, open.col, open.row, open.col, lines)
  end)
  open.col = #lines > 1 and #lines[#lines] or open.col + #text
  open.row = open.row + #lines - 1
  self.last = self.last + #lines - 1
  open.fold.last = self.last
  for _, follower in ipairs(followers) do
    if not is_in_last_fold(follower.win, self.last + 1, self.last + 1) then
      api.nvim_win_set_cursor(follower.win, { self.last + 1, 0 })
    end
  end
end

--- What has to stand before a new block, so that one blank line separates it from the text before.
---@private
---@return string
function Transcript:separator()
  local last_fold = self.folds[#self.folds]
  if self.last == 0 and self.col == 0 then
    return ''
  elseif last_fold and last_fold.last >= self.last - 1 and self.col == 0 then
    return '\n' -- the fold's own last line is the blank one, or its line ends the text
  elseif self.col > 0 then
    return '\n\n'
  end
  return self.before > 0 and '\n' or ''
end

--- Begin a block with `text`, whose highlight is `hl` where it has one.
---@param text string
---@param hl? string
---@param is_close? boolean to what stands above it
---@return integer first row of the block
function Transcript:append_block(text, hl, is_close)
  local separator = is_close and '' or self:separator()
  local first = self.last + #separator
  self:append(separator .. text)
  if hl then
    self:paint(first, self.last, hl)
  end
  return first
end

---@private
---@param first integer row
---@param last integer row
---@param hl string
---@param grows? boolean text that is added at the end belongs to it too
function Transcript:paint(first, last, hl, grows)
  local length = #api.nvim_buf_get_lines(self.buf, last, last + 1, true)[1]
  api.nvim_buf_set_extmark(self.buf, ns, first, 0, {
    end_row = last,
    end_col = length,
    end_right_gravity = grows or false,
    hl_group = hl,
    hl_eol = true,
  })
end

-- folds ---------------------------------------------------------------------------------------------------------------

---@param fold sanderling.render.Fold
---@return boolean
local function begins_open(fold)
  local row = vim.fn.line('.') - 1
  local is_read = row > fold.first and row <= fold.last
  return fold.state == 'open' or fold.state == 'closed unless read' and is_read
end

--- Make `fold` in `win`. One that grew while no window showed it covers only its beginning there: then it is made anew, and is
--- open if it was.
---@param win integer
---@param fold sanderling.render.Fold
local function fold_in(win, fold)
  local first, last = fold.first + 1, fold.last + 1
  api.nvim_win_call(win, function()
    local is_partial = not fold.lines
      and vim.fn.foldlevel(first) > 0
      and vim.fn.foldlevel(last) == 0
    if is_partial then
      local was_open = vim.fn.foldclosed(first) == -1
      local view = vim.fn.winsaveview()
      api.nvim_win_set_cursor(win, { first, 0 })
      vim.cmd('normal! zD')
      vim.cmd(('%d,%dfold'):format(first, last))
      if was_open then
        vim.cmd(first .. 'foldopen')
      end
      vim.fn.winrestview(view)
    elseif vim.fn.foldlevel(first) == 0 and not fold.is_deleted then
      local view = vim.fn.winsaveview()
      vim.cmd(('%d,%dfold'):format(first, last))
      if begins_open(fold) then
        vim.cmd(first .. 'foldopen')
        vim.fn.winrestview(view)
      elseif view.topline > first and view.topline <= last then
        vim.cmd('normal! zb') -- else the window would begin within the closed fold, with nothing below
      end
    end
  end)
end

---@param fold sanderling.render.Fold
---@return sanderling.render.Fold
function Transcript:add_fold(fold)
  self.folds[#self.folds + 1] = fold
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    fold_in(win, fold)
  end
  return fold
end

--- A window shows the transcript (again): give it the folds that it does not have.
---@param win integer
function Transcript:show_in(win)
  for _, fold in ipairs(self.folds) do
    fold_in(win, fold)
  end
  self:show_markdown(win)
end

--- A window is about to show the transcript no more: what the user did to its folds is to last.
---@param win integer
function Transcript:leave(win)
  api.nvim_win_call(win, function()
    for _, fold in ipairs(self.folds) do
      fold.is_deleted = vim.fn.foldlevel(fold.first + 1) == 0
    end
  end)
end

--- A window shows other lines of the transcript than before.
---@param win integer
function Transcript:show_markdown(win)
  self.markdown:show(win)
end

--- The fold that begins in row `first`.
---@private
---@param first integer
---@return sanderling.render.Fold?
function Transcript:fold_at(first)
  local low, high = 1, #self.folds
  while low < high do
    local middle = math.floor((low + high) / 2)
    if self.folds[middle].first < first then
      low = middle + 1
    else
      high = middle
    end
  end
  local fold = self.folds[low]
  return fold and fold.first == first and fold or nil
end

--- The line of a closed fold: its label is cut, if one has to be, and not what stands around it.
---@param fold sanderling.render.Fold
---@param count string
---@return [string, string][]
local function fold_line(fold, count)
  local name = fold.name and fold.name .. (fold.label ~= '' and ' ' or '') or ''
  local behind = (' · %s'):format(count)
  if (fold.summary or '') ~= '' then
    behind = ('  %s%s'):format(fold.summary, behind)
  end
  local label = fold.label
  local room = api.nvim_win_get_width(0) - api.nvim_strwidth(name .. behind) - #'x  '
  if api.nvim_strwidth(label) > room then
    label = vim.fn.printf(('%%.%dS…'):format(math.max(room - 1, 1)), label)
  end
  local hl = fold.hl or 'AgentThinking'
  return { { '▸ ' .. name, fold.name and 'AgentTool' or hl }, { label .. behind, hl } }
end

--- 'foldtext' of a transcript.
---@return string|[string, string][]
function M.foldtext()
  local transcript = transcripts[api.nvim_get_current_buf()]
  local first, last = vim.v.foldstart, vim.v.foldend
  local fold = transcript and transcript:fold_at(first - 1)
  if not fold or fold.last ~= last - 1 then
    return vim.fn.foldtext()
  end
  local count = fold.lines or vim.fn.prevnonblank(last) - first
  return fold_line(fold, count == 1 and '1 line' or count .. ' lines')
end

-- events --------------------------------------------------------------------------------------------------------------

---@private
---@return boolean?
function Transcript:is_answering()
  return self.open and (self.open.kind == 'text' or self.open.kind == 'thinking')
end

--- Can something else come here without tearing what the model says?
---@private
---@return boolean
function Transcript:is_at_border()
  if self.open.kind == 'thinking' then
    return self.open.col == 0
  end
  return self.col == 0 and self.before == 0 and not self.markdown:is_in_fence()
end

--- Close the open block; what comes next begins its own.
function Transcript:close_block()
  local last = self.col > 0 and self.last or self.last - 1
  if self.open and self.open.kind == 'text' then
    self.markdown:finish(last)
  elseif self.open and self.open.block then
    self.open.block.last = last
  end
  self.open = nil
end

--- The model's block, if one is open, comes to an end, and what was held because of it is drawn.
---@private
function Transcript:end_answer()
  if self:is_answering() then
    self:close_block()
  end
  while #self.held > 0 do
    local event = table.remove(self.held, 1)
    local ok, err = xpcall(self.draw, debug.traceback, self, event)
    if not ok and is_locked(err) then
      table.insert(self.held, 1, event)
      error(err, 0)
    elseif not ok then
      self.on_defect(err)
    end
  end
end

--- Close the open block, whoever's it is.
function Transcript:end_block()
  self:end_answer()
  self:close_block()
end

---@param row integer
---@param name string
---@param hl string
function Transcript:decorate_header(row, name, hl)
  self.headers[#self.headers + 1] = row
  api.nvim_buf_set_extmark(self.buf, ns, row, 0, {
    end_row = row,
    end_col = #name + 3,
    hl_group = hl,
    virt_text = { { '▍' .. name .. '  ', hl } },
    virt_text_pos = 'overlay',
  })
end

---@param selection sanderling.Selection
local function selection_label(selection)
  return ('%s:%d-%d'):format(selection.path, selection.first_line, selection.last_line)
end

---@param selection sanderling.Selection
---@return string[]
local function selection_lines(selection)
  local fence = '```'
  while selection.text:find(fence, 1, true) do
    fence = fence .. '`'
  end
  local lines = { selection_label(selection), fence .. (selection.filetype or '') }
  vim.list_extend(lines, vim.split(selection.text, '\n', { plain = true }))
  vim.list_extend(lines, { fence, '' })
  return lines
end

---@type table<string, fun(self: sanderling.render.Transcript, event: any)>
local draw = vim.tbl_extend('error', {}, tools.draw)

--- Events that are not the model's: they can happen at any moment of its answer.
local is_beside = {
  command_started = true,
  command_output = true,
  command_ended = true,
  access_denied = true,
  remark = true,
  local_notice = true,
}

--- Draw `event`, or hold it until the model's block has come to a border.
---@param event table
function Transcript:draw(event)
  if is_beside[event.type] and self:is_answering() then
    if not self:is_at_border() then
      self.held[#self.held + 1] = event
      return
    end
    self:end_answer()
  end
  if draw[event.type] then
    draw[event.type](self, event)
  end
end

function draw.turn_started(self, event)
  tools.stop_all(self)
  self:end_block()
  self.refused = {}
  local prompt = event.prompt
  local prompt_lines = vim.split(prompt.text, '\n', { plain = true })
  local lines = { '## You', '' }
  vim.list_extend(lines, prompt_lines)
  local folds = {}
  for _, selection in ipairs(prompt.selections or {}) do
    if #folds == 0 then
      lines[#lines + 1] = ''
    end
    local first = #lines
    vim.list_extend(lines, selection_lines(selection))
    folds[#folds + 1] = { first, #lines - 1, selection }
  end
  lines[#lines + 1] = ''
  local answer = #lines
  vim.list_extend(lines, { '## Sanderling', '', '' })

  local row = self:append_block(table.concat(lines, '\n'))
  self:decorate_header(row, 'You', 'AgentUser')
  self.markdown:begin(row + 2)
  self.markdown:finish(row + 1 + #prompt_lines)
  for _, fold in ipairs(folds) do
    self:paint(row + fold[1], row + fold[1], 'AgentContext')
    self.markdown:begin(row + fold[1] + 1)
    self.markdown:finish(row + fold[2])
    local selection = fold[3]
    local count = selection.last_line - selection.first_line + 1
    self:add_fold({
      first = row + fold[1],
      last = row + fold[2],
      label = selection_label(selection),
      lines = count,
    })
  end
  self:decorate_header(row + answer, 'Sanderling', 'AgentAssistant')
end

---@param block_id integer
---@param text string
local function draw_text(self, block_id, text)
  if not self.open or self.open.id ~= block_id then
    self:end_block()
    local row = self:append_block(text)
    self.open = { id = block_id, kind = 'text', row = 0, col = 0 }
    self.markdown:begin(row)
  else
    self:append(text)
  end
  self.markdown:grow(self.last)
end

---@param block_id integer
---@param text string
local function draw_thinking(self, block_id, text)
  if self.open and self.open.id == block_id then
    self:grow_thinking(text)
    return
  end
  self:end_block()
  local first = self:append_block('Thinking\n' .. text .. '\n')
  self:paint(first, self.last - 1, 'AgentThinking', true)
  local fold = self:add_fold({ first = first, last = self.last, label = 'Thinking' })
  self.open = {
    id = block_id,
    kind = 'thinking',
    row = self.last - 1,
    col = self.before,
    fold = fold,
  }
end

--- Draw what the model says. What is held comes behind the first `border` bytes of it, where a paragraph ends, unless that is in
--- code; what is left of the answer is a block of its own then.
---@param event { block_id: integer, text: string }
---@param border? integer
---@param draw_piece fun(self: sanderling.render.Transcript, block_id: integer, text: string)
local function draw_answer(self, event, border, draw_piece)
  if not border or #self.held == 0 then
    draw_piece(self, event.block_id, event.text)
    return
  end
  draw_piece(self, event.block_id, event.text:sub(1, border))
  if not self.markdown:is_in_fence() then
    self:end_answer()
  end
  if border < #event.text then
    draw_piece(self, event.block_id, event.text:sub(border + 1))
  end
end

function draw.text_delta(self, event)
  local _, border = event.text:find('^.*\n\n')
  if not border and self.col == 0 and vim.startswith(event.text, '\n') then
    border = 1
  end
  draw_answer(self, event, border, draw_text)
end

function draw.thinking_delta(self, event)
  local _, border = event.text:find('^.*\n')
  draw_answer(self, event, border, draw_thinking)
end

function draw.block_ended(self, event)
  if self.open and self.open.id == event.block_id then
    self:end_answer()
  end
end

function draw.notice(self, event)
  self:end_block()
  self:append_block(event.text, event.level == 'warning' and 'AgentWarning' or 'AgentNotice')
end

function draw.error_occurred(self, event)
  self:end_block()
  self:append_block(event.message, 'AgentError')
  if event.remedy and event.remedy ~= '' then
    local row = self.last + 1
    self:append('\n' .. event.remedy)
    self:paint(row, self.last, 'AgentRemedy')
  end
end

--- The host has ended, and with it what the model was doing.
function draw.local_failed(self, event)
  tools.stop_all(self)
  draw.error_occurred(self, event)
end

draw.local_refused = draw.error_occurred
draw.local_notice = draw.notice

local endings = {
  cancelled = 'Stopped.',
  interrupted = 'Interrupted.',
  max_tokens = 'The answer reached its limit of tokens (option max_tokens). Ask the model to go on.',
  refusal = 'The model declined to answer. Put the question otherwise, or :clear to begin anew.',
  context_full = 'The conversation fills the model’s whole context window: :clear begins a new one.',
}

function draw.turn_ended(self, event)
  self:end_answer()
  tools.stop_all(self)
  local text = endings[event.stop_reason]
  if text then
    self:close_block()
    self:append_block(text, 'AgentNotice')
  end
end

-- commands and their sandbox ------------------------------------------------------------------------------------------

---@param command string
---@return string
local function command_label(command)
  local line, rest = vim.trim(command):match('^([^\n]*)(.*)$')
  return '$ ' .. line .. (rest ~= '' and ' …' or '')
end

--- Begin a block of a command's; what it prints goes below.
---@private
---@param id string
---@param label string
function Transcript:open_command(id, label)
  self:close_block()
  local row = self:append_block(label, 'AgentCommand')
  self.headers[#self.headers + 1] = row
  self.open = { id = id, kind = 'command', row = row, col = 0, label = label }
end

--- The block of the command `id`: a new one when another one stands below its last.
---@private
---@param id string
---@return sanderling.render.OpenBlock
function Transcript:command_block(id)
  if not self.open or self.open.id ~= id then
    self:open_command(id, (self.commands[id] or '$ command') .. ' (goes on)')
  end
  return self.open
end

--- Add what a command or a tool puts out to its block, which is open.
---@param open sanderling.render.OpenBlock
---@param text string
function Transcript:append_output(open, text)
  if not open.output then -- below the header, or below a remark
    self:append('\n' .. text)
    open.output = { row = self.last - select(2, text:gsub('\n', '')) }
  else
    self:append(text)
  end
  open.output.mark = api.nvim_buf_set_extmark(self.buf, ns, open.output.row, 0, {
    id = open.output.mark,
    end_row = self.last,
    end_col = self.col,
    hl_group = 'AgentOutput',
  })
end

--- Add lines of our own to the block at the end.
---@param text string
---@param hl string
---@return integer first row of the lines
function Transcript:append_lines(text, hl)
  local row = self.col > 0 and self.last + 1 or self.last
  self:append((self.col > 0 and '\n' or '') .. text)
  self:paint(row, self.last, hl)
  return row
end

--- Say something beside the model and the commands: within the block of a command when one is open, whose output goes on below.
---@param event { text: string, hl: string, remedy?: string }
function draw.remark(self, event)
  if self.open then
    self:append_lines(event.text, event.hl)
    self.open.output, self.open.has_remark = nil, true
  else
    self:append_block(event.text, event.hl)
  end
  if event.remedy then
    self:append_lines(event.remedy, 'AgentRemedy')
  end
end

---@private
---@param text string
---@param hl string
---@param remedy? string
function Transcript:remark(text, hl, remedy)
  self:draw({ type = 'remark', text = text, hl = hl, remedy = remedy })
end

function draw.command_started(self, event)
  self.commands[event.id] = command_label(event.command)
  self.refused = {}
  self:open_command(event.id, self.commands[event.id])
end

function draw.command_output(self, event)
  if event.text ~= '' then
    self:append_output(self:command_block(event.id), event.text)
  end
end

function draw.command_ended(self, event)
  local open = self:command_block(event.id)
  local row = self:append_lines(event.outcome, event.is_success and 'AgentNotice' or 'AgentError')
  for _, note in ipairs(event.notes or {}) do
    self:append_lines(note, 'AgentNotice')
  end
  local lines = row - open.row - 1
  if lines >= FOLDED_FROM_LINES then
    self:add_fold({
      first = open.row,
      last = row - 1,
      label = open.label,
      lines = lines,
      hl = 'AgentCommand',
      state = lines < CLOSED_FROM_LINES and 'open' or 'closed unless read',
    })
  end
  self:close_block()
  self.commands[event.id] = nil
end

local is_network_operation = { connect = true, resolve = true }

---@type table<string, string> by the network that refused
local network_remedies = {
  off = ':AgentNet on opens the network, :AgentNet proxy only listed hosts (option sandbox.hosts).',
  proxy = 'The option sandbox.hosts lists the hosts, :AgentNet on opens the network.',
}

function draw.access_denied(self, event)
  local text = ('The sandbox refused: %s %s (%s)'):format(event.operation, event.target, event.rule)
  if self.refused[text] then
    return -- who is refused often tries again
  end
  local remedy = is_network_operation[event.operation] and network_remedies[self.sandbox.network]
  local is_told = not remedy or self.refused[remedy]
  self:remark(text, 'AgentWarning', not is_told and remedy or nil)
  self.refused[text] = true
  if remedy then
    self.refused[remedy] = true
  end
end

---@type table<string, string>
local guard_sentences = {
  quarantined = 'The sandbox undid a change: %s (%s).',
  restored = 'The sandbox undid a change: %s (%s).',
  failed = 'The sandbox could not undo a change: %s (%s).',
}

function draw.guard_acted(self, event)
  local sentence = guard_sentences[event.kind]
  if not sentence then
    return -- 'replaced' is the host's own business
  end
  local text = sentence:format(event.path, event.reason)
  if (event.kept_at or '') ~= '' then
    text = ('%s\nWhat was written is kept at %s'):format(text, event.kept_at)
  end
  if event.kind == 'failed' then
    local remedy =
      'It can run code outside of the sandbox: look at it before git, a shell or an editor does.'
    self:remark(text, 'AgentError', remedy)
  else
    self:remark(text, 'AgentWarning')
  end
end

function draw.sandbox_changed(self, event)
  local before = self.sandbox
  local problem = event.problem or ''
  if problem ~= '' and problem ~= before.problem then
    self:remark(problem, 'AgentError')
  end
  if event.level == 'off' and before.level ~= 'off' then
    self:remark(sandbox.OFF_SENTENCE, 'AgentError')
  elseif event.level ~= 'off' and before.level == 'off' then
    self:remark('The sandbox is on again.', 'AgentNotice')
  end
  if event.network ~= before.network then
    self:remark(sandbox.network_sentence(event.network, true), 'AgentNotice')
  end
  self.sandbox = { level = event.level, network = event.network, problem = problem }
end

--- Draw `events`, now or as soon as the buffer can be written; then call `on_drawn`.
---@param events table[]
---@param on_drawn? fun()
function Transcript:apply(events, on_drawn)
  self.jobs[#self.jobs + 1] = { events = events, next = 1, on_drawn = on_drawn }
  if not self.is_waiting then
    self:drain()
  end
end

---@private
function Transcript:drain()
  while self.jobs[1] do
    local job = self.jobs[1]
    while job.next <= #job.events do
      local event = job.events[job.next]
      local is_gone = not api.nvim_buf_is_loaded(self.buf) -- then there is nothing to draw, but the event has happened
      local draw_event = is_gone and function() end or self.draw
      local ok, err = xpcall(draw_event, debug.traceback, self, event)
      if not ok and is_locked(err) then
        self.is_waiting = true
        vim.defer_fn(function()
          self.is_waiting = false
          self:drain()
        end, RETRY_MS)
        return
      end
      job.next = job.next + 1
      if not ok then
        self.on_defect(err)
      end
    end
    table.remove(self.jobs, 1)
    if job.on_drawn then
      job.on_drawn()
    end
    self:tell()
  end
end

---@private
function Transcript:tell()
  if #self.held == 0 and #self.when_held_are_drawn > 0 then
    local fns = self.when_held_are_drawn
    self.when_held_are_drawn = {}
    for _, fn in ipairs(fns) do
      fn()
    end
  end
end

--- Call `fn` when all that was told so far stands in the transcript. For `on_drawn`, which comes when it is drawn or held.
---@param fn fun()
function Transcript:when_drawn(fn)
  table.insert(self.when_held_are_drawn, fn)
end

return M
