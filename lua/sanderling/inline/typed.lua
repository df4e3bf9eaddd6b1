--- The option ai_comments = 'write': comments for the model are sent when the user writes the file that they were typed in.
---
--- A comment counts if its `!` or `?` was typed here. InsertCharPre fires for keys only, so nothing counts that was in the
--- file before, that the agent or a plugin inserted, or that came with a checkout: those are other people's text.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local listeners = require('sanderling.ui.lazy')('sanderling.editing.listeners')
local todo = require('sanderling.ui.lazy')('sanderling.inline.todo')

local TYPED = api.nvim_create_namespace('sanderling_typed') -- todo.lua removes the marks of comments that it sends

--- Mark the sign that is being typed, if it follows `AI`.
local function note()
  local sign = vim.v.char
  if config.options.ai_comments ~= 'write' or (sign ~= '!' and sign ~= '?') then
    return
  end
  local buf, lnum, col = api.nvim_get_current_buf(), unpack(api.nvim_win_get_cursor(0))
  if not api.nvim_get_current_line():sub(1, col):find('%f[%w][Aa][Ii]$') then
    return
  end
  vim.schedule(function() -- the sign is not in the text yet
    local line = api.nvim_buf_is_loaded(buf)
      and api.nvim_buf_get_lines(buf, lnum - 1, lnum, false)[1]
    if line and line:sub(col + 1, col + 1) == sign then
      api.nvim_buf_set_extmark(buf, TYPED, lnum - 1, col, { end_col = col + 1, invalidate = true })
    end
  end)
end

---@param buf integer
---@return table<integer, true> typed lines with a typed sign that is still there
local function typed_lines(buf)
  local typed = {} ---@type table<integer, true>
  for _, mark in ipairs(api.nvim_buf_get_extmarks(buf, TYPED, 0, -1, { details = true })) do
    if not mark[4].invalid then
      typed[mark[2] + 1] = true
    end
  end
  return typed
end

--- Forget the typed signs of comments in which the agent has changed anything: their text is no longer the user's alone.
---@param changed sanderling.editing.Changed
local function forget_changed(changed)
  local buf = changed.buf
  if not buf or next(typed_lines(buf)) == nil then
    return
  end
  for _, comment in ipairs(todo.of(buf)) do
    for _, hunk in ipairs(changed.hunks) do
      if hunk.first_line <= comment.last and hunk.last_line >= comment.first then
        api.nvim_buf_clear_namespace(buf, TYPED, comment.first - 1, comment.last)
      end
    end
  end
end

--- Send the typed comments of a buffer that was written as a whole, to its own file, by the user.
---@param buf integer
---@param path string that was written
local function send(buf, path)
  local typed = typed_lines(buf)
  if config.options.ai_comments ~= 'write' or next(typed) == nil then
    return
  end
  local is_agents = require('sanderling.editing.disk').are_hooks_running
  if is_agents or vim.bo[buf].modified or path ~= api.nvim_buf_get_name(buf) then
    return
  end
  vim.schedule(function()
    if api.nvim_buf_is_loaded(buf) then
      todo.send_some(buf, function(comment)
        for lnum = comment.first, comment.last do
          if typed[lnum] then
            return true
          end
        end
        return false
      end)
    end
  end)
end

--- Begin to note what the user types.
function M.watch()
  listeners.on_change(forget_changed)
  local group = api.nvim_create_augroup('sanderling_typed', {})
  api.nvim_create_autocmd('InsertCharPre', {
    group = group,
    desc = 'Agent: note a comment that ends in AI! or AI?',
    callback = note,
  })
  api.nvim_create_autocmd('BufReadPost', {
    group = group,
    desc = 'Agent: what a file contains was not typed here',
    callback = function(event)
      api.nvim_buf_clear_namespace(event.buf, TYPED, 0, -1)
    end,
  })
  api.nvim_create_autocmd('BufWritePost', {
    group = group,
    desc = 'Agent: send the comments that were typed',
    callback = function(event)
      send(event.buf, vim.fn.fnamemodify(event.match, ':p'))
    end,
  })
end

return M
