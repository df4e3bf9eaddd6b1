--- The public API. Everything else may change; this, and `:help sanderling-api`, is kept.
local M = {}

local function verbs()
  return require('sanderling.verbs')
end

---@param options? table see |sanderling-options|
function M.setup(options)
  require('sanderling.config').setup(options)
end

---@class (exact) sanderling.ChatOpts
---@field position? string where the chat opens, instead of the option chat.position
---@field size? number instead of the option chat.size
---@field focus? boolean go to the prompt; true unless said otherwise

--- Show the chat in this tab page, if it is not there yet.
---@param opts? sanderling.ChatOpts
function M.chat(opts)
  verbs().chat.show(opts or {})
end

--- Show the chat, or hide it when this tab page shows it.
---@param opts? sanderling.ChatOpts
function M.toggle(opts)
  verbs().chat.toggle(opts or {})
end

function M.hide()
  verbs().chat.hide()
end

--- Send `text` to the model. It waits for the end of the turn that runs.
---@param text string
function M.submit(text)
  verbs().chat.submit(text)
end

--- Tell the model something in the middle of its turn: it reads it with the next results of its tools.
---@param text string
function M.steer(text)
  verbs().chat.steer(text)
end

---@class (exact) sanderling.AskOpts
---@field range? integer[] first and last line, from 1, of the lines that go with the question
---@field buf? integer whose lines; the current buffer unless said otherwise
---@field focus? boolean go to the chat's prompt; false unless said otherwise

--- Show the chat and ask `text`, about the lines of `opts.range` if it is given.
---@param text string
---@param opts? sanderling.AskOpts
function M.ask(text, opts)
  verbs().chat.ask(text, opts or {})
end

--- Stop the turn, or the command that was started last. What the model said so far is kept.
function M.stop()
  verbs().chat.stop()
end

--- Show the chat and run `command` in the session's sandbox. The model sees it, and what it printed, with the next prompt.
---@param command string for the shell
function M.run(command)
  verbs().chat.run(command)
end

--- Change the network of commands that are started from now on; without a mode, return the one that is in force.
---@param mode? 'off'|'proxy'|'on'
---@return string?
function M.net(mode)
  if mode == nil and not package.loaded['sanderling.chat'] then
    return 'off' -- as every session begins
  end
  return verbs().chat.net(mode)
end

--- Change what asks first; without a mode, return the one that is in force.
---@param mode? 'ask'|'auto'|'plan'
---@return string?
function M.mode(mode)
  if mode == nil and not package.loaded['sanderling.chat'] then
    return 'ask' -- as every session begins
  end
  return verbs().chat.mode(mode)
end

--- Say in the transcript what the sandbox does here, switch it off, which the user is asked about, or on again.
---@param action? 'status'|'off'|'on'
function M.sandbox(action)
  verbs().chat.sandbox(action)
end

--- Begin a new conversation. The old one stays on disk.
function M.clear()
  verbs().chat.clear()
end

--- Begin a new conversation beside those that are open, and show it.
function M.new()
  verbs().chat.new()
end

--- Show the conversation `id`, of whatever project, and go on with it; without an id, the newest of the project that is not open.
---@param id? string
function M.resume(id)
  vim.validate('id', id, 'string', true)
  verbs().sessions.resume(id or '')
end

---@class (exact) sanderling.SessionsOpts
---@field all? boolean those of all projects

--- Choose one of the project's conversations, and what to do with it: those in which `text` was said, if it is given.
---@param text? string
---@param opts? sanderling.SessionsOpts
function M.sessions(text, opts)
  vim.validate('text', text, 'string', true)
  verbs().sessions.pick(text or '', opts ~= nil and opts.all or false)
end

--- Go on with a copy of the conversation: up to the message under the cursor in its transcript, from elsewhere with all of it.
function M.fork()
  verbs().sessions.fork()
end

--- Give the conversation a title, which is asked for when it is not given.
---@param title? string
function M.rename(title)
  vim.validate('title', title, 'string', true)
  verbs().sessions.rename(title or '')
end

--- Write the conversation as Markdown into a new file, whose path is asked for when it is not given.
---@param path? string
function M.export(path)
  vim.validate('path', path, 'string', true)
  verbs().sessions.export(path or '')
end

--- Close the conversation, which stays on disk, and show the next one that is open.
function M.close()
  verbs().chat.close()
end

--- Show the open conversation that comes `step` places after the one that is shown, round and round.
---@param step? integer 1 unless said otherwise
function M.switch(step)
  vim.validate('step', step, 'number', true)
  verbs().chat.switch(step or 1)
end

--- The conversations that are open, in the order of the keys that switch between them.
---@return sanderling.chat.Entry[]
function M.list()
  local chat = package.loaded['sanderling.chat']
  return chat and chat.list() or {}
end

--- One short text for a statusline; empty while there is no chat.
---@return string
function M.statusline()
  local status = package.loaded['sanderling.status']
  return status and status.statusline() or ''
end

--- The status of the current session, as data; nil while there is no chat.
---@return sanderling.Status?
function M.status()
  local status = package.loaded['sanderling.status']
  return status and status.current()
end

--- The transcript's buffer, and the window that shows it in this tab page; nil before there is a chat.
---@return { buf: integer, win: integer? }?
function M.transcript()
  local chat = package.loaded['sanderling.chat']
  return chat and chat.transcript() or nil
end

return M
