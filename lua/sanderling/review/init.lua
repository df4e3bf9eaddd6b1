--- Review of the agent's changes in files: each change is a hunk in its buffer, which the user accepts or rejects
--- there.
local M = {}

local bars = require('sanderling.ui.bars')
local bus = require('sanderling.host.bus')
local closed_files = require('sanderling.review.closed_files')
local draw = require('sanderling.review.draw')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.review.keys')
local listeners = require('sanderling.editing.listeners')
local live = require('sanderling.session.live')
local reviews = require('sanderling.editing.reviews')

require('sanderling.review.report')

--- Return the state of the session that uses a tool, or one in a turn if the frame with the tool use has not arrived
--- yet.
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

---@param tool_use_id string
---@return sanderling.review.Source
local function source_of(tool_use_id)
  local state = state_using(tool_use_id)
  return { session_id = state.id, tool_use_id = tool_use_id, turn = state.turn or '' }
end

listeners.on_change(function(changed)
  if not changed.buf and not listeners.is_allowed(changed.tool_use_id) then
    local source = source_of(changed.tool_use_id)
    closed_files.add(changed.path, changed.hunks[1].first_line, source, #changed.hunks)
  end
end)

--- Report rejected hunks to the sessions that made the changes. Rejected proposals are reported by the question's
--- answer instead.
hunks.on_decision(function(list, is_kept, reason)
  local by_session = {} ---@type table<string, sanderling.RejectedHunk[]>
  for _, hunk in ipairs(list) do
    if not is_kept and not hunk.source.is_proposed then
      local id = hunk.source.session_id
      by_session[id] = by_session[id] or {}
      table.insert(by_session[id], {
        first_line = hunk.row + 1,
        rejected = hunks.text_of(hunk),
        restored = hunk.old,
      })
    end
  end
  for session_id, rejected in pairs(by_session) do
    local path = vim.fn.resolve(vim.api.nvim_buf_get_name(list[1].buf))
    local session = live.find(session_id)
    if session then
      session:act({
        type = 'reject_changes',
        path = path,
        hunks = rejected,
        reason = reason,
      }, reason ~= '' and { type = 'local_rejected' } or nil)
    end
  end
end)

hunks.on_change(draw.update)
hunks.on_change(keys.update)

local known = 0 -- hunks that the bars show

local function recount()
  local count = hunks.counts()
  if count ~= known then
    known = count
    for _, session in ipairs(live.all()) do
      bus.publish(session.id, { { type = 'local_reviewed' } })
    end
    vim.schedule(bars.redraw)
  end
end

hunks.on_change(recount)
closed_files.on_change(recount)

bus.subscribe('changes_unreviewed', function(session_id, event)
  for _, path in ipairs(event.settled or {}) do
    closed_files.settle(session_id, path)
    hunks.settle(session_id, path)
  end
  closed_files.take_over(session_id, event.files)
end)

reviews.register({
  changing = function(buf, tool_use_id, fn)
    local source = source_of(tool_use_id)
    draw.keeping_views(buf, function()
      hunks.changing(buf, source, fn)
    end)
  end,
  restoring = hunks.restoring,
})

return M
