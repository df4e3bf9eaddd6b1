--- What each session is doing, as the bars tell it.
local host = require('sanderling.host')

local M = {}

local REDRAW_NS = 250 * 1e6 -- between two redraws for a number that merely grows

---@class (exact) sanderling.status.State
---@field name 'idle'|'starting'|'thinking'|'streaming'|'summarizing'|'stopping'|'waiting for you'|'failed'
---@field model string
---@field queued integer prompts that were sent and whose turn has not started
---@field steering integer prompts that go into the turn that runs
---@field held integer prompts that wait until the person lets them go
---@field retry? sanderling.RetryScheduled that is waited for
---@field is_in_turn boolean
---@field commands integer that run in the sandbox
---@field mode 'ask'|'auto'|'plan'
---@field approvals table<string, true> ids of the questions that wait
---@field tools { id: string, name: string }[] at work, in the order in which they began
---@field jobs integer that run in the background
---@field usage? sanderling.UsageUpdated
---@field stream_began? integer nanoseconds
---@field stream_bytes integer

---@type table<string, sanderling.status.State> by session id
local states = {}
local last_redraw = 0
local is_redraw_due = false

---@param session_id string
---@return sanderling.status.State
function M.of(session_id)
  if not states[session_id] then
    states[session_id] = {
      name = 'idle',
      model = '',
      queued = 0,
      steering = 0,
      held = 0,
      is_in_turn = false,
      commands = 0,
      mode = 'ask',
      approvals = {},
      tools = {},
      jobs = 0,
      stream_bytes = 0,
    }
  end
  return states[session_id]
end

--- Draw the bars again when all events of the frame were handled: each time draws the whole screen, and a frame has several
--- events that change them.
---@param is_urgent boolean
local function redraw(is_urgent)
  local is_wanted = is_urgent or vim.uv.hrtime() - last_redraw > REDRAW_NS
  if is_wanted and not is_redraw_due then
    is_redraw_due = true
    vim.schedule(function()
      is_redraw_due, last_redraw = false, vim.uv.hrtime()
      pcall(vim.cmd.redrawstatus, { bang = true })
    end)
  end
end

---@param state sanderling.status.State
---@param name 'thinking'|'streaming'
---@param text string
local function on_delta(state, name, text)
  local is_new = state.name ~= name and state.name ~= 'stopping'
  state.retry = nil
  if is_new then
    state.name = name
  end
  state.stream_began = state.stream_began or vim.uv.hrtime()
  state.stream_bytes = state.stream_bytes + #text
  redraw(is_new)
end

---@type table<string, fun(state: sanderling.status.State, event: any)>
local handlers = {}

function handlers.session_opened(state, event)
  state.model = event.model
  redraw(true)
end

function handlers.model_changed(state, event)
  state.model = event.model
  redraw(true)
end

function handlers.title_changed()
  redraw(true)
end

function handlers.local_queue(state, event)
  state.queued, state.steering = event.queued, event.steering
  if event.queued + event.steering > 0 and not state.is_in_turn then
    state.name = 'starting'
  end
  redraw(true)
end

function handlers.waiting_changed(state, event)
  state.held = event.is_held and #(event.steering or {}) + #(event.queued or {}) or 0
  redraw(true)
end

function handlers.local_stop_sent(state)
  if state.is_in_turn then
    state.name = 'stopping'
    redraw(true)
  end
end

--- The model has something to think about. What it will say is measured from its first word on.
---@param state sanderling.status.State
local function begin_thinking(state)
  if state.name ~= 'stopping' then
    state.name = 'thinking'
  end
  state.stream_began, state.stream_bytes = nil, 0
  redraw(true)
end

function handlers.turn_started(state)
  state.is_in_turn, state.name, state.tools, state.retry = true, 'thinking', {}, nil
  begin_thinking(state)
end

function handlers.tool_started(state, event)
  local name = event.tool:match('^[%w_%-]+$') or 'a tool' -- the model can ask for any
  table.insert(state.tools, { id = event.id, name = name })
  redraw(true)
end

function handlers.tool_ended(state, event)
  state.tools = vim.tbl_filter(function(tool)
    return tool.id ~= event.id
  end, state.tools)
  begin_thinking(state)
end

function handlers.provider_starting(state)
  state.name = 'starting'
  redraw(true)
end

function handlers.retry_scheduled(state, event)
  state.retry = event
  redraw(true)
end

function handlers.retry_started(state)
  state.retry = nil
  begin_thinking(state)
end

function handlers.compaction_started(state)
  if state.name ~= 'stopping' then
    state.name = 'summarizing'
  end
  redraw(true)
end

--- The conversation was summarized, or was not.
---@param state sanderling.status.State
local function end_compaction(state)
  if state.name == 'summarizing' then
    state.name = state.is_in_turn and 'thinking' or 'idle'
    redraw(true)
  end
end

handlers.compacted = end_compaction
handlers.notice = end_compaction
handlers.error_occurred = end_compaction

function handlers.thinking_delta(state, event)
  on_delta(state, 'thinking', event.text)
end

function handlers.text_delta(state, event)
  on_delta(state, 'streaming', event.text)
end

function handlers.usage_updated(state, event)
  state.usage = event
  redraw(false)
end

--- Ends that ask the user to decide how to go on.
local needs_user = { max_tokens = true, refusal = true, context_full = true }

function handlers.turn_ended(state, event)
  state.is_in_turn, state.tools, state.retry = false, {}, nil
  state.name = event.stop_reason == 'error' and 'failed'
    or needs_user[event.stop_reason] and 'waiting for you'
    or 'idle'
  redraw(true)
end

function handlers.local_failed(state)
  state.is_in_turn, state.name, state.commands = false, 'failed', 0
  state.mode, state.approvals, state.tools, state.jobs = 'ask', {}, {}, 0
  state.retry, state.held = nil, 0
  redraw(true)
end

function handlers.commands_running(state, event)
  state.commands = event.count
  redraw(true)
end

function handlers.mode_changed(state, event)
  state.mode = event.mode
  redraw(true)
end

function handlers.approval_requested(state, event)
  state.approvals[event.id] = true
  redraw(true)
end

function handlers.approval_settled(state, event)
  state.approvals[event.id] = nil
  redraw(true)
end

function handlers.jobs_changed(state, event)
  state.jobs = 0
  for _, job in ipairs(event.jobs) do
    state.jobs = state.jobs + (job.outcome == '' and 1 or 0)
  end
  redraw(true)
end

function handlers.sandbox_changed()
  redraw(true)
end

host.subscribe(function(session_id, events)
  for _, event in ipairs(events) do
    if event.type == 'local_closed' then
      states[session_id] = nil
      return
    end
    local handle = handlers[event.type]
    if handle then
      handle(M.of(session_id), event)
    end
  end
end)

return M
