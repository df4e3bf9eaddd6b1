--- The chat's bars and the statusline: mode, model, session, activity, tokens and cost, sandbox.
local api = vim.api
local bars = require('sanderling.ui.bars')
local clock = require('sanderling.status.clock')
local icons = require('sanderling.ui.icons')
local install = require('sanderling.host.install')
local live = require('sanderling.session.live')
local sandbox = require('sanderling.session.sandbox')
local states = require('sanderling.session.state')
local usage_words = require('sanderling.status.usage')
local words = require('sanderling.ui.words')

local M = {}

local BYTES_PER_TOKEN = 4 -- an estimate, because the API reports usage only at the end
local MIN_TITLE_CELLS = 5
local MIN_MODEL_CELLS = 8 -- a shorter model name is useless
local AT_REST = { 'idle', 'waiting for you', 'failed' } -- the model is not working

-- texts ---------------------------------------------------------------------------------------------------------------

---@param state sanderling.session.state.State
---@return boolean commands are running, and the model is not working
local function is_running(state)
  return state.commands_running > 0 and vim.list_contains(AT_REST, state.activity)
end

---@param tool { name: string }
---@return boolean
local function is_delegation(tool)
  return tool.name == 'delegate'
end

---@param state sanderling.session.state.State
---@param is_short? boolean leave out what the count of children says
---@return string the running tools
local function describe_tools(state, is_short)
  if is_short and vim.iter(state.tools):all(is_delegation) then
    return 'running'
  end
  local name = state.tools[1].name:match('^[%w_%-]+$') or 'a tool' -- the model can call tools by any name
  local more = #state.tools > 1 and (' and %d more'):format(#state.tools - 1) or ''
  return 'running ' .. name .. more
end

---@param state sanderling.session.state.State
---@param is_short? boolean
---@return string
local function describe(state, is_short)
  local is_stopping = state.activity == 'stopping'
  local connection = clock.describe_connection(state, is_short)
  if connection then
    return connection
  elseif #state.questions > 0 then
    local text = is_short and '%d to answer' or 'waiting for you: %d to answer'
    return text:format(#state.questions)
  elseif state.retry and not is_stopping then
    return ('retrying %d/%d'):format(state.retry.attempt, state.retry.attempts)
  elseif #state.tools > 0 and not is_stopping then
    return describe_tools(state, is_short)
  elseif is_running(state) then
    return 'running ' .. words.counted(state.commands_running, 'command')
  elseif state.activity == 'failed' and install.is_building then
    return is_short and 'building' or 'building the environment'
  elseif state.activity ~= 'streaming' or not state.stream_began_ns then
    return state.activity
  end
  local seconds = (vim.uv.hrtime() - state.stream_began_ns) / 1e9
  if is_short or seconds < 0.5 then
    return 'streaming'
  end
  return ('streaming %d tokens/s'):format(state.stream_bytes / BYTES_PER_TOKEN / seconds)
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

--- Return Vim's mode if the current window shows the session, else ''. A bar is evaluated with its own window as the
--- current one.
---@param session_id string
---@return string
local function mode_of(session_id)
  local win = tonumber(vim.g.actual_curwin)
  local is_valid = win and api.nvim_win_is_valid(win)
  if not is_valid or vim.b[api.nvim_win_get_buf(win)].sanderling_session ~= session_id then
    return ''
  end
  local mode = win == api.nvim_get_current_win() and api.nvim_get_mode().mode or bars.mode()
  return mode_names[mode:sub(1, 1)] or mode:upper()
end

--- Return the text of a plugin that replaces a part, nil if none does.
---@param name string
---@param session? sanderling.chat.session.Session
---@return string?
local function plugins_text(name, session)
  local plugins = package.loaded['sanderling.extend.status']
  return plugins and session and plugins.text(name, session, M.of)
end

---@param text string
local function escape(text)
  return (text:gsub('%%', '%%%%'))
end

--- Return the state of the sandbox in at most `width` cells. If it is too long, the warning is dropped; the color still
--- shows it.
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

--- Return the position of a session among the open ones, '' if it is the only one.
---@param session_id string
---@return string
local function place_of(session_id)
  local sessions = live.chats()
  for i, session in ipairs(sessions) do
    if session.id == session_id and #sessions > 1 then
      return ('%d/%d '):format(i, #sessions)
    end
  end
  return ''
end

--- Return the session's title or start time, for a child after that of the session that started it.
---@param session? sanderling.chat.session.Session
---@return string
local function title_of(session)
  if not session then
    return ''
  end
  local name, state = words.plain(session:name()), session.state
  if state.parent == '' then
    return name
  end
  local parent = live.find(state.parent)
  return ('child of %s: %s'):format(parent and words.plain(parent:name()) or state.parent, name)
end

--- Return the session's title or start time, shortened to `width` cells.
---@param session_id string
---@param width integer
---@return string
local function fitting_title(session_id, width)
  local session = live.find(session_id)
  local text = plugins_text('title', session) or title_of(session)
  local is_there = width >= MIN_TITLE_CELLS or api.nvim_strwidth(text) <= width
  return is_there and words.fitting(text, width) or ''
end

---@param session? sanderling.chat.session.Session
---@return string[] the texts that plugins add
local function plugins_parts(session)
  local plugins = package.loaded['sanderling.extend.status']
  return plugins and session and plugins.added(session, M.of) or {}
end

--- Add a part to `parts`, or a plugin's part that replaces it, unless it is empty.
---@param parts string[]
---@param session? sanderling.chat.session.Session
---@param name string
---@param text? string
local function add_part(parts, session, name, text)
  text = plugins_text(name, session) or text
  parts[#parts + 1] = text ~= '' and text or nil
end

--- Return the winbar of a transcript: title, tokens and cost, sandbox. The sandbox is never shortened, and the title gives
--- way to usage.
---@param session_id string
---@param place string
---@param width integer
---@return string
local function make_transcript_winbar(session_id, place, width)
  local sandbox_text, sandbox_width = sandbox_part(session_id, width)
  local room = width - sandbox_width - #place - #'   '
  local own = plugins_text('usage', live.find(session_id))
  local usage = own and words.fitting(own, room)
    or usage_words.fitting(live.state_of(session_id).usage, room)
  local rest = room - api.nvim_strwidth(usage) - (usage ~= '' and 1 or 0)
  local title = place .. fitting_title(session_id, rest)
  return ('%%#AgentStatus#%%< %s%%=%s  %s'):format(escape(title), escape(usage), sandbox_text)
end

---@type table<sanderling.chat.session.Session, { of: any[], text: string }> cached texts and the values they depend on
local transcript_winbars = setmetatable({}, { __mode = 'k' })

--- 'winbar' of a transcript's window. It is the same whether or not the window is current. The text is cached, because
--- Neovim evaluates this for each frame in which the cursor moves, making the window current each time.
---@return string
function M.transcript_winbar()
  local session_id, width = vim.b.sanderling_session, api.nvim_win_get_width(0)
  local session, place = live.find(session_id), place_of(session_id)
  if not session then
    return make_transcript_winbar(session_id, place, width)
  end
  local state, last = session.state, transcript_winbars[session]
  local of = {
    state.usage or false,
    state.sandbox,
    title_of(session),
    place,
    width,
    icons.sent,
    plugins_text('title', session) or false,
    plugins_text('usage', session) or false,
  }
  for i, value in ipairs(of) do
    if not last or last.of[i] ~= value then
      last = { of = of, text = make_transcript_winbar(session_id, place, width) }
      transcript_winbars[session] = last
    end
  end
  return last.text
end

--- Return the highlight of the activity. States that wait for the user stand out.
---@param state sanderling.session.state.State
---@return string
local function state_hl(state)
  local _, connection_hl = clock.describe_connection(state)
  if connection_hl then
    return connection_hl
  elseif #state.questions > 0 or state.retry then
    return 'AgentWarning'
  end
  local is_busy = states.is_working(state) or is_running(state)
  return is_busy and 'AgentBusy' or 'AgentStatus'
end

---@type table<string, string>
local agent_mode_hls = { ask = 'AgentStatus', auto = 'AgentModeAuto', plan = 'AgentModePlan' }

---@param state sanderling.session.state.State
---@return integer number of running jobs
local function count_jobs(state)
  return #vim.tbl_filter(function(job)
    return job.outcome == ''
  end, state.jobs)
end

---@param state sanderling.session.state.State
---@return string? number of running jobs, nil without any
local function describe_jobs(state)
  local count = count_jobs(state)
  return count > 0 and words.counted(count, 'job') or nil
end

--- Return the number of unreviewed changes of a session. Proposals do not count, their question does.
---@param session_id string
---@return integer
local function count_unreviewed(session_id)
  local hunks = package.loaded['sanderling.review.hunks']
  return hunks
      and (hunks.counts(function(hunk)
        return hunk.source.session_id == session_id and not hunk.source.is_proposed
      end))
    or 0
end

---@param state sanderling.session.state.State
---@return string? number of running child sessions, and how many wait for the user; nil without any
local function describe_children(state)
  local count = states.count_children(state)
  if count.active == 0 then
    return nil
  end
  local noun = count.active == 1 and 'child' or 'children'
  local waiting = count.waiting > 0 and (' (%d waiting)'):format(count.waiting) or ''
  return ('%d %s%s'):format(count.active, noun, waiting)
end

---@param session_id string
---@return string? number of unreviewed changes, nil without any
local function describe_unreviewed(session_id)
  local count = count_unreviewed(session_id)
  return count > 0 and ('%d to review'):format(count) or nil
end

---@param state sanderling.session.state.State
---@return string? number of failed MCP servers, nil without any
local function describe_failed(state)
  local count = #vim.tbl_filter(function(server)
    return server.state == 'failed'
  end, state.tool_servers)
  return count > 0 and words.counted(count, 'server') .. ' failed' or nil
end

---@param state sanderling.session.state.State
---@return string? for a child session that it is one; nil without a role
local function describe_role(state)
  local role = state.role and 'role ' .. words.plain(state.role) or nil
  if state.parent == '' then
    return role
  end
  return role and 'child, ' .. role or 'child'
end

---@param state sanderling.session.state.State
---@return string? nil if the session works in the project itself
local function describe_worktree(state)
  return state.worktree ~= '' and 'worktree' or nil
end

--- Return the role, whether there is a worktree, and the numbers of queued prompts, running jobs, unreviewed changes and failed MCP servers.
---@param state sanderling.session.state.State
---@return string
local function describe_counts(state)
  local session, prompts, parts, queue = live.find(state.id), states.count_prompts(state), {}, {}
  for _, what in ipairs({ 'steering', 'queued', 'held' }) do
    if prompts[what] > 0 and (state.is_in_turn or what == 'held') then
      queue[#queue + 1] = ('%d %s'):format(prompts[what], what)
    end
  end
  add_part(parts, session, 'queue', table.concat(queue, icons.separator))
  add_part(parts, session, 'role', describe_role(state))
  add_part(parts, session, 'worktree', describe_worktree(state))
  add_part(parts, session, 'jobs', describe_jobs(state))
  add_part(parts, session, 'children', describe_children(state))
  add_part(parts, session, 'unreviewed', describe_unreviewed(state.id))
  add_part(parts, session, 'servers', describe_failed(state))
  vim.list_extend(parts, plugins_parts(session))
  table.insert(parts, 1, '')
  return table.concat(parts, icons.separator)
end

---@param state sanderling.session.state.State
---@return string the model, and its effort if that was chosen
local function describe_model(state)
  local own = plugins_text('model', live.find(state.id))
  if own then
    return own
  end
  local effort = state.effort ~= 'default' and state.model ~= '' and ' ' .. state.effort or ''
  return words.plain(state.model) .. effort
end

--- Return a bar with Vim's mode, permission mode, activity, counts and model. The last parts are shortened first.
---@param session_id string
---@param width integer
---@return string
local function make_state_bar(session_id, width)
  local state = live.state_of(session_id)
  local mode = mode_of(session_id)
  mode = mode ~= '' and mode .. ' ' or ''
  local passed, own = clock.describe(state), plugins_text('activity', live.find(session_id))
  local name, counts = own or describe(state) .. passed, describe_counts(state)
  local room = width - api.nvim_strwidth(mode .. state.mode) - #'  '
  if not own and api.nvim_strwidth(name .. counts) > room then
    name = describe(state, true) .. passed
  end
  name = words.fitting(name, room)
  counts = words.fitting(counts, room - api.nvim_strwidth(name))
  room = room - api.nvim_strwidth(name .. counts) - #'  '
  return ('%%#AgentMode#%s%%#%s#%s%%#AgentStatus# %%#%s#%s%s%%#AgentStatus#%%=%s'):format(
    mode,
    agent_mode_hls[state.mode],
    state.mode,
    state_hl(state),
    escape(name),
    escape(counts),
    room >= MIN_MODEL_CELLS and escape(words.fitting(describe_model(state), room)) .. ' ' or ''
  )
end

--- 'winbar' of a prompt's window, unless the transcript's statusline is directly above.
---@return string
function M.prompt_winbar()
  return make_state_bar(vim.b.sanderling_session, api.nvim_win_get_width(0))
end

--- 'statusline' of a transcript's window: the line between transcript and prompt, or in a global one the chat's activity.
---@return string
function M.transcript_statusline()
  if vim.o.laststatus == 3 then
    return '%* ' .. escape(M.statusline()) .. ' %=%P ' -- Neovim drops blanks at the beginning
  end
  return make_state_bar(vim.b.sanderling_session, api.nvim_win_get_width(0))
end

--- 'statusline' of a prompt's window: empty, without a background if it is the last line above the messages.
---@return string
function M.prompt_statusline()
  if vim.o.laststatus == 3 then
    return '%* ' .. escape(M.statusline()) .. ' '
  end
  local below = api.nvim_win_get_position(0)[1] + api.nvim_win_get_height(0) + 1
  return below >= vim.o.lines - vim.o.cmdheight and '%#Normal#' or ' '
end

---@class (exact) sanderling.Status
---@field session_id string
---@field name string the title, or the start time
---@field model string empty while unknown
---@field effort? string nil unless chosen
---@field role? string nil without one
---@field mode 'ask'|'auto'|'plan'
---@field activity string
---@field is_busy boolean
---@field tools string[] names of the running tools
---@field approvals integer pending questions
---@field waiting integer queued prompts
---@field jobs integer running jobs
---@field children integer child sessions that have not ended
---@field children_waiting integer how many of them wait for the user
---@field unreviewed integer changes that are neither accepted nor rejected
---@field connection string of a remote session: 'connected', 'connecting', 'waiting' or 'refused'; otherwise empty
---@field sandbox string its level, empty while unknown
---@field network 'off'|'proxy'|'on'
---@field cost_usd? number nil while unknown
---@field context_percent? integer percentage of the context window in use, nil while unknown

--- Return what a session does, without its pending questions.
---@param state sanderling.session.state.State
---@return string
function M.doing(state)
  local has_tools = #state.tools > 0 and state.activity ~= 'stopping'
  return has_tools and describe_tools(state) or state.activity
end

--- Return the status of a session as data.
---@param session sanderling.chat.session.Session
---@return sanderling.Status
function M.of(session)
  local state = session.state
  local prompts, children = states.count_prompts(state), states.count_children(state)
  local usage = state.usage
  return {
    session_id = session.id,
    name = session:name(),
    model = state.model,
    effort = state.effort ~= 'default' and state.effort or nil,
    role = state.role,
    mode = state.mode,
    activity = state.activity,
    is_busy = states.is_busy(state),
    tools = vim.tbl_map(function(tool)
      return tool.name
    end, state.tools),
    approvals = #state.questions,
    waiting = prompts.queued + prompts.steering + prompts.held,
    jobs = count_jobs(state),
    children = children.active,
    children_waiting = children.waiting,
    unreviewed = count_unreviewed(state.id),
    connection = state.connection and state.connection.state or '',
    sandbox = state.sandbox.level,
    network = state.sandbox.network,
    cost_usd = usage and usage.is_priced and usage.cost_usd or nil,
    context_percent = usage and usage_words.context_percent(usage),
  }
end

---@return sanderling.Status? of the current session
function M.current()
  local session = live.current()
  return session and M.of(session)
end

--- Return the text of the statusline, and the highlight group of the activity.
---@return string? text nil if there is no session
---@return string hl
function M.summary()
  local session = live.current()
  if not session then
    return nil, 'AgentStatus'
  end
  local state, parts = session.state, {}
  local function add(name, text)
    add_part(parts, session, name, text)
  end
  local confinement = vim.tbl_map(function(word)
    return word.text
  end, sandbox.words(session.id))
  add('activity', describe(state))
  add('mode', state.mode ~= 'ask' and 'mode ' .. state.mode or nil)
  add('role', describe_role(state))
  add('worktree', describe_worktree(state))
  add('effort', state.effort ~= 'default' and 'effort ' .. state.effort or nil)
  add('jobs', describe_jobs(state))
  add('children', describe_children(state))
  add('unreviewed', describe_unreviewed(state.id))
  add('servers', describe_failed(state))
  add('usage', usage_words.describe(state.usage))
  add('sandbox', table.concat(confinement, ' '))
  vim.list_extend(parts, plugins_parts(session))
  return table.concat(parts, icons.separator), state_hl(state)
end

--- Return the text of the statusline without `%`. How often `%` must be escaped depends on the use: as the value of an
--- expression, as part of 'statusline', as most plugins use it, or evaluated twice.
---@return string
function M.statusline()
  local text = M.summary()
  return text and 'Sanderling: ' .. text:gsub('%s*%%', ' percent') or ''
end

return M
