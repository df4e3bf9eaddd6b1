--- Keys in buffers with hunks. They are removed with the last hunk, and never override the user's own maps.
local M = {}

local commands = require('sanderling.review.commands')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.ui.keys')
local message = require('sanderling.ui.message')

---@type fun() the action of the last key, repeated by `.`
local last

--- Repeat the last key: the operator function behind `.`.
function M.act()
  local ok, err = pcall(last)
  if not ok then
    message.tell_error('', err)
  end
end

--- Make `fn` repeatable with `.`.
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
  accept_hunk = repeatable(function()
    commands.accept('hunk', nil, vim.v.count1)
  end),
  reject_hunk = repeatable(function()
    commands.reject('hunk', nil, vim.v.count1)
  end),
  accept_file = repeatable(function()
    commands.accept('file')
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
