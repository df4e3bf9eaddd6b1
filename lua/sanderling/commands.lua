--- The slash commands that are ours: the same verbs as the :Agent commands. The entrances (`plugin/` and `init.lua`) reach the chat
--- by way of this module, so that its prompts know them.
local M = {}

local api = vim.api
local attention = require('sanderling.ui.attention')
local chat = require('sanderling.chat')
local config = require('sanderling.config')
local float = require('sanderling.ui.float')
local host = require('sanderling.host')
local live = require('sanderling.session.live')
local login = require('sanderling.screens.login')
local message = require('sanderling.ui.message')
local report = require('sanderling.transcript.report')
local sandbox = require('sanderling.session.sandbox')
local sessions = require('sanderling.chat.sessions')
local slash = require('sanderling.prompt.slash')
local stored = require('sanderling.session.stored')
local trust = require('sanderling.screens.trust')
local words = require('sanderling.ui.words')

M.chat, M.sessions = chat, sessions

local ns = api.nvim_create_namespace('sanderling_slash')

---@type table<string, string[]> the models that the provider offers, by session id
local models = {}
---@type table<string, fun(): boolean> by session id: a person waits for the models, if this is true
local wants_model = {}

-- what they do --------------------------------------------------------------------------------------------------------

--- Ask for a report; where one is shown, go there.
---@param type string
local function show_report(type)
  return function(_, session)
    if not report.enter() then
      session:act({ type = type })
    end
  end
end

---@param session sanderling.chat.session.Session
local function choose_model(session)
  vim.ui.select(models[session.id], { prompt = 'Model:' }, function(model)
    if model then
      session:act({ type = 'set_model', model = model })
    end
  end)
end

---@param model string
---@param session sanderling.chat.session.Session
local function set_or_choose_model(model, session)
  if model ~= '' then
    session:act({ type = 'set_model', model = model })
  elseif models[session.id] then
    choose_model(session)
  else
    wants_model[session.id] = attention.watch()
    session:act({ type = 'list_models' })
  end
end

---@param focus string
---@param session sanderling.chat.session.Session
local function compact(focus, session)
  local is_undo = focus == 'undo'
  session:act(is_undo and { type = 'undo_compaction' } or { type = 'compact', focus = focus })
end

---@type sanderling.prompt.slash.Command[]
local COMMANDS = {
  {
    name = 'help',
    help = 'show these commands',
    run = function(_, session)
      M.show_help(session.id)
    end,
  },
  { name = 'new', help = 'open a session beside this one', run = chat.new },
  {
    name = 'clear',
    help = 'begin anew in these windows',
    run = chat.clear,
  },
  {
    name = 'resume',
    help = 'go on with an earlier session',
    arguments = '[id]',
    words = function()
      return stored.ids('')
    end,
    run = sessions.resume,
  },
  {
    name = 'sessions',
    help = "choose one of the project's sessions",
    arguments = '[text]',
    run = function(text)
      sessions.pick(text, false)
    end,
  },
  { name = 'fork', help = 'go on in a copy of this session', run = sessions.fork },
  {
    name = 'rename',
    help = 'give the session a title',
    arguments = '[title]',
    run = sessions.rename,
  },
  {
    name = 'export',
    help = 'write the session as Markdown',
    arguments = '[path]',
    run = sessions.export,
  },
  {
    name = 'compact',
    help = 'summarize what the model has read',
    arguments = '[focus|undo]',
    only_looks = true,
    words = function()
      return { 'undo' }
    end,
    run = compact,
  },
  {
    name = 'model',
    help = 'choose the model',
    arguments = '[name]',
    words = function(session_id)
      return models[session_id] or { config.options.model }
    end,
    run = set_or_choose_model,
  },
  {
    name = 'mode',
    help = 'show or set what asks first',
    arguments = '[ask|auto|plan]',
    words = function()
      return config.MODES
    end,
    is_word = true,
    run = chat.set_or_tell_mode,
  },
  {
    name = 'net',
    help = 'show or set the network',
    arguments = '[off|proxy|on]',
    words = function()
      return sandbox.NETWORK_MODES
    end,
    is_word = true,
    run = chat.set_or_tell_network,
  },
  {
    name = 'sandbox',
    help = 'show it, switch it off or on',
    arguments = '[status|off|on]',
    words = function()
      return sandbox.ACTIONS
    end,
    is_word = true,
    run = function(action)
      chat.sandbox(action ~= '' and action or nil)
    end,
  },
  { name = 'todo', help = "show the model's to-do list", run = chat.todo },
  {
    name = 'usage',
    help = 'show tokens and dollars',
    only_looks = true,
    run = show_report('show_usage'),
  },
  {
    name = 'cost',
    help = 'the same as /usage',
    only_looks = true,
    run = show_report('show_usage'),
  },
  {
    name = 'settings',
    help = 'show the settings in force',
    only_looks = true,
    run = show_report('show_settings'),
  },
  {
    name = 'trust',
    help = "read and trust the project's files",
    has_own_page = true,
    run = function(_, session)
      trust.ask(session)
    end,
  },
  {
    name = 'login',
    help = 'store an API key in the keychain',
    is_unkept = true,
    refusal = 'Do not type the key on this line: /login alone asks for it.',
    run = function(_, session)
      login.login(session)
    end,
  },
  {
    name = 'logout',
    help = 'remove the key from the keychain',
    run = function(_, session)
      login.logout(session)
    end,
  },
  { name = 'close', help = 'close the session; its log stays', run = chat.close },
  {
    name = 'exit',
    help = 'hide the chat',
    run = function()
      chat.hide()
    end,
  },
}

--- Complete the argument of the command `name` on the command line.
---@param name string
---@param lead string
---@return string[]
function M.complete(name, lead)
  return words.beginning_with(slash.words(name, live.current_id() or ''), lead)
end

--- Show all commands, each with its line of help.
---@param session_id? string
function M.show_help(session_id)
  local rows, width = slash.all(session_id), 0
  for _, row in ipairs(rows) do
    row.usage = vim.trim(('/%s %s'):format(row.name, row.arguments))
    width = math.max(width, api.nvim_strwidth(row.usage))
  end
  local lines = vim.tbl_map(function(row)
    local gap = (' '):rep(width - api.nvim_strwidth(row.usage) + 3)
    return row.usage .. gap .. row.help
  end, rows)
  vim.list_extend(
    lines,
    { '', 'A space before the slash sends it as text. :help sanderling tells more.' }
  )
  vim.cmd.stopinsert()
  local buf = float.view('Commands', lines, 'commands')
  for i, row in ipairs(rows) do
    api.nvim_buf_set_extmark(buf, ns, i - 1, 0, {
      end_col = #row.name + 1,
      hl_group = 'AgentCommand',
    })
  end
end

--- Take the command line that was typed last out of its history, if it holds `text`.
---@param text string
local function forget_command_line(text)
  if vim.fn.histget('cmd', -1):find(text, 1, true) then
    vim.fn.histdel('cmd', -1)
  end
end

--- Run the command `name` for the current session: what :Agent commands do.
---@param name string
---@param arguments string
function M.call(name, arguments)
  local command = slash.find(name) or {}
  if command.is_unkept and arguments ~= '' then
    forget_command_line(arguments)
  end
  if command.only_looks and not live.current() then
    message.tell('No session is open: :AgentChat begins one.')
    return
  end
  if not (command.has_own_page and live.current()) then
    chat.show({ focus = false })
  end
  slash.run({ ('/%s %s'):format(name, arguments) }, assert(live.current()))
end

-- the models ----------------------------------------------------------------------------------------------------------

---@param session_id string
---@param offered string[]
local function take_models(session_id, offered)
  models[session_id] = offered
  local is_here, session = wants_model[session_id], live.find(session_id)
  wants_model[session_id] = nil
  if is_here and is_here() and session then
    vim.schedule(function() -- a question would hold up what else has happened
      choose_model(session)
    end)
  elseif is_here then
    message.tell('The models are known now: :AgentModel chooses one.')
  end
end

host.subscribe(function(session_id, events)
  for _, event in ipairs(events) do
    if event.type == 'models_listed' then
      take_models(session_id, event.models)
    elseif event.type == 'local_closed' then
      models[session_id], wants_model[session_id] = nil, nil
    end
  end
end)

slash.register(COMMANDS)

return M
