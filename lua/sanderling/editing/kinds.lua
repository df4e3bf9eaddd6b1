--- The file type of what each buffer was read from. A command of the agent can replace an open file by a named pipe, a link or a
--- directory, and Neovim does not check: reading or writing a pipe blocks forever, and through a link it writes another file.
local M = {}

local api = vim.api
local loading = require('sanderling.access.loading')

---@type table<integer, string> from `vim.uv.fs_lstat()`, by buffer; nil for a file that did not exist
local kinds = {}

---@param buf integer
function M.note(buf)
  local name = api.nvim_buf_is_valid(buf) and api.nvim_buf_get_name(buf) or ''
  local stat = vim.startswith(name, '/') and vim.uv.fs_lstat(name)
  kinds[buf] = stat and stat.type or nil
end

--- Describe what has replaced the file that was read; nil if it is still a file, or missing.
---@param buf integer
---@return string?
function M.changed_kind(buf)
  local name = api.nvim_buf_get_name(buf)
  local own, stat = vim.uv.fs_lstat(name), vim.uv.fs_stat(name)
  if own and own.type == 'link' and kinds[buf] == 'file' then
    return loading.kind_in_words('link')
  end
  return stat and loading.kind_in_words(stat.type)
end

local group = api.nvim_create_augroup('sanderling_kinds', {})

api.nvim_create_autocmd({ 'BufReadPost', 'BufWritePost', 'BufFilePost' }, {
  group = group,
  desc = 'Agent: remember the type of the file',
  callback = function(args)
    if not loading.is_opening then
      M.note(args.buf)
    end
  end,
})

api.nvim_create_autocmd('BufWipeout', {
  group = group,
  desc = 'Agent: forget the type of the file',
  callback = function(args)
    kinds[args.buf] = nil
  end,
})

for _, buf in ipairs(api.nvim_list_bufs()) do
  M.note(buf)
end

return M
