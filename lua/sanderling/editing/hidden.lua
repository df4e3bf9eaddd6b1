--- Hidden buffers: files that are loaded for a question to a language server, without anybody seeing them.
---
--- Nothing runs because one is loaded (ui/loading.lua), and so no language server starts; those that run already are sent its text
--- by whoever loaded it (code/clients.lua). The file tools do not know these buffers: what they change, they change on the disk, and
--- the buffer goes. One that the user enters becomes an ordinary one.
local M = {}

local api = vim.api
local files = require('sanderling.ui.files')
local loading = require('sanderling.ui.loading')
local now_ms = require('sanderling.ui.now_ms')
local scratch = require('sanderling.ui.scratch')

local MAX_BYTES = 2 * 1024 * 1024
local MAX_BUFFERS = 16
local LINGER_MS = 30000 -- a model asks about one file several times, and a server begins anew each time
local TOO_LARGE = '%s has %d MB, which is more than is loaded for this.'
local READ_BY_PLUGIN = 'A plugin reads files like %s, so it is not loaded for this.'

---@class (exact) sanderling.editing.hidden.File
---@field used number
---@field stamp string

---@type table<integer, sanderling.editing.hidden.File> by buffer
local loaded = {}

---@param path string
---@return string
local function stamp_of(path)
  local stat = vim.uv.fs_stat(path)
  return stat
      and ('%d:%d %d.%d %d'):format(stat.dev, stat.ino, stat.mtime.sec, stat.mtime.nsec, stat.size)
    or ''
end

---@param path string
---@return integer? buf
local function find(path)
  for buf in pairs(loaded) do
    if api.nvim_buf_is_valid(buf) and api.nvim_buf_get_name(buf) == path then
      return buf
    end
  end
end

--- Have the buffer go; later, where that cannot be now.
---@param buf integer
function M.drop(buf)
  if not loaded[buf] then
    return
  elseif not api.nvim_buf_is_valid(buf) or #vim.fn.win_findbuf(buf) > 0 then
    loaded[buf] = nil
  elseif pcall(api.nvim_buf_delete, buf, { force = true, unload = true }) then -- a list may name it by now
    loaded[buf] = nil
    vim.b[buf].sanderling_hidden = nil
  else
    vim.defer_fn(function()
      M.drop(buf)
    end, 100)
  end
end

--- Have the buffers go whose file is not what they hold any more.
function M.drop_stale()
  for buf, file in pairs(loaded) do
    if not api.nvim_buf_is_valid(buf) or stamp_of(api.nvim_buf_get_name(buf)) ~= file.stamp then
      M.drop(buf)
    end
  end
end

--- Have all buffers go.
function M.drop_all()
  for buf in pairs(loaded) do
    M.drop(buf)
  end
end

--- Have the buffers go that nobody has asked about for long, and the oldest of too many.
local function drop_old()
  local bufs = vim.tbl_keys(loaded) ---@type integer[]
  table.sort(bufs, function(a, b)
    return loaded[a].used > loaded[b].used
  end)
  for i, buf in ipairs(bufs) do
    if i > MAX_BUFFERS or now_ms() - loaded[buf].used >= LINGER_MS then
      M.drop(buf)
    end
  end
end

-- A buffer that is to be seen is hidden no more. Servers that have it leave it: the user's configuration attaches them, and hears
-- of that.
loading.before_use(function(buf)
  local file = loaded[buf]
  local is_stale = file and stamp_of(api.nvim_buf_get_name(buf)) ~= file.stamp
  if is_stale and #vim.fn.win_findbuf(buf) == 0 then
    return M.drop(buf)
  end
  loaded[buf] = nil
  vim.b[buf].sanderling_hidden = nil
  for _, client in ipairs(package.loaded['vim.lsp'] and vim.lsp.get_clients({ bufnr = buf }) or {}) do
    vim.lsp.buf_detach_client(buf, client.id)
  end
end)

---@param path string
---@return integer? buf
local function read(path)
  local buf = loading.read(path)
  if not buf or not loading.is_quiet(buf) then -- a plugin's, or it would have been found
    return nil
  end
  loaded[buf] = { used = now_ms(), stamp = stamp_of(path) }
  vim.b[buf].sanderling_hidden = true
  loading.set_filetype(buf)
  return buf
end

--- Tell a server of the buffer; of all autocommands, only that of our diagnostics hears of it.
---@param buf integer
---@param client_id integer
function M.attach(buf, client_id)
  local is_new = not vim.lsp.buf_is_attached(buf, client_id)
  scratch.quietly(function()
    vim.lsp.buf_attach_client(buf, client_id)
  end)
  if is_new and package.loaded['sanderling.editing.diagnostics'] then
    local data = { client_id = client_id }
    api.nvim_exec_autocmds(
      'LspAttach',
      { group = 'sanderling_diagnostics', buffer = buf, data = data }
    )
  end
end

--- Load the file for some time.
---@param path string absolute and real
---@return integer? buf
---@return string? problem a sentence
function M.load(path)
  M.drop_stale()
  local buf = find(path)
  if not buf then
    local stat, name = vim.uv.fs_stat(path), vim.fs.basename(path)
    if not stat or stat.size > MAX_BYTES then
      return nil, TOO_LARGE:format(name, stat and math.ceil(stat.size / 1024 / 1024) or 0)
    elseif files.is_read_by_plugin(path) then
      return nil, READ_BY_PLUGIN:format(name)
    end
    buf = read(path)
    if not buf then
      return nil, ('%s cannot be loaded in the editor.'):format(name)
    end
  end
  loaded[buf].used = now_ms()
  drop_old()
  vim.defer_fn(drop_old, LINGER_MS + 100)
  return buf
end

return M
