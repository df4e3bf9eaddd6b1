--- The position of a question on the screen: over the end of the chat, and away from the cursor.
local M = {}

local api = vim.api
local footer = require('sanderling.approval.footer')
local scroll = require('sanderling.ui.scroll')
local wording = require('sanderling.approval.wording')

local MAX_WIDTH = 78
local MIN_WIDTH = 48 -- a narrower chat is covered only where all of the question fits, and by no diff
local MIN_SMALL_WIDTH = 24 -- a narrower chat is never covered
local MIN_HEIGHT = 6
local USUAL_SHARE, FOCUSED_SHARE = 0.4, 0.6 -- of the screen's rows, at most
local USUAL_HEIGHT = 12 -- of a small change, so that it fits on a screen of 24 rows

---@class (exact) sanderling.approval.Area of the screen; cells count from 0
---@field top integer
---@field bottom integer the row below it
---@field left integer
---@field width integer

---@class (exact) sanderling.approval.Place
---@field row integer of the border
---@field col integer
---@field width integer within the border
---@field height integer
---@field body sanderling.approval.Body
---@field has_list boolean of the keys, after the body
---@field seen string where its change was in view in its file

--- Return the row below which nothing may be covered: the top of a quickfix window at the bottom, else of the status line.
---@return integer
local function bottom_row()
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    local top, left = unpack(api.nvim_win_get_position(win))
    local is_list = vim.fn.win_gettype(win) == 'quickfix'
    if
      is_list
      and left == 0
      and api.nvim_win_get_width(win) == vim.o.columns
      and top > 2 * MIN_HEIGHT
    then
      return top - (vim.o.laststatus == 3 and 1 or 0)
    end
  end
  return vim.o.lines - vim.o.cmdheight - (vim.o.laststatus > 0 and 1 or 0)
end

--- Return the part of the screen for windows: without tab line, status line and command line.
---@return sanderling.approval.Area
local function screen_area()
  local has_tabline = vim.o.showtabline == 2
    or (vim.o.showtabline == 1 and #api.nvim_list_tabpages() > 1)
  return {
    top = has_tabline and 1 or 0,
    bottom = bottom_row(),
    left = 0,
    width = vim.o.columns,
  }
end

--- Return the transcript's part of it, if it is in this tab page and large enough.
---@param min_width integer
---@return sanderling.approval.Area?
local function chat_area(min_width)
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    local buf = api.nvim_win_get_buf(win)
    if vim.bo[buf].filetype == 'sanderling' and vim.b[buf].sanderling_session then
      local top, left = unpack(api.nvim_win_get_position(win))
      local height, width = api.nvim_win_get_height(win), api.nvim_win_get_width(win)
      if width >= min_width and height >= MIN_HEIGHT + 2 then
        return { top = top, bottom = top + height, left = left, width = width }
      end
    end
  end
end

--- Return the cell of the cursor, which the float must not cover; nil while it is in the float or the command line.
---@param is_focused boolean it is in the float
---@return { row: integer, col: integer }?
function M.cursor_cell(is_focused)
  if is_focused or api.nvim_get_mode().mode:find('^c') then
    return nil
  end
  local pos = vim.fn.screenpos(0, vim.fn.line('.'), vim.fn.col('.'))
  return pos.row > 0 and { row = pos.row - 1, col = pos.col - 1 } or nil
end

---@param place sanderling.approval.Place
---@param area sanderling.approval.Area
---@return boolean
local function overlaps(place, area)
  return area.bottom > place.row
    and area.top < place.row + place.height + 2
    and area.left + area.width > place.col
    and area.left < place.col + place.width + 2
end

---@param place sanderling.approval.Place
---@param cell? { row: integer, col: integer }
---@return boolean
function M.covers(place, cell)
  return cell ~= nil
    and overlaps(place, { top = cell.row, bottom = cell.row + 1, left = cell.col, width = 1 })
end

--- Return the hunks in view that a place would not cover.
---@param place sanderling.approval.Place
---@param progress sanderling.approval.Progress
---@return sanderling.approval.Area[]
local function left_in_view(place, progress)
  return vim.tbl_filter(function(area)
    return not overlaps(place, area)
  end, progress.in_view)
end

--- Describe where a change is in view, to notice when that changes.
---@param progress? sanderling.approval.Progress
---@return string
function M.seen(progress)
  local areas = vim.tbl_map(function(area)
    return ('%d-%d,%d'):format(area.top, area.bottom, area.left)
  end, progress and progress.in_view or {})
  return table.concat(areas, ' ')
end

--- Add a line for each key, if there is room.
---@param body sanderling.approval.Body
---@param q sanderling.session.state.Question
---@param width integer
---@param room integer rows that are left
---@return integer rows that were added
local function add_keys(body, q, width, room)
  local list, cells = footer.list(q, width), 0
  if #list == 0 or #list + 1 > room then
    return 0
  end
  for _, each in ipairs(list) do
    cells = math.max(cells, api.nvim_strwidth(each[1]))
  end
  local lines, marks = body.lines, body.marks
  lines[#lines + 1] = ''
  for _, each in ipairs(list) do
    local key, word = unpack(each)
    lines[#lines + 1] = key .. (' '):rep(cells - api.nvim_strwidth(key) + 1) .. word
    marks[#marks + 1] = { row = #lines - 1, col = 0, end_col = #key, hl = 'AgentApprovalKey' }
  end
  return #list + 1
end

--- Return where the float covers least: over the end of the chat, else at the right, and not over the cursor.
---@param q sanderling.session.state.Question
---@param is_focused boolean
---@param opts sanderling.approval.BodyOpts
---@return sanderling.approval.Place? nil: it would cover all of the change that is in view in its file
local function place_for(q, is_focused, opts)
  local cell = M.cursor_cell(is_focused)
  local share = is_focused and FOCUSED_SHARE or USUAL_SHARE
  local usual = math.min(USUAL_HEIGHT, math.floor(vim.o.lines / 2))
  local max_height = math.max(MIN_HEIGHT, usual, math.floor(vim.o.lines * share))
  local screen = screen_area()
  local first
  local is_diff = q.event.filetype == 'diff' and not opts.is_in_file
  local chat = chat_area(is_diff and MIN_WIDTH or MIN_SMALL_WIDTH)
  local is_narrow = chat ~= nil and chat.width < MIN_WIDTH and not opts.is_in_file
  for _, area in ipairs({ chat or screen, screen }) do
    local width = math.max(1, math.min(area.width - 2, MAX_WIDTH))
    -- A low chat does not limit the float: it begins above the chat.
    local top = math.min(area.top, math.max(screen.top, area.bottom - max_height - 2))
    local room = math.max(1, math.min(area.bottom - top - 2, max_height))
    local body, height = wording.fitted(wording.body_of(q, width, opts), width, room)
    if body.more then
      local terse = vim.tbl_extend('error', opts, { is_terse = true })
      body, height = wording.fitted(wording.body_of(q, width, terse), width, room)
    end
    local is_cramped = is_narrow and area == chat and body.more ~= nil
    local added = 0
    if is_focused and body.more then
      body = wording.body_of(q, width, opts) -- it can be scrolled
    elseif is_focused then
      -- The user is in the float, so it may cover more than its usual share.
      added = add_keys(body, q, width, screen.bottom - screen.top - 2 - height)
      height = height + added
    end
    local lowest = area.bottom - height - 2
    for _, row in ipairs({ lowest, math.min(top, lowest) }) do
      local place = {
        row = math.max(row, 0),
        col = area.left + area.width - width - 2,
        width = width,
        height = height,
        body = body,
        has_list = added > 0,
        seen = M.seen(opts.progress),
      }
      local is_clear = not opts.is_in_file or #left_in_view(place, opts.progress) > 0
      if is_clear and not is_cramped then
        if not M.covers(place, cell) then
          return place
        end
        first = first or place
      end
    end
  end
  return first
end

--- Return the place of a question, and its body there. A change that is in view in its file is not repeated in the float.
---@param q sanderling.session.state.Question
---@param is_focused boolean
---@return sanderling.approval.Place
function M.find(q, is_focused)
  local progress = wording.progress_of(q)
  local is_in_file = progress ~= nil and #progress.in_view > 0
  local small = is_in_file and place_for(q, is_focused, { progress = progress, is_in_file = true })
  return small or assert(place_for(q, is_focused, { progress = progress }))
end

--- If the cursor of `win` is on the last line, scroll until the text ends within the first `room` rows.
---@param win integer
---@param room integer
local function scroll_end_up(win, room)
  api.nvim_win_call(win, function()
    local lnum = vim.fn.line('.')
    if math.max(lnum, vim.fn.foldclosedend(lnum)) ~= vim.fn.line('$') then
      return
    end
    local first = vim.fn.line('w0')
    local top = first
    while top < lnum and api.nvim_win_text_height(win, { start_row = top - 1 }).all > room do
      top = math.max(top, vim.fn.foldclosedend(top)) + 1
    end
    if top > first then
      vim.fn.winrestview({ topline = top, skipcol = 0 })
    end
  end)
end

--- Scroll transcripts whose end the float would cover, so that the text before the question stays visible. Windows scrolled elsewhere
--- stay.
---@param place sanderling.approval.Place
function M.keep_ends_above(place)
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    local info = vim.fn.getwininfo(win)[1]
    local first_row, first_col = info.winrow - 1 + info.winbar, info.wincol - 1
    local room = place.row - first_row
    local is_covered = vim.bo[info.bufnr].filetype == 'sanderling'
      and place.row < first_row + info.height
      and place.col < first_col + info.width
      and place.col + place.width + 2 > first_col
      and room >= MIN_HEIGHT
    scroll.cover(win, is_covered) -- before the window scrolls: the chat fills empty rows
    if is_covered then
      scroll_end_up(win, room)
    end
  end
end

--- Let the transcripts of this tab page that end above a float fill their windows again. The user may have scrolled the current one.
function M.release_ends()
  local here = api.nvim_tabpage_list_wins(0) -- nvim_win_call() in another tab page would change the current window there
  for _, win in ipairs(scroll.uncover()) do
    if vim.list_contains(here, win) and win ~= api.nvim_get_current_win() then
      api.nvim_win_call(win, function()
        local lnum = vim.fn.line('.')
        local is_at_end = math.max(lnum, vim.fn.foldclosedend(lnum)) == vim.fn.line('$')
        if is_at_end and vim.fn.line('w0') > 1 and scroll.has_room_below(win) then
          scroll.put_last()
        end
      end)
    end
  end
end

return M
