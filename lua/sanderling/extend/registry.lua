--- Registrations of plugins and of the user's configuration: their names, who made them, how they are removed, and how
--- errors in their callbacks are reported.
---
--- The modules for one kind of registration only keep them. The parts of the screen look them up, and only if the module
--- is loaded, so that an unused one costs nothing.
local M = {}

local lazy = require('sanderling.ui.lazy')

local guess = lazy('sanderling.config.guess')
local log = lazy('sanderling.host.log')
local message = lazy('sanderling.ui.message')

local OWN = debug.getinfo(1, 'S').source:match('^(.*/)extend/')
local MAX_NAME_BYTES = 64

--- Undoes a registration.
---@class (exact) sanderling.Handle
---@field remove fun(self?: sanderling.Handle) can be called again, which does nothing

---@class (exact) sanderling.extend.registry.Owner
---@field origin string the plugin, or the file in the user's configuration
---@field is_frequent? boolean its callbacks run often, so that each error is reported once
---@field reported? table<string, true>

-- who registers -------------------------------------------------------------------------------------------------------

--- Return the plugin that a file belongs to: the name of its directory in 'runtimepath'.
---@param path string
---@return string
local function plugin_of(path)
  path = vim.fs.normalize(path)
  local config, found = vim.fs.normalize(vim.fn.stdpath('config') --[[@as string]]), ''
  for _, dir in ipairs(vim.api.nvim_list_runtime_paths()) do
    dir = vim.fs.normalize(dir)
    found = #dir > #found and vim.startswith(path, dir .. '/') and dir or found
  end
  if vim.startswith(path, config .. '/') then
    return path:sub(#config + 2)
  end
  return vim.fs.basename(found ~= '' and found:gsub('/after$', '') or path)
end

--- Return the name of the plugin that calls, from the first function on the stack that is not Sanderling's.
---@return string
function M.origin()
  for level = 2, 100 do
    local info = debug.getinfo(level, 'S')
    if not info then
      break
    end
    local source = info.source
    local is_ours = vim.startswith(source, OWN) and not vim.startswith(source, OWN .. 'extensions/')
    if info.what ~= 'C' and not is_ours then
      return source:sub(1, 1) == '@' and source:find('/', 1, true) and plugin_of(source:sub(2))
        or (source:gsub('^[@=]', ''):gsub('\n.*', ''))
    end
  end
  return 'a plugin'
end

---@param remove fun()
---@return sanderling.Handle
function M.handle(remove)
  local is_removed = false
  return {
    remove = function()
      if not is_removed then
        is_removed = true
        remove()
      end
    end,
  }
end

-- checks --------------------------------------------------------------------------------------------------------------

--- Raise an error of the function `name` of the API.
---@param name string
---@param text string
function M.refuse(name, text, ...)
  error(('sanderling.%s(): %s'):format(name, text:format(...)), 0)
end

--- Check the name of a registration.
---@param kind string the function of the API
---@param name any
---@param reserved string[]
function M.check_name(kind, name, reserved)
  if type(name) ~= 'string' or not name:find('^[a-z][a-z0-9_-]*$') or #name > MAX_NAME_BYTES then
    local given = vim.inspect(name, { newline = ' ', indent = '' })
    local text =
      '%s is not a name. Use lowercase letters, digits, - and _, at most %d, a letter first.'
    M.refuse(kind, text, given, MAX_NAME_BYTES)
  elseif vim.list_contains(reserved, name) then
    M.refuse(kind, "'%s' is built in and cannot be replaced. Choose another name.", name)
  end
end

---@alias sanderling.extend.registry.Fields table<string, { [1]: string|string[], required?: boolean }> types by field

--- Check that `opts` has no fields but these.
---@param kind string the function of the API
---@param opts any
---@param fields table<string, any> by name
function M.check_names(kind, opts, fields)
  if type(opts) ~= 'table' then
    M.refuse(kind, 'expected a table of options, got %s.', type(opts))
  end
  for name in pairs(opts) do
    if not fields[name] then
      local hint = ("did you mean '%s'?"):format((guess.nearest(tostring(name), fields)))
      M.refuse(kind, "unknown field '%s'; %s", tostring(name), hint)
    end
  end
end

--- Check the fields of `opts`.
---@param kind string the function of the API
---@param opts any
---@param fields sanderling.extend.registry.Fields
function M.check_fields(kind, opts, fields)
  M.check_names(kind, opts, fields)
  for name, value in pairs(opts) do
    local types = fields[name][1]
    types = type(types) == 'table' and types or { types }
    if not vim.list_contains(types, type(value)) then
      local text = "the field '%s' must be a %s, not a %s."
      M.refuse(kind, text, name, table.concat(types, ' or a '), type(value))
    end
  end
  for name, field in pairs(fields) do
    if field.required and opts[name] == nil then
      M.refuse(kind, "the field '%s' is missing; it must be a %s.", name, field[1])
    end
  end
end

-- named registrations -------------------------------------------------------------------------------------------------

---@class (exact) sanderling.extend.registry.Named: sanderling.extend.registry.Owner
---@field name string

--- Registrations of one kind, each with a name of its own.
---@class (exact) sanderling.extend.registry.Names
---@field private kind string the function of the API
---@field list sanderling.extend.registry.Named[] in the order of registration
local Names = {}
Names.__index = Names

---@param kind string the function of the API
---@return sanderling.extend.registry.Names
function M.names(kind)
  return setmetatable({ kind = kind, list = {} }, Names)
end

---@param name string
---@return any
function Names:find(name)
  return vim.iter(self.list):find(function(each)
    return each.name == name
  end)
end

---@param entry sanderling.extend.registry.Named
---@return sanderling.Handle
function Names:add(entry)
  local other = self:find(entry.name)
  if other then
    local text = "'%s' is already registered, by %s. Call remove() on its handle first."
    M.refuse(self.kind, text, entry.name, other.origin)
  end
  table.insert(self.list, entry)
  return M.handle(function()
    self.list = vim.tbl_filter(function(each)
      return each ~= entry
    end, self.list)
  end)
end

-- callbacks -----------------------------------------------------------------------------------------------------------

--- Return the first line of an error, with the name of the file instead of its path. The place that |require()| puts before a
--- syntax error is left out.
---@param err any
---@return string
function M.first_line(err)
  local line = tostring(err):gsub('\n.*', '')
  line = line:gsub('^%[string "%?"%]:%d+: ', ''):gsub('^%S*_init_packages%.lua:%d+: ', '')
  return (line:gsub('^%S*/([^/%s]+:%d+:)', '%1'))
end

--- Report a failure of something that a plugin has registered.
---@param owner sanderling.extend.registry.Owner
---@param subject string
---@param err any
function M.report(owner, subject, err)
  local text = ('%s: %s failed: %s'):format(owner.origin, subject, M.first_line(err))
  if owner.is_frequent then
    owner.reported = owner.reported or {}
    if owner.reported[text] then
      return
    end
    owner.reported[text] = true
  end
  vim.schedule(function()
    log.keep(('%s: %s failed: %s'):format(owner.origin, subject, tostring(err)))
    message.tell(text, vim.log.levels.ERROR)
  end)
end

--- Call a plugin's function, and report an error in it.
---@param owner sanderling.extend.registry.Owner
---@param subject string
---@param fn function
---@return boolean ok
---@return any result
function M.call(owner, subject, fn, ...)
  local ok, result = xpcall(fn, debug.traceback, ...)
  if ok then
    return true, result
  end
  M.report(owner, subject, result)
  return false, nil
end

return M
