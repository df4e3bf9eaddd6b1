--- The public API. Only this module and `:help sanderling-api` are stable; everything else may change.
local M = {}

--- Increased when a function of the API changes so that code which uses it must change.
M.api_version = 1

local function verbs()
  return require('sanderling.verbs')
end

--- Return the options of a call, {} without any. An unknown one is an error.
---@generic T
---@param kind string the function
---@param opts? T
---@param names table<string, true>
---@return T
local function checked(kind, opts, names)
  if opts == nil then
    return {}
  end
  require('sanderling.extend.registry').check_names(kind, opts, names)
  return opts
end

local CHAT_OPTS = { position = true, size = true, focus = true }

---@param options? table see |sanderling-options|
function M.setup(options)
  local config = require('sanderling.config')
  config.setup(options)
  if config.options.ai_comments == 'write' then
    require('sanderling.inline.typed').watch()
  end
end

---@class (exact) sanderling.ChatOpts
---@field position? string overrides the option chat.position
---@field size? number overrides the option chat.size
---@field focus? boolean enter the prompt; default true

--- Show the chat in this tab page.
---@param opts? sanderling.ChatOpts
function M.chat(opts)
  verbs().chat.show(checked('chat', opts, CHAT_OPTS))
end

--- Show the chat, or hide it if this tab page shows it.
---@param opts? sanderling.ChatOpts
function M.toggle(opts)
  verbs().chat.toggle(checked('toggle', opts, CHAT_OPTS))
end

function M.hide()
  verbs().chat.hide()
end

--- Send `text` to the model. During a turn it is queued.
---@param text string
function M.submit(text)
  verbs().chat.submit(text)
end

--- Send text to the model during its turn. The model reads it with the next tool results.
---@param text string
function M.steer(text)
  verbs().chat.steer(text)
end

---@class (exact) sanderling.AskOpts
---@field range? integer[] first and last line to attach, from 1
---@field buf? integer buffer of the lines; default: the current one
---@field focus? boolean enter the chat's prompt; default false

--- Show the chat and ask `text`, with the lines of `opts.range` attached.
---@param text string
---@param opts? sanderling.AskOpts
function M.ask(text, opts)
  verbs().chat.ask(text, checked('ask', opts, { range = true, buf = true, focus = true }))
end

--- Stop the turn, or the latest command. The text received so far is kept.
function M.stop()
  verbs().chat.stop()
end

--- Show the chat and run `command` in the session's sandbox. The next prompt includes the command and its output.
---@param command string a shell command
function M.run(command)
  verbs().chat.run(command)
end

--- Set network access for new commands. Without a mode, return the current one.
---@param mode? 'off'|'proxy'|'on'
---@return string?
function M.net(mode)
  if mode == nil and not package.loaded['sanderling.chat'] then
    return 'off' -- every session starts with this
  end
  return verbs().chat.net(mode)
end

--- Set the permission mode. Without a mode, return the current one.
---@param mode? 'ask'|'auto'|'plan'
---@return string?
function M.mode(mode)
  if mode == nil and not package.loaded['sanderling.chat'] then
    return 'ask' -- every session starts with this
  end
  return verbs().chat.mode(mode)
end

--- Show the sandbox status in the transcript, or switch the sandbox off (after a confirmation) or on.
---@param action? 'status'|'off'|'on'
function M.sandbox(action)
  verbs().chat.sandbox(action)
end

--- Start a new conversation in the chat's windows. The old one stays on disk.
function M.clear()
  verbs().chat.clear()
end

--- Start a new conversation and show it; the others stay open.
function M.new()
  verbs().chat.new()
end

--- Resume and show the conversation `id`, of any project. Without an id, resume the project's newest that is not open.
---@param id? string
function M.resume(id)
  vim.validate('id', id, 'string', true)
  verbs().sessions.resume(id or '')
end

---@class (exact) sanderling.SessionsOpts
---@field all? boolean list all projects

--- Let the user choose one of the project's conversations and what to do with it.
---@param text? string list only conversations that contain it
---@param opts? sanderling.SessionsOpts
function M.choose_session(text, opts)
  vim.validate('text', text, 'string', true)
  verbs().sessions.pick(text or '', checked('choose_session', opts, { all = true }).all or false)
end

--- Continue in a copy of the conversation. In the transcript it ends at the message under the cursor, elsewhere it is
--- complete.
function M.fork()
  verbs().sessions.fork()
end

--- Give the conversation a title. Without one, ask for it.
---@param title? string
function M.rename(title)
  vim.validate('title', title, 'string', true)
  verbs().sessions.rename(title or '')
end

--- Write the conversation as Markdown into a new file. Without a path, ask for it.
---@param path? string
function M.export(path)
  vim.validate('path', path, 'string', true)
  verbs().sessions.export(path or '')
end

--- Close the conversation and show the next open one. It stays on disk.
function M.close()
  verbs().chat.close()
end

--- Show the open conversation `step` places further on; the list wraps around.
---@param step? integer default 1
function M.switch(step)
  vim.validate('step', step, 'number', true)
  verbs().chat.switch(step or 1)
end

--- Return the open conversations in the order of the keys that switch between them.
---@return sanderling.chat.Entry[]
function M.list()
  local chat = package.loaded['sanderling.chat']
  return chat and chat.list() or {}
end

--- Return a short text for a statusline, empty without a chat. With `parts`, add or replace parts of it and of the chat's
--- bars.
---@overload fun(): string
---@overload fun(parts: table<string, sanderling.StatusPart|false>): sanderling.Handle
function M.statusline(parts)
  if parts ~= nil then
    return require('sanderling.extend.status').add(parts)
  end
  local status = package.loaded['sanderling.status']
  return status and status.statusline() or ''
end

--- Return the status of the current session as data, nil without a chat.
---@return sanderling.Status?
function M.status()
  local status = package.loaded['sanderling.status']
  return status and status.current()
end

--- Return the transcript's buffer and its window in this tab page, nil without a chat.
---@return { buf: integer, win: integer? }?
function M.transcript()
  local chat = package.loaded['sanderling.chat']
  return chat and chat.transcript() or nil
end

-- for plugins ---------------------------------------------------------------------------------------------------------

--- Return the current session, nil without a chat.
---@return sanderling.Session?
function M.session()
  local sessions = package.loaded['sanderling.extend.session']
  return sessions and sessions.current()
end

--- Return the open sessions in the order of the keys that switch between them.
---@return sanderling.Session[]
function M.sessions()
  local sessions = package.loaded['sanderling.extend.session']
  return sessions and sessions.all() or {}
end

--- Add the slash command `/name`.
---@param name string
---@param opts sanderling.CommandOpts
---@return sanderling.Handle
function M.command(name, opts)
  return require('sanderling.extend.command').add(name, opts)
end

--- Add the mention `@name:…`.
---@param name string
---@param opts sanderling.MentionOpts
---@return sanderling.Handle
function M.mention(name, opts)
  return require('sanderling.extend.mention').add(name, opts)
end

--- Call `fn` at each event of a type, in any session, after it was drawn.
---@type sanderling.On
function M.on(type, fn)
  return require('sanderling.extend.events').add(type, fn)
end

--- Show all lists to choose from with `open`.
---@param open fun(list: sanderling.picker.List)
---@return sanderling.Handle
function M.picker(open)
  return require('sanderling.extend.picker').add(open)
end

--- Load `lua/sanderling/extensions/NAME.lua` of any plugin, and call its `setup` with the options that the user has set.
---@param name string
---@return table module
function M.extension(name)
  return require('sanderling.extend.extensions').load(name)
end

--- Add a tool that the model can call, as `lua__NAME`. See |sanderling-lua-tools|.
---@param name string
---@param tool sanderling.ToolOpts
---@return sanderling.Handle
function M.tool(name, tool)
  return require('sanderling.extend.tool').add(name, tool)
end

--- Check, change or refuse prompts, tool calls or compactions before they happen. See |sanderling-lua-before|.
---@param point sanderling.BeforePoint
---@param fn sanderling.BeforeCallback
---@param opts? sanderling.BeforeOpts
---@return sanderling.Handle
function M.before(point, fn, opts)
  return require('sanderling.extend.before').add(point, fn, opts)
end

return M
