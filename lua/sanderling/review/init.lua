--- The review of what the agent changes in files: each change is a hunk of its buffer, which a person keeps or rejects there.
local M = {}

local draw = require('sanderling.review.draw')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.review.keys')
local listeners = require('sanderling.editing.listeners')
local live = require('sanderling.session.live')

--- The session that uses a tool. The frame that tells of the use may be on its way yet.
---@param tool_use_id string
---@return sanderling.session.state.State
local function state_using(tool_use_id)
  local in_turn
  for _, session in ipairs(live.all()) do
    in_turn = in_turn or session.state.is_in_turn and session.state or nil
    for _, tool in ipairs(session.state.tools) do
      if tool.id == tool_use_id then
        return session.state
      end
    end
  end
  return in_turn or live.state_of(live.current_id())
end

function listeners.review(buf, tool_use_id, fn)
  local state = state_using(tool_use_id)
  local source = { session_id = state.id, tool_use_id = tool_use_id, turn = state.turn or '' }
  draw.keeping_views(buf, function()
    hunks.changing(buf, source, fn)
  end)
end

hunks.on_change(draw.update)
hunks.on_change(keys.update)

return M
