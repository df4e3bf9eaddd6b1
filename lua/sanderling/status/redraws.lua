--- Redraws of the bars after changes of a session's state.
local M = {}

local bars = require('sanderling.ui.bars')
local clock = require('sanderling.status.clock')
local connections = require('sanderling.status.connection')

local GROWN_MS = 300 -- between two redraws for growing numbers; a running clock redraws more often

local is_redraw_due = false

--- Fields that change with every delta.
local is_growing = { usage = true, stream_bytes = true, stream_began_ns = true }

--- Return whether two states differ in more than growing numbers.
---@param before sanderling.session.state.State
---@param after sanderling.session.state.State
---@return boolean
function M.differ(before, after)
  for _, fields in ipairs(before ~= after and { before, after } or {}) do
    for field in pairs(fields) do
      if not is_growing[field] and before[field] ~= after[field] then
        return true
      end
    end
  end
  return false
end

--- Redraw the bars if necessary. This happens once per frame of events, because each redraw of the bars redraws the
--- whole screen.
---@param before sanderling.session.state.State
---@param after sanderling.session.state.State
function M.redraw(before, after)
  if before.connection ~= after.connection then
    connections.count_down(after.id, after.connection)
  end
  if after.is_in_turn or after.commands_running > 0 then
    clock.run()
  end
  local is_wanted = M.differ(before, after) or before ~= after and bars.age_ms() > GROWN_MS
  if is_wanted and not is_redraw_due then
    is_redraw_due = true
    vim.schedule(function()
      is_redraw_due = false
      bars.redraw()
    end)
  end
end

return M
