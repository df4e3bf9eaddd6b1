--- Slash commands: `/name arguments` on the first line of a prompt. Those of this table are the same verbs as the :Agent commands;
--- those of Markdown files are sent as they were typed, and the host puts in what they stand for.
local M = {}

local api = vim.api
local attention = require('sanderling.ui.attention')
local config = require('sanderling.config')
local guess = require('sanderling.config.guess')
local host = require('sanderling.host')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local sandbox = require('sanderling.session.sandbox')
local tools = require('sanderling.transcript.blocks.tool')
local trust = require('sanderling.screens.trust')
local words = require('sanderling.ui.text')

local ns = api.nvim_create_namespace('sanderling_slash')

---@class (exact) sanderling.prompt.slash.Command
---@field name string
---@field help string
---@field arguments? string a hint at what it takes; nil: nothing
---@field words? fun(session_id: string): string[] what the argument can be
---@field is_word? boolean it cannot be anything else
---@field only_looks? boolean at a session, so that it begins none
---@field has_own_page? boolean what it shows is not in the chat
---@field is_unkept? boolean what a person may have put behind it is kept nowhere
---@field refusal? string of what stands behind it, where nothing may
---@field run fun(arguments: string, session: sanderling.chat.session.Session)

---@type table<string, sanderling.SlashCommand[]> of Markdown files, by session id
local markdown = {}
---@type table<string, string[]> the models that the provider offers, by session id
local models = {}
---@type table<string, fun(): boolean> by session id: a person waits for the models, if this is true
local wants_model = {}

-- what they do --------------------------------------------------------------------------------------------------------

--- Ask for a report; where one is shown, go there.
---@param type string
local function report(type)
  return function(_, session)
    if not require('sanderling.transcript.report').enter() then
      session:act({ type = type })
    end
  end
end

--- Call the public function `name`, with the arguments if there are any.
---@param name string
local function api_function(name)
  return function(arguments)
    require('sanderling')[name](arguments ~= '' and arguments or nil)
  end
end

--- Call the function `name` of the chat, with the arguments also if there are none.
---@param name string
local function chat_function(name)
  return function(arguments)
    require('sanderling.chat')[name](arguments)
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
  { name = 'new', help = 'open a session beside this one', run = api_function('new') },
  {
    name = 'clear',
    help = 'begin anew in these windows',
    run = api_function('clear'),
  },
  {
    name = 'resume',
    help = 'go on with an earlier session',
    arguments = '[id]',
    words = function()
      return require('sanderling.chat.sessions').ids('')
    end,
    run = api_function('resume'),
  },
  {
    name = 'sessions',
    help = "choose one of the project's sessions",
    arguments = '[text]',
    run = api_function('sessions'),
  },
  { name = 'fork', help = 'go on in a copy of this session', run = api_function('fork') },
  {
    name = 'rename',
    help = 'give the session a title',
    arguments = '[title]',
    run = api_function('rename'),
  },
  {
    name = 'export',
    help = 'write the session as Markdown',
    arguments = '[path]',
    run = api_function('export'),
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
    run = chat_function('set_or_tell_mode'),
  },
  {
    name = 'net',
    help = 'show or set the network',
    arguments = '[off|proxy|on]',
    words = function()
      return sandbox.NETWORK_MODES
    end,
    is_word = true,
    run = chat_function('set_or_tell_network'),
  },
  {
    name = 'sandbox',
    help = 'show it, switch it off or on',
    arguments = '[status|off|on]',
    words = function()
      return sandbox.ACTIONS
    end,
    is_word = true,
    run = api_function('sandbox'),
  },
  { name = 'todo', help = "show the model's to-do list", run = chat_function('todo') },
  {
    name = 'usage',
    help = 'show tokens and dollars',
    only_looks = true,
    run = report('show_usage'),
  },
  { name = 'cost', help = 'the same as /usage', only_looks = true, run = report('show_usage') },
  {
    name = 'settings',
    help = 'show the settings in force',
    only_looks = true,
    run = report('show_settings'),
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
      require('sanderling.screens.login').login(session)
    end,
  },
  {
    name = 'logout',
    help = 'remove the key from the keychain',
    run = function(_, session)
      require('sanderling.screens.login').logout(session)
    end,
  },
  { name = 'close', help = 'close the session; its log stays', run = api_function('close') },
  { name = 'exit', help = 'hide the chat', run = api_function('hide') },
}

---@type table<string, sanderling.prompt.slash.Command>
local by_name = {}
for _, command in ipairs(COMMANDS) do
  by_name[command.name] = command
end

--- The commands of Markdown files; a name of ours stays ours.
---@param session_id? string
---@return sanderling.SlashCommand[]
local function markdown_of(session_id)
  return vim.tbl_filter(function(command)
    return not by_name[command.name]
  end, markdown[session_id or ''] or {})
end

--- All commands of a session.
---@param session_id? string
---@return { name: string, help: string, arguments: string }[]
function M.all(session_id)
  local rows = {}
  for _, command in ipairs(COMMANDS) do
    rows[#rows + 1] =
      { name = command.name, help = command.help, arguments = command.arguments or '' }
  end
  for _, command in ipairs(markdown_of(session_id)) do
    rows[#rows + 1] = {
      name = command.name,
      help = tools.plain(command.description or ''),
      arguments = tools.plain(command.arguments or ''),
    }
  end
  return rows
end

--- What the argument of the command `name` can be, as far as that is known.
---@param name string
---@param session_id string
---@return string[]
function M.words(name, session_id)
  local command = by_name[name]
  return command and command.words and command.words(session_id) or {}
end

--- Complete the argument of the command `name` on the command line.
---@param name string
---@param lead string
---@return string[]
function M.complete(name, lead)
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, M.words(name, live.current_id() or ''))
end

--- Show all commands, each with its line of help.
---@param session_id? string
function M.show_help(session_id)
  local rows, width = M.all(session_id), 0
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
  local buf = tools.view('Commands', lines, 'commands')
  for i, row in ipairs(rows) do
    api.nvim_buf_set_extmark(buf, ns, i - 1, 0, {
      end_col = #row.name + 1,
      hl_group = 'AgentCommand',
    })
  end
end

-- what is typed -------------------------------------------------------------------------------------------------------

--- The name and what stands behind it, if `line` begins as a command does.
---@param line string
---@return string? name
---@return string? arguments
local function parse(line)
  local name, arguments = line:match('^/([a-z][a-z0-9_:-]*)(.*)$')
  if name and (arguments == '' or arguments:find('^%s')) then
    return name, vim.trim(arguments)
  end
end

--- Whether `lines` are a command, or look like one: `/etc` is a directory, where there is one.
---@param lines string[]
---@return boolean
function M.is_command(lines)
  local name = parse(lines[1])
  return name ~= nil and (by_name[name] ~= nil or not vim.uv.fs_stat('/' .. name))
end

--- Whether the prompt history may keep `text`.
---@param text string
---@return boolean
function M.is_kept(text)
  local name = parse((text:gsub('\n.*', '')))
  return not (name and by_name[name] and by_name[name].is_unkept)
end

--- Why `command` cannot be run with these arguments.
---@param command sanderling.prompt.slash.Command
---@param arguments string
---@param session_id string
---@return string?
local function problem(command, arguments, session_id)
  if arguments == '' then
    return
  end
  if not command.arguments then
    return command.refusal or ('/%s takes no argument: nothing was done.'):format(command.name)
  elseif command.is_word and not vim.list_contains(command.words(session_id), arguments) then
    local known, word = command.words(session_id), tools.first_line(arguments)
    return words.not_one_of('/' .. command.name, known, word)
  end
end

---@param name string
---@param session_id string
---@return string
local function unknown(name, session_id)
  local known = {}
  for _, row in ipairs(M.all(session_id)) do
    known[row.name] = true
  end
  local nearest, distance = guess.nearest(name, known)
  local hint = distance <= #name / 2 and ('did you mean /%s?'):format(nearest)
    or '/help lists them.'
  return ('There is no command /%s; %s A space before it sends it as text.'):format(name, hint)
end

--- Whether a Markdown file makes this command. Before the host has told of them, it may.
---@param name string
---@param session_id string
---@return boolean
local function is_markdown(name, session_id)
  local known = markdown[session_id]
  return not known or vim.iter(known):any(function(command)
    return command.name == name
  end)
end

--- Run `command`, or refuse it and say why.
---@param command sanderling.prompt.slash.Command
---@param arguments string
---@param session sanderling.chat.session.Session
---@return boolean
local function run(command, arguments, session)
  local err = problem(command, arguments, session.id)
  if err then
    message.tell(err, vim.log.levels.ERROR)
    return false
  end
  command.run(arguments, session)
  return true
end

--- Run the command that `lines` are, or refuse it and say why.
---@param lines string[]
---@param session sanderling.chat.session.Session
---@param is_steering? boolean what the host makes of it goes to the model in the middle of its turn
---@return boolean is_done what was typed has had its use
function M.run(lines, session, is_steering)
  local name, rest = parse(lines[1])
  local command = by_name[name]
  if command then
    local arguments = vim.trim(table.concat({ rest, unpack(lines, 2) }, '\n'))
    return run(command, arguments, session) or command.is_unkept or false
  elseif is_markdown(assert(name), session.id) then
    return session:send(lines, { is_steering = is_steering })
  end
  message.tell(unknown(name, session.id), vim.log.levels.ERROR)
  return false
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
  local command = by_name[name] or {}
  if command.is_unkept and arguments ~= '' then
    forget_command_line(arguments)
  end
  if command.only_looks and not live.current() then
    message.tell('No session is open: :AgentChat begins one.')
    return
  end
  if not (command.has_own_page and live.current()) then
    require('sanderling.chat').show({ focus = false })
  end
  M.run({ ('/%s %s'):format(name, arguments) }, assert(live.current()))
end

-- what the host tells -------------------------------------------------------------------------------------------------

---@type table<string, fun(session_id: string, event: any)>
local handlers = {}

function handlers.slash_commands_changed(session_id, event)
  markdown[session_id] = event.commands
end

function handlers.models_listed(session_id, event)
  models[session_id] = event.models
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

function handlers.local_closed(session_id)
  markdown[session_id], models[session_id], wants_model[session_id] = nil, nil, nil
end

host.subscribe(function(session_id, events)
  for _, event in ipairs(events) do
    if handlers[event.type] then
      handlers[event.type](session_id, event)
    end
  end
end)

return M
