--- /login and /logout: an API key in the system's keychain. The key is asked for where nothing is kept, and goes to the host
--- and nowhere else: not into a message, a register, the history or an error.
local M = {}

local ask = require('sanderling.host.ask')
local host = require('sanderling.host')

local MAX_NAME_CHARS = 24 -- of a provider; keys have more

--- The providers that there are, as their file has them; those of the person's own configuration may be more.
---@return string[]
function M.providers()
  local names = { 'anthropic' }
  for line in io.lines(vim.fs.joinpath(host.root(), 'src/sanderling/providers/presets.toml')) do
    names[#names + 1] = line:match('^%[([%w_-]+)%]')
  end
  return names
end

--- Say whether `text` can be the name of a provider: what may be a key must not be taken for one, shown and kept.
---@param text string
---@return boolean
function M.is_provider(text)
  local is_name = text:find('^[%w_-]+$') and #text <= MAX_NAME_CHARS
  local looks_like_key = text:find('%d%d%d%d') or text:find('^sk%-')
  return is_name ~= nil and is_name and not looks_like_key
end

--- The name as it stands behind the words, if there is one.
---@param before string
---@param provider string
---@return string
local function behind(before, provider)
  return provider == '' and '' or before .. provider
end

--- The provider of a request: without a name it is that of the settings.
---@param provider string
---@return string?
local function named(provider)
  return provider ~= '' and provider or nil
end

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
---@param provider string
---@return string key empty when they have thought better of it
local function ask_key(backend, provider)
  local question = ('API key%s, to be kept in %s: '):format(behind(' for ', provider), backend)
  local ok, key = pcall(vim.fn.inputsecret, question)
  vim.cmd.redraw() -- the question is gone
  return ok and vim.trim(key) or '' -- <C-c> is an error
end

--- Ask for the key, and have it kept.
---@param session sanderling.chat.session.Session
---@param backend string
---@param provider string
local function ask_and_store(session, backend, provider)
  if vim.fn.reg_recording() ~= '' then
    session:say(
      'warning',
      'A macro is being recorded and would keep the key: stop it with q first.'
    )
    return
  end
  local key = ask_key(backend, provider)
  if key == '' then
    session:say('info', 'No key was given: nothing has changed.')
    return
  end
  ask_host(session, { type = 'login', key = key, provider = named(provider) }, function()
    local text = 'The API key%s is kept in %s. /logout%s removes it.'
    session:say('info', text:format(behind(' for ', provider), backend, behind(' ', provider)))
  end)
end

--- Ask for an API key and keep it in the system's keychain; where none can be used, say what to do instead.
---@param call sanderling.verbs.Call
function M.login(call)
  local provider, session = call.args, call.session
  ask_host(session, { type = 'login', provider = named(provider) }, function(result, is_here)
    if is_here then
      ask_and_store(session, result.backend, provider)
    else
      local text = 'The key can be kept in %s: :AgentLogin%s asks for it.'
      session:say('info', text:format(result.backend, behind(' ', provider)))
    end
  end)
end

--- Remove the API key from the keychain.
---@param call sanderling.verbs.Call
function M.logout(call)
  local provider, session = call.args, call.session
  ask_host(session, { type = 'logout', provider = named(provider) }, function(result)
    local text = result.was_kept and 'The API key%s is removed from the keychain.'
      or 'No API key%s is kept: there is nothing to remove.'
    session:say('info', text:format(behind(' for ', provider)))
  end)
end

return M
