--- The sessions of answers outside of the chat: they end with what shows them, or become the chat's.
local M = {}

local chat = require('sanderling.chat')
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local small = lazy('sanderling.prompt.small')

--- The answer is shown no more: its session ends, unless the chat has it.
---@param shown sanderling.asking.Shown
function M.finish(shown)
  local session = live.find(shown.session.id)
  shown.region:forget()
  if session == shown.session and not session.prompt then
    chat.remove(session)
  end
end

--- Have the chat go on with the session.
---@param shown sanderling.asking.Shown
---@param leave fun() what shows it here
function M.carry(shown, leave)
  local session = shown.session
  chat.give_prompt(session)
  shown.region:forget()
  leave()
  chat.open(session.id, session.project, {})
end

--- Ask further in the session of an answer.
---@param shown sanderling.asking.Shown
function M.ask_further(shown)
  local _, last = shown.region:rows()
  small.open({
    title = 'Ask further',
    session_id = shown.session.id,
    row = math.max(0, last),
    on_send = function(lines)
      shown.session:send(lines)
    end,
    on_leave = function() end,
  })
end

return M
