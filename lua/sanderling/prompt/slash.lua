--- Slash commands: `/name arguments` in the first line of a prompt. Built-in ones (`verbs/table.lua`) run here. Those
--- of Markdown files are sent as typed, and the host expands them. Plugins add others (extend/command.lua).
local M = {}

local lazy = require('sanderling.ui.lazy')

local guess = lazy('sanderling.config.guess')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.prompt.slash.Command
---@field name string
---@field help string
---@field arguments? string hint at the argument; nil: takes none
---@field words? fun(session_id: string): string[] values of the argument
---@field is_word? boolean no other values are valid
---@field only_looks? boolean reads a session, so it does not open one
---@field has_own_page? boolean shows a window outside the chat
---@field is_unkept? boolean its argument may be secret and is kept in no history
---@field fits? fun(arguments: string): boolean returns whether the argument is valid
---@field refusal? string message for an invalid argument
---@field run fun(arguments: string, session: sanderling.chat.session.Session)

---@type sanderling.prompt.slash.Command[] built-in commands
local commands = {}
---@type table<string, sanderling.prompt.slash.Command>
local by_name = {}

---@param list sanderling.prompt.slash.Command[]
function M.register(list)
  commands = list
  for _, command in ipairs(list) do
    by_name[command.name] = command
  end
end

--- Return the commands that plugins have registered.
---@return sanderling.extend.command.Command[]
local function plugins_commands()
  local module = package.loaded['sanderling.extend.command']
  return module and module.list() or {}
end

---@param name string
---@return sanderling.extend.command.Command?
function M.find_plugins(name)
  local module = package.loaded['sanderling.extend.command']
  return module and module.find(name)
end

--- Return the session's Markdown commands, except those with a built-in name or that of a plugin's command.
---@param session_id? string
---@return sanderling.SlashCommand[]
local function markdown_of(session_id)
  return vim.tbl_filter(function(command)
    return not M.find(command.name)
  end, live.state_of(session_id).slash_commands or {})
end

---@param session_id? string
---@return { name: string, help: string, arguments: string }[]
function M.all(session_id)
  local rows = {}
  for _, list in ipairs({ commands, plugins_commands() }) do
    for _, command in ipairs(list) do
      rows[#rows + 1] = {
        name = command.name,
        help = words.plain(command.help),
        arguments = words.plain(command.arguments or ''),
      }
    end
  end
  for _, command in ipairs(markdown_of(session_id)) do
    rows[#rows + 1] = {
      name = command.name,
      help = words.plain(command.description or ''),
      arguments = words.plain(command.arguments or ''),
    }
  end
  return rows
end

---@param name string
---@return sanderling.prompt.slash.Command|sanderling.extend.command.Command|nil
function M.find(name)
  return by_name[name] or M.find_plugins(name)
end

---@param name string
---@param session_id string
---@return string[]
function M.words(name, session_id)
  local command = by_name[name]
  return command and command.words and command.words(session_id) or {}
end

-- parsing and running -------------------------------------------------------------------------------------------------

--- Return the command name and the rest of `line`, if it starts like a command.
---@param line string
---@return string? name
---@return string? arguments
local function parse(line)
  local name, arguments = line:match('^/([a-z][a-z0-9_:-]*)(.*)$')
  if name and (arguments == '' or arguments:find('^%s')) then
    return name, words.trimmed(arguments)
  end
end

--- Return whether `lines` are a command. `/etc` is a path if it exists.
---@param lines string[]
---@return boolean
function M.is_command(lines)
  local name = parse(lines[1])
  return name ~= nil and (M.find(name) ~= nil or not vim.uv.fs_stat('/' .. name))
end

---@param text string
---@return boolean
function M.is_kept(text)
  local name = parse((text:gsub('\n.*', '')))
  return not (name and by_name[name] and by_name[name].is_unkept)
end

--- Return why `command` cannot be run with these arguments.
---@param command sanderling.prompt.slash.Command
---@param arguments string
---@param session_id string
---@return string?
local function problem(command, arguments, session_id)
  if arguments == '' then
    return
  end
  if not command.arguments then
    return ('/%s takes no argument.'):format(command.name)
  elseif command.fits and not command.fits(arguments) then
    return command.refusal
  elseif command.is_word and not vim.list_contains(command.words(session_id), arguments) then
    local known, word = command.words(session_id), words.first_line(arguments)
    return words.not_one_of('/' .. command.name, known, word)
  end
end

--- Return the project's file that would define the command, if the user trusted it.
---@param name string
---@param session_id string
---@return string?
local function untrusted(name, session_id)
  local file = name:gsub(':', '/')
  return vim.iter(live.state_of(session_id).untrusted or {}):find(function(path)
    return vim.endswith(path, ('/commands/%s.md'):format(file))
      or vim.endswith(path, ('/skills/%s/SKILL.md'):format(name))
  end)
end

---@param name string
---@param session_id string
---@return string
local function unknown(name, session_id)
  local ignored = untrusted(name, session_id)
  if ignored then
    local text = '/%s is not available, because you have not trusted %s: :Agent trust shows it.'
    return text:format(name, words.plain(ignored))
  end
  local known = {}
  for _, row in ipairs(M.all(session_id)) do
    known[row.name] = true
  end
  local nearest, distance = guess.nearest(name, known)
  local hint = distance <= #name / 2 and ('did you mean /%s?'):format(nearest)
    or '/help lists them.'
  return ('Unknown command /%s; %s Type a space first to send it as text.'):format(name, hint)
end

--- Return whether a Markdown file defines this command. It may until the host has listed them.
---@param name string
---@param session_id string
---@return boolean
local function is_markdown(name, session_id)
  local known = live.state_of(session_id).slash_commands
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

--- Run the command in `lines`, or refuse it and say why.
---@param lines string[]
---@param session sanderling.chat.session.Session
---@param is_steering? boolean send the expanded command during the turn
---@return boolean is_done the prompt can be cleared
function M.run(lines, session, is_steering)
  local name, rest = parse(lines[1])
  local command = name and M.find(name)
  if command then
    local all = vim.list_extend({ rest }, lines, 2)
    local arguments = words.trimmed(table.concat(all, '\n'))
    return run(command, arguments, session) or command.is_unkept or false
  elseif is_markdown(assert(name), session.id) then
    return session:send(lines, { is_steering = is_steering })
  end
  message.tell(unknown(name, session.id), vim.log.levels.ERROR)
  return false
end

return M
