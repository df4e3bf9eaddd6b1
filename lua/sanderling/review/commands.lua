--- Commands for hunks: to go to them, keep them, reject them, list them.
local M = {}

local api = vim.api
local closed = require('sanderling.review.closed')
local draw = require('sanderling.review.draw')
local hunks = require('sanderling.review.hunks')
local icons = require('sanderling.ui.icons')
local message = require('sanderling.ui.message')
local words = require('sanderling.ui.words')

M.SCOPES = { 'hunk', 'file', 'turn', 'all' }

local NOTHING = "Nothing of the agent's waits for a review"

---@param text string
local function tell(text)
  message.tell(text, vim.log.levels.WARN)
end

--- Find all hunks, those of files that are not loaded, too: loads these.
---@return sanderling.review.Hunk[]
local function all()
  for name in pairs(hunks.unloaded()) do
    vim.fn.bufload(vim.fn.bufadd(name))
  end
  local list = {}
  for _, buf in ipairs(hunks.buffers()) do
    vim.list_extend(list, hunks.list(buf))
  end
  return list
end

--- Find those of the turn that the hunk at the cursor is of, else of the last one that left some.
---@param here? sanderling.review.Hunk
---@return sanderling.review.Hunk[]
local function of_turn(here)
  local list = all()
  local last = here
  for _, hunk in ipairs(list) do
    last = (not here and (not last or hunk.id > last.id)) and hunk or last
  end
  return vim.tbl_filter(function(hunk)
    local source = hunk.source
    return source.turn == last.source.turn and source.session_id == last.source.session_id
  end, list)
end

--- The hunks that a command is about; says so where there are none.
---@param scope string
---@param range? [integer, integer] lines, which go before the hunk at the cursor
---@return sanderling.review.Hunk[]
local function meant(scope, range)
  local buf = api.nvim_get_current_buf()
  local here = hunks.at(buf, api.nvim_win_get_cursor(0)[1] - 1)
  local list, where
  if scope == 'all' then
    list, where = all(), ''
  elseif scope == 'turn' then
    list, where = of_turn(here), ''
  elseif scope == 'file' then
    list, where = vim.list_slice(hunks.list(buf)), ' in this file'
  elseif range then
    list, where =
      vim.tbl_filter(function(hunk)
        local last = math.max(hunk.row + 1, hunk.row + hunk.count)
        return hunk.row + 1 <= range[2] and last >= range[1]
      end, hunks.list(buf)), ' in these lines'
  else
    list, where = { here }, ' here'
  end
  if #list == 0 then
    tell(NOTHING .. where .. '.')
  end
  return list
end

---@param scope string
---@return string
local function checked(scope)
  if scope ~= '' and not vim.list_contains(M.SCOPES, scope) then
    error(('scope: expected %s, got %s'):format(table.concat(M.SCOPES, ', '), scope), 0)
  end
  return scope ~= '' and scope or 'hunk'
end

---@param done string
---@param list sanderling.review.Hunk[]
local function report(done, list)
  local left = hunks.counts()
  if #list > 1 or left == 0 then
    local rest = left > 0 and ('; %d left'):format(left) or ''
    message.tell(('%s %s%s.'):format(done, words.counted(#list, 'change'), rest))
  end
end

--- Keep what the agent changed.
---@param scope string one of `SCOPES`; empty: the hunk at the cursor
---@param range? [integer, integer]
function M.keep(scope, range)
  local list = meant(checked(scope), range)
  if #list > 0 then
    hunks.keep(list)
    report('Kept', list)
  end
end

--- The files of these hunks that hold on disk what their buffers hold, so that a rejection can be written at once.
---@param list sanderling.review.Hunk[]
---@return integer[]
local function unmodified(list)
  local bufs = {}
  for _, hunk in ipairs(list) do
    if not vim.bo[hunk.buf].modified and not hunk.source.is_proposed then
      bufs[hunk.buf] = hunk.buf
    end
  end
  return vim.tbl_values(bufs)
end

---@param buf integer
local function write(buf)
  local ok, err = pcall(api.nvim_buf_call, buf, function()
    vim.cmd('silent lockmarks update')
  end)
  if not ok then
    message.tell_error('AgentReject', err)
  end
end

--- Reject what the agent changed: the lines that stood there come back. A file that had no unsaved changes is written.
---@param list sanderling.review.Hunk[]
---@param reason string
function M.reject_hunks(list, reason)
  local bufs = unmodified(list)
  for _, buf in ipairs(vim.tbl_keys(hunks.by_buffer(list))) do
    draw.keeping_views(buf, function()
      hunks.reject(hunks.by_buffer(list)[buf] or {}, reason)
    end)
  end
  vim.tbl_map(write, bufs)
end

--- Reject what the agent changed.
---@param args string a scope, if it begins with one, and the reason that the model reads
---@param range? [integer, integer]
function M.reject(args, range)
  local first, rest = args:match('^(%S*)%s*(.*)$')
  local is_scope = vim.list_contains(M.SCOPES, first)
  local list = meant(is_scope and first or 'hunk', range)
  if #list > 0 then
    M.reject_hunks(list, vim.trim(is_scope and rest or args))
    report('Rejected', list)
  end
end

-- going about ---------------------------------------------------------------------------------------------------------

---@param list sanderling.review.Hunk[]
---@param row integer
---@param direction -1|1
---@return sanderling.review.Hunk?
local function beside(list, row, direction)
  local found
  for _, hunk in ipairs(list) do
    if direction > 0 and hunk.row > row then
      return hunk
    elseif direction < 0 and hunk.row < row and row >= hunk.row + math.max(hunk.count, 1) then
      found = hunk
    end
  end
  return found
end

--- Show the lines that have gone where they would be above the window.
---@param hunk sanderling.review.Hunk
local function show_removed(hunk)
  local view = vim.fn.winsaveview()
  if view.topline == hunk.row + 1 and #hunk.old > 0 then
    view.topfill = math.min(#hunk.old, api.nvim_win_get_height(0) - 1)
    vim.fn.winrestview(view)
  end
end

---@param hunk sanderling.review.Hunk
function M.go_to(hunk)
  vim.cmd("normal! m'")
  if api.nvim_get_current_buf() ~= hunk.buf then
    vim.cmd.buffer({ hunk.buf, mods = { hide = true } })
  end
  local lnum = math.min(hunk.row + 1, api.nvim_buf_line_count(hunk.buf))
  api.nvim_win_set_cursor(0, { lnum, 0 })
  vim.cmd('normal! ^zv')
  show_removed(hunk)
end

--- Go to the next hunk, or the previous one: behind the last of a file to the first of the next file, round and round.
---@param direction -1|1
function M.go(direction)
  for _ = 1, vim.v.count1 do
    local buf, row = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)[1] - 1
    local hunk = beside(hunks.list(buf), row, direction)
    if not hunk then
      local list = all()
      hunk = direction > 0 and list[1] or list[#list]
      for _, each in ipairs(list) do
        if direction > 0 and each.buf > buf then
          hunk = each
          break
        elseif direction < 0 and each.buf < buf then
          hunk = each
        end
      end
    end
    if not hunk then
      tell(NOTHING .. '.')
      return
    end
    M.go_to(hunk)
  end
end

--- Put hunks, and what else there is to tell, into the quickfix list, and show it.
---@param title string
---@param list sanderling.review.Hunk[]
---@param more? vim.quickfix.entry[]
function M.show_list(title, list, more)
  local items = vim.tbl_map(function(hunk)
    local first = hunks.text_of(hunk)[1] or hunk.old[1] or ''
    return {
      bufnr = hunk.buf,
      lnum = math.min(hunk.row + 1, api.nvim_buf_line_count(hunk.buf)),
      end_lnum = hunk.row + math.max(hunk.count, 1),
      text = ('+%d %s%d  %s'):format(hunk.count, icons.minus, #hunk.old, vim.trim(first)),
    }
  end, list)
  vim.fn.setqflist({}, ' ', { title = title, items = vim.list_extend(items, more or {}) })
  vim.cmd('botright copen')
end

--- List all hunks of all files.
function M.show_all()
  local list, more = all(), closed.entries()
  if #list + #more == 0 then
    tell(NOTHING .. '.')
    return
  end
  M.show_list("The agent's changes, not reviewed", list, more)
end

return M
