--- Writing a buffer to the file that was read, and to no other.
---
--- Python writes the changes of tools, inside the sandbox. This module writes what the user rejects, which needs no agent.
local M = {}

local api = vim.api
local disk = require('sanderling.editing.disk')
local scratch = require('sanderling.ui.scratch')

local NOT_WRITTEN = '%s was not written: %s.'

--- Return the bytes that Neovim would write, with its encoding and line endings. A missing final newline stays missing.
---@param buf integer
---@return string
local function bytes_of(buf)
  local path, fixes_end = vim.fn.tempname(), vim.bo[buf].fixendofline
  scratch.set_buf_options(buf, { fixendofline = false })
  local ok, err = pcall(api.nvim_buf_call, buf, function()
    vim.cmd('silent noautocmd keepalt lockmarks write! ' .. vim.fn.fnameescape(path))
  end)
  scratch.set_buf_options(buf, { fixendofline = fixes_end })
  assert(ok, err)
  local file = assert(io.open(path, 'rb'))
  local bytes = file:read('*a')
  file:close()
  os.remove(path)
  return bytes
end

---@param fd integer
---@param bytes string
local function overwrite(fd, bytes)
  local at = 0
  while at < #bytes do
    at = at + assert(vim.uv.fs_write(fd, bytes:sub(at + 1), at))
  end
  assert(vim.uv.fs_ftruncate(fd, #bytes))
  assert(vim.uv.fs_fsync(fd))
end

--- Write the bytes to the file of `stat`, if `path` still leads to it.
---
--- `:write` follows a link that a command has just put there, and blocks forever on a named pipe. Checking first does not help, because
--- it resolves the path again. So the file is opened without blocking, and the open file is checked.
---@param path string
---@param stat uv.fs_stat.result
---@param bytes string
---@return string? problem
local function write_into(path, stat, bytes)
  local flags = vim.uv.constants
  local fd, err = vim.uv.fs_open(path, bit.bor(flags.O_RDWR, flags.O_NONBLOCK, flags.O_NOCTTY), 0)
  if not fd then
    return err
  end
  local now = assert(vim.uv.fs_fstat(fd))
  local is_same = now.type == 'file' and now.dev == stat.dev and now.ino == stat.ino
  local problem = 'it has just changed'
  if is_same and vim.deep_equal(now.mtime, stat.mtime) and now.size == stat.size then
    local before = assert(vim.uv.fs_read(fd, now.size, 0))
    local ok, failure = pcall(overwrite, fd, bytes)
    problem = not ok and tostring(failure) or nil
    if not ok then -- disk full: the old content still fits
      pcall(overwrite, fd, before)
    end
  end
  vim.uv.fs_close(fd)
  return problem
end

--- Write the buffer to its file, which is unchanged since it was read. Never asks.
---@param buf integer
---@return string? problem a sentence; the buffer stays modified
function M.write(buf)
  local path, name = api.nvim_buf_get_name(buf), disk.shown_name(buf)
  local stat = vim.uv.fs_stat(path)
  if not stat then
    return NOT_WRITTEN:format(name, 'it no longer exists')
  end
  disk.run_hooks(buf, 'BufWritePre')
  if not api.nvim_buf_is_loaded(buf) then
    return nil
  end
  local ok, bytes = pcall(bytes_of, buf)
  local problem = not ok and tostring(bytes) or write_into(path, stat, bytes)
  if problem then
    return NOT_WRITTEN:format(name, problem)
  end
  vim.bo[buf].modified = false
  disk.adopt_file(buf)
  disk.write_undo_file(buf)
  disk.run_hooks(buf, 'BufWritePost')
end

--- Delete the file of a buffer that the agent created and that is empty.
---@param buf integer
---@return string? problem a sentence
function M.remove(buf)
  local path = api.nvim_buf_get_name(buf)
  local ok, err = vim.uv.fs_unlink(path)
  if not ok and vim.uv.fs_lstat(path) then
    return ('%s was not removed: %s.'):format(disk.shown_name(buf), err)
  end
  vim.bo[buf].modified = false
end

return M
