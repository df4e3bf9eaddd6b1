--- The buffer and window in which a proposal is shown: the file's buffer, loaded if necessary, in a code window. The
--- cursor stays in its window.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local files = require('sanderling.access.files')
local find = require('sanderling.editing.find')
local loading = require('sanderling.access.loading')
local scratch = require('sanderling.ui.scratch')

local MAX_BYTES = 2 * 1024 * 1024 -- larger files are not reviewed in a window

---@type table<integer, { win?: integer, before?: integer }> buffers loaded for a proposal, and where they are shown
local loaded = {}

--- Return the buffer in which a change of the file can be reviewed.
---@param path string absolute
---@param device integer
---@param inode integer
---@param where string see editing/find.lua
---@return integer? buf
function M.load(path, device, inode, where)
  if config.options.review ~= 'inline' or not files.code_window(path) then
    return nil
  end
  local buf = find.buffer_of(path, device, inode, where)
  local stat = vim.uv.fs_stat(path)
  if
    not buf
    and find.names_file(path, device, inode, where)
    and (not stat or stat.size <= MAX_BYTES)
  then
    buf = loading.load(path)
    if not buf or not find.names_file(api.nvim_buf_get_name(buf), device, inode, where) then
      return nil -- a link in the path changed in between
    end
    loaded[buf] = {}
  end
  if
    not buf
    or not find.is_file_buffer(buf)
    or not vim.bo[buf].modifiable
    or vim.bo[buf].readonly
  then
    return nil
  end
  return api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf)) <= MAX_BYTES and buf or nil
end

---@param buf integer
---@return string
function M.stamp_of(buf)
  local stat = vim.uv.fs_stat(api.nvim_buf_get_name(buf))
  return stat and ('%d.%d %d'):format(stat.mtime.sec, stat.mtime.nsec, stat.size) or ''
end

--- Return the code window used last, else another one, but never the current window.
---@param buf integer
---@param is_free fun(buf: integer): boolean
---@return integer? win
local function free_window(buf, is_free)
  local best = files.code_window(api.nvim_buf_get_name(buf))
  for _, win in ipairs({ best, unpack(api.nvim_tabpage_list_wins(0)) }) do
    local is_meant = win ~= api.nvim_get_current_win() and files.is_code_window(win)
    if is_meant and is_free(api.nvim_win_get_buf(win)) then
      return win
    end
  end
end

--- Show the buffer with line `row` in view, unless it is already on the screen.
---@param buf integer
---@param row integer
---@param is_free fun(buf: integer): boolean another buffer may be replaced
function M.show(buf, row, is_free)
  scratch.set_buf_options(buf, { buflisted = true })
  local win = #vim.fn.win_findbuf(buf) == 0 and free_window(buf, is_free) or nil
  local before = win and api.nvim_win_get_buf(win)
  if win and pcall(loading.show, win, buf, row + 1) then
    if loaded[buf] then
      loaded[buf] = { win = win, before = before }
    end
  end
end

--- Leave a buffer whose proposal is gone. Delete it if it was loaded for a new file that does not exist yet.
---@param buf integer
---@param is_new boolean
function M.leave(buf, is_new)
  local here = loaded[buf]
  loaded[buf] = nil
  local is_left = here and is_new and not vim.bo[buf].modified and find.is_empty(buf)
  if not is_left or vim.uv.fs_stat(api.nvim_buf_get_name(buf)) then
    return
  end
  if here.win and api.nvim_win_is_valid(here.win) and api.nvim_win_get_buf(here.win) == buf then
    pcall(loading.show, here.win, here.before)
  end
  if #vim.fn.win_findbuf(buf) == 0 then
    pcall(api.nvim_buf_delete, buf, {})
  end
end

return M
