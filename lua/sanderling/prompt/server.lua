--- A language server inside Neovim that completes slash commands and mentions in prompts. Plugins that complete from
--- language servers therefore work in a prompt without an adapter.
local M = {}

local api = vim.api
local live = require('sanderling.session.live')
local log = require('sanderling.host.log')

local NAME = 'sanderling'
local KINDS = { file = 17, folder = 19, keyword = 14 } -- CompletionItemKind of the protocol
local METHOD_NOT_FOUND = -32601

---@type table
local CAPABILITIES = {
  positionEncoding = 'utf-8',
  completionProvider = { triggerCharacters = { '@', '/', '.', '-', '_', ':' } },
}

--- Returns the completions of a line; set by completion.lua.
---@type fun(line: string, is_first: boolean, session_id: string): integer, sanderling.prompt.completion.Item[]
local candidates

---@param word string
---@return integer
local function kind_of(word)
  if vim.startswith(word, '/') or word:find('^@%l+$') then
    return KINDS.keyword -- not a function, after which plugins insert parentheses
  end
  return word:sub(-1) == '/' and KINDS.folder or KINDS.file
end

---@param uri string
---@return integer? buf
local function prompt_of(uri)
  return vim.iter(api.nvim_list_bufs()):find(function(buf)
    return live.of_buffer(buf) ~= nil and vim.uri_from_bufnr(buf) == uri
  end)
end

---@param params lsp.CompletionParams
---@return lsp.CompletionList
local function complete(params)
  local buf, pos = prompt_of(params.textDocument.uri), params.position
  local line = buf and api.nvim_buf_get_lines(buf, pos.line, pos.line + 1, false)[1] or ''
  line = line:sub(1, pos.character)
  local session = buf and live.of_buffer(buf)
  local col, found = 0, {}
  if session then
    col, found = candidates(line, pos.line == 0, session.id)
  end
  local items = {}
  for i, item in ipairs(found) do
    items[i] = {
      label = item.abbr or item.word,
      kind = kind_of(item.word),
      detail = item.menu,
      filterText = line:sub(col + 1), -- matching and sorting happen here
      sortText = ('%04d'):format(i),
      textEdit = {
        newText = item.word,
        range = {
          start = { line = pos.line, character = col },
          ['end'] = { line = pos.line, character = pos.character },
        },
      },
    }
  end
  return { isIncomplete = true, items = items }
end

--- The server, as a function for |vim.lsp.start()|.
---@param dispatchers vim.lsp.rpc.Dispatchers
---@return vim.lsp.rpc.PublicClient
local function serve(dispatchers)
  local is_closing, last_id = false, 0
  local server = {}

  function server.request(method, params, callback)
    last_id = last_id + 1
    if method == 'initialize' then
      callback(nil, { capabilities = CAPABILITIES, serverInfo = { name = NAME } })
    elseif method == 'textDocument/completion' then
      local ok, result = pcall(complete, params)
      if not ok then
        log.note_defect(tostring(result))
      end
      callback(nil, ok and result or { isIncomplete = true, items = {} })
    elseif method == 'shutdown' then
      callback(nil, nil)
    else
      callback({ code = METHOD_NOT_FOUND, message = method }, nil)
    end
    return true, last_id
  end

  function server.notify(method)
    if method == 'exit' then
      is_closing = true
      dispatchers.on_exit(0, 0)
    end
    return true
  end

  function server.is_closing()
    return is_closing
  end

  function server.terminate()
    is_closing = true
  end

  return server
end

--- Make nvim-cmp notice the server: it only looks for servers when insert mode starts, which is too early.
local function tell_cmp()
  pcall(api.nvim_exec_autocmds, 'InsertEnter', { group = 'cmp_nvim_lsp', modeline = false })
end

--- Attach the server to `buf`. All prompts share one server.
---@param buf integer
---@param find fun(line: string, is_first: boolean, session_id: string): integer, sanderling.prompt.completion.Item[]
function M.attach(buf, find)
  candidates = find
  if api.nvim_buf_is_loaded(buf) and #vim.lsp.get_clients({ bufnr = buf, name = NAME }) == 0 then
    local ok, err = pcall(vim.lsp.start, { name = NAME, cmd = serve, on_attach = tell_cmp }, {
      bufnr = buf,
      silent = true,
      reuse_client = function(client)
        return client.name == NAME
      end,
    })
    if not ok then
      log.note_defect(tostring(err))
    end
  end
end

return M
