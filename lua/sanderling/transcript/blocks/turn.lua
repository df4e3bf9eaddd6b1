--- Turns in the transcript: prompts, answers, restarted answers, the end of a turn, and compactions.
local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local config = require('sanderling.config')
local icons = require('sanderling.ui.icons')
local tools = require('sanderling.transcript.blocks.tool')
local words = require('sanderling.ui.words')

local SENT = 'expanded prompt'
local ns = require('sanderling.transcript.writer').NS

---@class (exact) sanderling.transcript.Piece a block of the model's in this turn
---@field block_id integer
---@field first integer row
---@field last integer row

---@class (exact) sanderling.transcript.Turn
---@field id string of the prompt
---@field first integer row
---@field answer integer row of the answer's header
---@field at? number when its prompt was sent, in seconds since 1970; nil: not known
---@field ended_at? number

---@class (exact) sanderling.transcript.Steered a prompt within a turn
---@field first integer row
---@field at? number

---@type table<string, sanderling.transcript.blocks.Draw> by event type
local draw = {}

--- Return when a prompt was sent or its turn ended: a page of the history says so, and other events happen now.
---@param self sanderling.transcript.Transcript
---@param prompt_id string
---@param name 'sent'|'ended'
---@return number?
local function time_of(self, prompt_id, name)
  if not self.times then
    return os.time()
  end
  local times = self.times[prompt_id]
  return times and times[name]
end

-- prompts -------------------------------------------------------------------------------------------------------------

---@param self sanderling.transcript.Transcript
---@param row integer
---@param name string
---@param hl string
local function decorate_header(self, row, name, hl)
  self.headers[#self.headers + 1] = row
  local rest = (' '):rep(#'## ' - api.nvim_strwidth(icons.header))
  local is_drawn_here = config.options.chat.markdown == 'own' -- otherwise it is a heading like others
  api.nvim_buf_set_extmark(self.buf, ns, row, 0, {
    end_row = row,
    end_col = #name + 3,
    hl_group = hl,
    virt_text = is_drawn_here and { { icons.header .. name .. rest, hl } } or nil,
    virt_text_pos = 'overlay',
    hl_mode = 'combine',
  })
end

---@param selection sanderling.Selection
---@return boolean
local function is_image(selection)
  return (selection.media_type or '') ~= ''
end

-- Origins of mentions that are files. That of a large file goes on with what it leaves out.
local OF_A_FILE = { 'current editor text', 'as saved on disk' }

---@param selection sanderling.Selection
---@return boolean
local function is_of_file(selection)
  local origin = selection.origin or ''
  return origin == ''
    or vim.iter(OF_A_FILE):any(function(begin)
      return vim.startswith(origin, begin)
    end)
end

---@param selection sanderling.Selection
---@return string
local function selection_label(selection)
  if is_image(selection) then
    return words.plain(selection.path) .. ' (image)'
  end
  local path, first, last = words.plain(selection.path), selection.first_line, selection.last_line
  if not is_of_file(selection) then
    return path
  end
  return first == last and ('%s:%d'):format(path, first) or ('%s:%d-%d'):format(path, first, last)
end

---@param selection sanderling.Selection
---@return string[]
local function selection_lines(selection)
  if is_image(selection) then
    return { selection_label(selection), '' }
  end
  local fence = '```'
  while selection.text:find(fence, 1, true) do
    fence = fence .. '`'
  end
  local lines = { selection_label(selection), fence .. (selection.filetype or '') }
  vim.list_extend(lines, vim.split(selection.text, '\n', { plain = true }))
  vim.list_extend(lines, { fence, '' })
  return lines
end

---@class (exact) sanderling.transcript.blocks.turn.Part lines of a prompt's block, from 0
---@field first integer
---@field last integer
---@field selection? sanderling.Selection nil: the expansion of a slash command

--- Return the lines of a prompt, its context and the header of the answer.
---@param prompt sanderling.Prompt
---@param name string of the header
---@return string[]
---@return sanderling.transcript.blocks.turn.Part[]
local function lines_of(prompt, name)
  local lines =
    vim.list_extend({ '## ' .. name, '' }, vim.split(prompt.text, '\n', { plain = true }))
  local parts = {} ---@type sanderling.transcript.blocks.turn.Part[]
  ---@param more string[]
  ---@param selection? sanderling.Selection
  local function add(more, selection)
    local first = #lines
    vim.list_extend(lines, more)
    parts[#parts + 1] = { first = first, last = #lines - 1, selection = selection }
  end
  if (prompt.sent or '') ~= '' then
    lines[#lines + 1] = ''
    add(vim.list_extend({ SENT }, words.lines_of(prompt.sent)))
  end
  for i, selection in ipairs(prompt.selections or {}) do
    if i == 1 then
      lines[#lines + 1] = ''
    end
    add(selection_lines(selection), selection)
  end
  return vim.list_extend(lines, { '', '## Sanderling', '', '' }), parts
end

--- Draw a prompt and the header of the answer.
---@param self sanderling.transcript.Transcript
---@param prompt sanderling.Prompt
---@param name string of the header
---@return integer row of the header
---@return integer answer row of the answer's header
local function draw_prompt(self, prompt, name)
  self:end_block()
  local lines, parts = lines_of(prompt, name)
  local row = self:append_block(table.concat(lines, '\n'))
  local answer = row + #lines - 3
  local text_end = row + 2 + select(2, prompt.text:gsub('\n', '')) -- row of the last line
  decorate_header(self, row, name, 'AgentUser')
  api.nvim_buf_set_extmark(self.buf, ns, row, 0, {
    end_row = text_end + 1,
    hl_group = 'AgentPrompt',
    hl_eol = true,
    priority = 50,
  })
  self.markdown:begin(row + 2, true)
  self.markdown:finish(text_end)
  for _, part in ipairs(parts) do
    local first, last, selection = row + part.first, row + part.last, part.selection
    self:paint(first, first, 'AgentContext')
    if not selection then
      self:add_fold({ first = first, last = last, label = SENT, lines = last - first })
    elseif not is_image(selection) then
      self.markdown:begin(first + 1)
      self.markdown:finish(last)
      self:add_fold({
        first = first,
        last = last,
        label = selection_label(selection),
        lines = selection.last_line - selection.first_line + 1,
      })
    end
  end
  decorate_header(self, answer, 'Sanderling', 'AgentAssistant')
  return row, answer
end

function draw.local_turn_took(self, event)
  self.took = event.text
  self.footer:set('took', self.footer:wrapped(event.text, 'AgentStatus'))
end

--- Other text follows the last turn: move its duration and cost to the header of its answer.
function draw.local_turn_left(self)
  local turn = self.turns[#self.turns]
  if self.took and turn then
    local text = { { self.took, 'AgentStatus' } }
    api.nvim_buf_set_extmark(self.buf, ns, turn.answer, 0, { virt_text = text })
    self.footer:set('took', nil)
    self.took = nil
  end
end

function draw.turn_started(self, event)
  tools.stop_all(self)
  self:end_countdown()
  draw.local_turn_left(self)
  self.refused, self.pieces = {}, {}
  if not event.is_continued then
    local row, answer = draw_prompt(self, event.prompt, 'You')
    local turn = {
      id = event.prompt.id,
      first = row,
      answer = answer,
      at = time_of(self, event.prompt.id, 'sent'),
    }
    table.insert(self.turns, turn)
  end
  self:draw_times()
end

function draw.prompt_steered(self, event)
  local row = draw_prompt(self, event.prompt, 'You (steering)')
  table.insert(self.steered, { first = row, at = time_of(self, event.prompt.id, 'sent') })
  self:draw_times()
end

-- answers -------------------------------------------------------------------------------------------------------------

---@param self sanderling.transcript.Transcript
---@param block_id integer
---@param text string
local function draw_text(self, block_id, text)
  if not self.open or self.open.id ~= block_id then
    self:end_block()
    local row = self:append_block(text)
    self.open = { id = block_id, kind = 'text', first = row, row = 0, col = 0 }
    self.markdown:begin(row)
  else
    self:append(text)
  end
  self.markdown:grow(self.last)
end

---@param self sanderling.transcript.Transcript
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
  local fold =
    self:add_fold({ first = first, last = self.last, label = 'Thinking', has_excerpt = true })
  self.open = {
    id = block_id,
    kind = 'thinking',
    first = first,
    row = self.last - 1,
    col = self.before,
    fold = fold,
  }
end

--- Draw a part of the answer. Held events are drawn after its first `border` bytes, where a paragraph ends, unless that
--- is inside code. The rest of the answer then starts a new block.
---@param self sanderling.transcript.Transcript
---@param event { block_id: integer, text: string }
---@param border? integer
---@param draw_piece fun(self: sanderling.transcript.Transcript, block_id: integer, text: string)
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

--- Remove `piece` and the blank lines after it.
---@param self sanderling.transcript.Transcript
---@param piece sanderling.transcript.Piece
local function take_back(self, piece)
  local first, behind = piece.first, piece.last + 1
  while behind <= self.last and self:line(behind) == '' do
    behind = behind + 1
  end
  local is_end = behind > self.last
  local followers = self:followers()
  self:modify(function()
    api.nvim_buf_clear_namespace(self.buf, -1, first, behind) -- otherwise growing marks would include the following text
    api.nvim_buf_set_lines(self.buf, first, behind, true, is_end and { '' } or {})
  end)
  self.markdown:remove(first, behind - 1)
  self.folds = vim.tbl_filter(function(fold)
    return fold.first < first or fold.first >= behind
  end, self.folds)
  blocks.shift(self, behind, first - behind)
  if is_end then
    self.last, self.col = first, 0
    self.before = first > 0 and #self:line(first - 1) or 0
  end
  self:note_move()
  for _, follower in ipairs(followers) do
    api.nvim_win_set_cursor(follower.win, { self.last + 1, self.col })
  end
end

--- Remove an answer that was cut off. The new one is drawn where it was.
function draw.answer_restarted(self, event)
  self:end_answer()
  for i = #self.pieces, 1, -1 do
    if self.pieces[i].block_id >= event.block_id then
      take_back(self, table.remove(self.pieces, i))
    end
  end
end

local endings = {
  cancelled = 'Stopped.',
  interrupted = 'Interrupted.',
  max_tokens = 'The answer reached its token limit (option max_tokens).',
  max_calls = 'Stopped at the call limit (option max_calls).',
  budget = 'Stopped at the budget limit (options budget_usd and delegate).',
  refusal = 'The model declined to answer. Rephrase the question, or start over with :clear.',
  context_full = "The conversation fills the model's context window. :AgentCompact shortens it, :clear starts a new one.",
}

function draw.turn_ended(self, event)
  self:end_countdown()
  self:end_answer()
  tools.stop_all(self)
  local turn = self.turns[#self.turns]
  if turn then
    turn.ended_at = time_of(self, turn.id, 'ended')
    self:draw_times()
  end
  local text = endings[event.stop_reason]
  if text then
    self:close_block()
    self:append_block(text, 'AgentNotice')
  end
end

-- the model's view ----------------------------------------------------------------------------------------------------

local compactions = {
  summary = 'context summarized',
  cleared = 'old tool results cleared',
}

---@param text string
---@return string
local function ruled(text)
  local rule = icons.rule:rep(2)
  return ('%s %s %s'):format(rule, text, rule)
end

--- Mark where the context was shortened, with the summary in a fold.
function draw.compacted(self, event)
  self:end_block()
  local before, after = words.short(event.before_tokens), words.short(event.after_tokens)
  local change = ('%s %s %s tokens'):format(before, icons.becomes, after)
  local label = ruled(('%s: %s'):format(compactions[event.kind], change))
  local row = self:append_block(label, 'AgentNotice')
  local summary = words.trimmed(event.summary or '')
  if summary == '' then
    return
  end
  self:append('\n' .. summary .. '\n')
  self.markdown:begin(row + 1)
  self.markdown:finish(self.last - 1)
  self:add_fold({
    first = row,
    last = self.last - 1,
    label = label,
    lines = self.last - row - 1,
    hl = 'AgentNotice',
  })
end

function draw.compaction_undone(self)
  self:end_block()
  self:append_block(ruled('compaction undone'), 'AgentNotice')
end

blocks.register({
  draw = draw,
  new = function()
    return { headers = {}, turns = {}, steered = {}, pieces = {} }
  end,
  rows = {
    headers = { is_list = true, of = {}, is_of_page = true },
    turns = { is_list = true, of = { 'first', 'answer' }, is_of_page = true },
    steered = { is_list = true, of = { 'first' }, is_of_page = true },
    pieces = { is_list = true, of = { 'first', 'last' } },
  },
})
