--- A spinner and a stopwatch for running work, redrawn while a window shows them.
local M = {}

local api = vim.api
local bars = require('sanderling.ui.bars')
local connections = require('sanderling.status.connection')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local usage_words = require('sanderling.status.usage')
local words = require('sanderling.ui.words')

local TICK_MS = 250
local is_ticking = false

--- Return when the current work began. It is nil if nothing runs, while the user is asked, and for a connection, which
--- has its own countdown.
---@param state sanderling.session.state.State
---@return integer?
local function began_ns(state)
  if #state.questions > 0 or state.retry or connections.describe(state) then
    return nil
  elseif state.is_in_turn then
    return state.tally.turn_began_ns
  end
  return state.tally.commands_began_ns
end

--- Return the spinner and the elapsed time, or '' during the first second.
---@param state sanderling.session.state.State
---@return string
function M.describe(state)
  local began = began_ns(state)
  local passed_ms = began and (vim.uv.hrtime() - began) / 1e6 or 0
  local seconds = math.floor(passed_ms / 1000)
  if seconds < 1 then
    return ''
  end
  local frames = icons.spinner
  local frame = math.floor(passed_ms / TICK_MS) % vim.fn.strchars(frames)
  return (' %s %s'):format(vim.fn.strcharpart(frames, frame, 1), words.duration(seconds))
end

--- Return the duration, cost and changed lines of the last turn. Zero values are left out.
---@param state sanderling.session.state.State
---@return string
function M.turn_summary(state)
  local seconds = math.floor((state.tally.turn_took_ns or 0) / 1e9)
  local parts = { seconds > 0 and words.duration(seconds) or nil }
  parts[#parts + 1] = usage_words.turn_cost(state.usage)
  local files, added, removed = vim.tbl_count(state.tally.changes), 0, 0
  for _, counts in pairs(state.tally.changes) do
    added, removed = added + counts[1], removed + counts[2]
  end
  if files > 0 then
    local text = '%s +%d ' .. icons.minus .. '%d'
    parts[#parts + 1] = text:format(words.counted(files, 'file'), added, removed)
  end
  return table.concat(parts, icons.separator)
end

---@return boolean a window shows a session with running work
local function is_seen()
  local seen = vim.tbl_filter(function(session)
    return began_ns(session.state) ~= nil and session:is_on_screen()
  end, live.all())
  return #seen > 0
end

local function tick()
  is_ticking = false
  if is_seen() then
    if not api.nvim_get_mode().mode:find('^[cr!]') then -- not in these modes, where redrawing would overwrite the command line or a prompt
      bars.redraw()
    end
    M.run()
  end
end

--- Keep redrawing while something is running.
function M.run()
  if not is_ticking then
    is_ticking = true
    vim.defer_fn(tick, TICK_MS)
  end
end

return M
