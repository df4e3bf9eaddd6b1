--- The difference that the agent has made, by commands, too: as hunks in the files, or in Neovim's diff mode.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local closed = require('sanderling.review.closed')
local commands = require('sanderling.review.commands')
local hunks = require('sanderling.review.hunks')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')

require('sanderling.review') -- which draws them

M.SCOPES = { 'turn', 'session' }

local MAX_TABS = 10

--- Make hunks of it, and list them.
---@param result sanderling.FilesBefore
---@param source sanderling.review.Source
local function show_inline(result, source)
  local items, list = {}, {}
  for _, file in ipairs(result.files) do
    closed.forget(file.path)
    local buf = closed.load(file.path) -- that of a file that was removed is empty
    hunks.add(buf, closed.lines_of(file.text or ''), source, file.what == 'created')
    vim.list_extend(list, hunks.list(buf))
  end
  for _, file in ipairs(result.left or {}) do
    local text = ('Not known what was there before: %s.'):format(file.why)
    items[#items + 1] = { filename = file.path, text = text }
  end
  commands.show_list("The agent's changes", list, items)
end

--- Compare each file with what it was, in a tab page of its own.
---@param result sanderling.FilesBefore
local function show_side_by_side(result)
  for i, file in ipairs(result.files) do
    if i > MAX_TABS then
      message.tell(('The first %d of %d files are shown.'):format(MAX_TABS, #result.files))
      break
    end
    vim.cmd.tabnew()
    vim.bo.bufhidden = 'wipe'
    if file.what ~= 'removed' then
      vim.cmd.buffer(closed.load(file.path))
    end
    local filetype = vim.bo.filetype
    vim.cmd('diffthis | leftabove vnew')
    local buf = api.nvim_get_current_buf()
    api.nvim_buf_set_lines(buf, 0, -1, true, closed.lines_of(file.text or ''))
    scratch.set_buf_options(buf, { buftype = 'nofile', bufhidden = 'wipe', modifiable = false })
    vim.bo[buf].syntax = filetype
    local name = vim.fn.fnamemodify(file.path, ':~:.'):gsub('%%', '%%%%')
    local what = file.what == 'removed' and 'removed' or 'changed'
    vim.wo[0][0].winbar = ('%s before the agent %s it'):format(name, what)
    vim.cmd('diffthis | wincmd p')
    if vim.wo.winbar == '' then -- or else its lines would be beside the wrong ones
      vim.wo[0][0].winbar = name .. ' now'
    end
  end
end

--- Show what the agent has changed.
---@param scope string 'turn', which is the last one, or 'session'
---@param is_side_by_side boolean
function M.show(scope, is_side_by_side)
  scope = scope ~= '' and scope or 'turn'
  if not vim.list_contains(M.SCOPES, scope) then
    error(('scope: expected %s, got %s'):format(table.concat(M.SCOPES, ' or '), scope), 0)
  end
  local session = live.current()
  if not session then
    message.tell('There is no session yet: :AgentChat opens one.', vim.log.levels.WARN)
    return
  end
  local request = { type = 'show_difference', session_id = session.id, what = scope }
  ask(request, function(result)
    if #result.files + #(result.left or {}) == 0 then
      message.tell(('The agent has changed nothing in this %s.'):format(scope))
    elseif is_side_by_side then
      show_side_by_side(result)
    else
      show_inline(
        result,
        { session_id = session.id, tool_use_id = '', turn = session.state.turn or '' }
      )
    end
  end, function(sentence)
    message.tell(sentence, vim.log.levels.WARN)
  end)
end

return M
