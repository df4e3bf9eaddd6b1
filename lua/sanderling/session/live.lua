--- The sessions that are open here, in the order in which they were opened. One is current: what commands are about, and what the
--- chat's windows show. That is the one whose buffer or tab page was entered last.
local bus = require('sanderling.host.bus')
local states = require('sanderling.session.state')

local M = {}

---@type sanderling.chat.session.Session[]
local sessions = {}
---@type sanderling.chat.session.Session?
local current

---@return sanderling.chat.session.Session[]
function M.all()
  return vim.list_slice(sessions)
end

---@return sanderling.chat.session.Session[] those that a chat can show: they have a prompt
function M.chats()
  return vim.tbl_filter(function(session)
    return session.prompt ~= nil
  end, sessions)
end

---@return sanderling.chat.session.Session?
function M.current()
  return current
end

---@return string?
function M.current_id()
  return current and current.id
end

---@param session_id string
---@return sanderling.chat.session.Session?
function M.find(session_id)
  for _, session in ipairs(sessions) do
    if session.id == session_id then
      return session
    end
  end
end

--- The state of a session; of one that is not open, that of one that begins.
---@param session_id? string
---@return sanderling.session.state.State
function M.state_of(session_id)
  local session = M.find(session_id or '')
  return session and session.state or states.new('')
end

--- Send an action to a session, if it is open here.
---@param session_id string
---@param action sanderling.Action
---@return boolean is_sent else the session says why not
function M.act(session_id, action)
  local session = M.find(session_id)
  return session ~= nil and session:act(action)
end

--- The session whose transcript or prompt `buf` is.
---@param buf integer
---@return sanderling.chat.session.Session?
function M.of_buffer(buf)
  local session_id = vim.b[buf].sanderling_session
  return session_id and M.find(session_id)
end

---@param session? sanderling.chat.session.Session
function M.set_current(session)
  local previous = current
  if session ~= previous then
    current = session
    bus.announce('AgentSessionChanged', {
      session_id = session and session.id,
      previous_id = previous and previous.id,
    })
  end
end

---@param session sanderling.chat.session.Session
function M.add(session)
  sessions[#sessions + 1] = session
end

--- The chat that comes `step` places after `session`, round and round; itself when it is the only one.
---@param session sanderling.chat.session.Session
---@param step integer
---@return sanderling.chat.session.Session
function M.neighbour(session, step)
  local chats = M.chats()
  for i, each in ipairs(chats) do
    if each == session then
      return chats[(i - 1 + step) % #chats + 1]
    end
  end
  return session
end

--- Take `session` out. The next one is current if it was.
---@param session sanderling.chat.session.Session
function M.remove(session)
  local next_session = M.neighbour(session, 1)
  sessions = vim.tbl_filter(function(each)
    return each ~= session
  end, sessions)
  if current == session then
    M.set_current(next_session ~= session and next_session or nil)
  end
end

return M
