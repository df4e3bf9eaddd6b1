--- Keys in the buffers that have hunks, as long as they have some. None is set that the person has mapped.
local M = {}

local commands = require('sanderling.review.commands')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.ui.keys')

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
  keys.keep(buf, 'file', function()
    return #hunks.list(buf) > 0
  end, actions)
end

return M
