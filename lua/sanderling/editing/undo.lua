--- Changes in their own undo blocks, in any mode of the user's.
local M = {}

local api = vim.api

local VISUAL = '^[vVsS\22\19]' -- patterns of modes
local TYPING = '^[iR]'

---@type table<integer, { tool_use_id: string, tick: integer }> the last change of a tool use, by buffer
local last_changes = {}
local ns = api.nvim_create_namespace('sanderling_buffers')

---@param buf integer
---@param modes string pattern of the modes that count
---@return boolean
function M.is_under_hands(buf, modes)
  return api.nvim_get_current_buf() == buf and api.nvim_get_mode().mode:find(modes) ~= nil
end

--- End the open undo block, if any.
---@param buf integer
function M.end_block(buf)
  api.nvim_buf_call(buf, function()
    vim.cmd('noautocmd let &l:undolevels = &l:undolevels')
  end)
  if M.is_under_hands(buf, TYPING) then
    -- Insert mode relies on lines saved when it began. CTRL-G u makes it begin again, before the next key.
    api.nvim_feedkeys('\7u', 'in', false)
  end
end

--- Return the last change of a tool use, if nothing has changed the buffer since.
---@param buf integer
---@return { tool_use_id: string, tick: integer }?
function M.untouched_change(buf)
  local last = last_changes[buf]
  return last and last.tick == api.nvim_buf_get_changedtick(buf) and last or nil
end

--- Record the buffer's current state as the result of that tool use.
---@param buf integer
---@param tool_use_id string
function M.remember_change(buf, tool_use_id)
  last_changes[buf] = { tool_use_id = tool_use_id, tick = api.nvim_buf_get_changedtick(buf) }
end

--- Change the buffer in its own undo block.
---@param buf integer
---@param joins boolean join the last change's block
---@param change fun()
function M.in_block(buf, joins, change)
  local was_modified, tick = vim.bo[buf].modified, api.nvim_buf_get_changedtick(buf)
  M.end_block(buf)
  local ok, err = pcall(api.nvim_buf_call, buf, function()
    if joins then
      vim.cmd('silent! undojoin')
    else
      vim.bo[buf].modified = true -- see "Writing" in init.lua
    end
    change()
  end)
  if api.nvim_buf_is_loaded(buf) then
    M.end_block(buf)
    if api.nvim_buf_get_changedtick(buf) == tick then
      vim.bo[buf].modified = was_modified
    end
  end
  if not ok then
    error(err, 0)
  end
end

--- Change the buffer, which may have a selection: its other end moves with the text, as the cursor does anyway.
---@param buf integer
---@param change fun()
function M.keeping_selection(buf, change)
  local mode = api.nvim_get_mode().mode
  if api.nvim_get_current_buf() ~= buf or not mode:find(VISUAL) then
    return change()
  end
  local _, lnum, col = unpack(vim.fn.getpos('v'))
  local mark = api.nvim_buf_set_extmark(buf, ns, lnum - 1, col - 1, { strict = false })
  change()
  local row, new_col = unpack(api.nvim_buf_get_extmark_by_id(buf, ns, mark, {}))
  api.nvim_buf_del_extmark(buf, ns, mark)
  if row + 1 ~= lnum or new_col + 1 ~= col then
    local toggle = mode:find('^[sS\19]') and '\7' or '' -- CTRL-G, between Select and Visual mode
    local cursor = api.nvim_win_get_cursor(0)
    vim.cmd.normal({ toggle .. 'o', bang = true })
    api.nvim_win_set_cursor(0, { row + 1, new_col })
    vim.cmd.normal({ 'o' .. toggle, bang = true })
    api.nvim_win_set_cursor(0, cursor)
  end
end

return M
