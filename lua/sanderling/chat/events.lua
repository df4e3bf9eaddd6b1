--- Handling of events for open sessions: state, transcript, user events and messages. host/bus.lua defines the order.
local bus = require('sanderling.host.bus')
local clock = require('sanderling.status.clock')
local handles = require('sanderling.extend.session')
local host = require('sanderling.host')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local log = require('sanderling.host.log')
local message = require('sanderling.ui.message')
local states = require('sanderling.session.state')
local status = require('sanderling.status')
local tabs = require('sanderling.chat.tabs')
local words = require('sanderling.ui.words')

local M = {}

---@param self sanderling.chat.session.Session
---@param events table[]
---@return sanderling.session.state.State[] befores the state before each event
---@return table[] drawn events to draw: the end of a turn is followed by its duration and cost
local function take_in(self, events)
  local befores, drawn, now_ns = {}, {}, vim.uv.hrtime()
  for i, event in ipairs(events) do
    befores[i] = self.state
    self.state = log.guarded(states.reduce, self.state, event, now_ns) or self.state
    drawn[#drawn + 1] = event
    if event.type == 'turn_ended' then
      event.took = clock.turn_summary(self.state)
      drawn[#drawn + 1] = event.took ~= '' and { type = 'local_turn_took', text = event.took }
        or nil
    end
  end
  if befores[1] then
    clock.redraw(befores[1], self.state)
  end
  return befores, drawn
end

---@type table<sanderling.chat.session.Session, sanderling.Status> as last announced
local announced = setmetatable({}, { __mode = 'k' })

--- Announce a changed status. Cost and context usage change all the time and do not count as a change.
---@param self sanderling.chat.session.Session
local function announce_status(self)
  local data = status.of(self)
  local known = vim.tbl_extend('force', data, { cost_usd = 0, context_percent = 0 })
  if not vim.deep_equal(known, announced[self]) then
    announced[self] = known
    if self.prompt and vim.api.nvim_buf_is_loaded(self.prompt.buf) then
      self.prompt:draw_placeholder()
    end
    bus.announce('AgentStatusChanged', data)
  end
end

bus.register(function(session_id, events, seq)
  local self = live.find(session_id)
  if not self then
    return
  end
  local befores, drawn = take_in(self, events)
  self:clear_hint()
  self.transcript:apply(drawn, function()
    local plugins = package.loaded['sanderling.extend.events']
    for i, event in ipairs(events) do
      bus.tell(session_id, event, befores[i])
      if plugins then
        plugins.tell(handles.of(session_id), event)
      end
    end
    -- More text of an answer does not change the status.
    local is_text = #events == 1 and events[1].type == 'text_delta'
    if not is_text or clock.differ(befores[1], self.state) then
      announce_status(self)
    end
    if self.is_fresh then
      self:draw_hint() -- the last line has moved
    end
    bus.tell(session_id, { type = 'local_drawn' }, self.state)
    if seq then
      host.drawn(session_id, seq)
    end
  end)
end)

-- handlers ------------------------------------------------------------------------------------------------------------

---@alias sanderling.chat.events.Handler fun(self: sanderling.chat.session.Session, event: any, before: sanderling.session.state.State)

---@type table<string, sanderling.chat.events.Handler>
local handlers = {}

---@param self sanderling.chat.session.Session
local function show_todo(self)
  self.todo:draw()
  tabs.fit_prompt(self)
end

function handlers.session_opened(self, event)
  self.is_awaited = nil
  if not self.is_open then
    self.is_open = true
    self:restore_draft(event.is_resumed or false)
    bus.announce('AgentSessionOpened', {
      session_id = self.id,
      project = self.project,
      title = event.title or '',
      is_resumed = event.is_resumed or false,
    })
  end
end

--- Another process has the session open. The transcript reports that; if the user is waiting for the session, offer the
--- choices.
function handlers.session_in_use(self)
  local is_awaited = self.is_awaited
  self.is_awaited = nil
  if is_awaited and is_awaited() then
    self:note({ type = 'local_in_use' })
  end
end

function handlers.history_shown(self, event)
  if #event.events > 0 then
    self:set_used()
  end
end

function handlers.turn_started(self, event)
  self:set_used()
  show_todo(self)
  bus.announce('AgentTurnStarted', { session_id = self.id, prompt = event.prompt.text })
end

function handlers.tool_ended(self, event, before)
  for _, tool in ipairs(before.tools) do
    if tool.id == event.id then
      bus.announce('AgentToolEnded', {
        session_id = self.id,
        id = event.id,
        tool = tool.name,
        summary = event.summary or '',
        is_error = event.is_error or false,
        is_denied = event.is_denied or false,
      })
    end
  end
end

function handlers.child_changed(self, event, before)
  for _, child in ipairs(before.children) do
    if child.id == event.id and child.state == event.state then
      return -- only its activity and its counts are new
    end
  end
  bus.announce('AgentChildChanged', {
    session_id = self.id,
    id = event.id,
    name = event.name,
    task = event.task,
    state = event.state,
  })
end

function handlers.prompts_returned(self, event)
  self:put_back_prompts(event.prompts)
end

function handlers.error_occurred(self, event)
  bus.announce('AgentError', {
    session_id = self.id,
    kind = event.kind,
    message = event.message,
    remedy = event.remedy,
  })
end

---@type table<string, string> by stop reason
local ends = {
  end_turn = 'Answer ready: %s',
  error = 'Failed: %s',
  max_tokens = 'Token limit reached: %s',
  context_full = 'Context window full: %s',
}

--- Report the end of a turn if the chat is not visible. Inline questions show their answers themselves.
---@param self sanderling.chat.session.Session
---@param stop_reason string
---@param took string
local function report_end(self, stop_reason, took)
  local format = self.prompt and ends[stop_reason]
  if format and not self:is_on_screen() then
    local text = format:format(icons.quoted(words.plain(self:name())))
    message.tell(text .. (took ~= '' and (' (%s)'):format(took) or '') .. '. :AgentChat shows it.')
  end
end

function handlers.turn_ended(self, event)
  show_todo(self)
  bus.announce('AgentTurnEnded', { session_id = self.id, stop_reason = event.stop_reason })
  report_end(self, event.stop_reason, event.took)
end

function handlers.command_ended(self, event, before)
  local text = ''
  for _, command in ipairs(before.commands) do
    text = command.id == event.id and command.command or text
  end
  self.transcript:when_drawn(function()
    self:announce_command_end(text, event.outcome, event.is_success or false)
  end)
end

--- Report a change that the chat's windows would show, if they are hidden.
---@param self sanderling.chat.session.Session
---@param text string
local function tell_unless_shown(self, text)
  if live.current() == self and not self:is_on_screen() then
    message.tell(text)
  end
end

function handlers.sandbox_changed(self, event, before)
  if event.network ~= before.sandbox.network then
    local text = 'Network %s for new commands.'
    tell_unless_shown(self, text:format(event.network))
  end
end

M.MODE_SENTENCES = {
  ask = 'Mode ask: changes, commands and fetches ask first.',
  auto = 'Mode auto: anything the sandbox can confine runs without asking.',
  plan = 'Mode plan: nothing can be changed, the sandbox is read-only.',
}

function handlers.mode_changed(self, event, before)
  if event.mode ~= before.mode then
    tell_unless_shown(self, M.MODE_SENTENCES[event.mode])
  end
end

function handlers.todo_changed(self)
  show_todo(self)
end

--- The host has exited: put prompts that it did not accept back into the prompt.
function handlers.local_failed(self, event, before)
  show_todo(self)
  self:put_back_prompts(before.unconfirmed)
  self:end_commands(before.commands, 'Interrupted.')
  bus.announce('AgentError', {
    session_id = self.id,
    kind = 'host',
    message = event.message,
    remedy = '',
  })
  if before.is_in_turn then
    bus.announce('AgentTurnEnded', { session_id = self.id, stop_reason = 'interrupted' })
  end
end

for type, handle in pairs(handlers) do
  bus.subscribe(type, function(session_id, event, before)
    local self = live.find(session_id)
    if self then
      handle(self, event, before)
    end
  end)
end

bus.load_at('tool_started', 'sanderling.editing.saves')
bus.load_at('turn_started', 'sanderling.editing.kinds')
bus.load_at('turn_started', 'sanderling.extend.messages')
bus.load_at('history_shown', 'sanderling.extend.messages')
bus.load_at('approval_requested', 'sanderling.approval')
bus.load_at('tool_started', 'sanderling.review.follow')
bus.load_at('local_changing', 'sanderling.proposals')
bus.load_at('changes_unreviewed', 'sanderling.proposals')

return M
