--- Comments in their buffers: extmarks follow the lines, and a sign and lines below show the comment. Where a mark is
--- lost (`:e`, a formatter that replaces everything), the lines are found again by their content.
local M = {}

local api = vim.api
local anchor = require('sanderling.comments.anchor')
local icons = require('sanderling.ui.icons')
local keys = require('sanderling.ui.keys')
local store = require('sanderling.comments.store')
local time = require('sanderling.ui.time')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_comments')
local shown_ns = api.nvim_create_namespace('sanderling_comments_shown')
local SAVE_MS = 300 -- after the last change of the text
local MAX_ROWS = 6 -- of a comment on the screen, and of what became of it
local MAX_LINE_BYTES = 2000 -- of a line of it
local SIGN_CELLS = 2
M.MAX_LINES = 200 -- that are remembered of the text

---@class (exact) sanderling.comments.place.Place
---@field buf integer
---@field mark integer follows the lines
---@field sign? integer mark
---@field below? integer mark
---@field is_lost? boolean its lines are not in the text

---@type table<string, sanderling.comments.place.Place> by comment id
local places = {}

---@class (exact) sanderling.comments.place.Known where a comment was
---@field first integer
---@field last integer
---@field lines string[]

---@class (exact) sanderling.comments.place.Watched
---@field width? integer for which the comments were drawn
---@field nr integer the change of the undo tree that was last seen
---@field max_nr integer
---@field states table<integer, table<string, sanderling.comments.place.Known>> by change and comment id: marks do not always return with undo

---@type table<integer, sanderling.comments.place.Watched> by buffer
local watched = {}
---@type table<integer, true> buffers whose text has changed
local is_due = {}
---@type table<string, sanderling.comments.Comment> moved, not written yet
local unsaved = {}
---@type table<string, fun()> of the keys in a buffer with comments, by option
local actions = {}

--- Set what the keys in a buffer with comments do.
---@param by_option table<string, fun()>
function M.set_actions(by_option)
  actions = by_option
end

--- Return the path of a buffer's file; empty: it has none.
---@param buf integer
---@return string
function M.path_of(buf)
  local name = api.nvim_buf_get_name(buf)
  local has_file = name ~= '' and vim.bo[buf].buftype == ''
  if not has_file then
    return ''
  end
  local dir = vim.uv.fs_realpath(vim.fs.dirname(name)) -- the file may not be written yet
  return vim.uv.fs_realpath(name) or dir and vim.fs.joinpath(dir, vim.fs.basename(name)) or name
end

---@param comment sanderling.comments.Comment
---@return integer? buf that shows it
function M.buffer_of(comment)
  local place = places[comment.id]
  return place and api.nvim_buf_is_loaded(place.buf) and place.buf or nil
end

---@param buf integer
---@return sanderling.comments.Comment[] in the order of their lines
function M.list(buf)
  local list = vim.tbl_filter(function(comment)
    return M.buffer_of(comment) == buf
  end, store.all())
  table.sort(list, function(a, b)
    return a.first < b.first or a.first == b.first and a.id < b.id
  end)
  return list
end

-- drawing -------------------------------------------------------------------------------------------------------------

--- Did the turn change the lines of a comment? What has no file, such as a plan, cannot change: an answer is enough.
---@param comment sanderling.comments.Comment
---@return boolean
function M.is_addressed(comment)
  if comment.path == '' then
    return comment.state == 'answered' and comment.claim ~= nil
  end
  return comment.is_changed == true
end

--- Return what became of a comment, empty for one that was not sent.
---@param comment sanderling.comments.Comment
---@return string
function M.outcome(comment)
  if comment.state == 'sent' then
    return 'sent'
  elseif comment.state ~= 'answered' then
    return ''
  end
  if comment.path == '' then
    return comment.claim and ('%s model: %s'):format(icons.passed, words.first_line(comment.claim))
      or icons.failed .. ' no answer'
  end
  local changed = comment.is_changed and icons.passed .. ' changed'
    or icons.failed .. ' not changed'
  local claim = comment.claim and words.first_line(comment.claim) or 'no answer'
  return changed .. icons.separator .. 'model: ' .. claim
end

--- Return how many cells a window has for lines below the text. The sign column that the first comment of a buffer opens
--- counts already, though Neovim opens it only when it draws the window.
---@param win integer
---@return integer
local function cells_below(win)
  local has_numbers = vim.wo[win].number or vim.wo[win].relativenumber
  local digits = #tostring(api.nvim_buf_line_count(api.nvim_win_get_buf(win)))
  local numbers = has_numbers and math.max(vim.wo[win].numberwidth, digits + 1) or 0
  local is_open = vim.fn.getwininfo(win)[1].textoff >= numbers + SIGN_CELLS
  local opens = vim.startswith(vim.wo[win].signcolumn, 'auto') and not is_open
  return words.cells_in(win) - (opens and SIGN_CELLS or 0)
end

--- Return the width for the comments of a buffer: that of its narrowest window in this tab page.
---@param buf integer
---@return integer
local function width_of(buf)
  local width ---@type integer?
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    if api.nvim_win_get_buf(win) == buf then
      width = math.min(width or math.huge, cells_below(win))
    end
  end
  return width or vim.o.columns - SIGN_CELLS
end

--- Return `lines` in rows of at most `width` cells, and no more than MAX_ROWS.
---@param lines string[]
---@param width integer
---@return string[]
local function rows_of(lines, width)
  local rows = {} ---@type string[]
  for _, line in ipairs(lines) do
    local filled = words.filled(words.plain(line:sub(1, MAX_LINE_BYTES)), width)
    vim.list_extend(rows, #filled > 0 and filled or { '' })
    if #rows > MAX_ROWS then
      rows = vim.list_slice(rows, 1, MAX_ROWS)
      local more = ' ' .. icons.more
      local room = math.max(0, width - api.nvim_strwidth(more))
      rows[MAX_ROWS] = vim.fn.printf('%.*S', room, rows[MAX_ROWS]) .. more
      break
    end
  end
  return rows
end

---@param comment sanderling.comments.Comment
---@param width integer
---@param is_lost? boolean
---@return [string, string][][]
local function lines_below(comment, width, is_lost)
  local rows = {} ---@type [string, string][][]
  local quote = icons.quote .. ' '
  local function add(lines, hl)
    for _, row in ipairs(rows_of(lines, width - api.nvim_strwidth(quote))) do
      rows[#rows + 1] = { { quote .. row, hl } }
    end
  end
  local number = comment.number and ('%d. '):format(comment.number) or ''
  add(words.lines_of(number .. comment.text), 'AgentComment')
  if is_lost then
    add({ 'These lines are no longer in the text.' }, 'AgentWarning')
  end
  local outcome = M.outcome(comment)
  if outcome ~= '' then
    add({ outcome }, M.is_addressed(comment) and 'AgentCommentDone' or 'AgentStatus')
  end
  return rows
end

---@param comment sanderling.comments.Comment
local function draw(comment)
  local place = places[comment.id]
  local buf = place.buf
  local count = api.nvim_buf_line_count(buf)
  local first, last = math.min(comment.first, count), math.min(comment.last, count)
  -- Not a sign of the mark that follows the lines: that ends on the next line, which would have a sign, too.
  place.sign = api.nvim_buf_set_extmark(buf, shown_ns, first - 1, 0, {
    id = place.sign,
    end_row = last - 1,
    sign_text = icons.comment,
    sign_hl_group = 'AgentComment',
    undo_restore = false,
    strict = false,
  })
  place.below = api.nvim_buf_set_extmark(buf, shown_ns, last - 1, 0, {
    id = place.below,
    virt_lines = lines_below(comment, width_of(buf), place.is_lost),
    undo_restore = false,
    strict = false,
  })
end

--- Draw the comments of a buffer again, if its window has another width now.
---@param buf integer
local function redraw(buf)
  local self = watched[buf]
  local width = self and width_of(buf)
  if self and self.width ~= width then
    self.width = width
    vim.iter(M.list(buf)):each(draw)
  end
end

-- following the text --------------------------------------------------------------------------------------------------

---@param buf integer
---@return string[]
local function text_of(buf)
  return api.nvim_buf_get_lines(buf, 0, -1, false)
end

--- Mark the lines of a comment.
---@param comment sanderling.comments.Comment
local function set_mark(comment)
  local place = places[comment.id]
  local count = api.nvim_buf_line_count(place.buf)
  local first = math.max(1, math.min(comment.first, count))
  local last = math.max(first, math.min(comment.last, count))
  place.mark = api.nvim_buf_set_extmark(place.buf, ns, first - 1, 0, {
    id = place.mark ~= 0 and place.mark or nil,
    end_row = last, -- the beginning of the next line: what is inserted there is outside
    end_col = 0,
    end_right_gravity = false,
    invalidate = true,
    strict = false,
  })
end

--- Return the lines that the mark of a comment covers.
---@param place sanderling.comments.place.Place
---@return integer? first nil: it covers none
---@return integer last
local function covered(place)
  local row, _, details =
    unpack(api.nvim_buf_get_extmark_by_id(place.buf, ns, place.mark, { details = true }))
  if not row or details.invalid then
    return nil, 0
  end
  local count = api.nvim_buf_line_count(place.buf)
  local end_row = details.end_col == 0 and details.end_row or details.end_row + 1
  if end_row <= row or row >= count then
    return nil, 0
  end
  return row + 1, math.min(end_row, count)
end

--- Find the lines of a comment by their content and mark them; if they are gone, where they were.
---@param comment sanderling.comments.Comment
---@param lines string[]
local function find(comment, lines)
  local place = places[comment.id]
  local first, last = anchor.find(lines, comment.lines, comment.first)
  place.is_lost = first == nil
  if first then
    comment.first, comment.last = first, last
  else
    local size = comment.last - comment.first
    comment.first = math.max(1, math.min(comment.first, #lines))
    comment.last = math.min(comment.first + size, #lines)
  end
  set_mark(comment)
end

---@param buf integer
---@param first integer
---@param last integer
---@return string[] lines that are remembered of them
function M.excerpt(buf, first, last)
  return api.nvim_buf_get_lines(buf, first - 1, math.min(last, first - 1 + M.MAX_LINES), false)
end

---@param comment sanderling.comments.Comment
---@return boolean its sign and the lines below it are where it is
local function is_shown_at(comment)
  local place, opts = places[comment.id], { details = true }
  local sign = api.nvim_buf_get_extmark_by_id(place.buf, shown_ns, place.sign or 0, opts)
  local below = api.nvim_buf_get_extmark_by_id(place.buf, shown_ns, place.below or 0, {})
  local first, last = comment.first - 1, comment.last - 1
  return below[1] == last and sign[1] == first and sign[3].end_row == last
end

--- Update a comment after a change of the text.
---@param comment sanderling.comments.Comment
---@param read fun(): string[] the text
---@param is_again boolean undo or redo has returned to this text
---@param known? sanderling.comments.place.Known
local function follow(comment, read, is_again, known)
  local place = places[comment.id]
  local first, last = covered(place)
  local before = { comment.first, comment.last, comment.lines }
  local was_lost = place.is_lost
  if known and vim.deep_equal(known.lines, M.excerpt(place.buf, known.first, known.last)) then
    comment.first, comment.last, comment.lines = known.first, known.last, known.lines
    place.is_lost = false
    set_mark(comment)
  elseif first and not (place.is_lost or is_again) then
    comment.first, comment.last = first, last
    comment.lines = M.excerpt(place.buf, first, last)
  else
    find(comment, read())
  end
  local has_changed = not vim.deep_equal(before, { comment.first, comment.last, comment.lines })
  if has_changed then
    unsaved[comment.id] = comment
  end
  if has_changed or place.is_lost ~= was_lost or not is_shown_at(comment) then
    draw(comment)
  end
end

--- Remember where the comments of a buffer are, for when undo or redo returns to this text.
---@param buf integer
local function remember(buf)
  local self, state = watched[buf], {}
  for _, comment in ipairs(M.list(buf)) do
    state[comment.id] = not places[comment.id].is_lost
        and { first = comment.first, last = comment.last, lines = comment.lines }
      or nil
  end
  self.states[self.nr] = state
end

---@param buf integer
---@return integer nr of the change
local function change_of(buf)
  return api.nvim_buf_call(buf, vim.fn.changenr)
end

function M.save_moved()
  for id, comment in pairs(unsaved) do
    unsaved[id] = nil
    store.save_place(comment)
  end
end

local save_soon = time.after_pause(SAVE_MS, M.save_moved)

---@param buf integer
local function update(buf)
  is_due[buf] = nil
  if not (watched[buf] and api.nvim_buf_is_loaded(buf)) then
    return
  end
  local self, nr, lines = watched[buf], change_of(buf), nil ---@type any, integer, string[]?
  local is_again = nr < self.max_nr or nr ~= self.nr and nr == self.max_nr
  local known = self.states[nr] or {} ---@type table<string, sanderling.comments.place.Known>
  self.nr, self.max_nr = nr, math.max(nr, self.max_nr)
  for _, comment in ipairs(M.list(buf)) do
    follow(comment, function()
      lines = lines or text_of(buf)
      return lines
    end, is_again, known[comment.id])
  end
  remember(buf)
  if next(unsaved) then
    save_soon(buf)
  end
end

--- Update the comments of a buffer now, if its text has changed.
---@param buf integer
function M.settle(buf)
  if is_due[buf] then
    update(buf)
  end
end

---@param buf integer
local function update_soon(buf)
  if not is_due[buf] then
    is_due[buf] = true
    vim.schedule(function()
      M.settle(buf)
    end)
  end
end

---@param buf integer
local function forget(buf)
  watched[buf] = nil
  for id, place in pairs(places) do
    if place.buf == buf then
      places[id] = nil
    end
  end
end

---@param buf integer
local function watch(buf)
  if watched[buf] then
    return
  end
  for _, each in ipairs({ ns, shown_ns }) do -- marks that outlived `:e`
    api.nvim_buf_clear_namespace(buf, each, 0, -1)
  end
  local nr = change_of(buf)
  watched[buf] = { nr = nr, max_nr = nr, states = {} }
  api.nvim_buf_attach(buf, false, {
    on_lines = function()
      if not watched[buf] then
        return true
      end
      update_soon(buf)
    end,
    on_reload = function()
      update_soon(buf)
    end,
    on_detach = function()
      forget(buf)
    end,
  })
end

---@param buf integer
function M.update_keys(buf)
  keys.keep(buf, 'comment', function()
    return #M.list(buf) > 0
  end, actions)
  local of_hunks = #M.list(buf) == 0 and package.loaded['sanderling.review.keys']
  if of_hunks then -- one of them is the same key, and was removed
    keys.renew(buf, 'file')
    of_hunks.update(buf)
  end
end

--- Show a comment in a buffer: where its lines are now, or where it was just made.
---@param comment sanderling.comments.Comment
---@param buf integer loaded
---@param is_new? boolean its lines are the buffer's
function M.show(comment, buf, is_new)
  places[comment.id] = { buf = buf, mark = 0 }
  watch(buf)
  if is_new then
    set_mark(comment)
  else
    find(comment, text_of(buf))
  end
  draw(comment)
  remember(buf)
  M.update_keys(buf)
end

--- Draw a comment again after a change of its fields.
---@param comment sanderling.comments.Comment
function M.draw(comment)
  if M.buffer_of(comment) then
    draw(comment)
  end
end

--- Change fields of a comment: save it, and show it so.
---@param comment sanderling.comments.Comment
---@param fields table<string, any> vim.NIL removes one
function M.change(comment, fields)
  for name, value in pairs(fields) do
    comment[name] = value ~= vim.NIL and value or nil
  end
  store.save(comment)
  M.draw(comment)
end

---@param comment sanderling.comments.Comment
function M.hide(comment)
  local place, buf = places[comment.id], M.buffer_of(comment)
  places[comment.id], unsaved[comment.id] = nil, nil
  if place and buf then
    api.nvim_buf_del_extmark(buf, ns, place.mark)
    api.nvim_buf_del_extmark(buf, shown_ns, place.sign or 0)
    api.nvim_buf_del_extmark(buf, shown_ns, place.below or 0)
    M.update_keys(buf)
  end
end

--- Show the comments on a buffer's file that are not on the screen yet.
---@param buf integer
function M.fill(buf)
  local path = api.nvim_buf_is_loaded(buf) and M.path_of(buf) or ''
  for _, comment in ipairs(path ~= '' and store.all() or {}) do
    if comment.path == path and not M.buffer_of(comment) then
      M.show(comment, buf)
    end
  end
end

--- Show the comments that were read in all buffers.
function M.fill_all()
  if #store.all() > 0 then
    vim.iter(api.nvim_list_bufs()):each(M.fill)
  end
end

--- Return the current text of the file of a comment.
---@param comment sanderling.comments.Comment
---@return string[]? lines nil: there is none
function M.text_now(comment)
  local buf = M.buffer_of(comment)
  if buf then
    M.settle(buf)
    return text_of(buf)
  end
  local stat = comment.path ~= '' and vim.uv.fs_stat(comment.path)
  local is_file = stat and stat.type == 'file' and stat.size <= 16 * 1024 * 1024
  local ok, lines = pcall(vim.fn.readfile, is_file and comment.path or '')
  return is_file
      and ok
      and vim.tbl_map(function(line)
        return (line:gsub('\r$', ''))
      end, lines)
    or nil
end

--- Find the lines of comments whose files are not open.
---@param list sanderling.comments.Comment[]
local function refresh(list)
  local texts = {} ---@type table<string, string[]|false> by path
  for _, comment in ipairs(list) do
    local buf, path = M.buffer_of(comment), comment.path
    if buf then
      M.settle(buf)
    else
      if texts[path] == nil then
        texts[path] = M.text_now(comment) or false
      end
      local first, last ---@type integer?, integer
      if texts[path] then
        first, last = anchor.find(texts[path], comment.lines, comment.first)
      end
      if first then
        comment.first, comment.last = first, last
      end
    end
  end
end

---@param list sanderling.comments.Comment[]
---@return sanderling.comments.Comment[] in the order of their places
function M.sorted(list)
  list = vim.list_slice(list)
  refresh(list)
  table.sort(list, function(a, b)
    if a.name ~= b.name then
      return a.name < b.name
    end
    return a.first < b.first or a.first == b.first and a.id < b.id
  end)
  return list
end

local group = api.nvim_create_augroup('sanderling_comments', {})
api.nvim_create_autocmd({ 'BufReadPost', 'BufNewFile', 'BufWinEnter' }, {
  group = group,
  desc = 'Agent: show the comments on a file',
  callback = function(args)
    M.fill(args.buf)
    redraw(args.buf)
  end,
})
api.nvim_create_autocmd({ 'WinResized', 'VimResized' }, {
  group = group,
  desc = 'Agent: wrap comments again',
  callback = function()
    local bufs = {} ---@type table<integer, true>
    for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
      bufs[api.nvim_win_get_buf(win)] = true
    end
    for buf in pairs(bufs) do
      redraw(buf)
    end
  end,
})
api.nvim_create_autocmd('VimLeavePre', {
  group = group,
  desc = 'Agent: save where comments are',
  callback = function()
    vim.iter(vim.tbl_keys(is_due)):each(M.settle)
    M.save_moved()
  end,
})

return M
