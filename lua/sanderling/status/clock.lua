--- What changes in the bars as time passes: a spinner and a stopwatch for running work, and the countdown of a lost
--- connection. Here it is decided when the bars are redrawn.
local M = {}

local api = vim.api
local bars = require('sanderling.ui.bars')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local usage_words = require('sanderling.status.usage')
local words = require('sanderling.ui.words')

local TICK_MS = 250
local GROWN_MS = 300 -- between two redraws for growing numbers; a running clock redraws more often
local is_ticking, has_countdown = false, false

--- Return the state of the connection, nil while it is connected.
---@param state sanderling.session.state.State
---@param is_short? boolean
---@return string? text
---@return string? hl
function M.describe_connection(state, is_short)
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

--- Return when the current work began. It is nil if nothing runs, while the user is asked, and for a connection, which
--- has its own countdown.
---@param state sanderling.session.state.State
---@return integer?
local function began_ns(state)
  if #state.questions > 0 or state.retry or M.describe_connection(state) then
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

---@param state sanderling.session.state.State
---@return boolean
local function is_counting_down(state)
  local connection = state.connection
  return connection ~= nil and connection.state == 'waiting' and vim.uv.hrtime() < connection.due_ns
end

---@return boolean a window shows a session with running work
local function is_seen()
  return vim.iter(live.all()):any(function(session)
    return began_ns(session.state) ~= nil and session:is_on_screen()
  end)
end

--- Keep redrawing while something is running, and once more after a countdown.
local function run()
  has_countdown = vim.iter(live.all()):any(function(session)
    return is_counting_down(session.state)
  end)
  if is_ticking then
    return
  end
  is_ticking = true
  vim.defer_fn(function()
    is_ticking = false
    if has_countdown or is_seen() then
      if not api.nvim_get_mode().mode:find('^[cr!]') then -- not in these modes, where redrawing would overwrite the command line or a prompt
        bars.redraw()
      end
      run()
    end
  end, TICK_MS)
end

--- Redraw the bars if necessary. This happens once per frame of events, because each redraw of the bars redraws the
--- whole screen.
---@param before sanderling.session.state.State
---@param after sanderling.session.state.State
function M.redraw(before, after)
  local is_counting = before.connection ~= after.connection and is_counting_down(after)
  if is_counting or after.is_in_turn or after.commands_running > 0 then
    run()
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
