--- Private JSON files of the plugin in Neovim's state directory, which only this user can read.
local M = {}

--- Return the path of `...` in the state directory.
---@param ... string
---@return string
function M.path(...)
  return vim.fs.joinpath(vim.fn.stdpath('state'), 'sanderling', ...)
end

--- Replace the file by `value`. A reader, and whoever comes after `kill -9`, finds the old content or the new one.
---@param path string
---@param value table
---@return boolean is_written
function M.write(path, value)
  pcall(vim.fn.mkdir, vim.fs.dirname(path), 'p', tonumber('700', 8))
  local fd = vim.uv.fs_open(path .. '.new', 'w', tonumber('600', 8))
  if not fd then
    return false
  end
  local text = vim.json.encode(value)
  local is_whole = vim.uv.fs_write(fd, text) == #text
  vim.uv.fs_close(fd)
  return is_whole and vim.uv.fs_rename(path .. '.new', path) == true
end

---@param path string
---@return table? value nil: there is none, or it is no JSON
function M.read(path)
  local file = io.open(path, 'r')
  local ok, value = pcall(vim.json.decode, file and file:read('*a') or '')
  if file then
    file:close()
  end
  return ok and type(value) == 'table' and value or nil
end

return M
