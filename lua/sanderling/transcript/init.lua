--- Draws events into a transcript buffer. What is said is written at its end: an append reads nothing back, and no row before
--- the last block moves. Two things move rows, both seldom: a page of the history, which goes above all (`pages.lua`), and an
--- answer that was cut off and is taken back.
---
--- The model and commands talk at the same time. What happens to a command while the model's block is open is held until that
--- has come to the end of a paragraph, so that no sentence and no code is torn. Two commands take turns, each under its header,
--- and so do a command and the tool that the model uses.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')

local blocks = require('sanderling.transcript.blocks')
local countdown = lazy('sanderling.transcript.countdown')
local Folding = require('sanderling.transcript.folding')
local folds = require('sanderling.transcript.folds')
local footer = require('sanderling.transcript.footer')
local locked = require('sanderling.ui.locked')
local markdown = require('sanderling.transcript.markdown')
local notices = require('sanderling.transcript.blocks.notice')
local pages = lazy('sanderling.transcript.pages')
local queue = require('sanderling.transcript.queue')
local tools = require('sanderling.transcript.blocks.tool')
local waiting = require('sanderling.transcript.blocks.waiting')

---@class (exact) sanderling.transcript.OpenBlock
---@field id integer|string
---@field kind 'text'|'thinking'|'command'|'tool'
---@field first? integer row of an answer's block
---@field row integer where a thinking block grows; of a command's or a tool's header
---@field col integer
---@field fold? sanderling.transcript.folds.Fold
---@field label? string a command's header
---@field output_row? integer of the output that grows
---@field output_mark? integer
---@field block? sanderling.transcript.blocks.tool.Block of a tool use
---@field has_remark? boolean

---@class (exact) sanderling.transcript.Follower a window that goes along with the text
---@field win integer
---@field is_at_end boolean it goes along within a line, too

---@class (exact) sanderling.transcript.Transcript: sanderling.transcript.folding.Folding
---@field buf integer
---@field headers integer[] rows of the messages' headers
---@field turns sanderling.transcript.Turn[]
---@field pieces sanderling.transcript.Piece[] in the order of their rows
---@field has_earlier boolean there are more, and the first line says so
---@field is_asking boolean one was asked for
---@field is_lost boolean no host serves the session
---@field start integer where in the log the first page begins
---@field footer sanderling.transcript.footer.Footer
---@field private countdown? sanderling.transcript.countdown.Countdown
---@field last integer row of the last line
---@field col integer its length in bytes
---@field before integer length of the line before it
---@field open? sanderling.transcript.OpenBlock
---@field tools table<string, sanderling.transcript.blocks.tool.Use> those that run, by id
---@field jobs_shown table<string, integer> mark of the line that began it, of each job that runs
---@field tool_blocks sanderling.transcript.blocks.tool.Block[]
---@field tool_end? integer the blank row behind the last tool block that has ended
---@field took? string by the last turn, while it is said below the text
---@field held table[] events beside the model's block that is open
---@field private when_held_are_drawn fun()[]
---@field commands table<string, string> label of each that was started, by id
---@field notices table<string, integer> mark of the last one on each topic
---@field refused table<string, true> what the sandbox refused since the last turn or command began
---@field sandbox { level: string, network: string, problem: string } as it was drawn last
---@field private queue sanderling.transcript.queue.Queue
---@field markdown sanderling.transcript.markdown.Blocks
---@field on_defect fun(err: string)
local Transcript = setmetatable({}, { __index = Folding })
Transcript.__index = Transcript

---@type table<integer, sanderling.transcript.Transcript> by buffer
local transcripts = {}

---@param buf integer its text is replaced
---@param on_defect fun(err: string) told what could not be drawn
---@return sanderling.transcript.Transcript
function M.new(buf, on_defect)
  local self = vim.tbl_extend('error', blocks.new_fields(), {
    buf = buf,
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
    if api.nvim_buf_is_loaded(self.buf) then -- else there is nothing to draw, but the event has happened
      self:draw_or_tell(event)
    end
  end)
  api.nvim_buf_clear_namespace(buf, -1, 0, -1) -- first: Neovim 0.11 can abort where lines go that have many marks
  self:modify(function()
    api.nvim_buf_set_lines(buf, 0, -1, false, {})
  end)
  self.markdown = markdown.new(buf)
  if transcripts[buf] then
    transcripts[buf].queue:clear() -- what waits there is about the text that has just gone
    transcripts[buf]:end_countdown()
  end
  transcripts[buf] = self
  return self
end

---@param buf integer
function M.forget(buf)
  transcripts[buf] = nil
end

--- Draw nothing until there is a buffer with all of the text: this one has lost it.
function Transcript:go_away()
  self.queue:pause()
end

--- Go on in `buf`, which holds text and marks as they were.
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

--- Ask for what comes before the lines that `win` shows, when that is near.
---@private
---@param win integer
---@param is_wanted? boolean by a person, who has scrolled up
function Transcript:ask_if_near(win, is_wanted)
  if self.has_earlier then
    pages.ask_if_near(self, win, is_wanted)
  end
end

--- A window shows the transcript (again): give it the folds that it does not have.
---@param win integer
function Transcript:show_in(win)
  self:fold_in(win)
  self.markdown:show()
  self:ask_if_near(win)
  if self.countdown then
    self.countdown:resume()
  end
end

--- 'foldtext' of a transcript.
---@return string|[string, string][]
function M.foldtext()
  local transcript = transcripts[api.nvim_get_current_buf()]
  local first, last = vim.v.foldstart, vim.v.foldend
  local fold = transcript and folds.at(transcript.folds, first - 1)
  if not fold or fold.last ~= last - 1 then
    return vim.fn.foldtext()
  end
  return folds.line(fold, fold.lines or vim.fn.prevnonblank(last) - first)
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

--- The model's block, if one is open, comes to an end, and what was held because of it is drawn.
function Transcript:end_answer()
  if self:is_answering() then
    self:close_block()
  end
  while #self.held > 0 do
    local event = table.remove(self.held, 1)
    local ok, err = pcall(self.draw_or_tell, self, event)
    if not ok then
      table.insert(self.held, 1, event)
      error(err, 0)
    end
  end
end

--- Close the open block, whoever's it is.
function Transcript:end_block()
  self:end_answer()
  self:close_block()
end

---@type table<string, sanderling.transcript.blocks.Draw>
local draw = {}

--- Draw `event`, or hold it until the model's block has come to a border.
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

--- Draw `event`. What cannot be drawn is a defect, of which somebody is told; while the buffer is locked, it raises.
---@private
---@param event table
function Transcript:draw_or_tell(event)
  local ok, err = xpcall(self.draw, debug.traceback, self, event)
  if not ok and locked.reason(err) then
    error(err, 0)
  elseif not ok then
    self.on_defect(err)
  end
end

--- The host has ended, and with it what the model was doing.
function draw.local_failed(self, event)
  tools.stop_all(self)
  notices.draw.error_occurred(self, event)
  waiting.draw.waiting_changed(self, {})
  pages.lose(self)
end

--- The turn that a row belongs to, by the id of its prompt; nil where that is on a page that is not shown yet.
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

-- the history ---------------------------------------------------------------------------------------------------------

--- Draw a page by itself.
---@private
---@param event sanderling.HistoryShown
---@return sanderling.transcript.Transcript
function Transcript:draw_page(event)
  local page = M.new(pages.scratch(), self.on_defect)
  if event.has_earlier then
    pages.mark_top(page)
  end
  for _, each in ipairs(event.events) do
    page:draw_or_tell(each)
  end
  tools.stop_all(page)
  page:end_block()
  return page
end

function draw.history_shown(self, event)
  pages.put_above(self, self:draw_page(event))
  self.start = event.start or 0
  self.markdown:show()
  pages.ask_anew(self)
end

draw.session_opened = pages.ask_anew

-- below the text ------------------------------------------------------------------------------------------------------

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

function draw.retry_scheduled(self, event)
  self:end_countdown()
  self.countdown = countdown.begin(event, self.footer)
end

draw.retry_started = Transcript.end_countdown

--- Keep the footer below the text, and in view where the end is.
---@private
function Transcript:show_footer()
  if not self.footer:is_empty() and api.nvim_buf_is_loaded(self.buf) then
    local wins = vim.tbl_map(function(follower)
      return follower.win
    end, self:followers())
    pcall(self.footer.follow, self.footer, wins) -- a locked window follows the next time
  end
end

-- when ----------------------------------------------------------------------------------------------------------------

--- Draw `events`, now or as soon as the buffer can be written; then call `on_drawn`.
---@param events table[]
---@param on_drawn? fun()
function Transcript:apply(events, on_drawn)
  self.queue:add(events, function()
    self:show_footer()
    if on_drawn then
      on_drawn()
    end
    self:tell()
  end)
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
  if #self.held == 0 then
    fn()
  else
    table.insert(self.when_held_are_drawn, fn)
  end
end

require('sanderling.transcript.blocks.command')
require('sanderling.transcript.blocks.connection')
require('sanderling.transcript.blocks.turn')
blocks.register({
  draw = draw,
  rows = { open = { of = { 'first', 'row', 'output_row' } } },
})

api.nvim_create_autocmd('WinScrolled', {
  group = api.nvim_create_augroup('sanderling_transcript', {}),
  desc = 'Agent: what comes before and after what is seen',
  callback = function()
    for name, change in pairs(vim.v.event) do
      local win = tonumber(name) -- or "all"
      local transcript = win and transcripts[api.nvim_win_get_buf(win)]
      if transcript then
        transcript.markdown:show()
        transcript:ask_if_near(win, change.topline < 0)
        if change.topline > 0 then -- who scrolls up may see the footer go
          transcript:show_footer()
        end
      end
    end
  end,
})

return M
