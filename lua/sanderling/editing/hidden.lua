--- Hidden buffers: files that are loaded for a question to a language server, without anybody seeing them.
---
--- Nothing runs because one is loaded: no autocommand, modeline or filetype plugin, and so no language server starts; those that run
--- already are told of it by whoever loaded it (code/clients.lua). The file tools do not know these buffers: what they change, they
--- change on the disk, and the buffer goes. One that a person opens is read once more, in their usual way.
local M = {}

local api = vim.api
local files = require('sanderling.ui.files')
local now_ms = require('sanderling.ui.now_ms')
local scratch = require('sanderling.ui.scratch')

local MAX_BYTES = 2 * 1024 * 1024
local MAX_BUFFERS = 16
local LINGER_MS = 30000 -- a model asks about one file several times, and a server begins anew each time
local TOO_LARGE = '%s has %d MB, which is more than is loaded for this.'
local READ_BY_PLUGIN = 'A plugin reads files like %s, so it is not loaded for this.'
local OPTIONS = { 'swapfile', 'undofile', 'modeline' }

local group = api.nvim_create_augroup('sanderling_hidden', {})

---@class (exact) sanderling.editing.hidden.File
---@field used number
---@field stamp string
---@field autocmd integer that hands it over

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

--- Let the buffer be as any other.
---@param buf integer
---@param file sanderling.editing.hidden.File
local function release(buf, file)
  loaded[buf] = nil
  vim.b[buf].sanderling_hidden = nil
  pcall(api.nvim_del_autocmd, file.autocmd)
  for _, option in ipairs(OPTIONS) do
    scratch.set_buf_options(buf, { [option] = vim.go[option] })
  end
end

--- Have the buffer go, unless somebody has made it theirs; later, where that cannot be now.
---@param buf integer
function M.drop(buf)
  local file = loaded[buf]
  if not file then
    return
  end
  if not api.nvim_buf_is_valid(buf) or #vim.fn.win_findbuf(buf) > 0 then
    loaded[buf] = nil
  elseif pcall(api.nvim_buf_delete, buf, { force = true, unload = true }) then -- a list may name it by now
    release(buf, file)
    scratch.set_buf_options(buf, { filetype = '' })
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

--- A window shows the buffer: somebody has opened the file, and gets it as if it had not been loaded.
---@param buf integer
local function hand_over(buf)
  release(buf, loaded[buf])
  for _, client in ipairs(package.loaded['vim.lsp'] and vim.lsp.get_clients({ bufnr = buf }) or {}) do
    vim.lsp.buf_detach_client(buf, client.id) -- else nobody hears of its coming
  end
  vim.schedule(function()
    local win = vim.fn.win_findbuf(buf)[1]
    if win and not vim.bo[buf].modified then
      api.nvim_win_call(win, function()
        local view = vim.fn.winsaveview()
        pcall(files.reading_plainly, function()
          vim.cmd('silent! keepalt keepjumps edit')
        end)
        vim.fn.winrestview(view)
      end)
    end
  end)
end

--- Run `fn` while no autocommand does, and no modeline is obeyed.
---@param fn fun()
---@return boolean ok
local function quietly(fn)
  local ignored, modelines = vim.go.eventignore, vim.go.modelines
  vim.go.eventignore, vim.go.modelines = 'all', 0
  local ok = pcall(fn)
  vim.go.modelines = modelines
  vim.go.eventignore = ignored
  return ok
end

---@param path string
---@return integer? buf
local function read(path)
  local buf = 0
  quietly(function()
    buf = vim.fn.bufadd(path)
  end)
  if buf == 0 or api.nvim_buf_is_loaded(buf) then -- a plugin's, or it would have been found
    return nil
  end
  local ok = quietly(function()
    for _, option in ipairs(OPTIONS) do
      vim.bo[buf][option] = false
    end
    vim.fn.bufload(buf)
    vim.bo[buf].filetype = vim.filetype.match({ buf = buf, filename = path }) or ''
  end)
  local autocmd = api.nvim_create_autocmd('BufWinEnter', {
    group = group,
    buffer = buf,
    callback = function()
      hand_over(buf)
    end,
  })
  loaded[buf] = { used = now_ms(), stamp = stamp_of(path), autocmd = autocmd }
  vim.b[buf].sanderling_hidden = true
  if not ok or not api.nvim_buf_is_loaded(buf) then
    M.drop(buf)
    return nil
  end
  return buf
end

--- Tell a server of the buffer; of all autocommands, only that of our diagnostics hears of it.
---@param buf integer
---@param client_id integer
function M.attach(buf, client_id)
  local is_new = not vim.lsp.buf_is_attached(buf, client_id)
  quietly(function()
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
