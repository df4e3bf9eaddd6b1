--- /login and /logout: an API key in the system's keychain. The key is typed into a prompt without history and sent only to the host,
--- never to a message, a register or an error.
local M = {}

local config = require('sanderling.config')
local ask = require('sanderling.host.ask')
local host = require('sanderling.host')

local MAX_NAME_CHARS = 24 -- of a provider; keys have more

--- Return the providers in presets.toml; the user's configuration may add others.
---@return string[]
function M.providers()
  local names = { 'anthropic' }
  for line in io.lines(vim.fs.joinpath(host.root(), 'src/sanderling/providers/presets.toml')) do
    names[#names + 1] = line:match('^%[([%w_-]+)%]')
  end
  return names
end

--- Can `text` be a provider's name? A possible key must not be taken for a name, shown and kept.
---@param text string
---@return boolean
function M.is_provider(text)
  local is_name = text:find('^[%w_-]+$') and #text <= MAX_NAME_CHARS
  local looks_like_key = text:find('%d%d%d%d') or text:find('^sk%-')
  return is_name ~= nil and is_name and not looks_like_key
end

---@param before string
---@param provider string
---@return string
local function behind(before, provider)
  return provider == '' and '' or before .. provider
end

--- Return the provider for a request: nil for that of the settings.
---@param provider string
---@return string?
local function named(provider)
  return provider ~= '' and provider or nil
end

--- Ask the host about the keychain, and show in the session why that fails.
---@param session sanderling.chat.session.Session
---@param request sanderling.Login|sanderling.Logout
---@param on_done fun(result: table, is_here: boolean)
local function ask_host(session, request, on_done)
  ask(request, on_done, function(sentence)
    session:say('warning', sentence)
  end)
end

--- Read a key without showing or keeping it.
---@param backend string
---@param provider string
---@return string key empty if the user cancels
local function ask_key(backend, provider)
  local question = ('API key%s (stored in %s): '):format(behind(' for ', provider), backend)
  local ok, key = pcall(vim.fn.inputsecret, question)
  vim.cmd.redraw() -- clears the question
  return ok and vim.trim(key) or '' -- <C-c> is an error
end

--- Return whether the demo model answers because the user wants it, not because there was no key.
---@return boolean
local function is_demo_chosen()
  return config.options.model == 'demo' or config.options.provider == 'demo'
end

--- Ask for the key and store it.
---@param session sanderling.chat.session.Session
---@param backend string
---@param provider string
local function ask_and_store(session, backend, provider)
  if vim.fn.reg_recording() ~= '' then
    session:say(
      'warning',
      'A macro is being recorded and would contain the key. Stop it with q first.'
    )
    return
  end
  local key = ask_key(backend, provider)
  if key == '' then
    session:say('info', 'No key entered; nothing has changed.')
    return
  end
  ask_host(session, { type = 'login', key = key, provider = named(provider) }, function()
    local text = 'API key%s stored in %s. /logout%s removes it.'
    session:say('info', text:format(behind(' for ', provider), backend, behind(' ', provider)))
    if session.state.model == 'demo' and not is_demo_chosen() then
      -- The colon selects the provider's default model.
      local model = provider == '' and config.options.model or provider .. ':'
      session:act({ type = 'set_model', model = model })
    end
  end)
end

--- Ask for an API key and store it in the system's keychain, or say what to do if there is none.
---@param call sanderling.verbs.Call
function M.login(call)
  local provider, session = call.args, call.session
  ask_host(session, { type = 'login', provider = named(provider) }, function(result, is_here)
    if is_here then
      ask_and_store(session, result.backend, provider)
    else
      local text = 'The key can be stored in %s. Run :Agent login%s to enter it.'
      session:say('info', text:format(result.backend, behind(' ', provider)))
    end
  end)
end

--- Remove the API key from the keychain.
---@param call sanderling.verbs.Call
function M.logout(call)
  local provider, session = call.args, call.session
  ask_host(session, { type = 'logout', provider = named(provider) }, function(result)
    local text = result.was_kept and 'API key%s removed from the keychain.'
      or 'No API key%s is stored.'
    session:say('info', text:format(behind(' for ', provider)))
  end)
end

return M
