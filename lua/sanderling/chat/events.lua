--- What events mean for a session that is open, besides being drawn.
local host = require('sanderling.host')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local tools = require('sanderling.transcript.blocks.tool')

local M = {}

--- What an event means for the session beyond being drawn; called when it is drawn.
---@type table<string, fun(self: sanderling.chat.session.Session, event: any)>
local handlers = {}

function handlers.session_opened(self, event)
  self.is_awaited = nil
  self.title = event.title or ''
  if not self.is_open then
    self.is_open = true
    self:restore_draft(event.is_resumed or false)
    host.announce('AgentSessionOpened', {
      session_id = self.id,
      project = self.project,
      title = self.title,
      is_resumed = event.is_resumed or false,
    })
  end
end

--- Another process has the session open. The transcript says so; who is waiting for it is offered what can be done.
function handlers.session_in_use(self)
  local is_awaited = self.is_awaited
  self.is_awaited = nil
  if is_awaited and is_awaited() then
    host.publish(self.id, { { type = 'local_in_use' } })
  end
end

function handlers.title_changed(self, event)
  self.title = event.title
end

function handlers.history_shown(self, event)
  if #event.events > 0 then
    self:set_used()
  end
end

function handlers.turn_started(self, event)
  self.is_in_turn = true
  self:set_used()
  self.todo:set_turn(true)
  self:confirm({ event.prompt })
  self:count_prompts()
  host.announce('AgentTurnStarted', { session_id = self.id, prompt = event.prompt.text })
end

function handlers.prompt_steered(self, event)
  self:confirm({ event.prompt })
  self:count_prompts()
end

function handlers.waiting_changed(self, event)
  self.waiting = vim.list_extend(vim.list_slice(event.steering or {}), event.queued or {})
  self.steering_count = #(event.steering or {})
  self.is_held = event.is_held or false
  self:confirm(self.waiting)
  self:count_prompts()
end

function handlers.prompts_returned(self, event)
  self:confirm(event.prompts)
  self:count_prompts()
  self:put_back_prompts(event.prompts)
end

function handlers.error_occurred(self, event)
  host.announce('AgentError', {
    session_id = self.id,
    kind = event.kind,
    message = event.message,
    remedy = event.remedy,
  })
end

function handlers.turn_ended(self, event)
  self.is_in_turn = false
  self.todo:set_turn(false)
  host.announce('AgentTurnEnded', { session_id = self.id, stop_reason = event.stop_reason })
end

function handlers.command_started(self, event)
  local command = self:take_command(event.id) or { id = event.id, command = event.command }
  command.has_started = true
  table.insert(self.commands, command)
end

function handlers.command_ended(self, event)
  local command = self:take_command(event.id)
  self.transcript:when_drawn(function()
    local text = command and command.command or ''
    self:announce_command_end(text, event.outcome, event.is_success or false)
  end)
end

--- Tell of a change that the chat's windows would show, if they were there.
---@param self sanderling.chat.session.Session
---@param text string
local function tell_unless_shown(self, text)
  if live.current() == self and not self:is_on_screen() then
    message.tell(text)
  end
end

function handlers.sandbox_changed(self, event)
  if event.network ~= self.network then
    local text = 'Network %s, for commands started from now on.'
    tell_unless_shown(self, text:format(event.network))
  end
  self.network = event.network
end

M.MODE_SENTENCES = {
  ask = 'Mode ask: changes, commands and fetches ask first.',
  auto = 'Mode auto: what the sandbox confines runs without asking.',
  plan = 'Mode plan: nothing can be changed, the sandbox is read-only.',
}

function handlers.mode_changed(self, event)
  if event.mode ~= self.mode then
    tell_unless_shown(self, M.MODE_SENTENCES[event.mode])
  end
  self.mode = event.mode
  if self.wanted_mode == event.mode then
    self.wanted_mode = nil
  end
end

function handlers.todo_changed(self, event)
  self.todo:set(event.items)
end

--- Show what was asked for, unless the user has gone on to something else.
function handlers.tool_use_shown(self, event)
  if self.inspected == event.id and self.is_looking() then
    self.inspected = nil
    tools.show(event)
  end
end

function handlers.local_failed(self, event)
  local was_in_turn = self.is_in_turn
  self.is_in_turn = false
  self.mode, self.wanted_mode = 'ask', nil -- until the host says more
  self.waiting, self.steering_count, self.is_held = {}, 0, false -- they are on disk
  self.todo:set_turn(false)
  self:take_back_unconfirmed()
  self:end_commands('Interrupted.')
  host.announce('AgentError', {
    session_id = self.id,
    kind = 'host',
    message = event.message,
    remedy = '',
  })
  if was_in_turn then
    host.announce('AgentTurnEnded', { session_id = self.id, stop_reason = 'interrupted' })
  end
end

host.subscribe(function(session_id, events, seq)
  local self = live.find(session_id)
  if not self then
    return
  end
  self.transcript:apply(events, function()
    for _, event in ipairs(events) do
      if handlers[event.type] then
        handlers[event.type](self, event)
      end
    end
    if self.is_fresh then
      self:draw_hint() -- below what was drawn
    end
    if seq then
      host.drawn(session_id, seq)
    end
  end)
end)

return M
