--- Draws events into a transcript buffer.
---
--- Text is appended without reading anything back, and no row before the last block moves. Only three rare events move
--- rows: a page of history inserted at the top (`pages.lua`), the removal of an answer that was cut off, and the result
--- of a child session, which is inserted below its call.
---
--- The model and commands produce output at the same time. Events of a command are held while the model's block is
--- open, until it reaches the end of a paragraph, so that no sentence or code block is split. Two commands, or a
--- command and a tool, take turns, each under its own header.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')

local blocks = require('sanderling.transcript.blocks')
local children = require('sanderling.transcript.blocks.child')
local countdown = lazy('sanderling.transcript.countdown')
local Folding = require('sanderling.transcript.folding')
local folds = require('sanderling.transcript.folds')
local footer = require('sanderling.transcript.footer')
local locked = require('sanderling.ui.locked')
local markdown = require('sanderling.transcript.markdown')
local notices = require('sanderling.transcript.blocks.notice')
local pages = lazy('sanderling.transcript.pages')
local queue = require('sanderling.transcript.queue')
local rewound = lazy('sanderling.transcript.rewound')
local times = lazy('sanderling.transcript.times')
local tools = require('sanderling.transcript.blocks.tool')
local waiting = require('sanderling.transcript.blocks.waiting')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.transcript.OpenBlock
---@field id integer|string
---@field kind 'text'|'thinking'|'command'|'tool'
---@field first? integer row of an answer's block
---@field row integer of a command's or tool's header; in a thinking block, the row where it grows
---@field col integer
---@field fold? sanderling.transcript.folds.Fold
---@field label? string header of a command
---@field output_row? integer of the growing output
---@field output_mark? integer
---@field block? sanderling.transcript.blocks.tool.Block of a tool use
---@field has_remark? boolean

---@class (exact) sanderling.transcript.Follower a window that follows the end of the text
---@field win integer
---@field is_at_end boolean it also follows within a line

---@class (exact) sanderling.transcript.Transcript: sanderling.transcript.folding.Folding
---@field buf integer
---@field headers integer[] rows of message headers
---@field turns sanderling.transcript.Turn[]
---@field steered sanderling.transcript.Steered[]
---@field pieces sanderling.transcript.Piece[] in the order of their rows
---@field times? table<string, { sent: number, ended?: number }> of a page of the history, by prompt
---@field has_times boolean the times are shown
---@field has_earlier boolean there is earlier history; the first line says so
---@field is_asking boolean a page was requested
---@field is_lost boolean no host serves the session
---@field start integer start of the first page in the log
---@field footer sanderling.transcript.footer.Footer
---@field private countdown? sanderling.transcript.countdown.Countdown
---@field last integer row of the last line
---@field col integer its length in bytes
---@field before integer length of the line before the last
---@field open? sanderling.transcript.OpenBlock
---@field tools table<string, sanderling.transcript.blocks.tool.Use> running tool uses, by id
---@field jobs_shown table<string, integer> by running job: mark of the line that started it
---@field tool_blocks sanderling.transcript.blocks.tool.Block[]
---@field child_lines table<string, sanderling.transcript.blocks.child.Line> of running children, by tool use
---@field tool_end? integer the blank row after the last finished tool block
---@field took? string duration and cost of the last turn, while the footer shows it
---@field held table[] events that wait until the model's open block reaches a border
---@field private when_held_are_drawn fun()[]
---@field commands table<string, string> labels of started commands, by id
---@field notices table<string, integer> mark of the last notice, by topic
---@field refused table<string, true> what the sandbox has refused since the start of the last turn or command
---@field sandbox { level: string, network: string, problem: string } as last drawn
---@field rewound table<string, true> prompts that were taken back with all after them, and whose rows are not loaded
---@field private queue sanderling.transcript.queue.Queue
---@field markdown sanderling.transcript.markdown.Blocks
---@field on_defect fun(err: string)
local Transcript = setmetatable({}, { __index = Folding })
Transcript.__index = Transcript

---@type table<integer, sanderling.transcript.Transcript> by buffer
local transcripts = {}

---@param buf integer its text will be replaced
---@param on_defect fun(err: string) receives the traceback of an event that could not be drawn
---@return sanderling.transcript.Transcript
function M.new(buf, on_defect)
  local self = vim.tbl_extend('error', blocks.new_fields(), {
    buf = buf,
    has_times = false,
    has_earlier = false,
    is_asking = false,
    is_lost = false,
    start = 0,
    footer = footer.new(buf),
    last = 0,
    col = 0,
    before = 0,
    held = {},
    when_held_are_drawn = {},
    on_defect = on_defect,
  })
  setmetatable(self, Transcript)
  self.queue = queue.new(function(event)
    if api.nvim_buf_is_loaded(self.buf) then -- otherwise there is nothing to draw, but the event still counts
      self:draw_or_report(event)
    end
  end)
  api.nvim_buf_clear_namespace(buf, -1, 0, -1) -- before the lines are deleted: Neovim 0.11 can abort when deleted lines have many marks
  self:modify(function()
    api.nvim_buf_set_lines(buf, 0, -1, false, {})
  end)
  self.markdown = markdown.new(buf)
  if transcripts[buf] then
    transcripts[buf].queue:clear() -- pending events belong to the deleted text
    transcripts[buf]:end_countdown()
  end
  transcripts[buf] = self
  return self
end

---@param buf integer
function M.forget(buf)
  transcripts[buf] = nil
end

--- Pause until `come_back`: this buffer has lost its text.
function Transcript:go_away()
  self.queue:pause()
end

--- Continue in `buf`, which has the same text and marks.
---@param buf integer
function Transcript:come_back(buf)
  transcripts[self.buf] = nil
  transcripts[buf] = self
  self.buf, self.footer.buf = buf, buf
  self.markdown:move(buf)
  self.folded = {}
  self.queue:resume()
end

-- folds ---------------------------------------------------------------------------------------------------------------

--- Request earlier history if the top of `win` is near.
---@private
---@param win integer
---@param is_wanted? boolean the user has scrolled up
function Transcript:ask_if_near(win, is_wanted)
  if self.has_earlier then
    pages.ask_if_near(self, win, is_wanted)
  end
end

function Transcript:ask_for_earlier()
  pages.ask(self)
end

--- Prepare a window that shows the transcript (again): its folds, highlighting and earlier history.
---@param win integer
function Transcript:show_in(win)
  self:fold_in(win)
  self.markdown:show()
  self:ask_if_near(win)
  if self.countdown then
    self.countdown:resume()
  end
end

--- Return the first line with text of a fold in the current buffer, without its Markdown.
---@param first integer line number of its label
---@param last integer line number
---@return string
local function first_text_in(first, last)
  local row = vim.fn.nextnonblank(first + 1)
  local line = row > 0 and row <= last and vim.fn.getline(row) or ''
  return words.first_line((line:gsub('^%s*#+%s+', ''):gsub('%*%*', '')))
end

---@return string|[string, string][]
function M.foldtext()
  local transcript = transcripts[api.nvim_get_current_buf()]
  local first, last = vim.v.foldstart, vim.v.foldend
  local fold = transcript and folds.at(transcript.folds, first - 1)
  if not fold or fold.last ~= last - 1 then
    return vim.fn.foldtext()
  end
  local excerpt = fold.has_excerpt and first_text_in(first, last) or ''
  return folds.line(fold, fold.lines or vim.fn.prevnonblank(last) - first, excerpt)
end

-- events --------------------------------------------------------------------------------------------------------------

---@private
---@return boolean?
function Transcript:is_answering()
  return self.open and (self.open.kind == 'text' or self.open.kind == 'thinking')
end

--- Return whether something else can be inserted here without splitting a sentence or code block of the model.
---@private
---@return boolean
function Transcript:is_at_border()
  if self.open.kind == 'thinking' then
    return self.open.col == 0
  end
  return self.col == 0 and self.before == 0 and not self.markdown:is_in_fence()
end

--- Close the open block. The next text starts a new one.
function Transcript:close_block()
  local open, last = self.open, self.col > 0 and self.last or self.last - 1
  if open and open.kind == 'text' then
    self.markdown:finish(last)
  elseif open and open.block then
    open.block.last = last
  elseif open and open.kind == 'thinking' then
    last = open.fold.last
  end
  if open and open.first then
    table.insert(self.pieces, { block_id = open.id, first = open.first, last = last })
  end
  self.open = nil
end

--- Close the model's block, if it is open, and draw the held events.
function Transcript:end_answer()
  if self:is_answering() then
    self:close_block()
  end
  while #self.held > 0 do
    local event = table.remove(self.held, 1)
    local ok, err = pcall(self.draw_or_report, self, event)
    if not ok then
      table.insert(self.held, 1, event)
      error(err, 0)
    end
  end
end

--- Return the lines of the model's text in this turn.
---@return string[]
function Transcript:answer_lines()
  local lines = {}
  for _, piece in ipairs(self.pieces) do
    vim.list_extend(lines, api.nvim_buf_get_lines(self.buf, piece.first, piece.last + 1, false))
  end
  return lines
end

function Transcript:end_block()
  self:end_answer()
  self:close_block()
end

---@type table<string, sanderling.transcript.blocks.Draw>
local draw = {}

--- Draw `event`, or hold it until the model's block reaches a border.
---@param event table
function Transcript:draw(event)
  if blocks.is_beside[event.type] and self:is_answering() then
    if not self:is_at_border() then
      self.held[#self.held + 1] = event
      return
    end
    self:end_answer()
  end
  blocks.draw_event(self, event)
end

--- Draw `event`. Report an event that cannot be drawn as a defect. If the buffer is locked, raise the error.
---@private
---@param event table
function Transcript:draw_or_report(event)
  local ok, err = xpcall(self.draw, debug.traceback, self, event)
  if not ok and locked.reason(err) then
    error(err, 0)
  elseif not ok then
    self.on_defect(err)
  end
end

--- The host has exited, and with it the model's turn.
function draw.local_failed(self, event)
  tools.stop_all(self)
  notices.draw.error_occurred(self, event)
  waiting.draw.waiting_changed(self, {})
  pages.lose(self)
end

--- Return the turn that a row belongs to, nil if it starts on a page that is not loaded yet.
---@param row integer
---@return { prompt_id: string, is_prompt: boolean }?
function Transcript:message_at(row)
  for i = #self.turns, 1, -1 do
    local turn = self.turns[i]
    if turn.first <= row then
      return { prompt_id = turn.id, is_prompt = row < turn.answer }
    end
  end
end

-- history -------------------------------------------------------------------------------------------------------------

--- Draw a page into a scratch buffer.
---@private
---@param event sanderling.HistoryShown
---@return sanderling.transcript.Transcript
function Transcript:draw_page(event)
  local page = M.new(pages.scratch(), self.on_defect)
  page.times = event.times or {}
  if event.has_earlier then
    pages.mark_top(page)
  end
  for _, each in ipairs(event.events) do
    page:draw_or_report(each)
  end
  tools.stop_all(page)
  page:end_block()
  return page
end

function draw.history_shown(self, event)
  local page = self:draw_page(event)
  rewound.dim_page(self, page)
  pages.put_above(self, page)
  self:draw_times()
  self.start = event.start or 0
  self.markdown:show()
  pages.ask_anew(self)
end

draw.session_opened = pages.ask_anew

-- footer --------------------------------------------------------------------------------------------------------------

---@return boolean a request waits for its retry
function Transcript:is_counting_down()
  return self.countdown ~= nil
end

function Transcript:end_countdown()
  if self.countdown then
    self.countdown:stop()
    self.countdown = nil
  end
end

function draw.connection_changed(self, event)
  if event.state == 'waiting' then
    local text = ('Cannot connect to %s: %s'):format(event.name, (event.why or ''):gsub('%.$', ''))
    local lines = self.footer:wrapped(words.plain(text .. '.'), 'AgentWarning')
    local remedy = self.footer:wrapped('Retrying. :Agent retry retries now.', 'AgentRemedy')
    self.footer:set('connection', vim.list_extend(lines, remedy))
  elseif event.state ~= 'connecting' then
    self.footer:set('connection', nil)
  end
end

function draw.retry_scheduled(self, event)
  self:end_countdown()
  self.countdown = countdown.begin(event, self.footer)
end

draw.retry_started = Transcript.end_countdown

--- Keep the footer and the lines of children below the text, and in view in windows that follow the text.
---@private
function Transcript:show_footer()
  local has_lines = not self.footer:is_empty() or next(self.child_lines) ~= nil
  if has_lines and api.nvim_buf_is_loaded(self.buf) then
    local wins = vim.tbl_map(function(follower)
      return follower.win
    end, self:followers())
    pcall(self.footer.follow, self.footer, wins) -- a locked window follows the next time
  end
end

-- times ---------------------------------------------------------------------------------------------------------------

--- Draw the times again, if they are shown.
function Transcript:draw_times()
  if self.has_times then
    times.draw(self)
  end
end

--- Show the times of prompts and turns, or hide them.
function Transcript:toggle_times()
  self.has_times = not self.has_times
  if self.has_times then
    times.draw(self)
  else
    times.hide(self)
  end
end

-- scheduling ----------------------------------------------------------------------------------------------------------

--- Draw `events` as soon as the buffer is writable, then call `on_drawn`.
---@param events table[]
---@param on_drawn? fun()
function Transcript:apply(events, on_drawn)
  self.queue:add(events, function()
    self:show_footer()
    if on_drawn then
      on_drawn()
    end
    self:call_when_drawn()
  end)
end

---@private
function Transcript:call_when_drawn()
  if #self.held == 0 and #self.when_held_are_drawn > 0 then
    local fns = self.when_held_are_drawn
    self.when_held_are_drawn = {}
    for _, fn in ipairs(fns) do
      fn()
    end
  end
end

--- Call `fn` when no event is held any more. Call this from `on_drawn`, which does not wait for held events.
---@param fn fun()
function Transcript:when_drawn(fn)
  if #self.held == 0 then
    fn()
  else
    table.insert(self.when_held_are_drawn, fn)
  end
end

require('sanderling.transcript.blocks.command')
require('sanderling.transcript.blocks.turn')
blocks.register({
  draw = draw,
  rows = { open = { of = { 'first', 'row', 'output_row' } } },
})

local group = api.nvim_create_augroup('sanderling_transcript', {})

api.nvim_create_autocmd('BufWinEnter', {
  group = group,
  desc = 'Agent: fit what was drawn while no window showed the transcript',
  callback = function(args)
    local transcript = transcripts[args.buf]
    if transcript then
      children.fit(transcript)
    end
  end,
})

api.nvim_create_autocmd('WinScrolled', {
  group = group,
  desc = 'Agent: highlight and load what comes into view',
  callback = function()
    for name, change in pairs(vim.v.event) do
      local win = tonumber(name) -- or "all"
      local transcript = win and transcripts[api.nvim_win_get_buf(win)]
      if transcript then
        transcript.markdown:show()
        transcript:ask_if_near(win, change.topline < 0)
        if change.width ~= 0 then
          children.fit(transcript)
        end
        if change.topline > 0 then -- scrolling up may hide the footer
          transcript:show_footer()
        end
      end
    end
  end,
})

return M
