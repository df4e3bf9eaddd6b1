--- The state of the connection to a remote session, for the bars.
local bars = require('sanderling.ui.bars')
local live = require('sanderling.session.live')

local M = {}

local TICK_MS = 250

--- Return the state of the connection, nil while it is connected.
---@param state sanderling.session.state.State
---@param is_short? boolean
---@return string? text
---@return string? hl
function M.describe(state, is_short)
  local connection = state.connection
  if not connection or connection.state == 'connected' or connection.state == 'closed' then
    return nil
  elseif connection.state == 'refused' then
    return is_short and 'no link' or 'not connected', 'AgentError'
  elseif connection.state == 'connecting' then
    return connection.attempt > 0 and not is_short and 'reconnecting' or 'connecting',
      'AgentWarning'
  end
  local left_s = math.ceil((connection.due_ns - vim.uv.hrtime()) / 1e9)
  if left_s <= 0 then
    return is_short and 'connecting' or 'reconnecting', 'AgentWarning'
  end
  local text = is_short and 'again %d s' or 'reconnecting in %d s'
  return text:format(left_s), 'AgentWarning'
end

--- Redraw the bars while they show a countdown.
---@param session_id string
---@param connection? sanderling.session.state.Connection
function M.count_down(session_id, connection)
  if not connection or connection.state ~= 'waiting' then
    return
  end
  vim.defer_fn(function()
    if live.state_of(session_id).connection == connection then
      bars.redraw()
      if vim.uv.hrtime() < connection.due_ns then
        M.count_down(session_id, connection)
      end
    end
  end, TICK_MS)
end

return M
