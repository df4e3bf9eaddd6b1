--- The user's running language servers: which of them know a file, and whether they are ready.
local M = {}

local api = vim.api
local asking = require('sanderling.code.asking')
local hidden = require('sanderling.editing.hidden')

local ATTACH_MS = 1000

---@class (exact) sanderling.code.Progress
---@field title string
---@field percentage? number

---@type table<integer, table<string|integer, sanderling.code.Progress>> by client and token
local progress = {}

--- Return the first non-empty text on what a server does; some report none.
---@param ... string?
---@return string
local function named(...)
  for i = 1, select('#', ...) do
    local words = select(i, ...)
    if type(words) == 'string' and words ~= '' then
      return words
    end
  end
  return 'looking at files'
end

api.nvim_create_autocmd('LspProgress', {
  group = api.nvim_create_augroup('sanderling_code', {}),
  desc = 'Agent: remember the progress of language servers',
  callback = function(event)
    local id, params = event.data.client_id, event.data.params
    local value = type(params.value) == 'table' and params.value or {}
    progress[id] = progress[id] or {}
    local now = progress[id][params.token] or { title = named(value.title, value.message) }
    now.percentage = tonumber(value.percentage) or now.percentage
    progress[id][params.token] = value.kind ~= 'end' and now or nil
  end,
})

--- Return what a server is still doing: "indexing 42 %".
---@param client vim.lsp.Client
---@return string?
local function pending(client)
  local token, title = next(client.progress.pending)
  if not token then
    return nil
  end
  local now = (progress[client.id] or {})[token] or { title = named(title) }
  local share = now.percentage and (' %d %%'):format(now.percentage) or ''
  return vim.trim(now.title:lower():gsub('[%.:\226\128\166]+$', '')) .. share
end

--- Return words on a server that is not ready; nil if all are.
---@param clients vim.lsp.Client[]
---@return string?
function M.still_at(clients)
  for _, client in ipairs(clients) do
    local words = pending(client)
    if words then
      return ('%s is still at work (%s)'):format(client.name, words)
    end
  end
end

--- Return the running servers, including starting ones.
---@param filter? vim.lsp.get_clients.Filter
---@return vim.lsp.Client[]
function M.running(filter)
  if not package.loaded['vim.lsp'] then
    return {}
  end
  local all = vim.lsp.get_clients(vim.tbl_extend('force', { _uninitialized = true }, filter or {}))
  return vim.tbl_filter(function(client)
    return not client:is_stopped()
  end, all)
end

--- Return the root directories of a server.
---@param client vim.lsp.Client
---@return string[]
local function roots_of(client)
  local roots = { client.root_dir }
  for _, folder in ipairs(client.workspace_folders or {}) do
    roots[#roots + 1] = vim.uri_to_fname(folder.uri)
  end
  return vim.tbl_map(function(root)
    return vim.uv.fs_realpath(root) or root
  end, roots)
end

---@param path string
---@param root string
---@return boolean
local function is_below(path, root)
  return path == root or vim.startswith(path, root == '/' and root or root .. '/')
end

--- Would the server get the file if it were opened? It must be below the server's current roots.
---@param client vim.lsp.Client
---@param path string real
---@param filetype string
---@return boolean
local function is_for(client, path, filetype)
  local filetypes = client.config.filetypes ---@type string[]?
  if not filetypes then
    filetypes = vim.tbl_map(function(buf)
      return vim.bo[buf].filetype
    end, vim.tbl_keys(client.attached_buffers))
  end
  return filetype ~= ''
    and vim.list_contains(filetypes, filetype)
    and vim.iter(roots_of(client)):any(function(root)
      return is_below(path, root)
    end)
end

---@param clients vim.lsp.Client[]
---@return boolean
local function is_starting(clients)
  return vim.iter(clients):any(function(client)
    return not client.initialized
  end)
end

--- Wait at most a second for the servers in `list` that are starting.
---@param list fun(): vim.lsp.Client[]
---@return vim.lsp.Client[] ready
---@return boolean is_starting
local function ready(list)
  asking.wait_until(ATTACH_MS, function()
    return not is_starting(list())
  end)
  local clients = vim.tbl_filter(function(client)
    return client.initialized
  end, list())
  table.sort(clients, function(a, b)
    return a.id < b.id
  end)
  return clients, is_starting(list())
end

--- Attach a hidden buffer to the running servers that know definitions. Linters do not get it, because their configuration can be code
--- in any directory of the project, and the user has not opened the file. The user's autocommands are not fired.
---@param buf integer
function M.attach(buf)
  local path, filetype = api.nvim_buf_get_name(buf), vim.bo[buf].filetype
  local clients = ready(function()
    return vim.tbl_filter(function(client)
      return is_for(client, path, filetype)
    end, M.running())
  end)
  for _, client in ipairs(clients) do
    if client:supports_method('textDocument/definition') then
      hidden.attach(buf, client.id)
    end
  end
end

local NONE =
  'No language server in the editor has %s. Use grep. The user can start one by opening such a file in Neovim.'
local NONE_AT_ALL = 'No language server in the editor works on this project. Use grep.'
local STARTING = 'The language server for %s is still starting. Use grep, or try again later.'
local CANNOT = '%s does not support this (%s). Use grep.'

---@param clients vim.lsp.Client[]
---@return string
function M.names(clients)
  return table.concat(
    vim.tbl_map(function(client)
      return client.name
    end, clients),
    ', '
  )
end

---@param clients vim.lsp.Client[]
---@param method string
---@param buf? integer
---@param must_know? boolean
---@return vim.lsp.Client[]
local function able(clients, method, buf, must_know)
  local found = vim.tbl_filter(function(client)
    return client:supports_method(method, buf)
  end, clients)
  if #found == 0 and must_know then
    asking.fail(CANNOT:format(M.names(clients), method))
  end
  return found
end

--- Return the servers of the buffer; end the request if there are none.
---@param buf integer
---@return vim.lsp.Client[]
function M.of(buf)
  local clients, is_late = ready(function()
    return M.running({ bufnr = buf })
  end)
  if #clients == 0 then
    local name = vim.fs.basename(api.nvim_buf_get_name(buf))
    asking.fail((is_late and STARTING or NONE):format(name))
  end
  return clients
end

--- Return the servers of the buffer that support `method`; end the request if there are none.
---@param buf integer
---@param method string
---@return vim.lsp.Client[]
function M.knowing(buf, method)
  return able(M.of(buf), method, buf, true)
end

--- Return the servers for the project, or a part of it, that support `method`. End the request if the project has no server or, with
--- `must_know`, none that supports it.
---@param project string
---@param method string
---@param must_know boolean
---@return vim.lsp.Client[]
function M.of_project(project, method, must_know)
  local real = vim.uv.fs_realpath(project) or project
  local clients = ready(function()
    return vim.tbl_filter(function(client)
      return vim.iter(roots_of(client)):any(function(root)
        return is_below(real, root) or is_below(root, real)
      end)
    end, M.running())
  end)
  if #clients == 0 then
    asking.fail(NONE_AT_ALL)
  end
  return able(clients, method, nil, must_know)
end

return M
