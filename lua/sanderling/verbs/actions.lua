--- Verb actions that belong to no other module.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local config = require('sanderling.config')
local page = require('sanderling.access.page')
local host = require('sanderling.host')
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local picker = lazy('sanderling.picker')
local refresh = require('sanderling.host.refresh')
local report = require('sanderling.screens.report')
local sessions = lazy('sanderling.screens.sessions')
local slash = require('sanderling.prompt.slash')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_slash')
local NO_SESSION = 'No session is open. :AgentChat opens one.'

-- what they do --------------------------------------------------------------------------------------------------------

--- Show a report; if it is already on the screen, enter its window.
---@param session sanderling.chat.session.Session
---@param type string
function M.show_report(session, type)
  if not report.enter(type) then
    session:ask({ type = type }, function(result)
      report.show(session.id, result)
    end)
  end
end

--- Open another session; after the word `worktree`, in a worktree of HEAD, or of the branch or commit that follows.
---@param args string
function M.new_session(args)
  local word, ref = args:match('^(%S*)%s*(.-)%s*$')
  if word == '' then
    chat.new()
  elseif word == 'worktree' then
    chat.new(ref ~= '' and ref or 'HEAD')
  else
    message.tell((":AgentNew: worktree, not '%s'."):format(word), vim.log.levels.ERROR)
  end
end

---@param session sanderling.chat.session.Session
local function choose_model(session)
  local notes, width = session.state.model_notes or {}, 0
  for _, name in ipairs(session.state.models) do
    width = math.max(width, api.nvim_strwidth(name))
  end
  picker.choose(session.state.models, {
    title = session.state.effort == 'default' and 'Model'
      or ('Model (effort %s)'):format(session.state.effort),
    kind = 'sanderling_model',
    line_of = function(name)
      local gap = (' '):rep(width - api.nvim_strwidth(name) + 2)
      return words.plain(notes[name] and name .. gap .. notes[name] or name)
    end,
    actions = {
      {
        name = 'Use',
        run = function(model)
          session:act({ type = 'set_model', model = model })
        end,
      },
    },
  })
end

--- List the models, then let the user choose one.
---@param session sanderling.chat.session.Session
---@param scope 'own'|'all'
local function ask_models(session, scope)
  local before = session.state.models
  session:ask({ type = 'list_models', scope = scope }, function(result, is_here)
    for _, problem in ipairs(result.problems or {}) do
      session:say('warning', problem)
    end
    local is_first = session.state.models == before -- false: two requests were running, and the other one has asked
    session:note({ type = 'local_models_known', models = result.models, notes = result.notes })
    if is_first and is_here then
      choose_model(session)
    elseif is_first then
      message.tell('Models loaded. Run :AgentModel again to choose one.')
    end
  end)
end

---@param call sanderling.verbs.Call
function M.set_or_choose_model(call)
  local model, session = call.args, call.session
  if call.bang then
    ask_models(session, 'all')
  elseif model ~= '' then
    session:act({ type = 'set_model', model = model })
  elseif session.state.models then
    choose_model(session)
  else
    ask_models(session, 'own')
  end
end

--- Let the user choose one of the efforts that the session's model takes.
---@param session sanderling.chat.session.Session
local function choose_effort(session)
  session:ask({ type = 'list_efforts' }, function(result, is_here)
    if #result.efforts < 2 then
      message.tell(('%s has no levels of effort.'):format(words.plain(session.state.model)))
    elseif is_here then
      vim.ui.select(result.efforts, {
        prompt = 'Effort:',
        kind = 'sanderling_effort',
        format_item = function(effort)
          return effort == session.state.effort and effort .. ' (current)' or effort
        end,
      }, function(effort)
        if effort then
          session:act({ type = 'set_effort', effort = effort })
        end
      end)
    end
  end)
end

--- Set the effort, for the next prompt only with `once` behind it, or let the user choose one.
---@param call sanderling.verbs.Call
function M.set_or_choose_effort(call)
  local effort, once = call.args:match('^(%S*)%s*(.-)%s*$')
  if effort == '' then
    choose_effort(call.session)
  elseif not vim.list_contains(config.EFFORTS, effort) then
    local text = words.not_one_of('AgentEffort', config.EFFORTS, effort)
    message.tell(text, vim.log.levels.ERROR)
  elseif once ~= '' and once ~= 'once' then
    message.tell("AgentEffort: only 'once' may follow the level.", vim.log.levels.ERROR)
  else
    call.session:act({ type = 'set_effort', effort = effort, is_once = once == 'once' })
  end
end

--- Complete a level, then `once`.
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete_effort(lead, line, pos)
  local has_level = line:sub(1, pos - #lead):find('%u%a*%s+%S+%s+$') ~= nil
  return words.beginning_with(has_level and { 'once' } or config.EFFORTS, lead)
end

M.NO_ROLE = 'none'

---@type table<string, string[]> by session: names of its roles
local known_roles = {}

--- Let the user choose one of the session's roles, or none.
---@param session sanderling.chat.session.Session
local function choose_role(session)
  session:ask({ type = 'list_roles' }, function(result, is_here)
    for _, problem in ipairs(result.problems or {}) do
      session:say('warning', problem)
    end
    if #(result.roles or {}) == 0 then
      message.tell('There are no roles: see :help sanderling-roles.')
    elseif is_here then
      picker.choose(vim.list_extend({ { name = M.NO_ROLE, description = '' } }, result.roles), {
        title = 'Roles',
        kind = 'sanderling_role',
        line_of = function(role)
          local mark = role.name == (session.state.role or M.NO_ROLE) and ' (current)' or ''
          local help = (role.description or '') ~= '' and ': ' .. role.description or ''
          return words.plain(role.name .. mark .. help)
        end,
        actions = {
          {
            name = 'Use',
            run = function(role)
              session:act({ type = 'set_role', name = role.name ~= M.NO_ROLE and role.name or '' })
            end,
          },
        },
      })
    end
  end)
end

--- Give the session a role, end it, or let the user choose one.
---@param call sanderling.verbs.Call
function M.set_or_choose_role(call)
  if call.args == '' then
    choose_role(call.session)
  else
    call.session:act({ type = 'set_role', name = call.args ~= M.NO_ROLE and call.args or '' })
  end
end

---@param lead string
---@return string[]
function M.complete_role(lead)
  local session = live.current()
  if not session then
    return {}
  end
  refresh({ type = 'list_roles', session_id = session.id }, function(result)
    known_roles[session.id] = vim.tbl_map(function(role)
      return role.name
    end, result.roles or {})
  end)
  local names = vim.list_extend({ M.NO_ROLE }, known_roles[session.id] or {})
  return words.beginning_with(names, lead)
end

---@type table<string, string[]> by session: models known without asking a provider
local known_models = {}

bus.subscribe('local_closed', function(session_id)
  known_models[session_id], known_roles[session_id] = nil, nil
end)

--- Return the models that :AgentModel completes: the listed ones, else those known without asking a provider.
---@param session_id string
---@return string[]
function M.models_of(session_id)
  local state = live.state_of(session_id)
  local own = state.model ~= '' and state.model or config.options.model
  return state.models or known_models[session_id] or { own }
end

--- Complete a model name, with or without its provider.
---@param lead string
---@return string[]
function M.complete_model(lead)
  local session = live.current()
  if session and not session.state.models and not known_models[session.id] then
    local request = { type = 'list_models', session_id = session.id, scope = 'known' }
    refresh(request, function(result)
      known_models[session.id] = result.models
    end)
  end
  return vim.tbl_filter(function(name)
    return vim.startswith(name, lead) or vim.startswith(name:match('^[^:]*:(.*)') or '', lead)
  end, M.models_of(session and session.id or ''))
end

---@param lead string
---@return string[]
function M.complete_provider(lead)
  local names = {} ---@type table<string, true>
  for _, model in ipairs(M.complete_model('')) do
    names[model:match('^([^:]+):') or 'anthropic'] = true
  end
  names = vim.tbl_keys(names)
  table.sort(names)
  return words.beginning_with(names, lead)
end

--- Test a provider and show the result when it arrives.
---@param provider string
function M.test_provider(provider)
  local session = live.current()
  if not session then
    return message.tell(NO_SESSION)
  elseif report.enter('test_provider ' .. provider) then
    return
  end
  message.tell('Testing the provider. This takes a while.')
  session:ask({ type = 'test_provider', provider = provider }, function(result)
    report.show(session.id, result)
  end)
end

---@param call sanderling.verbs.Call
function M.compact(call)
  local compact = { type = 'compact', focus = call.args }
  call.session:act(call.bang and { type = 'undo_compaction' } or compact)
end

--- Propose lines for AGENTS.md from a stored session, which this opens.
---@param id string
---@return boolean is_done false without an id
function M.remember_closed(id)
  if id ~= '' then
    sessions.with(id, function(session)
      session:act({ type = 'remember' })
    end)
  end
  return id ~= ''
end

---@param call sanderling.verbs.Call
function M.remember(call)
  if not M.remember_closed(call.args) then
    call.session:act({ type = 'remember' })
  end
end

--- Show all slash commands with a line of help each.
---@param session_id? string
function M.show_help(session_id)
  local rows, width = slash.all(session_id), 0
  for _, row in ipairs(rows) do
    row.usage = words.trimmed(('/%s %s'):format(row.name, row.arguments))
    width = math.max(width, api.nvim_strwidth(row.usage))
  end
  local lines = vim.tbl_map(function(row)
    local gap = (' '):rep(width - api.nvim_strwidth(row.usage) + 3)
    return row.usage .. gap .. row.help
  end, rows)
  vim.list_extend(
    lines,
    { '', 'Type a space before the slash to send it as text. More in :help sanderling.' }
  )
  local buf = page.view('Commands', lines, 'commands', { has_columns = true })
  for i, row in ipairs(rows) do
    api.nvim_buf_set_extmark(buf, ns, i - 1, 0, {
      end_col = #row.name + 1,
      hl_group = 'AgentCommand',
    })
  end
end

--- Open the help on `topic`. Not every plugin manager generates help tags, so generate them if the topic is missing.
---@param topic string
function M.open_help(topic)
  if not pcall(vim.cmd.help, topic) then
    pcall(vim.cmd.helptags, vim.fs.joinpath(host.root(), 'doc'))
    local ok, err = pcall(vim.cmd.help, topic)
    if not ok and topic == 'sanderling' then -- the plugin's directory is read-only
      loading.edit(vim.fs.joinpath(host.root(), 'doc', 'sanderling.txt'), 'split')
      vim.bo.filetype, vim.bo.readonly, vim.bo.modifiable = 'help', true, false
    elseif not ok then
      message.tell(message.without_place(err), vim.log.levels.ERROR)
    end
  end
end

--- Remove the last command line from the history if it contains `text`.
---@param text string
local function forget_command_line(text)
  if vim.fn.histget('cmd', -1):find(text, 1, true) then
    vim.fn.histdel('cmd', -1)
  end
end

--- Run the slash command `name` in the current session, for an :Agent command.
---@param name string
---@param arguments string
function M.call(name, arguments)
  local command = slash.find(name) or {}
  if command.is_unkept and arguments ~= '' then
    forget_command_line(arguments)
  end
  if command.only_looks and not live.current() then
    message.tell(NO_SESSION)
    return
  end
  if not (command.has_own_page and live.current()) then
    chat.show({ focus = false })
  end
  slash.run({ ('/%s %s'):format(name, arguments) }, assert(live.current()))
end

return M
