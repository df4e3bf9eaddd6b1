--- The completion of slash commands and of the resources of tool servers in a prompt: a menu that opens while one is typed, and
--- the 'omnifunc'.
local M = {}

local api = vim.api
local live = require('sanderling.session.live')
local scratch = require('sanderling.ui.scratch')
local slash = require('sanderling.prompt.slash')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.prompt.completion.Item as |complete-items| has it
---@field word string
---@field abbr? string shown in the place of the word
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

---@param name string of a command
---@param session_id string
---@return sanderling.prompt.completion.Item[]
local function arguments(name, session_id)
  return vim.tbl_map(function(word)
    return { word = word }
  end, slash.words(name, session_id))
end

--- The resources that could be mentioned, `@server:uri`, of servers that are ready.
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

--- The mention that ends `line`, and where it begins.
---@param line string
---@return integer? col 0-based
---@return string? mention
local function mention_in(line)
  local before, mention = line:match('^(.*)(@%S*)$')
  if before and not before:find('[%w@]$') then
    return #before, mention
  end
end

--- The words that could go on `line`, up to the cursor.
---@param line string
---@param is_first boolean it is the prompt's first line
---@param session_id string
---@return integer col at which it would begin, 0-based
---@return sanderling.prompt.completion.Item[]
local function candidates(line, is_first, session_id)
  local col, mention = mention_in(line)
  if col and mention then
    return col, beginning_with(resources(session_id), mention)
  elseif not is_first then
    return 0, {}
  elseif line:find('^/%S*$') then
    return 0, beginning_with(names(session_id), line)
  end
  local before, base = line:match('^(/%S+%s+)(%S*)$')
  if before then
    return #before, beginning_with(arguments(vim.trim(before):sub(2), session_id), base)
  end
  return 0, {}
end

---@return integer col
---@return sanderling.prompt.completion.Item[]
local function candidates_here()
  local lnum, col = unpack(api.nvim_win_get_cursor(0))
  local line = api.nvim_get_current_line():sub(1, col)
  return candidates(line, lnum == 1, vim.b.sanderling_session)
end

---@type sanderling.prompt.completion.Item[]
local found = {}

--- 'omnifunc' of a prompt: asked where it begins, and then for what was found.
---@param is_start 0|1
---@return integer|sanderling.prompt.completion.Item[]
function M.omnifunc(is_start)
  if is_start == 0 then
    return found
  end
  local col
  col, found = candidates_here()
  return #found > 0 and col or -3 -- leave the completion without a word
end

--- While the menu is open, <Tab> goes through it, unless it does something of the user's own here.
---@param buf integer
---@return fun() give_back
local function lend_tab(buf)
  if vim.fn.maparg('<Tab>', 'i', false, true).buffer == 1 then
    return function() end
  end
  vim.keymap.set('i', '<Tab>', '<C-n>', { buffer = buf, desc = 'Agent: next command' })
  return function()
    pcall(vim.keymap.del, 'i', '<Tab>', { buffer = buf })
  end
end

--- Open a menu with `items` that inserts nothing by itself; all other completions are as the user has them.
---@param buf integer
---@param col integer
---@param items sanderling.prompt.completion.Item[]
local function open_menu(buf, col, items)
  local completeopt = api.nvim_get_option_value('completeopt', { buf = buf, scope = 'local' })
  scratch.set_buf_options(buf, { completeopt = 'menu,menuone,noselect' })
  local give_tab_back = lend_tab(buf)
  vim.fn.complete(col + 1, items)
  api.nvim_create_autocmd('CompleteDone', {
    buffer = buf,
    once = true,
    desc = 'Agent: the menu of commands is closed',
    callback = function()
      scratch.set_buf_options(buf, { completeopt = completeopt })
      give_tab_back()
    end,
  })
end

--- Open the menu of commands where one is being typed, and nothing else completes.
---@param buf integer
local function offer(buf)
  local is_free = vim.fn.mode() == 'i' and vim.fn.pumvisible() == 0
  local col, items = candidates_here()
  if is_free and #items > 0 then
    open_menu(buf, col, items)
  end
end

--- Offer commands in the prompt `buf`: as its 'omnifunc', and in a menu while one is typed.
---@param buf integer
function M.attach(buf)
  if vim.bo[buf].omnifunc == '' then -- a FileType autocommand of the user's may have set it
    scratch.set_buf_options(
      buf,
      { omnifunc = "v:lua.require'sanderling.prompt.completion'.omnifunc" }
    )
  end
  local is_typed, is_unwanted = false, false
  local function on(events, desc, callback)
    api.nvim_create_autocmd(events, { buffer = buf, desc = 'Agent: ' .. desc, callback = callback })
  end
  on('InsertCharPre', 'tell what is typed from what is put in', function()
    is_typed = true
  end)
  on('CompleteDone', 'a menu that was sent away stays away', function()
    is_unwanted = vim.v.event.reason == 'cancel'
  end)
  on('InsertEnter', 'and may come again', function()
    is_unwanted = false
  end)
  on({ 'TextChangedI', 'TextChangedP' }, 'offer commands', function(args)
    local line = api.nvim_get_current_line()
    is_unwanted = is_unwanted and (vim.startswith(line, '/') or mention_in(line) ~= nil)
    if is_typed and not is_unwanted and args.event == 'TextChangedI' then
      offer(buf)
    end
    is_typed = false
  end)
end

return M
