--- Timing and changed lines of a session's turn, computed from its events.
local M = {}

---@class (exact) sanderling.session.tally.Tally
---@field turn_began_ns? integer
---@field turn_took_ns? integer of the last turn
---@field commands_began_ns? integer start of the running commands
---@field changes table<string, [integer, integer]> lines added and removed, by file

---@return sanderling.session.tally.Tally
function M.new()
  return { changes = {} }
end

--- Each function changes fields of the new tally, and never modifies their old values.
---@type table<string, fun(tally: sanderling.session.tally.Tally, event: any, now_ns: integer): sanderling.session.tally.Tally?>
local changes = {}

function changes.turn_started(tally, _, now_ns)
  tally.turn_began_ns, tally.changes = now_ns, {}
end

function changes.turn_ended(tally, _, now_ns)
  tally.turn_took_ns = now_ns - (tally.turn_began_ns or now_ns)
  tally.turn_began_ns = nil
end

function changes.commands_running(tally, event, now_ns)
  tally.commands_began_ns = event.count > 0 and (tally.commands_began_ns or now_ns) or nil
end

function changes.tool_ended(tally, event)
  local files = vim.tbl_extend('force', {}, tally.changes) -- one copy, because an external agent may report thousands of files
  for _, file in ipairs(event.changed or {}) do
    local before = files[file.path] or { 0, 0 }
    files[file.path] = { before[1] + file.added, before[2] + file.removed }
  end
  tally.changes = files
end

--- The host has exited.
function changes.local_failed()
  return M.new()
end

--- Return the tally after `event`. `tally` itself is not modified.
---@param tally sanderling.session.tally.Tally
---@param event table
---@param now_ns integer
---@return sanderling.session.tally.Tally
function M.reduce(tally, event, now_ns)
  local change = changes[event.type]
  if not change then
    return tally
  end
  local after = {} ---@type any
  for field, value in pairs(tally) do
    after[field] = value
  end
  return change(after, event, now_ns) or after
end

return M
