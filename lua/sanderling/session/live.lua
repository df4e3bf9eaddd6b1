--- The open sessions, in the order of opening. One of them is current: commands apply to it, and the chat's windows
--- show it. It is the session whose buffer or tab page was entered last.
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

---@return sanderling.chat.session.Session[] sessions with a prompt, which a chat can show
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

--- Return the last known state of a child session, and the open session that has started it.
---@param child_id string
---@return sanderling.ChildChanged?
---@return sanderling.chat.session.Session?
function M.find_child(child_id)
  for _, session in ipairs(sessions) do
    for _, child in ipairs(session.state.children) do
      if child.id == child_id then
        return child, session
      end
    end
  end
end

--- Return the state of a session, or an initial state if it is not open.
---@param session_id? string
---@return sanderling.session.state.State
function M.state_of(session_id)
  local session = M.find(session_id or '')
  return session and session.state or states.new('')
end

---@param session_id string
---@param action sanderling.Action
---@return boolean is_sent if false, the session reports why
function M.act(session_id, action)
  local session = M.find(session_id)
  return session ~= nil and session:act(action)
end

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

--- Return the chat `step` places after `session`, wrapping around.
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

--- Remove `session`. If it was current, the next one becomes current.
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
