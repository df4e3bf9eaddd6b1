--- The kind of thing that each buffer was read from. A command of the agent's can put a named pipe, a link or a directory in the
--- place of a file that is open. Neovim looks at none of that: to read or write the pipe it waits for ever, and through the link it
--- writes another file.
local M = {}

local api = vim.api
local loading = require('sanderling.ui.loading')

---@type table<integer, string> as `vim.uv.fs_lstat()` calls them, by buffer; nothing of a file that was not there yet
local kinds = {}

--- Take the file of a buffer, as it is now, for what was read or written.
---@param buf integer
function M.note(buf)
  local name = api.nvim_buf_is_valid(buf) and api.nvim_buf_get_name(buf) or ''
  local stat = vim.startswith(name, '/') and vim.uv.fs_lstat(name)
  kinds[buf] = stat and stat.type or nil
end

--- Return what stands in the place of the file that was read, in words; nil while it is a file, or nothing is there.
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
  desc = 'Agent: remember what kind of file was read',
  callback = function(args)
    if not loading.is_opening then
      M.note(args.buf)
    end
  end,
})

api.nvim_create_autocmd('BufWipeout', {
  group = group,
  desc = 'Agent: forget what kind of file was read',
  callback = function(args)
    kinds[args.buf] = nil
  end,
})

for _, buf in ipairs(api.nvim_list_bufs()) do
  M.note(buf)
end

return M
