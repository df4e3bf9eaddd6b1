--- Names for `@symbol:`: of the language servers of the last code buffer, and of the grammars of open files without one.
--- They are requested while the user types and shown when they arrive; no key waits for them.
local M = {}

local api = vim.api
local declared = require('sanderling.code.declared')
local files = require('sanderling.access.files')
local names = require('sanderling.code.names')

local MAX_BUFFERS = 20
local DOCUMENT, WORKSPACE = 'textDocument/documentSymbol', 'workspace/symbol'

---@class (exact) sanderling.prompt.symbols.Symbol
---@field name string
---@field menu string its kind or its file

---@type table<integer, { tick?: integer, list: sanderling.prompt.symbols.Symbol[] }> of documents, by buffer
local documents = {}

---@type table<integer, { query: string, is_asking?: boolean, list: sanderling.prompt.symbols.Symbol[] }> of workspaces, by client
local workspaces = {}

--- Called when there are more names; of the last search.
local on_news = function() end

---@param symbol { name: string, kind: integer, location?: { uri: string } }
---@return sanderling.prompt.symbols.Symbol?
local function of_server(symbol)
  local name = symbol.name:gsub('%(.*$', '')
  local uri = symbol.location and symbol.location.uri
  if name ~= '' and not name:find('[%s%c@]') then
    return { name = name, menu = uri and vim.fs.basename(uri) or names.kind(symbol.kind) }
  end
end

--- Flatten a server's answer.
---@param result table[]
---@param found sanderling.prompt.symbols.Symbol[]
---@return sanderling.prompt.symbols.Symbol[]
local function flat(result, found)
  for _, symbol in ipairs(result) do
    found[#found + 1] = of_server(symbol)
    flat(symbol.children or {}, found)
  end
  return found
end

---@param buf integer
local function refresh_document(buf)
  local tick = api.nvim_buf_get_changedtick(buf)
  local known = documents[buf] or { list = {} }
  documents[buf] = known
  if known.tick == tick then
    return
  end
  known.tick = tick
  local client = vim.lsp.get_clients({ bufnr = buf, method = DOCUMENT })[1]
  if client then
    local params = { textDocument = { uri = vim.uri_from_bufnr(buf) } }
    client:request(DOCUMENT, params, function(_, result)
      known.list = flat(result or {}, {})
      on_news()
    end, buf)
    return
  end
  local name = vim.fs.basename(api.nvim_buf_get_name(buf))
  declared.list(buf, function(list)
    known.list = vim.tbl_map(function(each)
      return { name = each.name, menu = name }
    end, list)
    on_news()
  end)
end

--- Ask a server for the symbols of its workspace, one request at a time.
---@param client vim.lsp.Client
---@param buf integer
---@param query string
local function refresh_workspace(client, buf, query)
  local known = workspaces[client.id] or { query = '', list = {} }
  workspaces[client.id] = known
  local is_same = known.query == query
  known.query = query
  if is_same or known.is_asking then
    return
  end
  known.is_asking = client:request(WORKSPACE, { query = query }, function(_, result)
    known.is_asking = nil
    known.list = flat(result or {}, {})
    on_news()
    if known.query ~= query then
      local newest = known.query
      known.query = query
      refresh_workspace(client, buf, newest)
    end
  end, buf)
end

--- Return the open files, the last one that the user was in first.
---@return integer[]
local function buffers()
  local win = files.code_window('')
  local found = win and { api.nvim_win_get_buf(win) } or {}
  for _, info in ipairs(vim.fn.getbufinfo({ bufloaded = 1, buflisted = 1 })) do
    local is_file = vim.bo[info.bufnr].buftype == '' and info.name ~= ''
    if #found < MAX_BUFFERS and is_file and info.bufnr ~= found[1] then
      found[#found + 1] = info.bufnr
    end
  end
  return found
end

--- Return the known symbols that match `query`, best first, and look for more in the background.
---@param query string
---@param count integer
---@param on_more fun() called later, when there are others, unless another search has begun
---@return sanderling.prompt.symbols.Symbol[]
function M.search(query, count, on_more)
  on_news = on_more
  local found, seen = {}, {} ---@type sanderling.prompt.symbols.Symbol[], table<string, true>
  local function add(list)
    for _, symbol in ipairs(list) do
      if not seen[symbol.name] then
        seen[symbol.name] = true
        found[#found + 1] = symbol
      end
    end
  end
  local open = buffers()
  for _, buf in ipairs(open) do
    refresh_document(buf)
    add(documents[buf].list)
  end
  for _, client in
    ipairs(
      open[1] and query ~= '' and vim.lsp.get_clients({ bufnr = open[1], method = WORKSPACE }) or {}
    )
  do
    refresh_workspace(client, open[1], query, on_news)
    add(workspaces[client.id].list)
  end
  if query ~= '' then
    found = vim.fn.matchfuzzy(found, query, { key = 'name', limit = count })
  end
  return vim.list_slice(found, 1, count)
end

api.nvim_create_autocmd({ 'BufUnload', 'LspDetach' }, {
  group = api.nvim_create_augroup('sanderling_symbols', {}),
  desc = 'Agent: forget the names of symbols',
  callback = function(event)
    documents[event.buf] = nil
    if event.event == 'LspDetach' then
      workspaces[event.data.client_id] = nil
    end
  end,
})

return M
