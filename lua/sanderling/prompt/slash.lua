--- Slash commands: `/name arguments` on the first line of a prompt. Ours (`verbs/table.lua` has their rows) are run here; those of
--- Markdown files are sent as they were typed, and the host puts in what they stand for.
local M = {}

local lazy = require('sanderling.ui.lazy')

local guess = lazy('sanderling.config.guess')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.prompt.slash.Command
---@field name string
---@field help string
---@field arguments? string a hint at what it takes; nil: nothing
---@field words? fun(session_id: string): string[] what the argument can be
---@field is_word? boolean it cannot be anything else
---@field only_looks? boolean at a session, so that it begins none
---@field has_own_page? boolean what it shows is not in the chat
---@field is_unkept? boolean what a person may have put behind it is kept nowhere
---@field fits? fun(arguments: string): boolean says whether they may stand there
---@field refusal? string of what stands behind it and may not
---@field run fun(arguments: string, session: sanderling.chat.session.Session)

---@type sanderling.prompt.slash.Command[] those of ours
local commands = {}
---@type table<string, sanderling.prompt.slash.Command>
local by_name = {}

--- Take the commands that are ours.
---@param list sanderling.prompt.slash.Command[]
function M.register(list)
  commands = list
  for _, command in ipairs(list) do
    by_name[command.name] = command
  end
end

--- The commands of Markdown files; a name of ours stays ours.
---@param session_id? string
---@return sanderling.SlashCommand[]
local function markdown_of(session_id)
  return vim.tbl_filter(function(command)
    return not by_name[command.name]
  end, live.state_of(session_id).slash_commands or {})
end

--- All commands of a session.
---@param session_id? string
---@return { name: string, help: string, arguments: string }[]
function M.all(session_id)
  local rows = {}
  for _, command in ipairs(commands) do
    rows[#rows + 1] =
      { name = command.name, help = command.help, arguments = command.arguments or '' }
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

--- A command of ours.
---@param name string
---@return sanderling.prompt.slash.Command?
function M.find(name)
  return by_name[name]
end

--- The words that the argument of the command `name` can be, as far as they are known.
---@param name string
---@param session_id string
---@return string[]
function M.words(name, session_id)
  local command = by_name[name]
  return command and command.words and command.words(session_id) or {}
end

-- what is typed -------------------------------------------------------------------------------------------------------

--- The name and what stands behind it, if `line` begins as a command does.
---@param line string
---@return string? name
---@return string? arguments
local function parse(line)
  local name, arguments = line:match('^/([a-z][a-z0-9_:-]*)(.*)$')
  if name and (arguments == '' or arguments:find('^%s')) then
    return name, words.trimmed(arguments)
  end
end

--- Say whether `lines` are a command, or look like one: `/etc` is a directory, where there is one.
---@param lines string[]
---@return boolean
function M.is_command(lines)
  local name = parse(lines[1])
  return name ~= nil and (by_name[name] ~= nil or not vim.uv.fs_stat('/' .. name))
end

--- Say whether the prompt history may keep `text`.
---@param text string
---@return boolean
function M.is_kept(text)
  local name = parse((text:gsub('\n.*', '')))
  return not (name and by_name[name] and by_name[name].is_unkept)
end

--- The reason why `command` cannot be run with these arguments.
---@param command sanderling.prompt.slash.Command
---@param arguments string
---@param session_id string
---@return string?
local function problem(command, arguments, session_id)
  if arguments == '' then
    return
  end
  if not command.arguments then
    return ('/%s takes no argument: nothing was done.'):format(command.name)
  elseif command.fits and not command.fits(arguments) then
    return command.refusal
  elseif command.is_word and not vim.list_contains(command.words(session_id), arguments) then
    local known, word = command.words(session_id), words.first_line(arguments)
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

--- Say whether a Markdown file makes this command. Before the host has told of them, it may.
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

--- Run the command that `lines` are, or refuse it and say why.
---@param lines string[]
---@param session sanderling.chat.session.Session
---@param is_steering? boolean what the host makes of it goes to the model in the middle of its turn
---@return boolean is_done what was typed has had its use
function M.run(lines, session, is_steering)
  local name, rest = parse(lines[1])
  local command = by_name[name]
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
