--- Whether a debug session of nvim-dap runs: only then does the host offer the tool `debug`. nvim-dap is not loaded
--- here; when it does something, it fires a User event.
local M = {}

local api = vim.api
local declared = require('sanderling.host.declared')

---@class (exact) sanderling.host.debugging.Stops
---@field count integer how often the session has stopped since it was noticed
---@field last table the last event "stopped" of the Debug Adapter Protocol

---@type table<integer, sanderling.host.debugging.Stops> by the session's id
M.stops = {}
---@type table<integer, integer> the exit code of a program, by the session's id
M.exits = {}

---@type table<integer, true?> sessions whose next stop must not move the user, by id
M.quiet = {}

---@type table? the loaded nvim-dap, once it is watched
local watched

--- Return nvim-dap, if the user has loaded it, and not another module of that name.
---@return table?
function M.dap()
  local dap = package.loaded.dap
  return type(dap) == 'table' and dap.sessions and dap.listeners and dap or nil
end

---@param dap table
local function watch_events(dap)
  watched = dap
  -- nvim-dap goes to where the program has stopped. If the model has continued it, the user may be typing elsewhere.
  dap.listeners.before.event_stopped.sanderling = function(session, body)
    if body and M.quiet[session.id] then
      M.quiet[session.id] = nil
      body.preserveFocusHint = true
    end
  end
  dap.listeners.after.event_stopped.sanderling = function(session, body)
    local stops = M.stops[session.id]
    M.stops[session.id] = { count = (stops and stops.count or 0) + 1, last = body or {} }
  end
  dap.listeners.after.event_exited.sanderling = function(session, body)
    M.exits[session.id] = body and body.exitCode
  end
end

local function look()
  local dap = M.dap()
  if dap and dap ~= watched then
    watch_events(dap)
  end
  declared.set_debugging(dap ~= nil and next(dap.sessions()) ~= nil)
end

--- Notice when debug sessions begin and end.
function M.watch()
  api.nvim_create_autocmd('User', {
    group = api.nvim_create_augroup('sanderling_debugging', {}),
    pattern = 'DapProgressUpdate',
    desc = 'Agent: notice debug sessions',
    callback = vim.schedule_wrap(look), -- fired just before a session is added or removed
  })
  look()
end

return M
