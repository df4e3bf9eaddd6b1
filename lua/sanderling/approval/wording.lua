--- The text of a question: its title, body and keys.
local M = {}

local api = vim.api
local anywhere = require('sanderling.approval.anywhere')
local choosing = require('sanderling.approval.choosing')
local config = require('sanderling.config')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local queue = require('sanderling.approval.queue')
local sandbox = require('sanderling.session.sandbox')
local ui_keys = require('sanderling.ui.keys')
local words = require('sanderling.ui.words')

local MAX_TITLE_BYTES = 2000 -- of a title that are compared with the subject

---@return string before a continued line
function M.showbreak()
  return icons.narrow('continued') .. ' '
end

---@class (exact) sanderling.approval.Body
---@field lines string[]
---@field marks sanderling.access.page.Mark[]
---@field first integer lnum of the subject; what comes before it says who asks
---@field last integer of the subject; `first` - 1 if it is shown elsewhere
---@field warned? integer lnum of the last warning, which follows the subject
---@field more? integer lnum of the line that says how many lines are missing
---@field choices? table<integer, integer> the number of the choice by its lnum

--- Headings of questions that are not about a tool use.
---@type table<string, string>
local headings = {
  limit = 'Let it continue',
  server = 'Start the MCP server %s',
  form = 'Fill in a form for %s',
  link = 'Open a page for %s',
  question = 'The model asks',
  plan = 'Accept the plan',
}

--- Does the subject begin with the title? An address and a diff do not.
---@param event sanderling.ApprovalRequested
---@return boolean
local function says_title(event)
  local title = words.plain(event.title:sub(1, MAX_TITLE_BYTES)):gsub('%s+', ' '):gsub(' ?…$', '')
  local head = event.subject:sub(1, 2 * MAX_TITLE_BYTES) -- megabytes may follow
  return vim.startswith((words.plain(head):gsub('%s+', ' ')), words.trimmed(title))
end

---@param q sanderling.session.state.Question
---@return string
local function heading_of(q)
  if q.event.kind == 'question' and q.event.tool ~= 'ask_user' then
    return words.plain(q.event.title)
  elseif q.event.kind == 'question' then
    local _, index, count = choosing.field(q)
    return headings.question .. (count > 1 and (' (%d of %d)'):format(index, count) or '')
  end
  local heading = headings[q.event.kind]
  if heading then
    return words.plain(heading:format(q.event.tool))
  elseif says_title(q.event) then
    return words.plain('Allow ' .. q.event.tool)
  end
  return words.plain(('Allow %s %s'):format(q.event.tool, q.event.title))
end

M.TABSTOP = 8 -- of the float

--- Return how many rows a line takes at most. A row may end with an empty cell, because a character of two cells does not fit, and a tab is
--- as wide as its place demands. Too few rows would hide the end of a command and the warnings after it without a mark.
---@param line string
---@param width integer
---@return integer
local function rows_of(line, width)
  -- strdisplaywidth() also counts what 'showbreak' and 'linebreak' of the current window, not of the float, would add.
  local cells = api.nvim_strwidth((words.expanded(line, M.TABSTOP, 0)))
  if cells <= width then
    return 1
  end
  local continued = width - api.nvim_strwidth(M.showbreak())
  if line:find('[\t\128-\255]') then
    cells = api.nvim_strwidth((line:gsub('\t', (' '):rep(M.TABSTOP))))
    width, continued = width - 1, continued - 1
  end
  return 1 + math.ceil((cells - width) / math.max(1, continued))
end

--- Return the index of the first line that does not fit into `height` rows, and the rows before it; nil if all fit.
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

--- Return the lines that fit into `height` rows. If some do not, the last line says how many are missing.
---@param lines string[]
---@param width integer
---@param height integer
---@return string[] lines
---@return integer rows
---@return boolean is_cut
function M.head_of(lines, width, height)
  local beyond, rows = first_beyond(lines, width, height)
  if not beyond then
    return lines, rows, false
  end
  beyond, rows = first_beyond(lines, width, height - 1)
  beyond = assert(beyond)
  local head = vim.list_slice(lines, 1, beyond - 1)
  local room = (height - 1 - rows) * (width - 4) -- a character of two cells may leave one empty
  if room > 0 then
    head[beyond] = vim.fn.printf(('%%.%dS'):format(room), lines[beyond])
  end
  local left = ('%s %s'):format(icons.more, words.counted(#lines - beyond + 1, 'more line'))
  local way = left .. ': :Agent question'
  head[#head + 1] = api.nvim_strwidth(way) <= width and way or left
  return head, height, true
end

---@param text string
---@param cells integer at most
---@return string
local function last_cells(text, cells)
  local first = math.max(vim.fn.strchars(text) - cells, 0)
  local rest = vim.fn.strcharpart(text, first)
  while api.nvim_strwidth(rest) > cells do -- characters of two cells
    rest = vim.fn.strcharpart(rest, 1)
  end
  return rest
end

---@return string
local function count_text()
  local _, index, count = queue.question()
  return count > 1 and icons.separator .. ('%d of %d'):format(index, count) or ''
end

--- Return how many cells of the border the heading may take.
---@param width integer of the float
---@return integer
local function heading_room(width)
  return width - api.nvim_strwidth(count_text()) - 3
end

---@param q sanderling.session.state.Question
---@param width integer
---@return [string, string][]
function M.title_of(q, width)
  local heading, room = heading_of(q), heading_room(width)
  if api.nvim_strwidth(heading) > room then
    -- The end of a path is more useful, and the beginning of a command.
    local tail = (q.event.path or '') ~= '' and last_cells(heading, math.floor(room / 2)) or ''
    local head_cells = math.max(room - api.nvim_strwidth(tail) - 1, 1)
    heading = words.fitting(heading, head_cells + 1) .. tail
  end
  local is_of_model = q.event.kind == 'question' and q.event.tool == 'ask_user'
  local mark = is_of_model and '' or '?'
  return { { (' %s%s%s '):format(heading, mark, count_text()), 'AgentApprovalTitle' } }
end

--- Return a line that names the session that asks, if that is a child or this tab page shows another one.
---@param q sanderling.session.state.Question
---@return string?
local function asker_of(q)
  if queue.child_of(q.event) then
    local worktree = words.plain(q.event.worktree or '')
    local where = worktree ~= '' and ', in its worktree ' .. worktree or ''
    return ('Child session %s asks%s.'):format(icons.quoted(words.plain(q.event.child)), where)
  end
  local session = live.find(q.session_id)
  if session and #live.all() > 1 and not session:is_on_screen() then
    return ('Session %s asks.'):format(icons.quoted(words.plain(session:name())))
  end
end

---@class (exact) sanderling.approval.Progress of a review in the file
---@field buf integer
---@field left integer hunks that are not decided yet
---@field count integer
---@field in_view sanderling.approval.Area[] where this tab page shows all of a hunk, for each such hunk
---@field unseen integer invisible characters in undecided hunks
---@field unseen_numbers string[] of the first kinds of them: `<U+3164>`
---@field difference fun(): string[]? the undecided hunks; nil if they are the whole change as proposed

local GLUE = '\194\160' -- a blank without a line break

--- Return why the user is asked, without the warnings with which the reason begins.
---@param event sanderling.ApprovalRequested
---@return string
local function reason_of(event)
  local warnings = table.concat(event.warnings or {}, ' ')
  local is_first = warnings ~= '' and vim.startswith(event.reason, warnings)
  return words.trimmed(is_first and event.reason:sub(#warnings + 1) or event.reason)
end

--- Return sentences on anything unusual in the request.
---@param event sanderling.ApprovalRequested
---@param progress? sanderling.approval.Progress
---@return string[]
local function warnings_of(event, progress)
  local warnings = {}
  if progress and progress.unseen > 0 then
    warnings[1] = ('Contains %s that cannot be seen: %s.'):format(
      words.counted(progress.unseen, 'character'),
      table.concat(progress.unseen_numbers, ', ')
    )
  end
  return vim.list_extend(warnings, vim.tbl_map(words.plain, event.warnings or {}))
end

--- Return the lines on the progress of the review in the file, and its keys.
---@param progress sanderling.approval.Progress
---@param width integer
---@return string[]
local function review_lines(progress, width)
  local keys = {}
  local function add(name, word)
    keys[#keys + 1] = name and name .. GLUE .. word or nil
  end
  add(anywhere.key_of('answer_hunk'), 'goes' .. GLUE .. 'there')
  for _, word in ipairs({ 'next', 'accept', 'reject' }) do
    add(ui_keys.name_in(progress.buf, word .. '_hunk'), word)
  end
  local of = progress.left < progress.count and ('%d of '):format(progress.left) or ''
  local seen = #progress.in_view
  local view = seen > 0 and seen < progress.left and (', %d in view'):format(seen) or ''
  local hunks = of .. words.counted(progress.count, 'hunk')
  local state = ('%s to review in the file%s:'):format(hunks, view)
  local ways = #keys > 0 and table.concat(keys, ', ') or ':AgentAccept, :AgentReject'
  local lines = { state .. ' ' .. ways }
  if api.nvim_strwidth(lines[1]) > width then
    lines = vim.list_extend(words.wrapped(state, width), words.wrapped(ways, width))
  end
  return vim.tbl_map(function(line)
    return (line:gsub(GLUE, ' '))
  end, lines)
end

---@param q sanderling.session.state.Question
---@return sanderling.approval.Progress?
function M.progress_of(q)
  return q.event.proposal and queue.review.progress_of(q)
end

---@param q sanderling.session.state.Question
---@return boolean
local function is_shown_whole(q)
  return vim.iter(api.nvim_tabpage_list_wins(0)):any(function(win)
    return vim.b[api.nvim_win_get_buf(win)].sanderling_subject_of == q.event.id
  end)
end

--- Kinds of questions whose reason is the request itself.
local ASKED_BY_REASON = { limit = true, form = true, link = true }

---@class (exact) sanderling.approval.BodyOpts
---@field is_terse? boolean little room: show a file change without directory and sandbox
---@field progress? sanderling.approval.Progress
---@field is_in_file? boolean the change is in view in its file, so the float does not repeat it

---@param body sanderling.approval.Body
---@param text string
---@param hl string
---@param width? integer at which it is wrapped, default: not
local function add_text(body, text, hl, width)
  for _, line in ipairs(width and words.wrapped(text, width) or { text }) do
    body.lines[#body.lines + 1] = line
    body.marks[#body.marks + 1] = { row = #body.lines - 1, col = 0, end_col = #line, hl = hl }
  end
end

--- Add the directory and how confined the command is: in one line if it fits, as a wrapped one is hard to read.
---@param body sanderling.approval.Body
---@param q sanderling.session.state.Question
---@param width integer
local function add_place(body, q, width)
  local lines, marks = body.lines, body.marks
  local where = 'in ' .. words.plain(vim.fn.fnamemodify(q.event.cwd, ':~'))
  local child = queue.child_of(q.event)
  local is_known = not child or live.find(child) ~= nil
  local facts = is_known and sandbox.words(child or q.session_id) or {}
  local cells = api.nvim_strwidth(where)
  for _, fact in ipairs(facts) do
    cells = cells + 1 + api.nvim_strwidth(fact.text)
  end
  add_text(body, where, 'AgentStatus')
  if cells > width and #facts > 0 then
    lines[#lines + 1] = ''
  end
  for _, fact in ipairs(facts) do
    local line = lines[#lines] == '' and '' or lines[#lines] .. ' '
    lines[#lines] = line .. fact.text
    local hl = fact.hl or 'AgentStatus'
    marks[#marks + 1] = { row = #lines - 1, col = #line, end_col = #lines[#lines], hl = hl }
  end
end

--- Return what the rule would allow beyond this request, after the keys that allow it: `s/A allows: …`.
---@param event sanderling.ApprovalRequested
---@return string
local function rule_line(event)
  local session = config.key_name(config.options.keys.question_session, ':AgentAllow session')
  local always = config.key_name(config.options.keys.question_always, 'always')
  local is_compound = event.tool == 'bash' and event.subject:find('[;&|\n`]') ~= nil
  return ('%s/%s allows: %s%s'):format(
    session,
    always,
    words.plain(event.rule):gsub('^allow ', ''),
    is_compound and '  (only this command of the line)' or ''
  )
end

--- Add the whole of what would be done.
---@param body sanderling.approval.Body
---@param q sanderling.session.state.Question
---@param width integer
---@param opts sanderling.approval.BodyOpts
local function add_subject(body, q, width, opts)
  local event, lines = q.event, body.lines
  local is_elsewhere = opts.is_in_file or is_shown_whole(q)
  local is_cut = api.nvim_strwidth(heading_of(q)) > heading_room(width)
  if is_cut and not headings[event.kind] and not opts.is_in_file then
    lines[#lines + 1] = words.plain(event.title)
  end
  body.first = #lines + 1
  if not is_elsewhere then
    local left = opts.progress and opts.progress.difference()
    for _, line in ipairs(left or words.lines_of(event.subject)) do
      -- A task is prose, which is hard to read if it is cut within words. Commands and diffs keep their lines.
      local is_wrapped = event.tool == 'delegate' and api.nvim_strwidth(line) > width
      vim.list_extend(lines, is_wrapped and words.wrapped(line, width) or { line })
    end
  end
  body.last = #lines
end

--- Return the body of a question: the whole of what would be done; anything unusual; then, dimmed, why the user is asked, where it
--- would be done and what a rule would allow.
---@param q sanderling.session.state.Question
---@param width integer of the float
---@param opts sanderling.approval.BodyOpts
---@return sanderling.approval.Body
function M.body_of(q, width, opts)
  local event, asker, progress = q.event, asker_of(q), opts.progress
  if choosing.is_for(q) then
    return choosing.body_of(q, width, opts.is_terse, asker)
  end
  local body = { lines = {}, marks = {}, first = 1, last = 0 }
  local is_terse = opts.is_in_file or opts.is_terse and (event.path or '') ~= ''
  if asker then
    add_text(body, asker, 'AgentApprovalTitle', width)
  end
  local is_asked_by_reason = ASKED_BY_REASON[event.kind]
  if is_asked_by_reason then
    add_text(body, words.plain(event.reason), 'AgentApproval', width)
  end
  add_subject(body, q, width, opts)
  for _, warning in ipairs(warnings_of(event, progress)) do
    add_text(body, warning, 'AgentWarning', width)
  end
  body.warned = #body.lines
  for _, line in ipairs(progress and review_lines(progress, width) or {}) do
    add_text(body, line, 'AgentApprovalTitle')
  end
  if not is_terse and #body.lines > 0 then
    body.lines[#body.lines + 1] = ''
  end
  if not is_asked_by_reason then
    add_text(body, words.plain(reason_of(event)), 'AgentStatus', width)
  end
  if not is_terse and event.kind ~= 'form' and event.kind ~= 'link' then
    add_place(body, q, width)
  end
  if (event.rule or '') ~= '' then
    add_text(body, rule_line(event), 'AgentStatus')
  end
  while body.lines[#body.lines] == '' and #body.lines > body.last do
    table.remove(body.lines)
  end
  return body
end

local LEAST_ROWS = 8 -- of the subject that are shown before the lines after it; a diff begins with 4 of context

--- Cut a body to `room` rows: the subject, and if that is not enough the lines after it. Dimmed lines go without a note.
---@param body sanderling.approval.Body
---@param width integer
---@param room integer
---@return sanderling.approval.Body
---@return integer rows
function M.fitted(body, width, room)
  local function rows_in(lines)
    return select(2, first_beyond(lines, width, math.huge))
  end
  local beyond, rows = first_beyond(body.lines, width, room)
  if not beyond then
    return body, rows
  elseif body.first > body.last then
    local head, height = M.head_of(body.lines, width, room)
    return vim.tbl_extend('force', body, { lines = head, more = #head }), height
  end
  local lines = vim.list_slice(body.lines, 1, body.first - 1)
  local subject = vim.list_slice(body.lines, body.first, body.last)
  local after = vim.list_slice(body.lines, body.last + 1)
  local left = room - rows_in(lines)
  local least = first_beyond(subject, width, LEAST_ROWS) and LEAST_ROWS or rows_in(subject)
  local cut = first_beyond(after, width, left - least)
  if cut then
    local is_dimmed = body.last + cut > body.warned
    after = is_dimmed and vim.list_slice(after, 1, cut - 1) or M.head_of(after, width, left - least)
    after[#after] = after[#after] ~= '' and after[#after] or nil
  end
  local head, _, is_cut = M.head_of(subject, width, left - rows_in(after))
  vim.list_extend(vim.list_extend(lines, head), after)
  local marks, shift = {}, #head - #subject
  for _, mark in ipairs(body.marks) do
    local row = mark.row >= body.last and mark.row + shift or mark.row
    marks[#marks + 1] = row < #lines and vim.tbl_extend('force', mark, { row = row }) or nil
  end
  local last = body.first + #head - 1
  return {
    lines = lines,
    marks = marks,
    first = body.first,
    last = is_cut and last - 1 or last,
    more = is_cut and last or nil,
  },
    rows_in(lines)
end

--- Return how to get into the float.
---@param purpose string
---@param width? integer that they may take
---@return string
function M.ways_in(purpose, width)
  local key = config.key_name(config.options.keys.question, '')
  local text = (':Agent question %s'):format(purpose)
  local ways = { key ~= '' and ('%s, %s in the chat'):format(text, key) or text, text }
  for _, way in ipairs(ways) do
    if api.nvim_strwidth(way) <= (width or math.huge) then
      return way
    end
  end
  return ':Agent question'
end

return M
