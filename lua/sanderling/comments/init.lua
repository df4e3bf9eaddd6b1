--- Review comments: made on lines in any buffer, kept until the user removes them, sent together as one prompt
--- (round.lua).
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local context = require('sanderling.prompt.context')
local lazy = require('sanderling.ui.lazy')
local files = require('sanderling.access.files')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local place = require('sanderling.comments.place')
local quickfix = require('sanderling.ui.quickfix')
local rounds = lazy('sanderling.comments.round')
local small = lazy('sanderling.prompt.small')
local store = require('sanderling.comments.store')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local LIST_TITLE = 'Agent: comments'

---@param project string
---@return sanderling.comments.Comment[]
local function of(project)
  local list, changed, gone = store.of(project)
  vim.iter(gone):each(place.hide)
  vim.iter(changed):each(place.draw)
  place.fill_all()
  return list
end

--- Return the comment on exactly these lines; without a range, the innermost at the cursor.
---@param buf integer
---@param range? [integer, integer]
---@return sanderling.comments.Comment?
local function at(buf, range)
  place.settle(buf)
  local lnum, found = api.nvim_win_get_cursor(0)[1], nil ---@type integer, sanderling.comments.Comment?
  for _, comment in ipairs(place.list(buf)) do
    local first, last = comment.first, comment.last
    if range and first == range[1] and last == range[2] then
      found = comment
    elseif not range and first <= lnum and lnum <= last then
      found = comment -- the innermost begins last
    end
  end
  return found
end

--- Return the lines that a new comment is about: the range, else the agent's change at the cursor, else the line.
---@param buf integer
---@param range? [integer, integer]
---@return [integer, integer]
local function meant(buf, range)
  if range then
    return range
  end
  local lnum = api.nvim_win_get_cursor(0)[1]
  local hunks = package.loaded['sanderling.review.hunks']
  local hunk = hunks and hunks.at(buf, lnum - 1)
  if hunk and hunk.count > 0 then
    return { hunk.row + 1, hunk.row + hunk.count }
  end
  local walk = package.loaded['sanderling.review.walk']
  return walk and walk.lines_at(buf, lnum) or { lnum, lnum }
end

---@param comment sanderling.comments.Comment
---@param text string
local function set_text(comment, text)
  place.change(comment, {
    text = text,
    state = 'open',
    number = vim.NIL,
    claim = vim.NIL,
    is_changed = vim.NIL,
    is_finding = vim.NIL,
  })
end

---@param fields table of a comment
---@return sanderling.comments.Comment
local function add(fields)
  local comment, is_written = store.add(fields)
  if not is_written then
    message.tell(
      'The comment could not be saved, so it is lost with this Neovim.',
      vim.log.levels.WARN
    )
  end
  return comment
end

---@param comment sanderling.comments.Comment
local function remove(comment)
  place.hide(comment)
  store.remove(comment)
end

--- Return the name of a buffer in the prompt.
---@param buf integer
---@param project string
---@return string
local function name_of(buf, project)
  if live.of_buffer(buf) then
    return store.MESSAGE
  end
  return vim.b[buf].sanderling_shown_as or context.path_of(buf, project)
end

---@param text string
---@param buf integer
---@param lines [integer, integer]
local function make(text, buf, lines)
  local project = stored.project_here()
  local first, last = unpack(lines)
  of(project)
  local comment = add({
    project = project,
    path = place.path_of(buf),
    name = name_of(buf, project),
    first = first,
    last = last,
    lines = place.excerpt(buf, first, last),
    text = text,
  })
  place.show(comment, buf, true)
end

---@param list sanderling.comments.Comment[]
---@return vim.quickfix.entry[]
local function items_of(list)
  return vim.tbl_map(function(comment)
    local buf = place.buffer_of(comment)
    local outcome = place.outcome(comment)
    local text = words.first_line(comment.text)
      .. (outcome ~= '' and ('  [%s]'):format(outcome) or '')
    return {
      bufnr = buf,
      filename = not buf and comment.path ~= '' and comment.path or nil,
      lnum = comment.first,
      end_lnum = comment.last,
      text = text,
      type = comment.state == 'open' and 'I' or place.is_addressed(comment) and 'N' or 'W',
      user_data = comment.id,
    }
  end, list)
end

--- Return the comments of the list's entries at the cursor, or in a range, if the current window shows the list.
---@param range? [integer, integer]
---@return sanderling.comments.Comment[]? listed nil: it does not
local function listed(range)
  local list = vim.bo.buftype == 'quickfix'
    and vim.fn.getloclist(0, { filewinid = 0 }).filewinid == 0
    and vim.fn.getqflist({ title = 0, items = 0 })
  if not list or list.title ~= LIST_TITLE then
    return nil
  end
  local lnum = api.nvim_win_get_cursor(0)[1]
  local first, last = unpack(range or { lnum, lnum })
  local ids = {} ---@type table<string, true>
  for _, item in ipairs(vim.list_slice(list.items, first, last)) do
    ids[item.user_data] = true
  end
  return vim.tbl_filter(function(comment)
    return ids[comment.id] ~= nil
  end, of(stored.project_here()))
end

--- Update the list after a comment in it was changed or removed.
local function update_list()
  local list = vim.fn.getqflist({ title = 0, items = 0 })
  if list.title ~= LIST_TITLE then
    return
  end
  local known = {} ---@type table<string, true>
  for _, item in ipairs(list.items) do
    known[item.user_data] = true
  end
  local left = vim.tbl_filter(function(comment)
    return known[comment.id] ~= nil
  end, place.sorted(of(stored.project_here())))
  local view = vim.fn.winsaveview()
  vim.fn.setqflist({}, 'r', { title = LIST_TITLE, items = items_of(left) })
  vim.fn.winrestview(view)
end

--- Comment on lines of the current buffer: make a comment, or edit an existing one. In the list of comments, edit
--- the one of the entry. Without a text, ask for it.
---@param text string
---@param range? [integer, integer]
function M.comment(text, range)
  local buf = api.nvim_get_current_buf()
  local lines = meant(buf, range)
  of(stored.project_here())
  local in_list = listed(range)
  if in_list and #in_list == 0 then
    return message.tell('No comment here.', vim.log.levels.WARN)
  end
  local existing = in_list and in_list[1] or at(buf, range)
  local function set(typed)
    typed = words.trimmed(typed)
    if typed == '' then
      return
    elseif not existing then
      make(typed, buf, lines)
    elseif vim.list_contains(store.all(), existing) then
      set_text(existing, typed)
      update_list()
    end
  end
  if text ~= '' then
    set(text)
  else
    small.open({
      plain = 'comment',
      title = 'Comment',
      lines = existing and words.lines_of(existing.text),
      row = lines[2] - 1,
      on_send = function(typed)
        set(table.concat(typed, '\n'))
      end,
      on_leave = function() end,
    })
  end
end

--- Remove the comments at the cursor, or in a range; in the list of comments, the comments of the entries.
---@param range? [integer, integer]
function M.remove(range)
  local buf = api.nvim_get_current_buf()
  of(stored.project_here())
  place.settle(buf)
  local here = at(buf)
  local list = listed(range)
    or range and vim.tbl_filter(function(comment)
      return comment.first <= range[2] and comment.last >= range[1]
    end, place.list(buf))
    or { here }
  if #list == 0 then
    return message.tell('No comment here.', vim.log.levels.WARN)
  end
  vim.iter(list):each(remove)
  update_list()
end

--- Comment on each place that a review by the model has found.
---@param project string
---@param items vim.quickfix.entry[]
function M.add_findings(project, items)
  local known = {} ---@type table<string, true>
  for _, comment in ipairs(of(project)) do
    known[('%s:%d:%s'):format(comment.path, comment.first, comment.text)] = true
  end
  for _, item in ipairs(items) do
    local path = vim.uv.fs_realpath(item.filename) or item.filename
    local fields = {
      project = project,
      path = path,
      name = vim.fs.relpath(project, path) or path,
      first = item.lnum,
      last = math.max(item.end_lnum or item.lnum, item.lnum),
      text = item.text,
      is_finding = true,
    }
    local all = place.text_now(fields) or {}
    fields.last = math.min(fields.last, #all)
    local remembered = math.min(fields.last, fields.first + place.MAX_LINES - 1)
    fields.lines = vim.list_slice(all, fields.first, remembered)
    if #fields.lines > 0 and not known[('%s:%d:%s'):format(path, item.lnum, item.text)] then
      add(fields)
    end
  end
  place.fill_all()
end

-- the list ------------------------------------------------------------------------------------------------------------

--- Show all comments in the quickfix list.
function M.list()
  local list = place.sorted(of(stored.project_here()))
  if #list == 0 then
    return message.tell('No comments. :AgentComment makes one.')
  end
  quickfix.show(LIST_TITLE, items_of(list))
end

--- Go to the next comment that was not addressed, or with -1 to the previous one, across files.
---@param step 1|-1
function M.go(step)
  local project, buf = stored.project_here(), api.nvim_get_current_buf()
  local lnum = api.nvim_win_get_cursor(0)[1]
  local list = vim.tbl_filter(function(comment)
    local is_reachable = comment.path ~= '' or place.buffer_of(comment) ~= nil
    return not place.is_addressed(comment) and is_reachable
  end, place.sorted(of(project)))
  if #list == 0 then
    return message.tell('No open comment.', vim.log.levels.WARN)
  end
  local name = name_of(buf, project)
  local behind = #list + 1 -- the first one behind the cursor
  local before = 0 -- the last one before it
  for i, comment in ipairs(list) do
    local is_same = comment.name == name
    if comment.name > name or is_same and comment.first > lnum then
      behind = math.min(behind, i)
    elseif comment.name < name or is_same and comment.first < lnum then
      before = i
    end
  end
  local index = step > 0 and behind + vim.v.count1 - 1 or before - vim.v.count1 + 1
  local comment = list[(index - 1) % #list + 1]
  local there = place.buffer_of(comment)
  if there ~= buf and comment.path ~= '' then
    return files.open({ path = comment.path, lnum = comment.first })
  end
  local win = there == buf and 0 or vim.fn.bufwinid(assert(there))
  if win == -1 then
    local text = ('%s is not shown.'):format(words.plain(comment.name))
    return message.tell(text, vim.log.levels.WARN)
  end
  api.nvim_set_current_win(win)
  vim.cmd("normal! m'")
  api.nvim_win_set_cursor(0, { comment.first, 0 })
  vim.cmd.normal({ 'zv', bang = true })
end

--- Remove the comments whose lines the model has changed.
function M.clear()
  local done = vim.tbl_filter(place.is_addressed, of(stored.project_here()))
  if #done == 0 then
    return message.tell(
      'No comment was addressed yet. :AgentComment! removes the one at the cursor.'
    )
  end
  vim.iter(done):each(remove)
  update_list()
  message.tell(words.counted(#done, 'comment') .. ' removed.')
end

function M.send()
  local project = stored.project_here()
  of(project)
  rounds.send(project)
end

place.set_actions({
  comment_edit = function()
    M.comment('')
  end,
  next_comment = function()
    M.go(1)
  end,
  previous_comment = function()
    M.go(-1)
  end,
})

api.nvim_create_autocmd({ 'BufFilePost', 'BufWritePost' }, {
  group = api.nvim_create_augroup('sanderling_comments_names', {}),
  desc = 'Agent: keep the comments of a buffer that gets another name',
  callback = function(args)
    local path = place.path_of(args.buf)
    for _, comment in ipairs(path ~= '' and place.list(args.buf) or {}) do
      if comment.path ~= path then
        place.change(comment, { path = path, name = name_of(args.buf, comment.project) })
      end
    end
  end,
})

bus.subscribe('session_opened', function(session_id)
  local session = live.find(session_id)
  if session then
    of(session.project)
  end
end)

return M
