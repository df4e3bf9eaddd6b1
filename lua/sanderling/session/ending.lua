--- The end of a session in which the user corrected something. Lines for AGENTS.md are proposed before it closes; without
--- `auto_remember`, a message names the command that proposes them.
local M = {}

local ask = require('sanderling.host.ask')
local host = require('sanderling.host')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')

local SHOWN_AFTER_MS = 500
local WAITS = 'The session closes after its proposal for AGENTS.md. :Agent close! closes it now.'

---@type table<string, true> by id: sessions that close after a proposal
local proposing = {}

--- Ask the host how many corrections of a closed session have led to no proposal.
---@param id string
---@param on_found fun(words: string) called if there are any, with `2 corrections of yours: :AgentRemember ID`
function M.count(id, on_found)
  ask({ type = 'count_corrections', session_id = id }, function(result)
    local count = result.count ---@type integer
    if count > 0 then
      local noun = count == 1 and 'correction' or 'corrections'
      on_found(('%d %s of yours: :AgentRemember %s'):format(count, noun, id))
    end
  end, function() end) -- its log is gone
end

--- Close a session, and say how many corrections it has that led to no proposal.
---@param id string
---@param close fun()
local function finish(id, close)
  proposing[id] = nil
  close()
  M.count(id, function(words)
    message.tell('The closed session has ' .. words)
  end)
end

---@param session sanderling.chat.session.Session
---@param close fun()
local function propose(session, close)
  local id = session.id
  proposing[id] = true
  local function on_end()
    if proposing[id] and live.find(id) == session then
      finish(id, close)
    end
  end
  ask({ type = 'propose_at_end', session_id = id }, on_end, on_end)
  vim.defer_fn(function()
    if proposing[id] then
      message.tell(WAITS)
    end
  end, SHOWN_AFTER_MS)
end

--- Call `close` when the user has answered a proposal; at once if there is none, or this is the second call.
---@param session sanderling.chat.session.Session
---@param is_at_once boolean
---@param close fun() closes the session
function M.run(session, is_at_once, close)
  local id = session.id
  if session.is_fresh or not host.is_running() then
    return close()
  end
  local state = session.state
  if state.proposes and state.is_corrected and not is_at_once and not proposing[id] then
    return propose(session, close)
  end
  finish(id, close)
end

return M
