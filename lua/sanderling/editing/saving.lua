--- Writing a buffer into the file that was read, and into nothing else.
---
--- Python writes what tools change, inside the sandbox. This is for what the user rejects, which needs no agent.
local M = {}

local api = vim.api
local disk = require('sanderling.editing.disk')
local scratch = require('sanderling.ui.scratch')

local NOT_WRITTEN = '%s is not written: %s.'

--- Return the bytes that Neovim would write: it knows encodings and line ends. A last line without an end stays so.
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

--- Write the bytes into the file that `stat` is of, if that is still what `path` leads to.
---
--- `:write` would follow a link that a command has put there a moment ago, and waits for ever for a named pipe; no look before it
--- helps, for it looks again. Here the file is opened without waiting, and what was opened is looked at.
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
  local problem = 'it has just been changed'
  if is_same and vim.deep_equal(now.mtime, stat.mtime) and now.size == stat.size then
    local before = assert(vim.uv.fs_read(fd, now.size, 0))
    local ok, failure = pcall(overwrite, fd, bytes)
    problem = not ok and tostring(failure) or nil
    if not ok then -- a full disk: what it held has its place there
      pcall(overwrite, fd, before)
    end
  end
  vim.uv.fs_close(fd)
  return problem
end

--- Write the buffer into its file, which is as it was read. Never asks.
---@param buf integer
---@return string? problem a sentence; the buffer stays modified
function M.write(buf)
  local path, name = api.nvim_buf_get_name(buf), disk.shown_name(buf)
  local stat = vim.uv.fs_stat(path)
  if not stat then
    return NOT_WRITTEN:format(name, 'it is not on the disk any more')
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

--- Remove the file of a buffer, which was the agent's and is empty.
---@param buf integer
---@return string? problem a sentence
function M.remove(buf)
  local path = api.nvim_buf_get_name(buf)
  local ok, err = vim.uv.fs_unlink(path)
  if not ok and vim.uv.fs_lstat(path) then
    return ('%s is not removed: %s.'):format(disk.shown_name(buf), err)
  end
  vim.bo[buf].modified = false
end

return M
