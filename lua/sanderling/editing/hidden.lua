--- Hidden buffers: files that are loaded for a request to a language server, and never shown.
---
--- Loading one runs nothing (access/loading.lua), so no language server starts; running ones are sent its text by the
--- caller (code/clients.lua). The file tools ignore these buffers: they change the file on disk, and the buffer is
--- dropped. One that the user enters becomes an ordinary buffer.
local M = {}

local api = vim.api
local files = require('sanderling.access.files')
local loading = require('sanderling.access.loading')
local scratch = require('sanderling.ui.scratch')
local time = require('sanderling.ui.time')

local MAX_BYTES = 2 * 1024 * 1024
local MAX_BUFFERS = 16
local LINGER_MS = 30000 -- a model asks about one file several times, and a server would start over each time
local TOO_LARGE = '%s is too large to load for this (%d MB).'
local READ_BY_PLUGIN = 'A plugin would read %s, so it is not loaded for this.'

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

--- Drop the buffer, later if that is impossible now.
---@param buf integer
function M.drop(buf)
  if not loaded[buf] then
    return
  elseif not api.nvim_buf_is_valid(buf) or #vim.fn.win_findbuf(buf) > 0 then
    loaded[buf] = nil
  elseif pcall(api.nvim_buf_delete, buf, { force = true, unload = true }) then -- unloaded only: a list may refer to it
    loaded[buf] = nil
    vim.b[buf].sanderling_hidden = nil
  else
    vim.defer_fn(function()
      M.drop(buf)
    end, 100)
  end
end

--- Drop the buffers whose file has changed.
function M.drop_stale()
  for buf, file in pairs(loaded) do
    if not api.nvim_buf_is_valid(buf) or stamp_of(api.nvim_buf_get_name(buf)) ~= file.stamp then
      M.drop(buf)
    end
  end
end

function M.drop_all()
  for buf in pairs(loaded) do
    M.drop(buf)
  end
end

--- Drop the buffers that were not used for long, and the oldest ones above the limit.
local function drop_old()
  local bufs = vim.tbl_keys(loaded) ---@type integer[]
  table.sort(bufs, function(a, b)
    return loaded[a].used > loaded[b].used
  end)
  for i, buf in ipairs(bufs) do
    if i > MAX_BUFFERS or time.now_ms() - loaded[buf].used >= LINGER_MS then
      M.drop(buf)
    end
  end
end

-- A buffer that becomes visible is no longer hidden. Servers are detached, so that the user's configuration attaches
-- them and notices it.
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
  if not buf or not loading.is_quiet(buf) then -- a plugin's, or found before
    return nil
  end
  loaded[buf] = { used = time.now_ms(), stamp = stamp_of(path) }
  vim.b[buf].sanderling_hidden = true
  loading.set_filetype(buf)
  return buf
end

--- Attach a server to the buffer. Only the autocommand of our diagnostics is fired.
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

--- Load the file for a while.
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
      return nil, ('Cannot load %s in the editor.'):format(name)
    end
  end
  loaded[buf].used = time.now_ms()
  drop_old()
  vim.defer_fn(drop_old, LINGER_MS + 100)
  return buf
end

return M
