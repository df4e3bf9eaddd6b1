--- agent.before(): callbacks in Lua that check, change or refuse what is about to happen.
local declared = require('sanderling.host.declared')
local owner_of = require('sanderling.extend.owner')
local registered = require('sanderling.extend.registered')

---@alias sanderling.extend.Point 'prompt'|'tool'|'compact'

---@class (exact) sanderling.extend.ToolCall
---@field name string
---@field input table

--- Gets a prompt's text, a tool call, or the focus of a compaction ("" without one). See |sanderling-lua-before| for what
--- it may return.
---@alias sanderling.extend.Callback fun(subject: any, ctx: sanderling.extend.Context, done?: fun(...: any)): ...: any

---@class (exact) sanderling.extend.BeforeOpts
---@field timeout? number seconds, default 1
---@field async? boolean it answers by calling its third argument, at once or later

local TIMEOUT_S, MAX_TIMEOUT_S = 1, 60
local POINTS = { 'prompt', 'tool', 'compact' }

---@param point any
---@param fn any
---@param opts any
---@return string? problem
local function problem_of(point, fn, opts)
  if not vim.list_contains(POINTS, point) then
    return 'it must be one of ' .. table.concat(POINTS, ', ')
  elseif type(fn) ~= 'function' then
    return 'the second argument must be a function'
  elseif type(opts) ~= 'table' then
    return 'the third argument must be a table'
  end
  for key in pairs(opts) do
    if key ~= 'timeout' and key ~= 'async' then
      return ("unknown option '%s'; options are timeout, async"):format(key)
    end
  end
  local timeout = opts.timeout or TIMEOUT_S
  if type(timeout) ~= 'number' or timeout <= 0 or timeout > MAX_TIMEOUT_S then
    return ('timeout must be a number of seconds, at most %d'):format(MAX_TIMEOUT_S)
  end
end

---@param point sanderling.extend.Point
---@param fn sanderling.extend.Callback
---@param opts? sanderling.extend.BeforeOpts
---@return sanderling.extend.Handle
return function(point, fn, opts)
  opts = opts == nil and {} or opts
  local problem = problem_of(point, fn, opts)
  if problem then
    error(("agent.before('%s'): %s"):format(tostring(point), problem), 3)
  end
  local timeout_s = opts.timeout or TIMEOUT_S
  ---@type sanderling.extend.registered.Callback
  local own = {
    fn = fn,
    owner = owner_of(fn),
    timeout_ms = timeout_s * 1000,
    is_async = opts.async or false,
  }
  local callbacks = registered.callbacks[point]
  table.insert(callbacks, own)
  local undeclare = declared.add_callback({ point = point, timeout_s = timeout_s })
  return {
    remove = function()
      for index, each in ipairs(callbacks) do
        if each == own then
          table.remove(callbacks, index)
          return undeclare()
        end
      end
    end,
  }
end
