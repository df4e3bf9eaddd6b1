--- Sessions of answers outside the chat: they end when the answer is closed, or move to the chat.
local M = {}

local chat = require('sanderling.chat')
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local small = lazy('sanderling.prompt.small')

--- Give a new session the model of the current one, if both have the same project.
---@param session sanderling.chat.session.Session
function M.take_model(session)
  local current = live.current()
  local is_same = current and current ~= session and current.project == session.project
  if is_same and current.state.agent == '' and current.state.model ~= '' then
    session:act({ type = 'set_model', model = current.state.model })
  end
end

--- End the session of a closed answer, unless the chat has it.
---@param shown sanderling.inline.floats.Shown
function M.finish(shown)
  local session = live.find(shown.session.id)
  shown.region:forget()
  if session == shown.session and not session.prompt then
    chat.remove(session)
  end
end

--- Continue the session in the chat.
---@param shown sanderling.inline.floats.Shown
---@param leave fun() closes the answer here
function M.carry(shown, leave)
  local session = shown.session
  chat.give_prompt(session)
  shown.region:forget()
  leave()
  chat.open(session.id, session.project, {})
end

--- Ask a follow-up in the session of an answer.
---@param shown sanderling.inline.floats.Shown
function M.ask_further(shown)
  local _, last = shown.region:rows()
  small.open({
    title = 'Follow-up',
    session_id = shown.session.id,
    row = math.max(0, last),
    on_send = function(lines)
      shown.session:send(lines)
    end,
    on_leave = function() end,
  })
end

return M
