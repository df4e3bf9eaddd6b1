--- Commands for hunks: to go to them, keep them, reject them, list them.
local M = {}

local api = vim.api
local closed = require('sanderling.review.closed')
local draw = require('sanderling.review.draw')
local files = require('sanderling.ui.files')
local find = require('sanderling.editing.find')
local hunks = require('sanderling.review.hunks')
local icons = require('sanderling.ui.icons')
local keys = require('sanderling.ui.keys')
local message = require('sanderling.ui.message')
local words = require('sanderling.ui.words')

M.SCOPES = { 'hunk', 'file', 'turn', 'all' }

local CONTEXT = 'sanderling' -- of our quickfix lists
local MAX_LIST_ROWS = 10 -- Neovim's own number

local NOTHING = 'No change to review'

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

---@param buf integer
---@return sanderling.review.Hunk?
local function hunk_here(buf)
  return hunks.at(buf, api.nvim_win_get_cursor(0)[1] - 1)
end

---@alias sanderling.review.commands.IsMeant fun(change: { source: sanderling.review.Source }): boolean

--- The changes of the turn that the hunk at the cursor is of, else of the last one that left some.
---@return sanderling.review.commands.IsMeant
local function of_turn()
  local last = hunk_here(api.nvim_get_current_buf())
  if not last then
    for _, hunk in ipairs(all()) do
      last = (not last or hunk.id > last.id) and hunk or last
    end
  end
  local source = last and last.source or closed.last_source()
  return function(change)
    local is_same = source and change.source.turn == source.turn
    return is_same and change.source.session_id == source.session_id or false
  end
end

--- The changes that a command is about which is not about this file alone.
---@param scope string
---@return sanderling.review.commands.IsMeant?
local function anywhere(scope)
  if scope == 'turn' then
    return of_turn()
  end
  return scope == 'all' and function()
    return true
  end or nil
end

--- The hunk at the cursor, and those behind it.
---@param buf integer
---@param count integer
---@return sanderling.review.Hunk[]
local function from_here(buf, count)
  local here, list = hunk_here(buf), hunks.list(buf)
  for i, hunk in ipairs(list) do
    if hunk == here then
      return vim.list_slice(list, i, i + count - 1)
    end
  end
  return {}
end

--- The way to the changes that are elsewhere, if there are any.
---@param buf integer
---@return string
local function way_on(buf)
  local key = #hunks.list(buf) > 0 and keys.name_in(buf, 'next_hunk')
  if key then
    return (': %s goes to the next'):format(key)
  end
  return hunks.counts() > 0 and ': see :AgentReviews' or ''
end

--- The hunks that a command is about; says so where there are none.
---@param scope string
---@param is_meant? sanderling.review.commands.IsMeant
---@param range? [integer, integer] lines, which go before the hunk at the cursor
---@param count? integer that one, and those behind it
---@return sanderling.review.Hunk[]
local function meant(scope, is_meant, range, count)
  local buf = api.nvim_get_current_buf()
  local list, where
  if is_meant then
    list, where = vim.tbl_filter(is_meant, all()), ''
  elseif scope == 'file' then
    list, where = vim.list_slice(hunks.list(buf)), ' in this file'
  elseif range then
    list, where =
      vim.tbl_filter(function(hunk)
        local last = math.max(hunk.row + 1, hunk.row + hunk.count)
        return hunk.row + 1 <= range[2] and last >= range[1]
      end, hunks.list(buf)), ' in these lines'
  else
    list, where = from_here(buf, count or 1), ' here'
  end
  if #list == 0 and not (is_meant and hunks.count_closed(is_meant) > 0) then
    tell(NOTHING .. where .. (is_meant and '' or way_on(buf)) .. '.')
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
---@param count integer of changes
local function report(done, count)
  local left = hunks.counts()
  if count > 1 or count == 1 and left == 0 then
    local rest = left > 0 and ('; %d left'):format(left) or ''
    message.tell(('%s %s%s.'):format(done, words.counted(count, 'change'), rest))
  end
end

--- Keep what the agent changed.
---@param scope string one of `SCOPES`; empty: the hunk at the cursor
---@param range? [integer, integer]
---@param count? integer
function M.keep(scope, range, count)
  scope = checked(scope)
  local is_meant = anywhere(scope)
  local list = meant(scope, is_meant, range, count)
  hunks.keep(list)
  report('Kept', #list + (is_meant and closed.keep(is_meant) or 0))
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

--- Have the file hold what its buffer does; one that was made for what is rejected goes.
---@param buf integer
---@param made_file boolean
local function write(buf, made_file)
  local ok, err = pcall(api.nvim_buf_call, buf, function()
    if made_file and find.is_empty(buf) and #hunks.list(buf) == 0 then
      assert(os.remove(api.nvim_buf_get_name(buf)))
      vim.bo[buf].modified = false
    else
      vim.cmd('silent lockmarks update')
    end
  end)
  if not ok then
    message.tell_error('AgentReject', err)
  end
end

--- Reject what the agent changed: the lines that stood there come back. A file that had no unsaved changes is written.
---@param list sanderling.review.Hunk[]
---@param reason string
function M.reject_hunks(list, reason)
  local bufs, made = unmodified(list), {} ---@type integer[], table<integer, boolean>
  for _, hunk in ipairs(list) do
    made[hunk.buf] = made[hunk.buf] or hunk.made_file
  end
  for _, buf in ipairs(vim.tbl_keys(hunks.by_buffer(list))) do
    draw.keeping_views(buf, function()
      hunks.reject(hunks.by_buffer(list)[buf] or {}, reason)
    end)
  end
  for _, buf in ipairs(bufs) do
    write(buf, made[buf] or false)
  end
end

--- Reject what the agent changed.
---@param args string a scope, if it begins with one, and the reason that the model reads
---@param range? [integer, integer]
---@param count? integer
function M.reject(args, range, count)
  local first, rest = args:match('^(%S*)%s*(.*)$')
  local is_scope = vim.list_contains(M.SCOPES, first)
  local scope = is_scope and first or 'hunk'
  local is_meant = anywhere(scope)
  local function reject()
    local list = meant(scope, is_meant, range, count)
    M.reject_hunks(list, vim.trim(is_scope and rest or args))
    report('Rejected', #list)
  end
  if is_meant then
    closed.open(is_meant, reject)
  else
    reject()
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

--- The file that was changed while it was not open and comes next: those are behind all buffers.
---@param hunk? sanderling.review.Hunk that comes next in a buffer
---@param buf integer
---@param direction -1|1
---@return { path: string, lnum: integer }?
local function closed_beside(hunk, buf, direction)
  local is_wrapped = not hunk or direction > 0 and hunk.buf < buf
  return is_wrapped and closed.list()[1] or nil
end

---@param file { path: string, lnum: integer }
local function go_to_file(file)
  vim.cmd("normal! m'")
  vim.cmd.buffer({ closed.load(file.path), mods = { hide = true } })
  local lnum = math.min(file.lnum, api.nvim_buf_line_count(0))
  api.nvim_win_set_cursor(0, { lnum, 0 })
  vim.cmd('normal! ^zv')
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
    local file = closed_beside(hunk, buf, direction)
    if file then
      go_to_file(file)
      return
    elseif not hunk then
      tell(NOTHING .. '.')
      return
    end
    M.go_to(hunk)
  end
end

--- The entry under the cursor of a quickfix list is opened. Neovim's own <CR> takes no window that shows a proposal: it would split
--- one off for each entry.
local function open_entry()
  local lnum = vim.fn.line('.')
  local list = vim.fn.getqflist({ context = 0, items = 0 })
  local name = list.context == CONTEXT and api.nvim_buf_get_name(list.items[lnum].bufnr) or ''
  local win = name ~= '' and files.code_window(vim.uv.fs_realpath(name) or name)
  if win then
    api.nvim_set_current_win(win)
    vim.cmd(('hide cc %d'):format(lnum))
  else
    vim.cmd.normal({ '\r', bang = true })
  end
end

--- A change in a line of a list.
---@param added integer lines
---@param removed integer
---@param line string the first one
---@return string
function M.summary(added, removed, line)
  return ('+%d %s%d  %s'):format(added, icons.minus, removed, vim.trim(line))
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
      text = M.summary(hunk.count, #hunk.old, first),
    }
  end, list)
  vim.list_extend(items, more or {})
  vim.fn.setqflist({}, ' ', { title = title, items = items, context = CONTEXT })
  vim.cmd(('botright copen %d'):format(math.min(#items, MAX_LIST_ROWS)))
  if vim.fn.maparg('<CR>', 'n') == '' then
    vim.keymap.set('n', '<CR>', open_entry, { buffer = true, desc = 'Agent: open the entry here' })
  end
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
