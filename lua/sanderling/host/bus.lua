--- The event bus: how the parts of the screen learn what happens in a session. Events of the host and local events,
--- whose types begin with `local_`, take the same path in one order. Only the host's code publishes host events.
---
--- 1. The session's state is updated at once by all events of a frame (session/state.lua), and the bars are redrawn.
---    Nothing can delay this step.
--- 2. The transcript draws the events. While text is locked they wait, and so do all later events.
--- 3. Subscribers are called, one event after the other, in the order of subscription. They get the state before the
---    event; the session's current state may be newer.
---    Callbacks of plugins for the event (extend/events.lua) come last.
--- 4. The host is informed that its frame is on the screen.
---
--- The end of a session is reported at once, because nothing more is drawn.
local log = require('sanderling.host.log')

local M = {}

---@alias sanderling.host.bus.Subscriber fun(session_id: string, event: any, before: sanderling.session.state.State)

---@type table<string, sanderling.host.bus.Subscriber[]> by event type
local subscribers = {}

---@alias sanderling.host.bus.Deliver fun(session_id: string, events: table[], seq?: integer)

---@type sanderling.host.bus.Deliver?
local deliver

---@param fn sanderling.host.bus.Deliver delivers events to their session, and calls `M.tell` for each
function M.register(fn)
  deliver = fn
end

---@param type string
---@param fn sanderling.host.bus.Subscriber
function M.subscribe(type, fn)
  subscribers[type] = subscribers[type] or {}
  table.insert(subscribers[type], fn)
end

--- Load the module `name` at the first event of this type for which it is needed. It can subscribe and receive that
--- event, too.
---@param type string
---@param name string
---@param is_needed? fun(session_id: string): boolean
function M.load_at(type, name, is_needed)
  M.subscribe(type, function(session_id)
    if not is_needed or is_needed(session_id) then
      require(name)
    end
  end)
end

---@param session_id string
---@param events table[]
---@param seq? integer of the host's frame
function M.publish(session_id, events, seq)
  if deliver then
    log.guarded(deliver, session_id, events, seq)
  end
end

---@param session_id string
---@param event table
---@param before? sanderling.session.state.State nil if the event belongs to no session
function M.tell(session_id, event, before)
  for _, fn in ipairs(subscribers[event.type] or {}) do
    log.guarded(fn, session_id, event, before)
  end
end

-- the user's autocommands ---------------------------------------------------------------------------------------------

---@type { pattern: string, data: table }?
local announcement

--- Run the autocommands of `announcement`. Only for `announce`, which calls it by a command.
function M.run_autocommands()
  local event = assert(announcement)
  vim.api.nvim_exec_autocmds(
    'User',
    { pattern = event.pattern, modeline = false, data = event.data }
  )
end

--- Run the user's autocommands for `pattern`. An error in one must not cause a hit-enter prompt, which would stop the
--- stream. A command can be made to suppress errors, nvim_exec_autocmds() cannot, so this goes through `:lua`.
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
