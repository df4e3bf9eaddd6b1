--- Whether a debug session of nvim-dap runs: only then does the host offer the tool `debug`. nvim-dap is not loaded
--- here; when it does something, it fires a User event.
local M = {}

local api = vim.api
local declared = require('sanderling.host.declared')

--- What is known of a debug session, also after its end.
---@class (exact) sanderling.host.debugging.Known
---@field stops integer how often it has stopped since it was noticed
---@field last? table the last event "stopped" of the Debug Adapter Protocol
---@field references table<integer, true> those of the current stop that the model has seen
---@field exit_code? integer of its program
---@field is_quiet? boolean its next stop must not move the user

---@type table<integer, sanderling.host.debugging.Known> by the session's id
local known = {}

---@type table? the loaded nvim-dap, once it is watched
local watched
local is_debugging = false

---@param id integer of a session
---@return sanderling.host.debugging.Known
function M.of(id)
  known[id] = known[id] or { stops = 0, references = {} }
  return known[id]
end

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
    local about = M.of(session.id)
    if body and about.is_quiet then
      about.is_quiet = nil
      body.preserveFocusHint = true
    end
  end
  dap.listeners.after.event_stopped.sanderling = function(session, body)
    local about = M.of(session.id)
    about.stops, about.last, about.references = about.stops + 1, body or {}, {}
  end
  dap.listeners.after.event_exited.sanderling = function(session, body)
    M.of(session.id).exit_code = body and body.exitCode
  end
end

local function look()
  local dap = M.dap()
  if dap and dap ~= watched then
    watch_events(dap)
  end
  local was_debugging = is_debugging
  is_debugging = dap ~= nil and next(dap.sessions()) ~= nil
  if is_debugging and not was_debugging then
    known = {} -- of earlier sessions: a call that waited for the end of one has read its exit code by now
  end
  declared.set_debugging(is_debugging)
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
