--- Commands for hunks: go to them, accept them, reject them, list them.
local M = {}

local api = vim.api
local closed_files = require('sanderling.review.closed_files')
local disk = require('sanderling.editing.disk')
local draw = require('sanderling.review.draw')
local files = require('sanderling.access.files')
local find = require('sanderling.editing.find')
local hunks = require('sanderling.review.hunks')
local keys = require('sanderling.ui.keys')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local reviews = require('sanderling.editing.reviews')
local saving = require('sanderling.editing.saving')
local quickfix = require('sanderling.ui.quickfix')
local words = require('sanderling.ui.words')

M.SCOPES = { 'hunk', 'file', 'turn', 'all' }

local CONTEXT = 'sanderling' -- marks our quickfix lists
local MAX_PROBLEMS = 3 -- shown in one message

local NOTHING = 'No change to review'

---@param text string
local function tell(text)
  message.tell(text, vim.log.levels.WARN)
end

--- Return all hunks. Unloaded files with hunks are loaded first.
---@return sanderling.review.Hunk[]
---@return table<string, string> problems by file name: why it cannot be loaded
local function all()
  local list, problems = {}, {}
  for name in pairs(hunks.unloaded()) do
    problems[name] = select(2, loading.load(name))
  end
  for _, buf in ipairs(hunks.buffers()) do
    vim.list_extend(list, hunks.list(buf))
  end
  return list, problems
end

---@param buf integer
---@return sanderling.review.Hunk?
local function hunk_here(buf)
  return hunks.at(buf, api.nvim_win_get_cursor(0)[1] - 1)
end

---@return boolean
function M.is_at_cursor()
  return hunk_here(api.nvim_get_current_buf()) ~= nil
end

---@alias sanderling.review.commands.IsMeant fun(change: { source: sanderling.review.Source }): boolean

--- Return a filter for the changes of one turn: the turn of the hunk at the cursor, else the latest turn with
--- unreviewed changes.
---@return sanderling.review.commands.IsMeant
local function of_turn()
  local last = hunk_here(api.nvim_get_current_buf())
  if not last then
    for _, hunk in ipairs(all()) do
      last = (not last or hunk.id > last.id) and hunk or last
    end
  end
  local source = last and last.source or closed_files.last_source()
  return function(change)
    local is_same = source and change.source.turn == source.turn
    return is_same and change.source.session_id == source.session_id or false
  end
end

--- Return the filter of a scope that spans files, nil for other scopes.
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

--- Return `count` hunks of the buffer, starting with the one at the cursor.
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

--- Return a hint on where other changes are: the end of a sentence, empty if there are none.
---@param buf integer
---@return string
local function way_on(buf)
  local key = #hunks.list(buf) > 0 and keys.name_in(buf, 'next_hunk')
  if key then
    return (': %s goes to the next'):format(key)
  end
  return hunks.counts() > 0 and ': see :Agent reviews' or ''
end

--- Return the hunks that a command applies to. If there are none, say so.
---@param scope string
---@param is_meant? sanderling.review.commands.IsMeant
---@param range? [integer, integer] lines; overrides the hunk at the cursor
---@param count? integer the hunk at the cursor and those after it
---@return sanderling.review.Hunk[]
---@return string[] problems sentences: why some hunks are missing
local function meant(scope, is_meant, range, count)
  local buf = api.nvim_get_current_buf()
  local list, where
  local problems = {} ---@type table<string, string>
  if is_meant then
    list, problems = all()
    list, where = vim.tbl_filter(is_meant, list), ''
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
  local has_others = next(problems) or is_meant and closed_files.counts(is_meant) > 0
  if #list == 0 and not has_others then
    tell(NOTHING .. where .. (is_meant and '' or way_on(buf)) .. '.')
  end
  return list, vim.tbl_values(problems)
end

---@param scope string
---@return string
local function checked(scope)
  if scope ~= '' and not vim.list_contains(M.SCOPES, scope) then
    error(('scope: expected %s, got %s'):format(table.concat(M.SCOPES, ', '), scope), 0)
  end
  return scope ~= '' and scope or 'hunk'
end

--- Remove decided hunks from our quickfix list, if that is the current one.
local function update_list()
  local shown = vim.fn.getqflist({ context = 0, items = 0, idx = 0 })
  if shown.context ~= CONTEXT then
    return
  end
  local is_open = {} ---@type table<integer, true>
  for _, buf in ipairs(hunks.buffers()) do
    for _, hunk in ipairs(hunks.list(buf)) do
      is_open[hunk.id] = true
    end
  end
  local items = vim.tbl_filter(function(item)
    return type(item.user_data) ~= 'number' or is_open[item.user_data]
  end, shown.items)
  if #items < #shown.items then
    vim.fn.setqflist({}, 'r', { items = items, idx = math.max(1, math.min(shown.idx, #items)) })
  end
end

---@param done string
---@param count integer of changes
---@param problems? string[] sentences: why other changes were not decided
local function report(done, count, problems)
  update_list()
  local left, said = hunks.counts(), {}
  if count > 1 or count == 1 and left == 0 then
    local rest = left > 0 and ('; %d left'):format(left) or ''
    said[1] = ('%s %s%s.'):format(done, words.counted(count, 'change'), rest)
  end
  local level = #(problems or {}) > 0 and vim.log.levels.WARN or nil
  vim.list_extend(said, problems or {}, 1, MAX_PROBLEMS)
  if #(problems or {}) > MAX_PROBLEMS then
    said[#said + 1] = ('And %d more problems.'):format(#problems - MAX_PROBLEMS)
  end
  if #said > 0 then
    message.tell(table.concat(said, ' '), level)
  end
end

--- Accept the agent's changes.
---@param scope string one of `SCOPES`; empty: the hunk at the cursor
---@param range? [integer, integer]
---@param count? integer
function M.accept(scope, range, count)
  scope = checked(scope)
  local is_meant = anywhere(scope)
  local list, problems = meant(scope, is_meant, range, count)
  hunks.accept(list)
  for buf in pairs(hunks.by_buffer(list)) do
    if #vim.fn.win_findbuf(buf) > 0 then -- other buffers are opened when the user goes there
      loading.open(buf)
    end
  end
  report('Accepted', #list + (is_meant and closed_files.accept(is_meant) or 0), problems)
end

--- Return a sentence that says why hunks of the buffer cannot be rejected, or nil.
---@param buf integer
---@param is_written boolean
---@return string?
local function obstacle(buf, is_written)
  local name, bo = disk.shown_name(buf), vim.bo[buf]
  if not bo.modifiable then
    return ("%s is locked in Neovim ('nomodifiable')."):format(name)
  elseif is_written and bo.readonly then
    return ("%s is locked in Neovim ('readonly')."):format(name)
  elseif is_written and disk.left_alone(buf) then
    return ('%s was not changed: %s.'):format(name, disk.left_alone(buf))
  end
end

--- Write the buffer to its file. Remove the file if the agent created it and the buffer is empty now.
---@param buf integer
---@param made_file boolean
---@return string? problem
local function write(buf, made_file)
  if made_file and find.is_empty(buf) and #hunks.list(buf) == 0 then
    return saving.remove(buf)
  end
  return reviews.now.writing(buf, function()
    return saving.write(buf)
  end)
end

--- Reject hunks of one buffer, and write the file unless it had unsaved changes. A file that changed on disk is read
--- first, so that those changes are kept.
---@param buf integer
---@param list sanderling.review.Hunk[]
---@param reason string
---@return integer count of rejected hunks
---@return string? problem
local function reject_in(buf, list, reason)
  local is_written = not vim.bo[buf].modified
    and vim.iter(list):any(function(hunk)
      return not hunk.source.is_proposed
    end)
  if is_written and not vim.b[buf].sanderling_proposed then
    disk.refresh(buf)
  end
  local problem = obstacle(buf, is_written)
  if problem then
    return 0, problem
  end
  list = hunks.by_buffer(list)[buf] or {}
  local made_file = vim.iter(list):any(function(hunk)
    return hunk.made_file or false
  end)
  draw.keeping_views(buf, function()
    hunks.reject(list, reason)
  end)
  return #list, is_written and #list > 0 and write(buf, made_file) or nil
end

--- Reject hunks: restore the lines they replaced. An error in one file does not affect the others.
---@param list sanderling.review.Hunk[]
---@param reason string
---@return integer count of rejected hunks
---@return string[] problems sentences
local function reject_hunks(list, reason)
  local count, problems = 0, {}
  for buf, of_buf in vim.spairs(hunks.by_buffer(list)) do
    local ok, done, problem = pcall(reject_in, buf, of_buf, reason)
    count = count + (ok and done or 0)
    problems[#problems + 1] = ok and problem or not ok and tostring(done) or nil
  end
  return count, problems
end

--- Reject the agent's changes.
---@param args string an optional scope, then the reason sent to the model
---@param range? [integer, integer]
---@param count? integer
function M.reject(args, range, count)
  local first, rest = args:match('^(%S*)%s*(.*)$')
  local is_scope = vim.list_contains(M.SCOPES, first)
  local scope = is_scope and first or 'hunk'
  local is_meant = anywhere(scope)
  local function reject(problems)
    local list, missing = meant(scope, is_meant, range, count)
    local done, more = reject_hunks(list, vim.trim(is_scope and rest or args))
    report('Rejected', done, vim.list_extend(vim.list_extend(problems, missing), more))
  end
  if is_meant then
    closed_files.open(is_meant, reject)
  else
    reject({})
  end
end

--- Reject the hunk at the cursor and those after it, with a reason that the user is asked for.
---@param count integer
function M.reject_because(count)
  if #from_here(api.nvim_get_current_buf(), count) == 0 then
    M.reject('hunk', nil, count) -- says that there is none
    return
  end
  message.ask({ prompt = 'Reject, because: ' }, function(reason)
    if reason then
      M.reject('hunk ' .. reason, nil, count)
    end
  end)
end

-- navigation ----------------------------------------------------------------------------------------------------------

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

--- Scroll the lines that the hunk removed into view if they are just above the window.
---@param hunk sanderling.review.Hunk
local function show_removed(hunk)
  local view = vim.fn.winsaveview()
  if view.topline == hunk.row + 1 and #hunk.old > 0 then
    view.topfill = math.min(#hunk.old, api.nvim_win_get_height(0) - 1)
    vim.fn.winrestview(view)
  end
end

--- Leave a window that shows no files, such as the chat's, for the one that would show `name`.
---@param name string
local function enter_code_window(name)
  if not files.is_code_window(api.nvim_get_current_win()) then
    local win = files.code_window(vim.uv.fs_realpath(name) or name)
    if win then
      api.nvim_set_current_win(win)
    end
  end
end

---@param hunk sanderling.review.Hunk
function M.go_to(hunk)
  enter_code_window(api.nvim_buf_get_name(hunk.buf))
  vim.cmd("normal! m'")
  loading.enter(hunk.buf)
  local lnum = math.min(hunk.row + 1, api.nvim_buf_line_count(hunk.buf))
  api.nvim_win_set_cursor(0, { lnum, 0 })
  vim.cmd('normal! ^zv')
  show_removed(hunk)
end

--- Return the changed file to visit next, if it was not open when it was changed. Such files come after all buffers.
---@param hunk? sanderling.review.Hunk the next one in a buffer
---@param buf integer
---@param direction -1|1
---@return { path: string, lnum: integer }?
local function closed_beside(hunk, buf, direction)
  local is_wrapped = not hunk or direction > 0 and hunk.buf < buf
  return is_wrapped and closed_files.list()[1] or nil
end

---@param file { path: string, lnum: integer }
local function go_to_file(file)
  local buf, problem = loading.load(file.path, true)
  if not buf then
    return tell(assert(problem))
  end
  enter_code_window(file.path)
  vim.cmd("normal! m'")
  loading.enter(buf)
  local lnum = math.min(file.lnum, api.nvim_buf_line_count(0))
  api.nvim_win_set_cursor(0, { lnum, 0 })
  vim.cmd('normal! ^zv')
end

--- Go to the next or previous hunk. It continues in the next file, and after the last file in the first.
---@param direction -1|1
function M.go(direction)
  for _ = 1, vim.v.count1 do
    local buf, row = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)[1] - 1
    local hunk = beside(hunks.list(buf), row, direction)
    local problems = {}
    if not hunk then
      local list
      list, problems = all()
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
      tell(select(2, next(problems)) or NOTHING .. '.')
      return
    end
    M.go_to(hunk)
  end
end

--- Open the quickfix entry under the cursor.
---
--- Neovim's own <CR> does not reuse a window that shows a proposal: it would split one off for each entry. `:cc` would
--- ask about a swap file and block on a named pipe, so the file is loaded first.
local function open_entry()
  local lnum = vim.fn.line('.')
  local list = vim.fn.getqflist({ context = 0, items = 0 })
  local name = list.context == CONTEXT and api.nvim_buf_get_name(list.items[lnum].bufnr) or ''
  local win = name ~= '' and files.code_window(vim.uv.fs_realpath(name) or name)
  local _, problem
  if name ~= '' then
    _, problem = loading.load(name)
  end
  local ok, err = true, nil
  if problem then
    tell(problem)
  elseif win then
    api.nvim_set_current_win(win)
    ok, err = pcall(vim.cmd --[[@as fun(cmd: string)]], ('hide cc %d'):format(lnum))
  else
    ok, err = pcall(vim.cmd.normal, { '\r', bang = true })
  end
  if not ok then
    tell(message.without_place(err))
  end
end

---@param added integer lines
---@param removed integer
---@param line string the first line
---@return string
function M.summary(added, removed, line)
  return words.counts(added, removed) .. '  ' .. words.first_line(words.trimmed(line))
end

--- Show hunks and other entries in the quickfix list.
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
      user_data = hunk.id,
    }
  end, list)
  vim.list_extend(items, more or {})
  quickfix.show(title, items, CONTEXT)
  if vim.fn.maparg('<CR>', 'n') == '' then
    vim.keymap.set('n', '<CR>', open_entry, { buffer = true, desc = 'Agent: open this entry' })
  end
end

function M.show_all()
  local list, problems = all()
  local more = closed_files.entries()
  for name, problem in vim.spairs(problems) do
    more[#more + 1] = { filename = name, text = problem }
  end
  if #list + #more == 0 then
    tell(NOTHING .. '.')
    return
  end
  M.show_list("The agent's unreviewed changes", list, more)
end

return M
