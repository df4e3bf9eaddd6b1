--- agent.tool(): tools in Lua.
local declared = require('sanderling.host.declared')
local owner_of = require('sanderling.extend.owner')
local registered = require('sanderling.extend.registered')

---@class sanderling.extend.Handle
---@field remove fun(self: sanderling.extend.Handle) takes back what was added; a second time it does nothing

---@class sanderling.extend.Context
---@field session { id: string } of the call
---@field project string the absolute path of its root

---@class sanderling.extend.ToolContext : sanderling.extend.Context
---@field on_cancel fun(fn: fun()) call `fn` when the user stops the call, or its time is over
---@field progress fun(text: string) show a line of progress

---@alias sanderling.extend.Effect
---| 'read' it only reads: it runs without a question
---| 'write' it changes files
---| 'run' it runs programs
---| 'network' it uses the network

---@class (exact) sanderling.extend.Tool
---@field desc string what the tool does, for the model
---@field schema? table the JSON schema of its input, an object's
---@field effect? sanderling.extend.Effect without it, each call asks
---@field timeout? number seconds, default 60
---@field run fun(input: table, ctx: sanderling.extend.ToolContext, done: fun(result?: any, err?: string)) calls `done` once, at once or later

local TIMEOUT_S, MAX_TIMEOUT_S = 60, 3600
local MAX_NAME_CHARS = 64 - #'lua__' -- of the APIs
local EFFECTS = { 'read', 'write', 'run', 'network' }
local KEYS = { 'desc', 'schema', 'effect', 'timeout', 'run' }

---@param name any
---@return string? problem
local function problem_of_name(name)
  if
    type(name) ~= 'string'
    or not name:find('^%w[%w_-]*$')
    or name:find('__')
    or name:find('_$')
  then
    return "a tool's name has letters, digits, '-' and single '_' between them, such as 'open_pr'"
  elseif #name > MAX_NAME_CHARS then
    return ("a tool's name has at most %d characters"):format(MAX_NAME_CHARS)
  elseif registered.tools[name] then
    return ('%s has a tool of this name already; remove() it first'):format(
      registered.tools[name].owner
    )
  end
end

---@param schema any
---@return string? problem
local function problem_of_schema(schema)
  if schema == nil then
    return
  elseif type(schema) ~= 'table' then
    return 'schema must be a table, the JSON schema of an object'
  elseif next(schema) ~= nil and schema.type ~= 'object' then
    return "schema must have type = 'object': it is the JSON schema of the whole input"
  end
  for name in pairs(schema.properties or {}) do
    if type(name) ~= 'string' or not name:find('^[%w_.-]+$') or #name > 64 then
      return ("the input '%s' has a name that models' APIs reject"):format(name)
    end
  end
  if not pcall(vim.json.encode, schema) then
    return 'schema has a value that JSON does not have'
  end
end

---@param tool any
---@return string? problem
local function problem_of(tool)
  if type(tool) ~= 'table' then
    return 'a tool is a table with desc and run'
  end
  for key in pairs(tool) do
    if not vim.list_contains(KEYS, key) then
      return ("unknown key '%s'; a tool has %s"):format(key, table.concat(KEYS, ', '))
    end
  end
  if type(tool.desc) ~= 'string' or vim.trim(tool.desc) == '' then
    return 'desc must say what the tool does: the model reads it'
  elseif type(tool.run) ~= 'function' then
    return 'run must be a function'
  elseif tool.effect ~= nil and not vim.list_contains(EFFECTS, tool.effect) then
    return ('effect must be one of %s'):format(table.concat(EFFECTS, ', '))
  elseif
    tool.timeout ~= nil
    and not (type(tool.timeout) == 'number' and tool.timeout > 0 and tool.timeout <= MAX_TIMEOUT_S)
  then
    return ('timeout must be a number of seconds, at most %d'):format(MAX_TIMEOUT_S)
  end
  return problem_of_schema(tool.schema)
end

---@param name string
---@param tool sanderling.extend.Tool
---@return sanderling.extend.Handle
return function(name, tool)
  local problem = problem_of_name(name) or problem_of(tool)
  if problem then
    error(("agent.tool('%s'): %s"):format(tostring(name), problem), 3)
  end
  local own = { run = tool.run, owner = owner_of(tool.run) }
  registered.tools[name] = own
  local undeclare = declared.add_tool({
    name = name,
    desc = vim.trim(tool.desc),
    owner = own.owner,
    timeout_s = tool.timeout or TIMEOUT_S,
    schema = tool.schema and vim.deepcopy(tool.schema),
    effect = tool.effect or '',
  })
  return {
    remove = function()
      if registered.tools[name] == own then
        registered.tools[name] = nil
        undeclare()
      end
    end,
  }
end
