--- Callbacks of plugins that check, change or refuse what is about to happen.
local M = {}

local declared = require('sanderling.host.declared')
local registry = require('sanderling.extend.registry')

---@alias sanderling.BeforePoint 'prompt'|'tool'|'compact'

---@class (exact) sanderling.BeforeTool
---@field name string
---@field input table

--- Gets a prompt's text, a `sanderling.BeforeTool`, or the focus of a compaction ("" without one). |sanderling-lua-before|
--- describes its return values. Only with `async` it has `done`, which takes the same instead.
---@alias sanderling.BeforeCallback fun(subject: any, ctx: sanderling.CallContext, done?: fun(...: any)): ...: any

---@class (exact) sanderling.BeforeOpts
---@field timeout? number seconds, default 1
---@field async? boolean it answers by calling its third argument, at once or later

---@class (exact) sanderling.extend.before.Callback
---@field fn sanderling.BeforeCallback
---@field origin string
---@field timeout_ms number
---@field is_async boolean

---@type sanderling.extend.registry.Fields
local FIELDS = { timeout = { 'number' }, async = { 'boolean' } }
local POINTS = { 'prompt', 'tool', 'compact' }
local TIMEOUT_S, MAX_TIMEOUT_S = 1, 60

---@type table<sanderling.BeforePoint, sanderling.extend.before.Callback[]>
local callbacks = { prompt = {}, tool = {}, compact = {} }

---@param point any
---@param fn any
---@param opts any
local function check(point, fn, opts)
  if not vim.list_contains(POINTS, point) then
    local known = table.concat(POINTS, ', ')
    local given = type(point) == 'string' and ("'%s'"):format(point) or 'a ' .. type(point)
    registry.refuse('before', '%s is not a point. Use one of %s.', given, known)
  elseif type(fn) ~= 'function' then
    registry.refuse('before', 'the second argument must be a function, got %s.', type(fn))
  end
  registry.check_fields('before', opts, FIELDS)
  if opts.timeout and not (opts.timeout > 0 and opts.timeout <= MAX_TIMEOUT_S) then
    registry.refuse('before', 'timeout must be a number of seconds, at most %d.', MAX_TIMEOUT_S)
  end
end

---@param point sanderling.BeforePoint
---@param fn sanderling.BeforeCallback
---@param opts? sanderling.BeforeOpts
---@return sanderling.Handle
function M.add(point, fn, opts)
  opts = opts == nil and {} or opts
  check(point, fn, opts)
  local timeout_s = opts.timeout or TIMEOUT_S
  ---@type sanderling.extend.before.Callback
  local own = {
    fn = fn,
    origin = registry.origin(),
    timeout_ms = timeout_s * 1000,
    is_async = opts.async or false,
  }
  table.insert(callbacks[point], own)
  local undeclare = declared.add_callback({ point = point, timeout_s = timeout_s })
  return registry.handle(function()
    callbacks[point] = vim.tbl_filter(function(each)
      return each ~= own
    end, callbacks[point])
    undeclare()
  end)
end

---@param point sanderling.BeforePoint
---@return sanderling.extend.before.Callback[] in the order of registration; it is not changed
function M.list(point)
  return vim.list_slice(callbacks[point])
end

return M
