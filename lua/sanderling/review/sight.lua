--- Whether the user sees a hunk, and scrolling windows to it. A hunk is seen if a window shows all its lines and, above them as
--- virtual lines, all lines that it replaces.
local M = {}

local api = vim.api
local ui_float = require('sanderling.ui.float')

local MAX_BYTES_PER_CELL = 4

---@param hunk sanderling.review.Hunk
---@return integer first lnum of the hunk; of the line below a pure deletion, or of the last line above it
---@return integer last
local function lines_of(hunk)
  local count = api.nvim_buf_line_count(hunk.buf)
  local first = math.min(hunk.row + 1, count)
  return first, math.min(math.max(first, hunk.row + hunk.count), count)
end

--- Return the rows that lines take in the current window, with the virtual lines above the first one.
---@param first integer
---@param last integer
---@return integer
local function height_of(first, last)
  local is_end = last == vim.fn.line('$') -- then lines below it count, too
  local range = { start_row = first - 1, end_row = not is_end and last - 1 or nil }
  return api.nvim_win_text_height(0, range).all
end

---@param lnum integer
---@return integer rows of virtual lines above it in the current window
local function fill_above(lnum)
  return api.nvim_win_text_height(0, { start_row = lnum - 1, end_row = lnum - 1 }).fill
end

--- Return the rows from the top of the current window to the end of a line, which is not above it.
---@param lnum integer
---@return integer
local function rows_to(lnum)
  local view = vim.fn.winsaveview()
  if view.skipcol > 0 then
    local skipped = api.nvim_win_text_height(0, {
      start_row = view.topline - 1,
      end_row = view.topline - 1,
      end_vcol = view.skipcol,
    })
    return height_of(view.topline, lnum) - skipped.all
  end
  return height_of(view.topline, lnum) - fill_above(view.topline) + view.topfill
end

---@param first integer
---@param last integer
---@return boolean a closed fold of the current window hides a line
local function is_folded(first, last)
  for lnum = first, last do
    if vim.fn.foldclosed(lnum) ~= -1 then
      return true
    end
  end
  return false
end

--- Return the rows of the current window that show all of a hunk, from 0.
---@param hunk sanderling.review.Hunk
---@return integer? top nil: it is not fully in view
---@return integer bottom the row below it
local function rows_of(hunk)
  local first, last = lines_of(hunk)
  local win_height = api.nvim_win_get_height(0)
  if first < vim.fn.line('w0') or first >= vim.fn.line('w0') + win_height then
    return nil, 0
  elseif last - first >= win_height or is_folded(first, last) then
    return nil, 0
  end
  local bottom = rows_to(last)
  local top = bottom - height_of(first, last)
  if top < 0 or bottom > win_height then
    return nil, 0
  end
  return top, bottom
end

--- Does the current window hide a part of a hunk's lines, either by conceal, or to the right of a window that does not wrap
--- them? Enough blanks in a line would take code out of sight.
---@param hunk sanderling.review.Hunk
---@return boolean
local function hides_text(hunk)
  if vim.wo.conceallevel > 0 then
    return true
  elseif vim.wo.wrap then
    return false
  end
  local info = vim.fn.getwininfo(api.nvim_get_current_win())[1]
  local width = info.width - info.textoff
  local lines = api.nvim_buf_get_lines(hunk.buf, hunk.row, hunk.row + hunk.count, false)
  return vim.fn.winsaveview().leftcol > 0
    or vim.iter(lines):any(function(line)
      return #line > MAX_BYTES_PER_CELL * width or vim.fn.strdisplaywidth(line) > width
    end)
end

--- Does a float below the question cover a part of the area? Such are a chat and the context that a plugin keeps above the code.
---@param area sanderling.approval.Area
---@return boolean
local function is_under_float(area)
  return vim.iter(api.nvim_tabpage_list_wins(0)):any(function(win)
    local config = api.nvim_win_get_config(win)
    if config.relative == '' or config.hide or config.zindex >= ui_float.ZINDEX.question then
      return false
    end
    local top, left = unpack(api.nvim_win_get_position(win))
    return top < area.bottom
      and top + api.nvim_win_get_height(win) > area.top
      and left < area.left + area.width
      and left + api.nvim_win_get_width(win) > area.left
  end)
end

--- Return the windows of this tab page that show a buffer, the current one last.
---@param buf integer
---@return integer[]
function M.windows_of(buf)
  local here, list = api.nvim_get_current_win(), {}
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    if api.nvim_win_get_buf(win) == buf and win ~= here then
      list[#list + 1] = win
    end
  end
  return vim.list_extend(list, api.nvim_win_get_buf(here) == buf and { here } or {})
end

--- Return the area of the screen in which a window of this tab page shows all of a hunk, nil if none does.
---@param hunk sanderling.review.Hunk
---@return sanderling.approval.Area?
function M.area_of(hunk)
  for _, win in ipairs(M.windows_of(hunk.buf)) do
    local top, bottom = unpack(api.nvim_win_call(win, function()
      if not hides_text(hunk) then
        return { rows_of(hunk) }
      end
      return {}
    end))
    if top then
      local info = vim.fn.getwininfo(win)[1]
      local row = info.winrow - 1 + info.winbar
      local area =
        { top = row + top, bottom = row + bottom, left = info.wincol - 1, width = info.width }
      if not is_under_float(area) then
        return area
      end
    end
  end
end

--- Return the line that lies `rows` rows above a line in the current window, or as near as there are lines.
---@param lnum integer
---@param rows integer
---@return integer
local function line_above(lnum, rows)
  while lnum > 1 do
    local above = vim.fn.foldclosed(lnum - 1)
    above = above == -1 and lnum - 1 or above
    rows = rows - height_of(above, lnum - 1)
    if rows < 0 then
      break
    end
    lnum = above
  end
  return lnum
end

--- Scroll the current window to a hunk.
---
--- Neovim keeps the cursor of every window in view, so it cannot stay where it is if the hunk is further away than the window is
--- high. Then it moves into the hunk, and the jump list leads back. Otherwise the window scrolls by as few lines as possible and
--- the cursor stays: a user who left the window near the hunk continues where they were.
---@param hunk sanderling.review.Hunk
local function scroll_to(hunk)
  local first, last = lines_of(hunk)
  pcall(vim.cmd --[[@as fun(cmd: string)]], ('%d,%dfoldopen!'):format(first, last))
  local room = api.nvim_win_get_height(0) - height_of(first, last)
  local lowest = line_above(first, math.max(room, 0))
  local cursor = vim.fn.line('.')
  local function show(topline, lnum)
    local topfill = topline == first and math.min(fill_above(first), vim.fn.winheight(0) - 1) or 0
    vim.fn.winrestview({ topline = topline, topfill = topfill, skipcol = 0, lnum = lnum })
  end
  local top = math.min(math.max(vim.fn.line('w0'), lowest), first)
  if room >= 0 and cursor >= top + vim.wo.scrolloff then
    show(top, cursor)
    if vim.fn.line('.') == cursor and vim.fn.line('w0') == top and rows_of(hunk) then
      return
    end
  end
  vim.cmd("normal! m'")
  api.nvim_win_set_cursor(0, { first, 0 })
  show(line_above(first, math.max(math.floor(room / 2), 0)), first)
end

--- Scroll a window of this tab page to a hunk if none shows it. The current window does not move: the user is in it.
---@param hunk sanderling.review.Hunk
function M.reveal(hunk)
  local win = M.windows_of(hunk.buf)[1]
  if win and win ~= api.nvim_get_current_win() and not M.area_of(hunk) then
    api.nvim_win_call(win, function()
      scroll_to(hunk)
    end)
  end
end

return M
