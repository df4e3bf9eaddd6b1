--- Lists to choose from, with a preview and keys: in a picker plugin, else with vim.ui.select().
---
--- A plugin gets lines and numbers, never the items: what it shows is plain text, and it needs to know nothing of sessions or
--- models. Another picker is one more function of a `sanderling.picker.List`.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local keys = require('sanderling.ui.keys')
local log = require('sanderling.host.log')
local message = require('sanderling.ui.message')
local parsing = require('sanderling.access.parsing')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.picker.Action
---@field name string|fun(item: any): string
---@field key? [string, string] its option in `keys`, and a word on it; the first action of a list is that of <CR>
---@field run fun(item: any)
---@field refusal? fun(item: any): string? why it cannot be done, if it cannot

---@class (exact) sanderling.picker.Choice
---@field title string
---@field kind string for vim.ui.select()
---@field line_of fun(item: any): string
---@field preview? fun(item: any, show: fun(text: string)) calls `show` with Markdown, at once or later
---@field actions sanderling.picker.Action[]
---@field otherwise? fun() without a plugin, instead of vim.ui.select()

--- A list for a plugin; items and actions are numbers.
---@class (exact) sanderling.picker.List
---@field title string
---@field hint string the keys in words
---@field lines string[]
---@field keys { lhs: string, name: string, action: integer }[]
---@field preview? fun(buf: integer, item: integer) fills a buffer
---@field run fun(action: integer, item: integer) to call when the plugin's windows are closed, or about to be

---@class (exact) sanderling.picker.Plugin
---@field name string as in the option `picker`
---@field module? string by which plugins name it
---@field is_used? fun(plugin: any): boolean the user has set it up
---@field open fun(list: sanderling.picker.List)

---@type sanderling.picker.Plugin[] in the order of preference
local PLUGINS = {
  {
    name = 'snacks',
    module = 'snacks',
    is_used = function(snacks)
      return vim.tbl_get(snacks, 'config', 'picker', 'enabled') == true
    end,
    open = function(list)
      require('sanderling.picker.snacks')(list)
    end,
  },
  {
    name = 'mini.pick',
    module = 'mini.pick',
    is_used = function()
      return _G.MiniPick ~= nil
    end,
    open = function(list)
      require('sanderling.picker.mini_pick')(list)
    end,
  },
  {
    name = 'telescope',
    module = 'telescope',
    is_used = function()
      return true
    end,
    open = function(list)
      require('sanderling.picker.telescope')(list)
    end,
  },
  {
    name = 'fzf-lua',
    module = 'fzf-lua',
    is_used = function()
      return vim.fn.executable('fzf') == 1
    end,
    open = function(list)
      require('sanderling.picker.fzf_lua')(list)
    end,
  },
}

-- preview -------------------------------------------------------------------------------------------------------------

---@param buf integer
---@param text string
local function fill(buf, text)
  vim.treesitter.stop(buf)
  vim.bo[buf].modifiable = true
  api.nvim_buf_set_lines(buf, 0, -1, false, words.broken_lines_of(text))
  parsing.start(buf)
end

--- Return a function that fills a plugin's buffer with the preview of an item. Previews are requested one at a time, and
--- the items that the user has passed meanwhile are left out.
---@param items any[]
---@param preview fun(item: any, show: fun(text: string))
---@return fun(buf: integer, item: integer)
local function previewer(items, preview)
  local texts = {} ---@type table<integer, string>
  local shown ---@type { buf: integer, item: integer }
  local is_asking = false
  local function refresh()
    local item = shown.item
    if not api.nvim_buf_is_valid(shown.buf) then
      return
    elseif texts[item] then
      return fill(shown.buf, texts[item])
    end
    fill(shown.buf, '')
    if not is_asking then
      is_asking = true
      preview(items[item], function(text)
        texts[item], is_asking = text, false
        refresh()
      end)
    end
  end
  return function(buf, item)
    shown = { buf = buf, item = item }
    log.guarded(refresh)
  end
end

-- plugins -------------------------------------------------------------------------------------------------------------

---@type table<function, true> functions `open` of plugins that have failed
local failed = {}

---@param plugin sanderling.picker.Plugin
---@return boolean
local function is_loaded(plugin)
  local module = package.loaded[plugin.module]
  return type(module) == 'table' and plugin.is_used(module)
end

---@param plugin sanderling.picker.Plugin
---@return boolean
local function can_be_loaded(plugin)
  local ok, module = pcall(require, plugin.module)
  return ok and type(module) == 'table' and plugin.is_used(module)
end

--- Return the picker that a plugin has registered.
---@return sanderling.picker.Plugin?
local function registered()
  local module = package.loaded['sanderling.extend.picker']
  local own = module and module.current()
  return own and { name = own.origin, open = own.open }
end

--- Return the plugin to use: the registered one, else the chosen one, else the first that is loaded, else the first that
--- can be loaded.
---@return sanderling.picker.Plugin?
local function chosen()
  local own = registered()
  if own then
    return own
  end
  local name = config.options.picker
  if name ~= 'auto' then
    return vim.iter(PLUGINS):find(function(plugin)
      return plugin.name == name
    end)
  end
  for _, suits in ipairs({ is_loaded, can_be_loaded }) do
    for _, plugin in ipairs(PLUGINS) do
      if suits(plugin) then
        return plugin
      end
    end
  end
end

--- Open the list in a plugin.
---@param plugin sanderling.picker.Plugin
---@param list sanderling.picker.List
---@return boolean is_open false: the plugin has failed
local function open(plugin, list)
  local ok, err = pcall(plugin.open, list)
  if not ok then
    failed[plugin.open] = true
    log.keep(tostring(err))
    local why = words.first_line(message.without_place(err))
    message.tell(
      ('The picker %s failed, so vim.ui.select() is used: %s'):format(plugin.name, why),
      vim.log.levels.WARN
    )
  end
  return ok
end

-- choosing ------------------------------------------------------------------------------------------------------------

---@param action sanderling.picker.Action
---@param item any
---@return string
local function name_of(action, item)
  local name = action.name
  return type(name) == 'string' and name or name(item)
end

---@param action sanderling.picker.Action
---@param item any
local function run(action, item)
  local refusal = action.refusal and action.refusal(item)
  if refusal then
    message.tell(refusal, vim.log.levels.WARN)
  else
    action.run(item)
  end
end

--- Let the user choose an item, then an action if there are several. vim.ui.select() has only one answer and no keys, so
--- that a second list is the only way to the other actions.
---@param items any[]
---@param choice sanderling.picker.Choice
local function select(items, choice)
  vim.ui.select(items, {
    prompt = choice.title:find('?', 1, true) and choice.title or choice.title .. ':',
    kind = choice.kind,
    format_item = choice.line_of,
  }, function(item)
    local possible = vim.tbl_filter(function(action)
      return item ~= nil and not (action.refusal and action.refusal(item))
    end, choice.actions)
    if #choice.actions == 1 or #possible == 0 then
      return item and run(choice.actions[1], item)
    end
    vim.ui.select(possible, {
      prompt = choice.line_of(item) .. ':',
      kind = 'sanderling_action',
      format_item = function(action)
        return name_of(action, item)
      end,
    }, function(action)
      if action then
        action.run(item)
      end
    end)
  end)
end

--- Return the keys of the actions but the first.
---@param actions sanderling.picker.Action[]
---@return { lhs: string, name: string, action: integer }[]
local function keys_of(actions)
  local found = {}
  for i, action in ipairs(actions) do
    local option, word = unpack(action.key or {})
    for _, lhs in ipairs(option and keys.of(option) or {}) do
      found[#found + 1] = { lhs = lhs, name = word, action = i }
    end
  end
  return found
end

--- Let the user choose one of `items` and what to do with it.
---@param items any[]
---@param choice sanderling.picker.Choice
function M.choose(items, choice)
  local bound, named = keys_of(choice.actions), {}
  for i, key in ipairs(bound) do
    named[i] = ('%s %s'):format(key.lhs, key.name)
  end
  local is_done = false
  local list = {
    title = choice.title,
    hint = table.concat(named, '  '),
    lines = vim.tbl_map(choice.line_of, items),
    keys = bound,
    preview = choice.preview and previewer(items, choice.preview),
    run = function(action, item)
      if not is_done then
        is_done = true
        vim.schedule(function() -- when the plugin has closed its windows
          log.guarded(run, choice.actions[action], items[item])
        end)
      end
    end,
  }
  local otherwise = choice.otherwise or function()
    select(items, choice)
  end
  local plugin = chosen()
  if not plugin or failed[plugin.open] then
    return otherwise()
  end
  vim.schedule(function() -- mini.pick returns only when it is closed
    if not open(plugin, list) and not is_done then
      otherwise()
    end
  end)
end

return M
