--- The bus: by it the parts of the screen learn what has happened in a session. Events of the host and those of this side, whose
--- types begin with `local_`, go the same way, in one order. (Only the host's own code publishes events of the host.)
---
--- 1. At once, the session's state takes in all of them (session/state.lua), and the bars are drawn again. Nothing can be in the way.
--- 2. The transcript draws them. While text is locked they wait, and whatever comes after them waits, too.
--- 3. Those that have subscribed are told of one event after the other, each in the order in which they subscribed. They are given
---    the state before the event; what the session has by now may be newer.
--- 4. The host hears that its frame is on the screen.
---
--- The end of a session is told at once: nothing more is drawn of it.
local log = require('sanderling.host.log')

local M = {}

---@alias sanderling.host.bus.Subscriber fun(session_id: string, event: any, before: sanderling.session.state.State)

---@type table<string, sanderling.host.bus.Subscriber[]> by the type of event
local subscribers = {}

--- Takes events to the session that they are about, and calls `M.tell` for each; given by the chat.
---@type fun(session_id: string, events: table[], seq?: integer)
M.deliver = nil

--- Have `fn` told of all events of this type.
---@param type string
---@param fn sanderling.host.bus.Subscriber
function M.subscribe(type, fn)
  subscribers[type] = subscribers[type] or {}
  table.insert(subscribers[type], fn)
end

--- Have the module `name` loaded at the first event of this type: it subscribes, and is told of that one, too.
---@param type string
---@param name string
function M.load_at(type, name)
  M.subscribe(type, function()
    require(name)
  end)
end

---@param session_id string
---@param events table[]
---@param seq? integer of the host's frame
function M.publish(session_id, events, seq)
  if M.deliver then
    log.guarded(M.deliver, session_id, events, seq)
  end
end

--- Tell those that have subscribed.
---@param session_id string
---@param event table
---@param before? sanderling.session.state.State nil of what is about no session
function M.tell(session_id, event, before)
  for _, fn in ipairs(subscribers[event.type] or {}) do
    log.guarded(fn, session_id, event, before)
  end
end

-- the user's autocommands ---------------------------------------------------------------------------------------------

---@type { pattern: string, data: table }?
local announcement

--- Run the autocommands of `announcement`. (Not for callers outside: `announce` comes here by a command.)
function M.run_autocommands()
  local event = assert(announcement)
  vim.api.nvim_exec_autocmds(
    'User',
    { pattern = event.pattern, modeline = false, data = event.data }
  )
end

--- Tell the user's autocommands. An error in one of them must not become a hit-enter prompt, which would stop the stream; a
--- command can be told to keep its errors to itself, nvim_exec_autocmds() cannot.
---@param pattern string
---@param data table
function M.announce(pattern, data)
  announcement = { pattern = pattern, data = data }
  vim.v.errmsg = ''
  local run = "package.loaded['sanderling.host.bus'].run_autocommands()"
  vim.api.nvim_cmd({ cmd = 'lua', args = { run }, mods = { emsg_silent = true } }, {})
  if vim.v.errmsg ~= '' then
    log.note_defect(('an autocommand for User %s failed: %s'):format(pattern, vim.v.errmsg))
  end
end

return M
