--- Keys in buffers with hunks. They are removed with the last hunk, and never override the user's own maps.
local M = {}

local commands = require('sanderling.review.commands')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.ui.keys')
local operator = require('sanderling.ui.operator')

---@type table<string, fun(): string?>
local actions = {
  next_hunk = function()
    commands.go(1)
  end,
  previous_hunk = function()
    commands.go(-1)
  end,
  accept_hunk = operator.repeatable(function()
    commands.accept('hunk', nil, vim.v.count1)
  end),
  reject_hunk = operator.repeatable(function()
    commands.reject('hunk', nil, vim.v.count1)
  end),
  reject_hunk_reason = function()
    commands.reject_because(vim.v.count1)
  end,
  comment = function()
    vim.cmd('AgentComment') -- a higher part of the screen
  end,
  accept_file = operator.repeatable(function()
    commands.accept('file')
  end),
  reject_file = operator.repeatable(function()
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
