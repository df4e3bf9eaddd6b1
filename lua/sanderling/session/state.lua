--- The state of an open session, computed only from its events: `reduce` uses neither Neovim nor a clock. Bars, pickers
--- and questions read the state and keep no facts of their own.
local M = {}

local tallies = require('sanderling.session.tally')

---@class (exact) sanderling.session.state.Question
---@field event sanderling.ApprovalRequested
---@field session_id string
---@field asked_ns integer

---@class (exact) sanderling.session.state.Sandbox
---@field level ''|'full'|'full-bwrap'|'namespaces'|'seatbelt'|'landlock'|'none'|'outer'|'off' empty while unknown
---@field network 'off'|'proxy'|'on'
---@field missing string[] protections that the level lacks
---@field problem string why commands cannot run, else empty

---@class (exact) sanderling.session.state.Waiting prompts queued in the host
---@field steering sanderling.Prompt[] for the current turn
---@field queued sanderling.Prompt[]
---@field is_held boolean they wait until the user releases them

---@class (exact) sanderling.session.state.Command a command of the user's that has not ended
---@field id string
---@field command string
---@field has_started boolean

---@class (exact) sanderling.session.state.Connection of a remote session
---@field state 'connecting'|'connected'|'waiting'|'refused'|'closed'
---@field name string
---@field why string it is not connected
---@field attempt integer
---@field due_ns integer time of the next attempt

---@class (exact) sanderling.session.state.State
---@field id string of the session
---@field title string empty if it has none
---@field model string
---@field effort string of the next request, 'default' unless chosen
---@field role? string nil without one
---@field agent string the external agent, else empty
---@field parent string the session that started this one for a part of its task, else empty
---@field worktree string the name of the worktree that it works in, else empty
---@field proposes? boolean closing it first proposes lines for AGENTS.md from what the user corrected
---@field is_corrected boolean here, since it was opened, the user gave a reason for a denial or rejection, or undid a turn
---@field children sanderling.ChildChanged[] its child sessions in the order of their start, as last known
---@field connection? sanderling.session.state.Connection of a remote session
---@field guest_options sanderling.GuestOption[] options of the external agent
---@field models? string[] once they were listed
---@field model_notes? table<string, string> notes on the models
---@field activity 'idle'|'starting'|'thinking'|'streaming'|'summarizing'|'remembering'|'stopping'|'waiting for you'|'failed'
---@field is_in_turn boolean
---@field turn? string id of the last turn's prompt
---@field tally sanderling.session.tally.Tally
---@field retry? sanderling.RetryScheduled the pending retry
---@field tools { id: string, name: string, title: string }[] running tools, in order
---@field questions sanderling.session.state.Question[] pending questions, in order
---@field mode 'ask'|'auto'|'plan'
---@field wanted_mode? 'ask'|'auto'|'plan' requested but not confirmed
---@field sandbox sanderling.session.state.Sandbox
---@field unconfirmed sanderling.Prompt[] sent prompts that no event has mentioned yet
---@field waiting sanderling.session.state.Waiting
---@field commands sanderling.session.state.Command[] commands of the user's
---@field commands_running integer in the sandbox, the user's and the agent's
---@field jobs sanderling.ShownJob[]
---@field todo sanderling.TodoItem[]
---@field is_todo_old boolean it is of an earlier turn
---@field tool_servers sanderling.ToolServer[]
---@field slash_commands? sanderling.SlashCommand[] of Markdown files; nil: not known yet
---@field untrusted? string[] paths of the project's files that are ignored
---@field usage? sanderling.UsageUpdated
---@field stream_began_ns? integer
---@field stream_bytes integer

--- Return the fields that have no value without a running host.
---@return table
local function at_rest()
  return {
    activity = 'idle',
    is_in_turn = false,
    is_todo_old = false,
    is_corrected = false,
    tools = {},
    questions = {},
    mode = 'ask',
    effort = 'default',
    sandbox = { level = '', network = 'off', missing = {}, problem = '' },
    unconfirmed = {},
    waiting = { steering = {}, queued = {}, is_held = false },
    commands = {},
    commands_running = 0,
    jobs = {},
    children = {},
    tool_servers = {},
    guest_options = {},
  }
end

---@param session_id string
---@return sanderling.session.state.State
function M.new(session_id)
  local state = at_rest()
  state.id, state.title, state.model, state.todo, state.stream_bytes = session_id, '', '', {}, 0
  state.agent, state.parent, state.worktree, state.tally = '', '', '', tallies.new()
  return state
end

-- derived values ------------------------------------------------------------------------------------------------------

--- Count the prompts that will start a turn, join the current one, or are held.
---@param state sanderling.session.state.State
---@return { queued: integer, steering: integer, held: integer }
function M.count_prompts(state)
  local steering, queued = #state.waiting.steering, #state.waiting.queued
  if state.waiting.is_held then
    return { queued = #state.unconfirmed, steering = 0, held = steering + queued }
  end
  return { queued = #state.unconfirmed + queued, steering = steering, held = 0 }
end

---@param state sanderling.session.state.State
---@return boolean the model works for a turn, a summary or a proposal
function M.is_working(state)
  local activity = state.activity
  return state.is_in_turn or activity == 'summarizing' or activity == 'remembering'
end

---@param state sanderling.session.state.State
---@return boolean something can be stopped
function M.is_busy(state)
  local counts = M.count_prompts(state)
  return M.is_working(state) or #state.commands > 0 or counts.queued + counts.steering > 0
end

---@param state sanderling.session.state.State
---@return sanderling.Prompt[] queued in the host, in the order of sending
function M.prompts_waiting(state)
  return vim.list_extend(vim.list_slice(state.waiting.steering), state.waiting.queued)
end

--- The states of a child session that has not ended.
---@type table<sanderling.ChildState, true>
M.is_active = { queued = true, running = true, waiting = true }

--- Count the child sessions that have not ended, and how many of them wait for the user.
---@param state sanderling.session.state.State
---@return { active: integer, waiting: integer }
function M.count_children(state)
  local active, waiting = 0, 0
  for _, child in ipairs(state.children) do
    active = active + (M.is_active[child.state] and 1 or 0)
    waiting = waiting + (child.state == 'waiting' and 1 or 0)
  end
  return { active = active, waiting = waiting }
end

-- changes by events ---------------------------------------------------------------------------------------------------

---@param list { id: string }[]
---@param id string
---@return table[] the others
---@return table? found
local function without(list, id)
  local others, found = {}, nil
  for _, each in ipairs(list) do
    found = each.id == id and each or found
    others[#others + 1] = each.id ~= id and each or nil
  end
  return others, found
end

--- The host has the prompts: they are saved, sent or returned without our help.
---@param state sanderling.session.state.State
---@param prompts sanderling.Prompt[]
local function confirm(state, prompts)
  for _, prompt in ipairs(prompts) do
    state.unconfirmed = without(state.unconfirmed, prompt.id)
  end
end

---@param state sanderling.session.state.State
local function expect_turn(state)
  local counts = M.count_prompts(state)
  if counts.queued + counts.steering > 0 and not state.is_in_turn then
    state.activity = 'starting'
  end
end

---@param state sanderling.session.state.State
---@param activity 'thinking'|'streaming'|'summarizing'|'remembering'
local function work(state, activity)
  if state.activity ~= 'stopping' then
    state.activity = activity
  end
end

--- The model is about to generate. Its speed is measured from the first delta.
---@param state sanderling.session.state.State
local function think(state)
  work(state, 'thinking')
  state.stream_began_ns, state.stream_bytes = nil, 0
end

---@param state sanderling.session.state.State
---@param activity 'thinking'|'streaming'
---@param text string
---@param now_ns integer
local function stream(state, activity, text, now_ns)
  state.retry = nil
  work(state, activity)
  state.stream_began_ns = state.stream_began_ns or now_ns
  state.stream_bytes = state.stream_bytes + #text
end

---@param state sanderling.session.state.State
local function end_compaction(state)
  if state.activity == 'summarizing' then
    state.activity = state.is_in_turn and 'thinking' or 'idle'
  end
end

---@param list any[]
---@param item any
---@return any[]
local function with(list, item)
  return vim.list_extend(vim.list_slice(list), { item })
end

--- Each function changes fields of the new state, and never modifies their old values.
---@type table<string, fun(state: sanderling.session.state.State, event: any, now_ns: integer)>
local changes = {
  compacted = end_compaction,
  notice = end_compaction,
  error_occurred = end_compaction,
}

function changes.session_opened(state, event)
  state.model, state.title, state.agent = event.model, event.title or '', event.agent or ''
  state.parent, state.worktree = event.parent or '', event.worktree or ''
  state.proposes = event.proposes
end

function changes.connection_changed(state, event, now_ns)
  state.connection = {
    state = event.state,
    name = event.name,
    why = event.why or '',
    attempt = event.attempt or 0,
    due_ns = now_ns + (event.delay_s or 0) * 1e9,
  }
  if event.state == 'connected' and state.activity == 'failed' then
    state.activity = 'idle' -- it described the connection, or the transcript reports it
  end
end

--- Fields that an event replaces, with their names in the event.
for type, fields in pairs({
  commands_running = { commands_running = 'count' },
  guest_options_changed = { guest_options = 'options' },
  jobs_changed = { jobs = 'jobs' },
  local_mode_wanted = { wanted_mode = 'mode' },
  local_models_known = { models = 'models', model_notes = 'notes' },
  model_changed = { model = 'model' },
  slash_commands_changed = { slash_commands = 'commands' },
  title_changed = { title = 'title' },
  tool_servers_changed = { tool_servers = 'servers' },
  trust_needed = { untrusted = 'paths' },
}) do
  changes[type] = function(state, event)
    for field, name in pairs(fields) do
      state[field] = event[name]
    end
  end
end

function changes.child_changed(state, event)
  local children = vim.list_slice(state.children)
  local at = #children + 1
  for i, child in ipairs(children) do
    at = child.id == event.id and i or at
  end
  children[at] = event
  state.children = children
end

function changes.todo_changed(state, event)
  state.todo, state.is_todo_old = event.items, false
end

function changes.usage_updated(state, event)
  state.usage = event
end

function changes.effort_changed(state, event)
  state.effort = event.next or event.effort
end

function changes.role_changed(state, event)
  state.role = event.name
end

function changes.mode_changed(state, event)
  state.mode = event.mode
  if state.wanted_mode == event.mode then
    state.wanted_mode = nil
  end
end

function changes.sandbox_changed(state, event)
  state.sandbox = {
    level = event.level,
    network = event.network,
    missing = event.missing or {},
    problem = event.problem or '',
  }
end

function changes.approval_requested(state, event, now_ns)
  local question = { event = event, session_id = state.id, asked_ns = now_ns }
  state.questions = with(state.questions, question)
end

function changes.approval_settled(state, event)
  state.questions = vim.tbl_filter(function(question)
    return question.event.id ~= event.id
  end, state.questions)
end

function changes.local_answered(state, event)
  changes.approval_settled(state, event)
  state.is_corrected = state.is_corrected or event.is_correction or false
end

function changes.local_rejected(state)
  state.is_corrected = true
end

function changes.files_restored(state, event)
  state.is_corrected = state.is_corrected or event.kind == 'undo'
end

-- prompts and the user's commands

function changes.local_prompt_sent(state, event)
  state.unconfirmed = with(state.unconfirmed, event.prompt)
  expect_turn(state)
end

function changes.waiting_changed(state, event)
  local is_held = event.is_held or false
  state.waiting =
    { steering = event.steering or {}, queued = event.queued or {}, is_held = is_held }
  confirm(state, M.prompts_waiting(state))
  expect_turn(state)
end

function changes.prompt_steered(state, event)
  confirm(state, { event.prompt })
  expect_turn(state)
end

function changes.prompts_returned(state, event)
  confirm(state, event.prompts)
  expect_turn(state)
end

function changes.local_command_sent(state, event)
  local command = { id = event.id, command = event.command, has_started = false }
  state.commands = with(state.commands, command)
end

function changes.command_started(state, event)
  local others, sent = without(state.commands, event.id)
  local command = (sent or event).command
  state.commands = with(others, { id = event.id, command = command, has_started = true })
end

function changes.command_ended(state, event)
  state.commands = without(state.commands, event.id)
end

-- turns

function changes.provider_starting(state)
  state.activity = 'starting'
end

function changes.turn_started(state, event)
  confirm(state, { event.prompt })
  state.is_in_turn, state.activity, state.tools, state.retry = true, 'thinking', {}, nil
  state.turn, state.is_todo_old = event.prompt.id, true
  think(state)
end

function changes.thinking_delta(state, event, now_ns)
  stream(state, 'thinking', event.text, now_ns)
end

function changes.text_delta(state, event, now_ns)
  stream(state, 'streaming', event.text, now_ns)
end

function changes.tool_started(state, event)
  state.tools = with(state.tools, { id = event.id, name = event.tool, title = event.title })
end

function changes.tool_ended(state, event)
  state.tools = without(state.tools, event.id)
  think(state)
end

function changes.retry_scheduled(state, event)
  state.retry = event
end

function changes.retry_started(state)
  state.retry = nil
  think(state)
end

function changes.compaction_started(state)
  work(state, 'summarizing')
end

function changes.remembering_started(state)
  work(state, 'remembering')
end

function changes.local_stop_sent(state)
  if M.is_working(state) then
    state.activity = 'stopping'
  end
end

--- Stop reasons that need a decision of the user.
local needs_user = { max_tokens = true, refusal = true, context_full = true }

function changes.turn_ended(state, event)
  state.is_in_turn, state.tools, state.retry = false, {}, nil
  state.activity = event.stop_reason == 'error' and 'failed'
    or needs_user[event.stop_reason] and 'waiting for you'
    or 'idle'
end

--- The host has exited. The next one starts from scratch, and its first events are not known yet.
function changes.local_failed(state)
  for field, value in pairs(at_rest()) do
    state[field] = value
  end
  state.activity, state.turn, state.retry, state.wanted_mode = 'failed', nil, nil, nil
  state.connection = nil
end

--- Return the state after `event`. `state` itself is not modified.
---@param state sanderling.session.state.State
---@param event table
---@param now_ns integer
---@return sanderling.session.state.State
function M.reduce(state, event, now_ns)
  local change = changes[event.type]
  if not change then
    return state
  end
  local after = {} ---@type any
  for field, value in pairs(state) do
    after[field] = value
  end
  change(after, event, now_ns)
  after.tally = tallies.reduce(state.tally, event, now_ns)
  return after
end

return M
