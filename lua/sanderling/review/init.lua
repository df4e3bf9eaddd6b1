--- Questions to the person: may this be done? One float shows them, one at a time, and never takes a key that was not meant for
--- it: it is not entered by itself, and an answer counts only when its question has been on the screen for a moment.
---
--- Where it is belongs to no window of the user's: it comes back after `:only`, moves along to another tab page, and gives way
--- to the cursor. What can go wrong while it opens (text is locked, the command-line window) is tried again.
local M = {}

M.CHOICES = { 'once', 'session', 'always' }

local api = vim.api
local attention = require('sanderling.ui.attention')
local config = require('sanderling.config')
local diff = require('sanderling.transcript.diff')
local files = require('sanderling.ui.files')
local float_module = require('sanderling.ui.float')
local host = require('sanderling.host')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')
local sandbox = require('sanderling.session.sandbox')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local RETRY_MS = 50
local MAX_WIDTH = 78
local MIN_WIDTH = 48 -- a chat that is smaller is not covered
local MIN_HEIGHT = 6
local USUAL_HEIGHT = 12 -- of a small change, which is to be read whole also on a screen of 24 rows
local SHOWBREAK = '↪ '

local ns = api.nvim_create_namespace('sanderling_approval')
local augroup = api.nvim_create_augroup('sanderling_approval', {})

---@class (exact) sanderling.review.Question
---@field session_id string
---@field event sanderling.ApprovalRequested

---@class (exact) sanderling.review.Mark
---@field row integer
---@field col integer
---@field end_col integer
---@field hl string

---@class (exact) sanderling.review.Body
---@field lines string[]
---@field marks sanderling.review.Mark[]
---@field subject_lnum integer

---@class (exact) sanderling.review.Area of the screen; cells count from 0
---@field top integer
---@field bottom integer the row behind it
---@field left integer
---@field width integer

---@class (exact) sanderling.review.Place
---@field row integer of the border
---@field col integer
---@field width integer within the border
---@field height integer
---@field body sanderling.review.Body
---@field lines string[] that are shown of it
---@field is_cut boolean the last of them says what is missing

---@type sanderling.review.Question[]
local questions = {}
local current = 1
---@type { win: integer, buf: integer, place?: sanderling.review.Place }?
local float
---@type { question: sanderling.review.Question, since: integer }? what is on the screen, and since when
local shown
local is_left = false -- by the user: the float stays away until it is asked for, or something else asks
local is_waiting = false

-- what it says --------------------------------------------------------------------------------------------------------

---@return sanderling.review.Question?
local function question()
  return questions[current]
end

---@param q sanderling.review.Question
---@return string
local function heading_of(q)
  if q.event.tool == 'again' then
    return 'Let it go on' -- this is about no tool, but about a model that goes in circles
  end
  return words.plain(('Allow %s %s'):format(q.event.tool, q.event.title))
end

--- How many rows `line` takes where it is wrapped.
---@param line string
---@param width integer
---@return integer
local function rows_of(line, width)
  local cells = vim.fn.strdisplaywidth(line)
  local continued = width - api.nvim_strwidth(SHOWBREAK)
  return cells <= width and 1 or 1 + math.ceil((cells - width) / continued)
end

--- The index of the first line that does not fit into `height` rows any more, and the rows before it; nil when all fit.
---@param lines string[]
---@param width integer
---@param height integer
---@return integer? index
---@return integer rows
local function first_beyond(lines, width, height)
  local rows = 0
  for i, line in ipairs(lines) do
    local needed = rows_of(line, width)
    if rows + needed > height then
      return i, rows
    end
    rows = rows + needed
  end
  return nil, rows
end

--- The lines that fit into `height` rows. When that is not all of them, the last one says what is missing.
---@param lines string[]
---@param width integer
---@param height integer
---@return string[] lines
---@return integer rows
---@return boolean is_cut
local function head_of(lines, width, height)
  if not first_beyond(lines, width, height) then
    local _, rows = first_beyond(lines, width, height)
    return lines, rows, false
  end
  local beyond, rows = first_beyond(lines, width, height - 1)
  beyond = assert(beyond)
  local head = vim.list_slice(lines, 1, beyond - 1)
  local room = (height - 1 - rows) * (width - 4) -- a character of two cells may leave one of them empty
  if room > 0 then
    head[beyond] = vim.fn.printf(('%%.%dS'):format(room), lines[beyond])
  end
  local left = #lines - beyond + 1
  head[#head + 1] = ('… %d more line%s: :AgentApprovals'):format(left, left == 1 and '' or 's')
  return head, height, true
end

---@param text string
---@param cells integer at most
---@return string
local function last_cells(text, cells)
  local first = math.max(vim.fn.strchars(text) - cells, 0)
  local rest = vim.fn.strcharpart(text, first)
  while api.nvim_strwidth(rest) > cells do -- of characters that take two
    rest = vim.fn.strcharpart(rest, 1)
  end
  return rest
end

---@return string
local function count_text()
  return #questions > 1 and (' · %d of %d'):format(current, #questions) or ''
end

--- How many cells the heading may take in the border.
---@param width integer of the float
---@return integer
local function heading_room(width)
  return width - api.nvim_strwidth(count_text()) - 3
end

---@param q sanderling.review.Question
---@param width integer
---@return [string, string][]
local function title_of(q, width)
  local heading, room = heading_of(q), heading_room(width)
  if api.nvim_strwidth(heading) > room then
    -- Of a path the end says more, of a command the beginning.
    local tail = (q.event.path or '') ~= '' and last_cells(heading, math.floor(room / 2)) or ''
    local head_cells = math.max(room - api.nvim_strwidth(tail) - 1, 1)
    heading = words.fitting(heading, head_cells + 1) .. tail
  end
  return { { (' %s?%s '):format(heading, count_text()), 'AgentApprovalTitle' } }
end

--- Add to `lines` where it would be done and how confined: in one line if it fits, because nobody reads words that are broken.
---@param lines string[]
---@param q sanderling.review.Question
---@param width integer
---@return sanderling.review.Mark[]
local function add_place(lines, q, width)
  local where = 'in ' .. words.plain(vim.fn.fnamemodify(q.event.cwd, ':~'))
  local facts = sandbox.words(q.session_id)
  local cells = api.nvim_strwidth(where)
  for _, fact in ipairs(facts) do
    cells = cells + 1 + api.nvim_strwidth(fact.text)
  end
  lines[#lines + 1] = where
  local marks = { { row = #lines - 1, col = 0, end_col = #where, hl = 'AgentStatus' } }
  if cells > width and #facts > 0 then
    lines[#lines + 1] = ''
  end
  for _, fact in ipairs(facts) do
    local line = lines[#lines] == '' and '' or lines[#lines] .. ' '
    lines[#lines] = line .. fact.text
    local hl = fact.hl or 'AgentStatus'
    marks[#marks + 1] = { row = #lines - 1, col = #line, end_col = #lines[#lines], hl = hl }
  end
  return marks
end

--- Does the subject begin with what the title says? An address and a diff do not.
---@param event sanderling.ApprovalRequested
---@return boolean
local function says_title(event)
  local title = words.plain(event.title):gsub('%s*…$', ''):gsub('%s+', ' ')
  local head = event.subject:sub(1, #event.title * 2) -- megabytes may follow
  return vim.startswith((words.plain(head):gsub('%s+', ' ')), vim.trim(title))
end

--- The session that asks, when it is another than the one that this tab page shows.
---@param q sanderling.review.Question
---@return string?
local function asker_of(q)
  local session = live.find(q.session_id)
  if session and #live.all() > 1 and not session:is_on_screen() then
    return ('Session “%s” asks.'):format(words.plain(session:name()))
  end
end

---@param q sanderling.review.Question
---@param width integer of the float
---@return sanderling.review.Body
local function body_of(q, width)
  local event = q.event
  local asker = asker_of(q)
  local lines = asker and { asker } or {}
  vim.list_extend(lines, words.wrapped(words.plain(event.reason), width))
  local is_cut = api.nvim_strwidth(heading_of(q)) > heading_room(width)
  if is_cut and not says_title(event) then
    lines[#lines + 1] = words.plain(event.title)
  end
  local marks = add_place(lines, q, width)
  if asker then
    marks[#marks + 1] = { row = 0, col = 0, end_col = #asker, hl = 'AgentApprovalTitle' }
  end
  if (event.rule or '') ~= '' then -- what is allowed by that is more than this one use
    local is_compound = event.tool == 'bash' and event.subject:find('[;&|\n`]') ~= nil
    local rule = 's/A would allow: '
      .. words.plain(event.rule):gsub('^allow ', '')
      .. (is_compound and '  (no other part of the line)' or '')
    lines[#lines + 1] = rule
    marks[#marks + 1] = { row = #lines - 1, col = 0, end_col = #rule, hl = 'AgentStatus' }
  end
  lines[#lines + 1] = ''
  local subject_lnum = #lines + 1
  vim.list_extend(lines, words.lines_of(event.subject))
  return { lines = lines, marks = marks, subject_lnum = subject_lnum }
end

---@type table<string, 'once'|'session'|'always'>
local choice_of = { a = 'once', s = 'session', A = 'always' }

---@alias sanderling.review.Words table<string, string> what each key does

--- From wide to narrow.
---@type sanderling.review.Words[]
local key_words = {
  {
    a = 'allow once',
    s = 'for the session',
    A = 'always',
    d = 'deny',
    D = 'deny + reason',
    x = 'deny only this',
    X = '+ reason',
    p = 'full view',
    q = 'later',
    ['<Tab>'] = 'next',
  },
  {
    a = 'once',
    s = 'session',
    A = 'always',
    d = 'deny',
    D = '+ reason',
    x = 'only this',
    X = '+ reason',
    p = 'full view',
    q = 'later',
    ['<Tab>'] = 'next',
  },
  { a = 'once', s = 'session', A = 'always', d = 'deny', D = '+ reason', x = 'only this' },
  { a = 'once', s = 'session', A = 'always', d = 'deny', x = 'only this' },
  { d = 'deny', x = 'only this' },
  {},
}

--- What is denied with it, if anything is: those that wait for an answer, too, or what comes after it.
---@param q sanderling.review.Question
---@return string
local function also_denied(q)
  if not q.event.is_of_several then
    return ''
  end
  local count = #vim.tbl_filter(function(other)
    return other.session_id == q.session_id and other.event.is_of_several or false
  end, questions)
  return count > 1 and (' all %d'):format(count) or ' the rest, too'
end

---@param q sanderling.review.Question
---@return string[] keys that apply
local function keys_of(q)
  local keys = {}
  for _, key in ipairs({ 'a', 's', 'A' }) do
    if vim.list_contains(q.event.choices, choice_of[key]) then
      keys[#keys + 1] = key
    end
  end
  vim.list_extend(keys, { 'd', 'D' })
  vim.list_extend(keys, q.event.is_of_several and { 'x', 'X' } or {})
  vim.list_extend(keys, { 'p', 'q', #questions > 1 and '<Tab>' or nil })
  return keys
end

--- The keys and what they do, in as many words as there is room for.
---@param q sanderling.review.Question
---@param width integer
---@return [string, string][]
local function keys_line(q, width)
  local chunks
  for _, word_of in ipairs(key_words) do
    local cells = 1
    chunks = {}
    for _, key in ipairs(keys_of(q)) do
      local word = word_of[key] and ' ' .. word_of[key] or ''
      word = word .. (key == 'd' and word_of.d and also_denied(q) or '')
      chunks[#chunks + 1] = { ' ' .. key, 'AgentApprovalKey' }
      chunks[#chunks + 1] = { word, 'AgentApproval' }
      cells = cells + #key + #word + 1
    end
    chunks[#chunks + 1] = { ' ', 'AgentApproval' }
    if cells <= width then
      break
    end
  end
  return chunks
end

--- How to get into the float.
---@param purpose string
---@return string
local function ways_in(purpose)
  local key = config.key_name(config.options.keys.approvals, '')
  local text = (':AgentApprovals %s'):format(purpose)
  return key ~= '' and ('%s, %s in the chat'):format(text, key) or text
end

-- where it is ---------------------------------------------------------------------------------------------------------

--- The part of the screen that windows have: without tab line, status line and command line.
---@return sanderling.review.Area
local function screen_area()
  local has_tabline = vim.o.showtabline == 2
    or (vim.o.showtabline == 1 and #api.nvim_list_tabpages() > 1)
  return {
    top = has_tabline and 1 or 0,
    bottom = vim.o.lines - vim.o.cmdheight - (vim.o.laststatus > 0 and 1 or 0),
    left = 0,
    width = vim.o.columns,
  }
end

--- The transcript's part of it, if it is in this tab page and has the room.
---@return sanderling.review.Area?
local function chat_area()
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    local buf = api.nvim_win_get_buf(win)
    if vim.bo[buf].filetype == 'sanderling' and vim.b[buf].sanderling_session then
      local top, left = unpack(api.nvim_win_get_position(win))
      local height, width = api.nvim_win_get_height(win), api.nvim_win_get_width(win)
      if width >= MIN_WIDTH and height >= MIN_HEIGHT + 2 then
        return { top = top, bottom = top + height, left = left, width = width }
      end
    end
  end
end

--- The cell of the cursor, where the float must not be; nil while it is in the float or in the command line.
---@return { row: integer, col: integer }?
local function cursor_cell()
  local is_here = float and api.nvim_get_current_win() == float.win
  if is_here or api.nvim_get_mode().mode:find('^c') then
    return nil
  end
  local pos = vim.fn.screenpos(0, vim.fn.line('.'), vim.fn.col('.'))
  return pos.row > 0 and { row = pos.row - 1, col = pos.col - 1 } or nil
end

---@param place sanderling.review.Place
---@param cell? { row: integer, col: integer }
---@return boolean
local function covers(place, cell)
  return cell ~= nil
    and cell.row >= place.row
    and cell.row < place.row + place.height + 2
    and cell.col >= place.col
    and cell.col < place.col + place.width + 2
end

--- Where the float hides least: over the end of the chat, else at the right; not where the cursor is.
---@param q sanderling.review.Question
---@param is_focused boolean
---@return sanderling.review.Place
local function find_place(q, is_focused)
  local cell = cursor_cell()
  local share = is_focused and 0.6 or 0.4
  local usual = math.min(USUAL_HEIGHT, math.floor(vim.o.lines / 2))
  local max_height = math.max(MIN_HEIGHT, usual, math.floor(vim.o.lines * share))
  local screen = screen_area()
  local first
  for _, area in ipairs({ chat_area() or screen, screen }) do
    local width = math.max(1, math.min(area.width - 2, MAX_WIDTH))
    -- A chat that is low does not cut it: it begins above.
    local top = math.min(area.top, math.max(screen.top, area.bottom - max_height - 2))
    local room = math.max(1, math.min(area.bottom - top - 2, max_height))
    local body = body_of(q, width)
    local head, height, is_cut = head_of(body.lines, width, room)
    for _, row in ipairs({ area.bottom - height - 2, top }) do
      local place = {
        row = math.max(row, 0),
        col = area.left + area.width - width - 2,
        width = width,
        height = height,
        body = body,
        lines = is_focused and body.lines or head,
        is_cut = is_cut and not is_focused,
      }
      if not covers(place, cell) then
        return place
      end
      first = first or place
    end
  end
  return first
end

--- Scroll `win` until its text ends within its first `room` rows, if that is where its cursor is.
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

--- Scroll the transcripts whose end the float would cover: what led to the question is to be read above it. A reader who is
--- elsewhere in one stays there.
---@param place sanderling.review.Place
local function keep_ends_above(place)
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    local info = vim.fn.getwininfo(win)[1]
    local first_row, first_col = info.winrow - 1 + info.winbar, info.wincol - 1
    local room = place.row - first_row
    local is_covered = place.row < first_row + info.height
      and place.col < first_col + info.width
      and place.col + place.width + 2 > first_col
    if vim.bo[info.bufnr].filetype == 'sanderling' and is_covered and room >= MIN_HEIGHT then
      scroll_end_up(win, room)
    end
  end
end

-- the float -----------------------------------------------------------------------------------------------------------

---@return boolean it is in this tab page
local function is_open()
  return float ~= nil
    and api.nvim_win_is_valid(float.win)
    and api.nvim_win_get_tabpage(float.win) == api.nvim_get_current_tabpage()
end

---@return boolean
local function is_focused()
  return float ~= nil and api.nvim_get_current_win() == float.win
end

--- Later, when what came with the question is drawn, too.
local keep_ends_in_sight = vim.schedule_wrap(function()
  if float and float.place and not is_focused() and api.nvim_win_is_valid(float.win) then
    local ok, err = pcall(keep_ends_above, float.place)
    if not ok then
      host.note_defect(err)
    end
  end
end)

--- Close the float; whoever was in it is where they came from, as with any window.
local function close()
  local old = float
  if not old then
    return
  end
  float = nil -- before its window is closed: WinClosed is to see that it is no longer ours
  if api.nvim_win_is_valid(old.win) then
    local ok, err = pcall(api.nvim_win_close, old.win, true)
    if not ok then
      float = old
      error(err, 0)
    end
  end
  shown = nil
end

---@param config_ vim.api.keyset.win_config
local function open(config_)
  local buf = float_module.new_buffer('question', {})
  local win = api.nvim_open_win(
    buf,
    false,
    vim.tbl_extend('error', config_, { focusable = false, style = 'minimal', noautocmd = true })
  )
  float = { win = win, buf = buf }
  scratch.set_win_options(win, {
    wrap = true,
    linebreak = false, -- every blank that is there is seen
    breakindent = false,
    showbreak = SHOWBREAK,
    smoothscroll = true,
    conceallevel = 0,
    foldenable = false,
    winbar = '',
    winfixbuf = true,
    winhighlight = 'NormalFloat:AgentApproval,FloatBorder:AgentApprovalBorder',
  })
  M.set_keys(buf)
  M.watch(buf)
end

---@param place sanderling.review.Place
---@param q sanderling.review.Question
local function fill(place, q)
  local buf, body = assert(float).buf, place.body
  scratch.set_buf_options(buf, { modifiable = true })
  api.nvim_buf_set_lines(buf, 0, -1, true, place.lines)
  scratch.set_buf_options(buf, { modifiable = false })
  api.nvim_buf_clear_namespace(buf, -1, 0, -1)
  for _, mark in ipairs(body.marks) do
    api.nvim_buf_set_extmark(buf, ns, mark.row, mark.col, {
      end_col = mark.end_col,
      hl_group = mark.hl,
      strict = false,
    })
  end
  if #place.lines >= body.subject_lnum then
    diff.set_syntax(buf, q.event.filetype or '', body.subject_lnum)
  end
  if place.is_cut then
    local row = #place.lines - 1
    api.nvim_buf_set_extmark(buf, ns, row, 0, {
      end_col = #place.lines[row + 1],
      hl_group = 'AgentWarning',
      priority = 200, -- above the syntax
    })
  end
end

--- Draw the question, where it belongs.
local function draw()
  local q = assert(question())
  if float and not is_open() then
    close()
  end
  local place = find_place(q, is_focused())
  local win_config = {
    relative = 'editor',
    row = place.row,
    col = place.col,
    width = place.width,
    height = place.height,
    zindex = float_module.ZINDEX.question,
    border = 'rounded',
    title = title_of(q, place.width),
    footer = is_focused() and keys_line(q, place.width)
      or { { (' %s '):format(ways_in('to answer')), 'AgentApprovalKey' } },
    footer_pos = 'right',
  }
  if float then
    api.nvim_win_set_config(float.win, win_config)
  else
    open(win_config)
  end
  fill(place, q)
  float.place = place
  keep_ends_in_sight()
  if not shown or shown.question ~= q then
    api.nvim_win_set_cursor(float.win, { 1, 0 })
    pcall(vim.cmd.redraw) -- before its time begins
    shown = { question = q, since = vim.uv.hrtime() }
  end
end

--- Show what is to be shown, in this tab page; try again while Neovim does not allow it.
local function update()
  current = math.max(1, math.min(current, #questions))
  if is_waiting or is_left and #questions > 0 then
    return
  end
  local ok, err = xpcall(#questions > 0 and draw or close, debug.traceback)
  if not ok and locked.reason(err) then
    is_waiting = true
    vim.defer_fn(function()
      is_waiting = false
      update()
    end, RETRY_MS)
  elseif not ok then
    host.note_defect(err)
  end
end

local update_soon = vim.schedule_wrap(update)

--- The person has left the question unanswered: say how they come back to it.
local function set_left()
  is_left = true
  local count = #questions
  message.tell(
    ('%s: %s.'):format(
      count == 1 and 'The question waits' or ('%d questions wait'):format(count),
      ways_in('brings it back')
    )
  )
end

--- What moves the float, changes what it says, or takes it away.
---@param buf integer
function M.watch(buf)
  api.nvim_clear_autocmds({ group = augroup })
  local function on(events, callback, desc, buffer)
    api.nvim_create_autocmd(events, {
      group = augroup,
      buffer = buffer,
      desc = 'Agent: ' .. desc,
      callback = callback,
    })
  end
  on({ 'TabEnter', 'VimResized', 'TabClosed' }, update_soon, 'keep the question on the screen')
  on('BufWinEnter', update_soon, 'say which session asks')
  on({ 'WinEnter', 'WinLeave' }, update_soon, 'keys of the question', buf)
  on('WinClosed', function(args)
    local is_ours = float and tonumber(args.match) == float.win
    if is_ours and is_focused() then
      set_left() -- `:quit` in it
    end
    if is_ours then
      update_soon()
    end
  end, 'a question survives :only')
  on({ 'CursorMoved', 'CursorMovedI' }, function()
    if float and is_open() and covers(float.place, cursor_cell()) then
      update()
    end
  end, 'the question gives way to the cursor')
end

-- the queue -----------------------------------------------------------------------------------------------------------

--- Drop the questions that `is_gone` names.
---@param is_gone fun(q: sanderling.review.Question): boolean
local function drop(is_gone)
  local before = question()
  questions = vim.tbl_filter(function(q)
    return not is_gone(q)
  end, questions)
  for i, q in ipairs(questions) do
    current = q == before and i or current
  end
  update()
end

---@param session_id string
---@param event sanderling.ApprovalRequested
local function ask(session_id, event)
  table.insert(questions, { session_id = session_id, event = event })
  if is_left then
    is_left, current = false, #questions
  end
  update()
  if config.options.approval.bell then
    -- To the terminal itself: Neovim's own bell can be rung by no function, and is off unless 'belloff' is changed.
    pcall(vim.fn.chansend, vim.v.stderr, '\a')
  end
  host.announce('AgentApprovalRequested', {
    session_id = session_id,
    id = event.id,
    tool = event.tool,
    title = event.title,
    count = #questions,
  })
end

host.subscribe(function(session_id, events)
  for _, event in ipairs(events) do
    if event.type == 'approval_requested' then
      ask(session_id, event)
    elseif event.type == 'approval_settled' then
      drop(function(q)
        return q.session_id == session_id and q.event.id == event.id
      end)
    elseif event.type == 'local_failed' or event.type == 'local_closed' then
      drop(function(q)
        return q.session_id == session_id
      end)
    end
  end
  if float then
    keep_ends_in_sight()
  end
end)

-- answering -----------------------------------------------------------------------------------------------------------

---@param text string
local function tell(text)
  message.tell(text, vim.log.levels.WARN)
end

---@return boolean the question has been on the screen for long enough that an answer is meant for it
local function is_seen()
  return shown ~= nil
    and shown.question == question()
    and vim.uv.hrtime() - shown.since >= attention.GRACE_NS
end

---@param q sanderling.review.Question
---@param answer { answer: 'once'|'session'|'always'|'deny', reason?: string, rule?: string, is_alone?: boolean }
local function send(q, answer)
  if not vim.list_contains(questions, q) then
    tell('That question is not open any more.')
    return
  end
  local is_sent = host.act_or_tell(q.session_id, {
    type = 'answer_approval',
    id = q.event.id,
    answer = answer.answer,
    reason = answer.reason or '',
    rule = answer.rule or '',
    is_alone = answer.is_alone,
  })
  if is_sent then
    host.publish(q.session_id, { { type = 'approval_settled', id = q.event.id } })
  end
end

---@type table<string, string>
local refusals = {
  once = 'This cannot be allowed.',
  session = 'This cannot be allowed for the whole session.',
  always = 'This cannot be allowed for good.',
}

--- Allow what is asked. For `always`, the rule that will be kept is shown, and can be changed, first.
---@param choice 'once'|'session'|'always'
---@param q sanderling.review.Question
local function allow(choice, q)
  if not vim.list_contains(q.event.choices, choice) then
    tell(refusals[choice])
  elseif choice == 'always' then
    message.ask({ prompt = 'Always allow: ', default = q.event.rule or '' }, function(rule)
      if rule and vim.trim(rule) ~= '' then
        send(q, { answer = 'always', rule = vim.trim(rule) })
      end
    end)
  else
    send(q, { answer = choice })
  end
end

--- The question that an answer is for. Where it is not on the screen, or only just, it is shown, and nothing is answered.
---@return sanderling.review.Question?
local function question_to_answer()
  if #questions == 0 then
    tell('No question is open.')
    return nil
  elseif not is_seen() then
    local text = is_left and 'Here is the question again: now answer it.'
      or 'The question has only just appeared: read it, then answer again.'
    is_left = false
    update()
    tell(text)
    return nil
  end
  return question()
end

--- Allow what the question on the screen is about.
---@param choice? 'once'|'session'|'always'
function M.approve(choice)
  vim.validate('choice', choice, function(value)
    return value == nil or vim.list_contains(M.CHOICES, value)
  end, "'once', 'session' or 'always'")
  local q = question_to_answer()
  if q then
    allow(choice or 'once', q)
  end
end

---@param reason? string that the model reads
---@param is_alone? boolean what else the same message asks for is not denied with it
function M.deny(reason, is_alone)
  local q = question_to_answer()
  if q then
    send(q, { answer = 'deny', reason = reason or '', is_alone = is_alone or nil })
  end
end

--- Go to the float, which answers to keys.
function M.focus()
  if #questions == 0 then
    tell('No question is open.')
    return
  end
  is_left = false
  update()
  if is_open() and not is_focused() then
    vim.cmd.stopinsert()
    api.nvim_set_current_win(float.win)
    update()
  end
end

--- Close the float without an answer. The question waits on.
local function leave()
  close()
  set_left()
end

---@param step -1|1
local function go_to_question(step)
  current = (current - 1 + step) % #questions + 1
  update()
end

--- Show the whole subject in a tab page of its own, or the file that the question is about.
local function open_whole()
  local q = assert(question())
  local event = q.event
  local filetype, path = event.filetype or '', event.path or ''
  if filetype ~= 'diff' and files.open_in_tab(path) then
    return
  end
  local buf = float_module.new_buffer('question', words.lines_of(event.subject))
  vim.cmd(('tab sbuffer %d'):format(buf))
  diff.set_syntax(buf, filetype, 1)
  vim.keymap.set('n', 'q', function()
    api.nvim_buf_delete(buf, { force = true }) -- also where no other window is left
    if question() == q then
      M.focus() -- where `p` was pressed: the answer is what comes next
    end
  end, { buffer = buf, nowait = true, desc = 'Agent: back to the question' })
end

---@param buf integer
function M.set_keys(buf)
  local function set(lhs, rhs, desc)
    vim.keymap.set('n', lhs, rhs, { buffer = buf, nowait = true, desc = 'Agent: ' .. desc })
  end
  local function map(lhs, rhs, desc)
    set(lhs, rhs, desc)
    set('<LocalLeader>' .. lhs, '<Nop>', 'a key of the chat answers nothing')
  end
  for _, lhs in ipairs(config.list_keys(config.options.keys.approvals)) do
    set(lhs, '<Nop>', 'already here')
  end
  local function answering(fn)
    return function()
      local q = question()
      if q and is_seen() then -- a key that was typed for what stood here before answers nothing
        fn(q)
      end
    end
  end
  for lhs, choice in pairs(choice_of) do
    map(
      lhs,
      answering(function(q)
        allow(choice, q)
      end),
      'allow: ' .. choice
    )
  end
  --- `d` and `D`, or those for this one alone, which are `d` and `D` where it is the only one.
  local function map_denying(lhs, lhs_with_reason, is_alone)
    map(
      lhs,
      answering(function(q)
        send(q, { answer = 'deny', is_alone = is_alone })
      end),
      'deny'
    )
    map(
      lhs_with_reason,
      answering(function(q)
        message.ask({ prompt = 'Deny, because: ' }, function(reason)
          if reason then
            send(q, { answer = 'deny', reason = vim.trim(reason), is_alone = is_alone })
          end
        end)
      end),
      'deny, and say why'
    )
  end
  map_denying('d', 'D')
  map_denying('x', 'X', true)
  map('<Tab>', function()
    go_to_question(1)
  end, 'next question')
  map('<S-Tab>', function()
    go_to_question(-1)
  end, 'previous question')
  map('p', open_whole, 'show it whole')
  for _, lhs in ipairs({ 'q', '<Esc>' }) do
    map(lhs, leave, 'close without an answer')
  end
end

return M
