--- The folds of a transcript.
---
--- They are manual: 'foldexpr' is evaluated late, which makes the view jump. Folds belong to a window. A window that
--- starts to show the transcript gets the folds that it lacks, and from then on they are the user's. Neovim restores
--- the folds of a window that shows the transcript again, and copies those of the last window into a new one, so only
--- newer folds have to be made.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')
local scroll = require('sanderling.ui.scroll')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.transcript.folds.Fold
---@field first integer row
---@field last integer row
---@field label string
---@field name? string of the tool, shown before the label
---@field summary? string of the result, shown before the number of lines
---@field has_excerpt? boolean the closed fold shows the first of its text
---@field lines? integer number of lines shown; nil: those in the buffer, which may grow
---@field hl? string highlight of the closed fold
---@field state? 'open'|'closed unless read' initial state; nil: closed
---@field is_deleted? boolean by the user

---@param fold sanderling.transcript.folds.Fold
---@param row integer of the cursor
---@return boolean
local function begins_open(fold, row)
  local is_read = row > fold.first and row <= fold.last
  return fold.state == 'open' or fold.state == 'closed unless read' and is_read
end

--- Make `fold` in the current window. A fold that grew while no window showed it covers only its beginning: make it
--- again, and keep it open if it was.
---@param fold sanderling.transcript.folds.Fold
---@param row integer of the cursor
---@return boolean is_made
local function make(fold, row)
  local first, last = fold.first + 1, fold.last + 1
  local is_there = vim.fn.foldlevel(first) > 0
  if
    is_there and (fold.lines or vim.fn.foldlevel(last) > 0) or not is_there and fold.is_deleted
  then
    return false
  end
  local is_open
  if is_there then
    is_open = vim.fn.foldclosed(first) == -1
    api.nvim_win_set_cursor(0, { first, 0 })
    vim.cmd('normal! zD')
  else
    is_open = begins_open(fold, row)
  end
  vim.cmd(('%d,%dfold'):format(first, last))
  if is_open then
    vim.cmd(first .. 'foldopen')
  end
  return true
end

--- Make those of `folds` from index `from` on that `win` lacks. Its view does not change.
---@param win integer
---@param folds sanderling.transcript.folds.Fold[]
---@param from integer
function M.make(win, folds, from)
  api.nvim_win_call(win, function()
    local view = vim.fn.winsaveview() -- takes 0.1 ms after folds have changed, so it is called once for all of them
    local is_changed = false
    for i = from, #folds do
      is_changed = make(folds[i], view.lnum - 1) or is_changed
    end
    if not is_changed then
      return
    end
    vim.fn.winrestview(view)
    local first = vim.fn.foldclosed(view.topline)
    local begins_in_fold = first ~= -1 and first < view.topline
    local is_at_end = vim.fn.line('.') == vim.fn.line('$')
    if begins_in_fold or is_at_end and scroll.has_room_below(win) then
      scroll.put_last() -- otherwise empty rows remain below, with more text above
    end
  end)
end

--- Delete all folds of `win`.
---@param win integer
function M.drop_all(win)
  api.nvim_win_call(win, function()
    local view = vim.fn.winsaveview()
    vim.cmd('normal! zE')
    vim.fn.winrestview(view)
  end)
end

--- Return the fold that starts in row `first`.
---@param folds sanderling.transcript.folds.Fold[]
---@param first integer
---@return sanderling.transcript.folds.Fold?
function M.at(folds, first)
  local low, high = 1, #folds
  while low < high do
    local middle = math.floor((low + high) / 2)
    if folds[middle].first < first then
      low = middle + 1
    else
      high = middle
    end
  end
  local fold = folds[low]
  return fold and fold.first == first and fold or nil
end

--- Return what follows a label that has `room` cells with it: the summary, and the count of lines if there is room. A summary
--- that counts lines itself, as that of an MCP tool, needs no second count.
---@param summary string
---@param count integer of lines
---@param room integer
---@return string
local function shown_behind(summary, count, room)
  local counted = icons.separator .. words.counted(count, 'line')
  if summary == '' then
    return words.fitting(counted, room)
  end
  local all = ('  %s%s'):format(summary, counted)
  local has_count = summary:find('%f[%d][%d,]*%d lines?%f[^%w]') ~= nil
  if not has_count and api.nvim_strwidth(all) <= room then
    return all
  end
  return words.fitting('  ' .. summary, room)
end

--- Return the text of a closed fold. If it does not fit, a command loses its middle, another
--- label its end, then the count of lines goes, and the summary loses its end.
---@param fold sanderling.transcript.folds.Fold
---@param count integer of its lines
---@param excerpt string of its text, or empty
---@return [string, string][]
function M.line(fold, count, excerpt)
  local name = fold.name and fold.name .. (fold.label ~= '' and ' ' or '') or ''
  local label = fold.label .. (excerpt ~= '' and ': ' .. excerpt or '')
  local sign = icons.fold .. ' '
  local cells = words.cells_in(api.nvim_get_current_win()) - api.nvim_strwidth(sign .. name) - #' '
  local least = math.min(api.nvim_strwidth(label), 2)
  local behind = shown_behind(fold.summary or '', count, math.max(cells - least, 0))
  local room = cells - api.nvim_strwidth(behind)
  if api.nvim_strwidth(label) > room then
    local is_command = fold.name or vim.startswith(label, '$ ')
    label = (is_command and words.shortened or words.fitting)(label, math.max(room, 2))
  end
  local hl = fold.hl or 'AgentThinking'
  return { { sign .. name, fold.name and 'AgentTool' or hl }, { label .. behind, hl } }
end

return M
