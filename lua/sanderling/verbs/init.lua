--- Verbs in all their forms: `:Agent {verb}`, commands of their own, slash commands, words of the chat's command line,
--- <Plug> maps.
---
--- `plugin/` and `init.lua` load the chat through this module, so that slash commands and command-line words are
--- registered.
local M = {}

local lazy = require('sanderling.ui.lazy')

local actions = lazy('sanderling.verbs.actions')
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local comments = lazy('sanderling.comments.store')
local guess = lazy('sanderling.config.guess')
local keys = require('sanderling.chat.keys')
local live = require('sanderling.session.live')
local sessions = lazy('sanderling.screens.sessions')
local slash = require('sanderling.prompt.slash')
local words = require('sanderling.ui.words')

M.chat, M.sessions = chat, sessions
bus.load_at('local_in_use', 'sanderling.screens.sessions')
bus.load_at('local_offered', 'sanderling.inline.edits')
bus.load_at('trust_needed', 'sanderling.screens.trust')
bus.load_at('link_offered', 'sanderling.screens.mcp')
bus.load_at('turn_started', 'sanderling.inline.findings')
bus.load_at('session_opened', 'sanderling.comments', function(session_id)
  local session = live.find(session_id)
  return session ~= nil and comments.are_kept(session.project)
end)

--- A call of a verb.
---@class (exact) sanderling.verbs.Call
---@field args string
---@field bang? boolean
---@field range? [integer, integer] selected lines
---@field session? sanderling.chat.session.Session the session it was typed in

---@class (exact) sanderling.verbs.Verb
---@field name string
---@field desc string
---@field forms? string of 'ex', 'slash' and 'word'; 'word:quit': it is named `quit` there
---@field has_command? boolean it is in daily use: `:AgentMode` is `:Agent mode`
---@field plug? string modes of its <Plug> map; a command's default is normal mode
---@field args? string as in |:command-nargs|, and the argument's name: '? mode'
---@field words? fun(session_id: string): string[] values of the argument
---@field is_word? boolean no other values are valid
---@field bar? boolean a | ends the command, as with `is_word`
---@field complete? string|fun(lead: string, line: string, pos: integer): string[] instead of `words`
---@field bang? string description of the command with `!`
---@field undo? string argument that means `!` in a slash command
---@field range? boolean
---@field page? string help file with its entry, instead of the main one
---@field on_session? boolean the command runs the slash command
---@field run_here? fun(args: string): boolean called first by the command: does it, if it needs no session
---@field only_looks? boolean reads a session, so it does not open one
---@field has_own_page? boolean shows a window outside the chat
---@field is_unkept? boolean its argument may be secret and is kept in no history
---@field fits? fun(args: string): boolean returns whether the argument is valid
---@field refusal? string message for an invalid argument
---@field run? fun(call: sanderling.verbs.Call)
---@field operator? fun() started by its <Plug> map instead of the command

---@type sanderling.verbs.Verb[]
M.list = {}
for _, rows in ipairs({
  require('sanderling.verbs.table'),
  require('sanderling.verbs.editing'),
  require('sanderling.verbs.changes'),
  require('sanderling.verbs.places'),
}) do
  vim.list_extend(M.list, rows)
end

---@type table<string, sanderling.verbs.Verb>
local by_name = {}
for _, verb in ipairs(M.list) do
  by_name[verb.name] = verb
end

--- Return the verb's name in the form `form`, or nil if it lacks that form.
---@param verb sanderling.verbs.Verb
---@param form 'ex'|'slash'|'word'
---@return string?
function M.name_in(verb, form)
  for each, name in (verb.forms or ''):gmatch('(%l+):?(%l*)') do
    if each == form then
      return name ~= '' and name or verb.name
    end
  end
end

--- Return `NextSession` for `next_session`.
---@param name string
---@return string
function M.capitalized(name)
  return (('_' .. name):gsub('_(%l)', string.upper))
end

--- Return the shortest command of the verb: `AgentMode`, `Agent rename`.
---@param verb sanderling.verbs.Verb
---@return string
function M.command_of(verb)
  return 'Agent' .. (verb.has_command and M.capitalized(verb.name) or ' ' .. verb.name)
end

---@param verb sanderling.verbs.Verb
---@return '?'|'*'|'+'|nil nargs
---@return string? name of the argument
function M.argument_of(verb)
  return (verb.args or ''):match('^(.) (.+)$')
end

-- commands ------------------------------------------------------------------------------------------------------------

--- Run a verb from its command or <Plug> map.
---@param name string
---@param cmd? { args: string, bang: boolean, range: integer, line1: integer, line2: integer }
function M.run(name, cmd)
  local verb, args = by_name[name], cmd and cmd.args or ''
  local bang = cmd ~= nil and cmd.bang
  if verb.run_here and verb.run_here(args) then
    return
  elseif verb.on_session then
    return actions.call(name, bang and verb.undo or args)
  end
  local range = cmd and cmd.range > 0 and { cmd.line1, cmd.line2 } or nil
  verb.run({ args = args, bang = bang, range = range })
end

---@param name string
function M.operate(name)
  by_name[name].operator()
end

--- Complete the argument of a verb, as in |:command-completion-customlist|.
---@param name string
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete(name, lead, line, pos)
  local verb = by_name[name]
  if type(verb.complete) == 'string' then
    return vim.fn.getcompletion(lead, verb.complete)
  elseif verb.complete then
    return verb.complete(lead, line, pos)
  end
  return words.beginning_with(verb.words and verb.words(live.current_id() or '') or {}, lead)
end

--- Return the verb of `:Agent {name}`. An unknown name is an error that suggests the closest verb.
---@param name string
---@return sanderling.verbs.Verb
local function command_verb(name)
  local known = {} ---@type table<string, sanderling.verbs.Verb>
  for _, verb in ipairs(M.list) do
    known[verb.name] = M.name_in(verb, 'ex') and verb
  end
  if not known[name] then
    local nearest, distance = guess.nearest(name, known)
    local hint = distance <= #name / 2 and ("did you mean '%s'?"):format(nearest)
      or ':Agent help lists them.'
    error(("Agent: no '%s'; %s"):format(name, hint), 0)
  end
  return known[name]
end

--- Run `:Agent mode plan` as Vim runs `:AgentMode plan`, and `:Agent` as `:AgentChat`.
---@param cmd vim.api.keyset.create_user_command.command_args
function M.run_root(cmd)
  local word, args = cmd.args:match('^([^%s|]*)%s*(.*)$')
  local name, bang = word:match('^(.-)(!?)$')
  local verb = command_verb(name == '' and 'chat' or name)
  local nargs, behind = M.argument_of(verb), nil ---@type string?, string?
  if verb.is_word or verb.bar or not nargs then -- as in |:bar|; generate_plugin.lua does it for commands
    local own, rest = args:match('^(.-)%s*|(.*)$')
    args, behind = own or args, rest
  end
  if args ~= '' and not nargs then
    error(('Agent: %s takes no argument.'):format(name), 0)
  elseif args == '' and nargs == '+' then
    error(('Agent: %s needs an argument.'):format(name), 0)
  elseif bang == '!' and not verb.bang then
    error(('Agent: %s takes no !.'):format(name), 0)
  elseif cmd.range > 0 and not verb.range then
    error(('Agent: %s takes no range.'):format(verb.name), 0)
  elseif verb.complete == 'file' then
    args = vim.fn.expandcmd(args)
  end
  local bounds = { range = cmd.range, line1 = cmd.line1, line2 = cmd.line2 }
  M.run(verb.name, vim.tbl_extend('error', bounds, { args = args, bang = bang == '!' }))
  if behind then
    vim.cmd(behind)
  end
end

--- Complete a verb or its argument after `:Agent`.
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete_root(lead, line, pos)
  local before, name, rest = line:sub(1, pos):match('^(.-)Agent%s+([%l_]+)!?(%s.*)$')
  if name then
    local command = before .. 'Agent' .. M.capitalized(name) .. rest
    return by_name[name] and M.complete(name, lead, command, #command) or {}
  end
  local names = {} ---@type string[]
  for _, verb in ipairs(M.list) do
    names[#names + 1] = M.name_in(verb, 'ex') and verb.name
  end
  table.sort(names)
  return words.beginning_with(names, lead)
end

-- in the chat ---------------------------------------------------------------------------------------------------------

--- Return the argument of a slash command for its line of help.
---@param verb sanderling.verbs.Verb
---@return string?
local function hint_of(verb)
  local _, name = M.argument_of(verb)
  if name and verb.is_word then
    name = table.concat(verb.words(''), '|')
  elseif name and verb.undo then
    name = ('%s|%s'):format(name, verb.undo)
  end
  return name and ('[%s]'):format(name)
end

---@param verb sanderling.verbs.Verb
---@return sanderling.prompt.slash.Command
local function slash_command(verb)
  return {
    name = M.name_in(verb, 'slash'),
    help = verb.desc,
    arguments = hint_of(verb),
    words = verb.words,
    is_word = verb.is_word,
    only_looks = verb.only_looks,
    has_own_page = verb.has_own_page,
    is_unkept = verb.is_unkept,
    fits = verb.fits,
    refusal = verb.refusal,
    run = function(args, session)
      verb.run({ args = args, bang = verb.undo ~= nil and args == verb.undo, session = session })
    end,
  }
end

---@param verb sanderling.verbs.Verb
---@return sanderling.chat.keys.Word
local function word(verb)
  return {
    word = M.name_in(verb, 'word'),
    desc = verb.desc,
    nargs = M.argument_of(verb) or 0,
    complete = verb.args and function(...)
      return M.complete(verb.name, ...)
    end,
    run = function(cmd, session)
      verb.run({ args = cmd.args, bang = cmd.bang, session = session })
    end,
  }
end

--- Convert the verbs that have this form and run in Neovim. The host runs the other slash commands.
---@param form 'slash'|'word'
---@param make fun(verb: sanderling.verbs.Verb): table
local function all_in(form, make)
  return vim.tbl_map(
    make,
    vim.tbl_filter(function(verb)
      return verb.run ~= nil and M.name_in(verb, form) ~= nil
    end, M.list)
  )
end

slash.register(all_in('slash', slash_command))
keys.register_words(all_in('word', word))

return M
