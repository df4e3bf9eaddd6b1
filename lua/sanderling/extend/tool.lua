--- Tools of plugins, for the model.
local M = {}

local declared = require('sanderling.host.declared')
local registry = require('sanderling.extend.registry')

---@class (exact) sanderling.CallContext
---@field session sanderling.Session
---@field project string the absolute path of its root

---@class (exact) sanderling.ToolContext : sanderling.CallContext
---@field on_cancel fun(fn: fun()) call `fn` when the user stops the call, or when its time is over
---@field progress fun(text: string) show a line of progress

---@alias sanderling.ToolEffect
---| 'read' it only reads: it runs without a question
---| 'write' it changes files
---| 'run' it runs programs
---| 'network' it uses the network

---@class (exact) sanderling.ToolOpts
---@field desc string what the tool does, for the model
---@field schema? table the JSON schema of its input, which is an object
---@field effect? sanderling.ToolEffect without it, each call asks
---@field timeout? number seconds, default 60
---@field run fun(input: table, ctx: sanderling.ToolContext, done: fun(result?: any, err?: string)) calls `done` once, at once or later

---@class (exact) sanderling.extend.tool.Tool: sanderling.extend.registry.Named
---@field run fun(input: table, ctx: sanderling.ToolContext, done: fun(result?: any, err?: string))

---@type sanderling.extend.registry.Fields
local FIELDS = {
  desc = { 'string', required = true },
  schema = { 'table' },
  effect = { 'string' },
  timeout = { 'number' },
  run = { 'function', required = true },
}
local EFFECTS = { 'read', 'write', 'run', 'network' }
local TIMEOUT_S, MAX_TIMEOUT_S = 60, 3600
local MAX_NAME_BYTES = 64 - #'lua__' -- models' APIs take 64
local MAX_PROPERTY_BYTES = 64

local tools = registry.names('tool')

---@param schema table
local function check_schema(schema)
  if next(schema) ~= nil and schema.type ~= 'object' then
    registry.refuse('tool', "schema must have type = 'object': it describes the whole input.")
  elseif not pcall(vim.json.encode, schema) then
    registry.refuse('tool', 'schema has a value that JSON does not have, such as a function.')
  end
  if not vim.list_contains({ 'nil', 'table' }, type(schema.required)) then
    registry.refuse(
      'tool',
      'schema.required must be a list of names, not a %s.',
      type(schema.required)
    )
  elseif not vim.list_contains({ 'nil', 'table' }, type(schema.properties)) then
    local text = 'schema.properties must be a table of schemas by name, not a %s.'
    registry.refuse('tool', text, type(schema.properties))
  end
  for name, property in pairs(schema.properties or {}) do
    if type(name) ~= 'string' or not name:find('^[%w_.-]+$') or #name > MAX_PROPERTY_BYTES then
      local text = "'%s' is not a name of an input: models' APIs take letters, digits, _, . and -."
      registry.refuse('tool', text, tostring(name))
    elseif not vim.list_contains({ 'table', 'boolean' }, type(property)) then
      local text = "the schema of '%s' must be a table, such as { type = 'string' }, not a %s."
      registry.refuse('tool', text, name, type(property))
    end
  end
end

---@param name string
---@param opts sanderling.ToolOpts
local function check(name, opts)
  registry.check_name('tool', name, {})
  -- `__` separates the parts of the names that the model and rules use.
  if name:find('__') or name:find('_$') or #name > MAX_NAME_BYTES then
    local text = "'%s' is not a name of a tool: at most %d characters, no __, and no _ at its end."
    registry.refuse('tool', text, name, MAX_NAME_BYTES)
  end
  registry.check_fields('tool', opts, FIELDS)
  if not opts.desc:find('%S') then
    registry.refuse('tool', 'desc is empty. It says what the tool does: the model reads it.')
  elseif opts.effect and not vim.list_contains(EFFECTS, opts.effect) then
    local known = table.concat(EFFECTS, ', ')
    registry.refuse('tool', "effect '%s' is unknown. Use one of %s.", opts.effect, known)
  elseif opts.timeout and not (opts.timeout > 0 and opts.timeout <= MAX_TIMEOUT_S) then
    registry.refuse('tool', 'timeout must be a number of seconds, at most %d.', MAX_TIMEOUT_S)
  end
  check_schema(opts.schema or {})
end

---@param name string
---@param opts sanderling.ToolOpts
---@return sanderling.Handle
function M.add(name, opts)
  check(name, opts)
  local origin = registry.origin()
  local added = tools:add({ name = name, origin = origin, run = opts.run })
  local undeclare = declared.add_tool({
    name = name,
    desc = opts.desc:match('^%s*(.*)'),
    owner = origin,
    timeout_s = opts.timeout or TIMEOUT_S,
    schema = opts.schema and vim.deepcopy(opts.schema),
    effect = opts.effect or '',
  })
  return registry.handle(function()
    added:remove()
    undeclare()
  end)
end

---@param name string
---@return sanderling.extend.tool.Tool?
function M.find(name)
  return tools:find(name)
end

return M
