--- Changes as undo blocks of their own, in whatever mode the person is.
local M = {}

local api = vim.api

local VISUAL = '^[vVsS\22\19]' -- patterns of modes
local TYPING = '^[iR]'

---@type table<integer, { tool_use_id: string, tick: integer }> what a tool use left behind, by buffer
local last_changes = {}
local ns = api.nvim_create_namespace('sanderling_buffers')

--- Is somebody typing or selecting in this very buffer?
---@param buf integer
---@param modes string pattern of the modes that count
---@return boolean
function M.is_under_hands(buf, modes)
  return api.nvim_get_current_buf() == buf and api.nvim_get_mode().mode:find(modes) ~= nil
end

--- End the undo block that is open, if one is.
---@param buf integer
function M.end_block(buf)
  api.nvim_buf_call(buf, function()
    vim.cmd('noautocmd let &l:undolevels = &l:undolevels')
  end)
  if M.is_under_hands(buf, TYPING) then
    -- Insert mode counts on lines that it has saved since it began. CTRL-G u lets it begin anew, before the next key.
    api.nvim_feedkeys('\7u', 'in', false)
  end
end

--- The change that a tool use left behind, if nobody has changed the buffer since.
---@param buf integer
---@return { tool_use_id: string, tick: integer }?
function M.untouched_change(buf)
  local last = last_changes[buf]
  return last and last.tick == api.nvim_buf_get_changedtick(buf) and last or nil
end

--- Note that the buffer is now as that tool use leaves it behind.
---@param buf integer
---@param tool_use_id string
function M.remember_change(buf, tool_use_id)
  last_changes[buf] = { tool_use_id = tool_use_id, tick = api.nvim_buf_get_changedtick(buf) }
end

--- Change the buffer in an undo block of its own.
---@param buf integer
---@param joins boolean the block is the last change's
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

--- Change the buffer while it may be the one in which somebody selects: the other end of the selection goes with its text, as the
--- cursor does by itself.
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
