--- Keys in the buffers that have hunks, as long as they have some. None is set that the person has mapped.
local M = {}

local api = vim.api
local commands = require('sanderling.review.commands')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.ui.keys')

---@type table<integer, true> buffers that have them
local has_keys = {}

---@type table<string, fun()>
local actions = {
  next_hunk = function()
    commands.go(1)
  end,
  previous_hunk = function()
    commands.go(-1)
  end,
  keep_hunk = function()
    commands.keep('hunk')
  end,
  reject_hunk = function()
    commands.reject('hunk')
  end,
  keep_file = function()
    commands.keep('file')
  end,
  reject_file = function()
    commands.reject('file')
  end,
}

---@param buf integer
function M.update(buf)
  local is_loaded = api.nvim_buf_is_loaded(buf)
  local has_hunks = is_loaded and #hunks.list(buf) > 0
  if has_hunks and not has_keys[buf] then
    has_keys[buf] = true
    keys.set(buf, 'file', actions)
  elseif not has_hunks and has_keys[buf] then
    has_keys[buf] = nil
    if is_loaded then
      keys.clear(buf, 'file')
    end
  end
end

return M
