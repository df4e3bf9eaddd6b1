--- Mentions of plugins: `@name:…` in a prompt.
local M = {}

local lazy = require('sanderling.ui.lazy')

local offers = lazy('sanderling.extend.offers')
local once = lazy('sanderling.extend.once')
local processes = lazy('sanderling.access.process')
local registry = require('sanderling.extend.registry')
local sessions = lazy('sanderling.extend.session')

local TIMEOUT_S = 10

--- What a mention attaches to a prompt: a text, or a file. With both, `path` is the title of the text.
---@class (exact) sanderling.Mentioned
---@field text? string
---@field path? string
---@field filetype? string of the text

---@class (exact) sanderling.MentionOpts
---@field desc string shown in the menu of mentions
---@field complete? sanderling.Complete|sanderling.Completion[] the names
---@field resolve fun(name: string, done: fun(found?: sanderling.Mentioned, error?: string), session: sanderling.Session): sanderling.Mentioned? returns the result, or calls `done` later
---@field timeout? number seconds; default 10

---@type sanderling.extend.registry.Fields
local FIELDS = {
  desc = { 'string', required = true },
  complete = { { 'function', 'table' } },
  resolve = { 'function', required = true },
  timeout = { 'number' },
}

---@class (exact) sanderling.extend.mention.Mention: sanderling.extend.registry.Named
---@field desc string
---@field offers? sanderling.extend.offers.Offers
---@field resolve function
---@field timeout_s number

local mentions = registry.names('mention')

---@param name string
---@param opts sanderling.MentionOpts
---@return sanderling.Handle
function M.add(name, opts)
  registry.check_name('mention', name, require('sanderling.extend.reserved').mentions)
  registry.check_fields('mention', opts, FIELDS)
  if opts.timeout and opts.timeout <= 0 then
    registry.refuse('mention', "the field 'timeout' must be more than 0 seconds.")
  end
  local origin = registry.origin()
  local mention = {
    name = name,
    origin = origin,
    desc = opts.desc,
    resolve = opts.resolve,
    timeout_s = opts.timeout or TIMEOUT_S,
  }
  if opts.complete then
    mention.offers = offers.new(origin, ('completion of @%s:'):format(name), opts.complete)
  end
  return mentions:add(mention)
end

---@return sanderling.extend.mention.Mention[]
function M.list()
  return mentions.list
end

--- Return the plugin's mention that `text` is, and the name in it.
---@param text string `@jira:A-1`
---@return sanderling.extend.mention.Mention? mention
---@return string name
function M.find(text)
  local prefix, name = text:match('^@([a-z][a-z0-9_-]*):(.*)$')
  return prefix and mentions:find(prefix), name and name:gsub('\\ ', ' ') or ''
end

---@param found any
---@return sanderling.Mentioned? found
---@return string? error
local function checked(found)
  if type(found) ~= 'table' then
    return nil, ('expected a table with text or path, got %s'):format(type(found))
  end
  for _, field in ipairs({ 'text', 'path', 'filetype' }) do
    if found[field] ~= nil and type(found[field]) ~= 'string' then
      return nil, ("the field '%s' must be a string, not a %s"):format(field, type(found[field]))
    end
  end
  if not found.text and (found.path or '') == '' then
    return nil, 'neither text nor path was given'
  end
  return found, nil
end

--- Begin to resolve a mention.
---@param mention sanderling.extend.mention.Mention
---@param name string
---@param session_id string
---@return fun(): sanderling.Mentioned?, string? wait for the result or an error, in the background
function M.begin(mention, name, session_id)
  local answer ---@type { found: any, error: any }?
  local on_answer = function(_) end
  local function take(found, err)
    answer = { found = found, error = err }
    on_answer(true)
  end
  local finish = once.answer(math.ceil(mention.timeout_s * 1000), take, function()
    take(nil, ('no answer within %g s'):format(mention.timeout_s))
  end)
  local session = sessions.of(session_id)
  local ok, result = xpcall(mention.resolve, debug.traceback, name, finish, session)
  if not ok then
    finish(nil, result)
  elseif result ~= nil then
    finish(result)
  end
  return function()
    if not answer then
      processes.await(function(settle)
        on_answer = settle
        return true
      end)
    end
    local taken = answer or { error = 'it can be resolved only when a prompt is sent' }
    if taken.error ~= nil then
      return nil, tostring(taken.error)
    end
    return checked(taken.found)
  end
end

return M
