--- Completion of slash commands and mentions in a prompt: a menu that opens while one is typed, the 'omnifunc', and the
--- items of the language server for other completion plugins (server.lua).
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local scratch = require('sanderling.ui.scratch')
local slash = require('sanderling.prompt.slash')
local stored = require('sanderling.session.stored')
local symbols = lazy('sanderling.prompt.symbols')
local tracked = lazy('sanderling.prompt.tracked')
local words = require('sanderling.ui.words')

local MAX_ITEMS = 50
local MAX_ROWS = 10

---@class (exact) sanderling.prompt.completion.Item see |complete-items|
---@field word string
---@field abbr? string shown instead of the word
---@field menu? string

---@param items sanderling.prompt.completion.Item[]
---@param base string
---@return sanderling.prompt.completion.Item[]
local function beginning_with(items, base)
  return vim.tbl_filter(function(item)
    return vim.startswith(item.word, base) and item.word ~= base
  end, items)
end

---@param session_id string
---@return sanderling.prompt.completion.Item[]
local function names(session_id)
  return vim.tbl_map(function(command)
    return { word = '/' .. command.name, menu = command.help }
  end, slash.all(session_id))
end

--- Return a function that offers the completions again if the user has not typed on, or was offered nothing.
---@return fun(count: integer) with the number of items that were offered
local function offering_again()
  local buf, line = api.nvim_get_current_buf(), api.nvim_get_current_line()
  return function(count)
    local is_here = api.nvim_get_current_buf() == buf and api.nvim_get_current_line() == line
    if is_here and (count == 0 or vim.fn.pumvisible() == 1) then
      M.offer(buf, true)
    end
  end
end

--- Return the items of a plugin. Others that arrive later are offered if the user has not typed on.
---@param offers sanderling.extend.offers.Offers
---@param lead string
---@param before string that precedes each name
---@param session_id string
---@return sanderling.prompt.completion.Item[]
local function of_plugin(offers, lead, before, session_id)
  local items = {} ---@type sanderling.prompt.completion.Item[]
  local offer_again = offering_again()
  local session = require('sanderling.extend.session').of(session_id)
  local found = offers:search(lead, session, function()
    offer_again(#items)
  end)
  for _, item in ipairs(found) do
    if item.name ~= lead then
      local name = before ~= '' and item.name:gsub(' ', '\\ ') or item.name
      items[#items + 1] = { word = before .. name, menu = item.desc ~= '' and item.desc or nil }
    end
  end
  return items
end

---@param name string of a command
---@param base string typed so far
---@param session_id string
---@return sanderling.prompt.completion.Item[]
local function arguments(name, base, session_id)
  local plugins = slash.find_plugins(name)
  if plugins then
    return plugins.offers and of_plugin(plugins.offers, base, '', session_id) or {}
  end
  local items = vim.tbl_map(function(word)
    return { word = word }
  end, slash.words(name, session_id))
  return beginning_with(items, base)
end

--- Return the resources of ready MCP servers, `@server:uri`.
---@param session_id string
---@return sanderling.prompt.completion.Item[]
local function resources(session_id)
  local items = {}
  for _, server in ipairs(live.state_of(session_id).tool_servers) do
    for _, uri in ipairs(server.resources or {}) do
      local word = ('@%s:%s'):format(server.name, uri)
      items[#items + 1] = { word = word, abbr = words.plain(uri), menu = words.plain(server.name) }
    end
  end
  return items
end

--- Return matching files. Open files come first if nothing is typed yet.
---@param mention string
---@param project string
---@return sanderling.prompt.completion.Item[]
local function files(mention, project)
  tracked.refresh(project)
  return vim.tbl_map(function(path)
    return { word = '@' .. path:gsub(' ', '\\ ') }
  end, tracked.search(project, (mention:sub(2):gsub('\\ ', ' ')), MAX_ITEMS))
end

---@return sanderling.prompt.completion.Item[]
local function mentioned_words()
  local items = vim.tbl_map(function(word)
    return { word = '@' .. word[1], menu = word[2] }
  end, require('sanderling.prompt.mentions').WORDS)
  local plugins = package.loaded['sanderling.extend.mention']
  for _, mention in ipairs(plugins and plugins.list() or {}) do
    items[#items + 1] = { word = ('@%s:'):format(mention.name), menu = words.plain(mention.desc) }
  end
  return items
end

--- Return the names that match the mention of a plugin.
---@param text string
---@param session_id string
---@return sanderling.prompt.completion.Item[]
local function plugins_names(text, session_id)
  local plugins = package.loaded['sanderling.extend.mention']
  local mention, name = (plugins and plugins.find or function() end)(text)
  if not mention or not mention.offers then
    return {}
  end
  return of_plugin(mention.offers, name, ('@%s:'):format(mention.name), session_id)
end

--- Return the sessions that match `@session:…`, from the last list of sessions.
---@param mention string
---@param session sanderling.chat.session.Session
---@return sanderling.prompt.completion.Item[]
local function sessions(mention, session)
  if not vim.startswith(mention, '@session:') then
    return {}
  elseif mention == '@session:' then
    stored.refresh(session.project)
  end
  local wanted, items = mention:sub(#'@session:' + 1):lower(), {}
  for _, info in ipairs(stored.known) do
    local name = stored.name_of(info)
    local is_meant = vim.startswith(info.id, wanted) or name:lower():find(wanted, 1, true) ~= nil
    if is_meant and info.id ~= session.id and #items < MAX_ITEMS then
      items[#items + 1] = { word = '@session:' .. info.id, menu = words.plain(name) }
    end
  end
  return items
end

--- Return the symbols that match `@symbol:…`. Others that are found later are offered if the user has not typed on.
---@param mention string
---@return sanderling.prompt.completion.Item[]
local function named_symbols(mention)
  local query = mention:match('^@symbol:(.*)$')
  if not query then
    return {}
  end
  local items = {} ---@type sanderling.prompt.completion.Item[]
  local offer_again = offering_again()
  local found = symbols.search(query, MAX_ITEMS, function()
    offer_again(#items)
  end)
  for _, symbol in ipairs(found) do
    items[#items + 1] = { word = '@symbol:' .. symbol.name, menu = words.plain(symbol.menu) }
  end
  return items
end

--- Return the items that match a mention: a server can have hundreds of resources, so they come last.
---@param mention string as typed so far
---@param session_id string
---@return sanderling.prompt.completion.Item[]
local function mentionable(mention, session_id)
  local session = live.find(session_id)
  local items = beginning_with(mentioned_words(), mention)
  vim.list_extend(items, session and sessions(mention, session) or {})
  vim.list_extend(items, named_symbols(mention))
  vim.list_extend(items, plugins_names(mention, session_id))
  for _, item in ipairs(session and files(mention, session.project) or {}) do
    if item.word ~= mention and #items < MAX_ITEMS then
      items[#items + 1] = item
    end
  end
  return vim.list_extend(items, beginning_with(resources(session_id), mention))
end

---@param line string
---@return integer? col 0-based
---@return string? mention
local function mention_in(line)
  local before, mention = line:match('^(.*)(@%S*)$')
  if before and not before:find('[%w@]$') then
    return #before, mention
  end
end

--- Return the completions for `line`, which ends at the cursor.
---@param line string
---@param is_first boolean `line` is in the prompt's first line
---@param session_id string
---@return integer col start of the completed text, 0-based
---@return sanderling.prompt.completion.Item[]
function M.candidates(line, is_first, session_id)
  local col, mention = mention_in(line)
  if col and mention then
    return col, mentionable(mention, session_id)
  elseif not is_first then
    return 0, {}
  elseif line:find('^/%S*$') then
    return 0, beginning_with(names(session_id), line)
  end
  local before, base = line:match('^(/%S+%s+)(%S*)$')
  if before then
    return #before, arguments(vim.trim(before):sub(2), base, session_id)
  end
  return 0, {}
end

---@return integer col
---@return sanderling.prompt.completion.Item[]
local function candidates_here()
  local lnum, col = unpack(api.nvim_win_get_cursor(0))
  local line = api.nvim_get_current_line():sub(1, col)
  return M.candidates(line, lnum == 1, vim.b.sanderling_session)
end

---@type sanderling.prompt.completion.Item[]
local found = {}

--- 'omnifunc' of a prompt. Neovim first asks for the start, then for the items.
---@param is_start 0|1
---@return integer|sanderling.prompt.completion.Item[]
function M.omnifunc(is_start)
  if is_start == 0 then
    return found
  end
  local col
  col, found = candidates_here()
  return #found > 0 and col or -3 -- cancel silently
end

--- Map <Tab> to the next item while the menu is open, unless the user has a buffer-local map on it.
---@param buf integer
---@return fun() restore
local function lend_tab(buf)
  if vim.fn.maparg('<Tab>', 'i', false, true).buffer == 1 then
    return function() end
  end
  vim.keymap.set('i', '<Tab>', '<C-n>', { buffer = buf, desc = 'Agent: next command' })
  return function()
    pcall(vim.keymap.del, 'i', '<Tab>', { buffer = buf })
  end
end

--- Return the items with their descriptions in the same column as their names, and the width of that column. Neovim moves
--- a menu to the left instead of cutting it if this column, and 'pumwidth', are too wide; 0.11 does not look at others.
---@param items sanderling.prompt.completion.Item[]
---@return sanderling.prompt.completion.Item[]
---@return integer
local function in_one_column(items)
  local name_width, width = 0, 0
  for _, item in ipairs(items) do
    name_width = math.max(name_width, api.nvim_strwidth(item.abbr or item.word))
  end
  local joined = vim.tbl_map(function(item)
    local text = item.abbr or item.word
    if item.menu then
      text = text .. (' '):rep(name_width - api.nvim_strwidth(text) + 1) .. item.menu
    end
    width = math.max(width, api.nvim_strwidth(text))
    return { word = item.word, abbr = text }
  end, items)
  return joined, width
end

--- Make the menu as wide as its text, and not high.
---@param width integer
---@return fun() restore
local function size_menu(width)
  local pumwidth, pumheight = vim.o.pumwidth, vim.o.pumheight
  local function set(new_width, new_height)
    scratch.quietly(function()
      vim.o.pumwidth, vim.o.pumheight = new_width, new_height
    end)
  end
  set(math.min(width, vim.o.columns), pumheight == 0 and MAX_ROWS or pumheight)
  return function()
    set(pumwidth, pumheight)
  end
end

local augroup = api.nvim_create_augroup('sanderling_menu', {})
local restore = function() end -- what the open menu has set

--- Open a menu of `items` that selects nothing automatically, or replace the open one. The user's options are restored
--- afterwards. Neovim fires CompleteDone for a replaced menu or not, depending on where this is called from.
---@param buf integer
---@param col integer
---@param items sanderling.prompt.completion.Item[]
local function open_menu(buf, col, items)
  api.nvim_clear_autocmds({ group = augroup })
  restore()
  local completeopt = api.nvim_get_option_value('completeopt', { buf = buf, scope = 'local' })
  scratch.set_buf_options(buf, { completeopt = 'menu,menuone,noselect' })
  local joined, width = in_one_column(items)
  local restore_tab, restore_size = lend_tab(buf), size_menu(width)
  function restore()
    restore = function() end
    restore_size()
    restore_tab()
    if api.nvim_buf_is_valid(buf) then
      scratch.set_buf_options(buf, { completeopt = completeopt })
    end
  end
  vim.fn.complete(col + 1, joined)
  api.nvim_create_autocmd('CompleteDone', {
    group = augroup,
    buffer = buf,
    once = true,
    desc = 'Agent: restore options after the menu of commands',
    callback = function()
      restore()
    end,
  })
end

---@param value any or a function that returns it
---@return any
local function value_of(value)
  if type(value) == 'function' then
    return value()
  end
  return value
end

--- Plugins that complete from language servers, and a function that says whether the plugin does so in the current
--- buffer. A loaded plugin may be limited to other filetypes, or lack the source.
---@type table<string, fun(plugin: any): boolean?>
local PLUGINS = {
  ['cmp'] = function(cmp)
    local config = cmp.get_config()
    return value_of(config.enabled)
      and vim.iter(config.sources):any(function(source)
        return source.name == 'nvim_lsp'
      end)
  end,
  ['blink.cmp'] = function()
    local config = require('blink.cmp.config')
    local sources = value_of(config.sources.per_filetype[vim.bo.filetype] or config.sources.default)
    return value_of(config.enabled) and vim.list_contains(sources, 'lsp')
  end,
  ['mini.completion'] = function()
    return not (vim.g.minicompletion_disable or vim.b.minicompletion_disable)
  end,
}

--- Return whether a plugin completes from the language server here. Our menu would then be a second one.
---@return boolean
local function is_completed_otherwise()
  for name, completes in pairs(PLUGINS) do
    local plugin = package.loaded[name] or name == 'mini.completion' and _G.MiniCompletion
    local ok, does = pcall(completes, plugin)
    if plugin and (does or not ok) then -- on an error the plugin's API has changed, so assume that it completes
      return true
    end
  end
  return false
end

--- Open the menu if a command or mention is being typed and no plugin completes here. An open menu is updated with each key.
---@param buf integer
---@param is_again boolean
function M.offer(buf, is_again)
  local is_free = vim.fn.mode() == 'i' and (is_again or vim.fn.pumvisible() == 0)
  if not is_free or is_completed_otherwise() then
    return
  end
  local col, items = candidates_here()
  if #items > 0 then
    open_menu(buf, col, items)
  end
end

--- Set up completion in the prompt `buf`: its 'omnifunc', and a menu while a command or mention is typed.
---@param buf integer
function M.attach(buf)
  if vim.bo[buf].omnifunc == '' then -- a FileType autocommand of the user's may have set it
    scratch.set_buf_options(
      buf,
      { omnifunc = "v:lua.require'sanderling.prompt.completion'.omnifunc" }
    )
  end
  local is_typed, is_unwanted, is_renewed = false, false, false
  local function on(events, desc, callback)
    api.nvim_create_autocmd(events, { buffer = buf, desc = 'Agent: ' .. desc, callback = callback })
  end
  on('InsertCharPre', 'distinguish typed from inserted text', function()
    is_typed = true
  end)
  on('CompleteDone', 'do not reopen a cancelled menu', function()
    is_unwanted = vim.v.event.reason == 'cancel' and not is_renewed
  end)
  on('InsertEnter', 'allow the menu again', function()
    is_unwanted = false
    vim.schedule(function()
      local session = api.nvim_buf_is_loaded(buf) and live.of_buffer(buf)
      if session then
        tracked.refresh(session.project) -- so that the files are known when a mention is typed
        require('sanderling.prompt.server').attach(buf, M.candidates)
      end
    end)
  end)
  on({ 'TextChangedI', 'TextChangedP' }, 'offer commands', function(args)
    local line = api.nvim_get_current_line()
    is_unwanted = is_unwanted and (vim.startswith(line, '/') or mention_in(line) ~= nil)
    local before = line:sub(1, api.nvim_win_get_cursor(0)[2])
    local is_ours = vim.startswith(before, '/') or mention_in(before) ~= nil
    is_renewed = args.event == 'TextChangedP' and is_ours
    if is_typed and not is_unwanted and (args.event == 'TextChangedI' or is_renewed) then
      M.offer(buf, is_renewed)
    end
    is_typed, is_renewed = false, false
  end)
end

return M
