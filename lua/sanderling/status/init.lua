--- What the winbars and the statusline say: mode, model, session, state, tokens and what they cost, sandbox.
local api = vim.api
local host = require('sanderling.host')
local live = require('sanderling.session.live')
local sandbox = require('sanderling.session.sandbox')
local words = require('sanderling.ui.words')

local M = {}

local REDRAW_NS = 250 * 1e6 -- between two redraws for a number that merely grows
local BYTES_PER_TOKEN = 4 -- about; the API tells the truth only at the end
local MIN_TITLE_CELLS = 5
local MIN_MODEL_CELLS = 8 -- less of the model's name says nothing
local TITLE_CELLS = 24 -- that the title has before tokens and dollars are told

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
local function state_of(session_id)
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

---@type string[] states in which the model is not at work
local AT_REST = { 'idle', 'waiting for you', 'failed' }

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
      handle(state_of(session_id), event)
    end
  end
end)

---@param state sanderling.status.State
---@return boolean commands run, and the model is not at work
local function is_running(state)
  return state.commands > 0 and vim.list_contains(AT_REST, state.name)
end

---@param state sanderling.status.State
---@param is_short? boolean
---@return string
local function describe(state, is_short)
  local approvals = vim.tbl_count(state.approvals)
  if approvals > 0 then
    return (is_short and '%d to approve' or 'waiting for you: %d to approve'):format(approvals)
  elseif state.retry and state.name ~= 'stopping' then
    return ('retrying %d/%d'):format(state.retry.attempt, state.retry.attempts)
  elseif #state.tools > 1 and state.name ~= 'stopping' then
    return ('running %s and %d more'):format(state.tools[1].name, #state.tools - 1)
  elseif #state.tools == 1 and state.name ~= 'stopping' then
    return 'running ' .. state.tools[1].name
  elseif is_running(state) then
    return 'running ' .. words.counted(state.commands, 'command')
  elseif state.name ~= 'streaming' or not state.stream_began then
    return state.name
  end
  local seconds = (vim.uv.hrtime() - state.stream_began) / 1e9
  if seconds < 0.5 then
    return 'streaming'
  end
  return ('streaming %d tokens/s'):format(state.stream_bytes / BYTES_PER_TOKEN / seconds)
end

---@param usage sanderling.Usage
---@return integer
local function prompt_tokens(usage)
  return (usage.input_tokens or 0)
    + (usage.cache_read_input_tokens or 0)
    + (usage.cache_creation_input_tokens or 0)
end

---@param usage sanderling.Usage
---@return integer
local function all_tokens(usage)
  return prompt_tokens(usage) + (usage.output_tokens or 0)
end

---@param usage sanderling.UsageUpdated
---@return integer? percent of the context window that is full
local function context_percent(usage)
  local window = usage.context_window_tokens or 0
  return window > 0 and math.ceil(100 * all_tokens(usage.last_request) / window) or nil
end

---@param usd? number
---@return string
local function dollars(usd)
  usd = usd or 0
  return usd > 0 and usd < 0.005 and '<$0.01' or ('$%.2f'):format(usd)
end

--- For the statusline: what the session has used.
---@param usage? sanderling.UsageUpdated
---@return string
local function describe_usage(usage)
  if not usage then
    return '0 tokens'
  end
  local parts = { words.short(all_tokens(usage.total)) .. ' tokens' }
  local percent = context_percent(usage)
  if percent then
    parts[#parts + 1] = ('context %d%%'):format(percent)
  end
  if usage.is_priced then
    parts[#parts + 1] = dollars(usage.cost_usd)
  end
  return table.concat(parts, ', ')
end

--- For a winbar: tokens in and out of this turn and how many of them were cached, the context, the session's dollars and the
--- turn's; nothing of what is nothing. With each step of `brevity` something more is left out, what matters least first.
---@param usage sanderling.UsageUpdated
---@param brevity integer from 0 to 5
---@return string
local function usage_words(usage, brevity)
  local parts = {}
  local turn = usage.turn or {}
  local input, percent = prompt_tokens(turn), context_percent(usage)
  local cached = input > 0 and math.floor(100 * (turn.cache_read_input_tokens or 0) / input) or 0
  local function add(max_brevity, is_something, format, ...)
    if brevity <= max_brevity and is_something then
      parts[#parts + 1] = format:format(...)
    end
  end
  add(2, input > 0, '↑%s ↓%s', words.short(input), words.short(turn.output_tokens or 0))
  add(1, cached > 0, '↻%d%%', cached)
  add(4, percent ~= nil, 'ctx %d%%', percent or 0)
  add(3, usage.is_priced and (usage.cost_usd or 0) > 0, '%s', dollars(usage.cost_usd))
  add(0, usage.is_priced and (usage.turn_cost_usd or 0) > 0, '(+%s)', dollars(usage.turn_cost_usd))
  return table.concat(parts, ' ')
end

--- As much of it as fits into `width` cells.
---@param usage? sanderling.UsageUpdated
---@param width integer
---@return string
local function fitting_usage(usage, width)
  for brevity = 0, usage and 5 or -1 do
    local text = usage_words(usage, brevity)
    if api.nvim_strwidth(text) <= width then
      return text
    end
  end
  return ''
end

local mode_names = {
  n = 'NORMAL',
  i = 'INSERT',
  R = 'REPLACE',
  v = 'VISUAL',
  V = 'V-LINE',
  ['\22'] = 'V-BLOCK',
  s = 'SELECT',
  S = 'S-LINE',
  ['\19'] = 'S-BLOCK',
  c = 'COMMAND',
}

--- The mode, when the window whose winbar is drawn is the one that the user is in.
---@return string
local function mode_here()
  if tostring(api.nvim_get_current_win()) ~= tostring(vim.g.actual_curwin) then
    return ''
  end
  local mode = api.nvim_get_mode().mode
  return mode_names[mode:sub(1, 1)] or mode:upper()
end

---@param text string
local function escape(text)
  return (text:gsub('%%', '%%%%'))
end

--- The words of the sandbox as they fit into `width` cells: what they warn of goes first, the colours say it too.
---@param session_id string
---@param width integer
---@return string text for a winbar
---@return integer width
local function sandbox_part(session_id, width)
  local function render(is_short)
    local parts, cells = {}, 0
    for _, word in ipairs(sandbox.words(session_id, is_short)) do
      parts[#parts + 1] = ('%%#%s#%s'):format(word.hl or 'AgentStatus', escape(word.text))
      cells = cells + api.nvim_strwidth(word.text) + 1
    end
    return table.concat(parts, '%#AgentStatus# ') .. '%#AgentStatus# ', cells
  end
  local text, cells = render()
  if cells > width then
    text, cells = render(true)
  end
  return text, cells
end

--- Which of the sessions that are open this is; nothing when it is the only one.
---@param session_id string
---@return string
local function place_of(session_id)
  local sessions = live.all()
  for i, session in ipairs(sessions) do
    if session.id == session_id and #sessions > 1 then
      return ('%d/%d '):format(i, #sessions)
    end
  end
  return ''
end

--- The session's title, else the time at which it began, as it fits into `width` cells.
---@param session_id string
---@param width integer
---@return string
local function fitting_title(session_id, width)
  local session = live.find(session_id)
  local text = session and words.plain(session:name()) or ''
  local is_there = width >= MIN_TITLE_CELLS or api.nvim_strwidth(text) <= width
  return is_there and words.fitting(text, width) or ''
end

--- How many cells the title is to have before anything else is told of the session.
---@param session_id string
---@param room integer
---@return integer
local function cells_for_title(session_id, room)
  local session = live.find(session_id)
  local title = session and words.plain(session.title) or ''
  return math.min(api.nvim_strwidth(title), math.max(TITLE_CELLS, math.floor(room / 2)))
end

--- 'winbar' of a transcript's window, the same whether the cursor is in it or not: session, tokens and dollars, sandbox. The
--- sandbox never gives way, and the title only to itself. Neovim makes the window current while it asks.
---@return string
function M.transcript_winbar()
  local session_id = vim.b.sanderling_session
  local width = api.nvim_win_get_width(0)
  local sandbox_text, sandbox_width = sandbox_part(session_id, width)
  local place = place_of(session_id)
  local room = width - sandbox_width - #place - #'    '
  local usage =
    fitting_usage(state_of(session_id).usage, room - cells_for_title(session_id, room) - 1)
  local title = place .. fitting_title(session_id, room - api.nvim_strwidth(usage))
  return ('%%#AgentStatus#%%< %s %%=%s  %s'):format(escape(title), escape(usage), sandbox_text)
end

--- 'statusline' of a transcript's window: the title, whose beginning says most.
---@return string
function M.transcript_statusline()
  local session = live.find(vim.b.sanderling_session)
  local text = 'Sanderling: ' .. words.plain(session and session:name() or '')
  local width = vim.o.laststatus == 3 and vim.o.columns or api.nvim_win_get_width(0)
  return escape(words.fitting(text, width - #'  100% '))
end

--- The highlight of the state: what waits for the user stands out.
---@param state sanderling.status.State
---@return string
local function state_hl(state)
  if next(state.approvals) then
    return 'AgentWarning'
  end
  if state.retry then
    return 'AgentWarning'
  end
  local is_busy = state.is_in_turn or state.name == 'summarizing' or is_running(state)
  return is_busy and 'AgentBusy' or 'AgentStatus'
end

---@type table<string, string>
local agent_mode_hls = { ask = 'AgentStatus', auto = 'AgentModeAuto', plan = 'AgentModePlan' }

--- 'winbar' of a prompt's window: Vim's mode, the agent's, state, how many prompts wait, jobs, model, which gives way first.
---@return string
function M.prompt_winbar()
  local state = state_of(vim.b.sanderling_session)
  local queued = state.is_in_turn and state.queued or 0
  local steering = state.is_in_turn and state.steering or 0
  local mode = mode_here()
  mode = mode ~= '' and mode or 'PROMPT'
  local counts = (steering > 0 and (' · %d steering'):format(steering) or '')
    .. (queued > 0 and (' · %d queued'):format(queued) or '')
    .. (state.held > 0 and (' · %d held'):format(state.held) or '')
    .. (state.jobs > 0 and ' · ' .. words.counted(state.jobs, 'job') or '')
  local room = api.nvim_win_get_width(0)
    - api.nvim_strwidth(mode .. state.mode .. counts)
    - #'   '
    - #'  '
  local name = describe(state)
  if api.nvim_strwidth(name) > room then
    name = describe(state, true)
  end
  room = room - api.nvim_strwidth(name)
  return ('%%#AgentMode# %s %%#%s#%s%%#AgentStatus# %%#%s#%s%s%%#AgentStatus# %%=%s '):format(
    mode,
    agent_mode_hls[state.mode],
    state.mode,
    state_hl(state),
    escape(name),
    counts,
    escape(room >= MIN_MODEL_CELLS and words.fitting(state.model, room) or '')
  )
end

--- What the statusline says, and the highlight group of the state.
---@return string? text nil while there is no session
---@return string hl
function M.summary()
  local session_id = live.current_id()
  if not session_id then
    return nil, 'AgentStatus'
  end
  local state = state_of(session_id)
  local confinement = vim.tbl_map(function(word)
    return word.text
  end, sandbox.words(session_id))
  local parts = { describe(state) }
  if state.mode ~= 'ask' then
    parts[#parts + 1] = 'mode ' .. state.mode
  end
  if state.jobs > 0 then
    parts[#parts + 1] = words.counted(state.jobs, 'job')
  end
  vim.list_extend(parts, { describe_usage(state.usage), table.concat(confinement, ' ') })
  return table.concat(parts, ' · '), state_hl(state)
end

--- Free of `%`, whose number of signs would have to differ with the place: as an expression's value, as a part of 'statusline'
--- itself, which is what plugins make of it, and evaluated twice.
---@return string
function M.statusline()
  local text = M.summary()
  return text and 'Sanderling: ' .. text:gsub('%s*%%', ' percent') or ''
end

return M
