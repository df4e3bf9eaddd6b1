--- Extensions: modules `sanderling.extensions.NAME` of any plugin, which register what they add.
local M = {}

local config = require('sanderling.config')
local registry = require('sanderling.extend.registry')

---@type table<string, table> loaded modules, by name
local loaded = {}
---@type table<string, true> configured ones that have failed
local failed = {}

---@param name any
---@return table module
local function find(name)
  if type(name) ~= 'string' or not name:find('^[%w_-]+$') then
    registry.refuse('extension', '%s is not the name of an extension.', vim.inspect(name))
  end
  local module = 'sanderling.extensions.' .. name
  if not package.loaded[module] and #vim.loader.find(module) == 0 then
    local text =
      "no plugin in 'runtimepath' has lua/sanderling/extensions/%s.lua. Install it, or check its name."
    registry.refuse('extension', text, name)
  end
  return require(module)
end

--- Load an extension, and call its `setup` with its options. The first call does that, others return the module.
---@param name string
---@return table module
function M.load(name)
  if loaded[name] then
    return loaded[name]
  end
  local module = find(name)
  local setup = type(module) == 'table' and module.setup
  if type(setup) ~= 'function' then
    registry.refuse('extension', "'%s' has no function setup(opts).", name)
  end
  setup(vim.deepcopy(config.options.extensions[name] or {}))
  loaded[name] = module
  return module
end

--- Load the extensions that the options name. An error in one is reported, and the others are loaded.
function M.load_configured()
  local names = vim.tbl_keys(config.options.extensions)
  table.sort(names)
  for _, name in ipairs(names) do
    local ok, err = true, nil
    if not failed[name] then
      ok, err = xpcall(M.load, debug.traceback, name)
    end
    if not ok then
      failed[name] = true
      err = tostring(err):gsub('^sanderling%.extension%(%): ', '')
      registry.report({ origin = 'sanderling' }, ("extension '%s'"):format(name), err)
    end
  end
end

return M
