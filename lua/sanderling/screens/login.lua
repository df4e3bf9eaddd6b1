--- /login and /logout: an API key in the system's keychain. The key is asked for where nothing is kept, and goes to the host
--- and nowhere else: not into a message, a register, the history or an error.
local M = {}

local ask = require('sanderling.host.ask')

--- Ask the host for something about the keychain. Where that fails, the session says why.
---@param session sanderling.chat.session.Session
---@param request sanderling.Login|sanderling.Logout
---@param on_done fun(result: table, is_here: boolean)
local function ask_host(session, request, on_done)
  ask(request, on_done, function(sentence)
    session:say('warning', sentence)
  end)
end

--- Read what a person types without showing or keeping it.
---@param backend string
---@return string key empty when they have thought better of it
local function ask_key(backend)
  local ok, key = pcall(vim.fn.inputsecret, ('API key, to be kept in %s: '):format(backend))
  vim.cmd.redraw() -- the question is gone
  return ok and vim.trim(key) or '' -- <C-c> is an error
end

--- Ask for the key, and have it kept.
---@param session sanderling.chat.session.Session
---@param backend string
local function ask_and_store(session, backend)
  if vim.fn.reg_recording() ~= '' then
    session:say(
      'warning',
      'A macro is being recorded and would keep the key: stop it with q first.'
    )
    return
  end
  local key = ask_key(backend)
  if key == '' then
    session:say('info', 'No key was given: nothing has changed.')
    return
  end
  ask_host(session, { type = 'login', key = key }, function()
    session:say('info', ('The API key is kept in %s. /logout removes it.'):format(backend))
  end)
end

--- Ask for an API key and keep it in the system's keychain; where none can be used, say what to do instead.
---@param session sanderling.chat.session.Session
function M.login(session)
  ask_host(session, { type = 'login' }, function(result, is_here)
    if is_here then
      ask_and_store(session, result.backend)
    else
      local text = 'The key can be kept in %s: :AgentLogin asks for it.'
      session:say('info', text:format(result.backend))
    end
  end)
end

--- Remove the API key from the keychain.
---@param session sanderling.chat.session.Session
function M.logout(session)
  ask_host(session, { type = 'logout' }, function()
    session:say('info', 'The API key is removed from the keychain.')
  end)
end

return M
