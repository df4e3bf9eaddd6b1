--- Keys in the buffers that have hunks, as long as they have some. None is set that the person has mapped.
local M = {}

local commands = require('sanderling.review.commands')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.ui.keys')
local message = require('sanderling.ui.message')

---@type fun() the last of the keys below, for `.`
local last

--- Do what the last key did: what `.` comes to.
function M.act()
  local ok, err = pcall(last)
  if not ok then
    message.tell_error('', err)
  end
end

--- A key that can be repeated with `.`, as one that changes text can.
---@param fn fun()
---@return fun(): string keys
local function repeatable(fn)
  return function()
    last = fn
    vim.go.operatorfunc = "v:lua.require'sanderling.review.keys'.act"
    return 'g@l'
  end
end

---@type table<string, fun(): string?>
local actions = {
  next_hunk = function()
    commands.go(1)
  end,
  previous_hunk = function()
    commands.go(-1)
  end,
  keep_hunk = repeatable(function()
    commands.keep('hunk', nil, vim.v.count1)
  end),
  reject_hunk = repeatable(function()
    commands.reject('hunk', nil, vim.v.count1)
  end),
  keep_file = repeatable(function()
    commands.keep('file')
  end),
  reject_file = repeatable(function()
    commands.reject('file')
  end),
}

---@param buf integer
function M.update(buf)
  keys.keep(buf, 'file', function()
    return #hunks.list(buf) > 0
  end, actions)
end

return M
