--- The text of a question: its title, body and keys.
local M = {}

local api = vim.api
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

---@class (exact) sanderling.approval.Mark
---@field row integer
---@field col integer
---@field end_col integer
---@field hl string

---@class (exact) sanderling.approval.Body
---@field lines string[]
---@field marks sanderling.approval.Mark[]
---@field subject_lnum integer
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
  end
  return words.plain(('Allow %s %s'):format(q.event.tool, q.event.title))
end

---@param line string
---@param width integer
---@return integer
local function rows_of(line, width)
  -- strdisplaywidth() also counts what 'showbreak' and 'linebreak' of the current window, not of the float, would add.
  local cells = line:find('\t') and vim.fn.strdisplaywidth(line) or api.nvim_strwidth(line)
  local continued = width - api.nvim_strwidth(M.showbreak())
  return cells <= width and 1 or 1 + math.ceil((cells - width) / continued)
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
  if not first_beyond(lines, width, height) then
    local _, rows = first_beyond(lines, width, height)
    return lines, rows, false
  end
  local beyond, rows = first_beyond(lines, width, height - 1)
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

--- Add the directory and how confined the command is: in one line if it fits, as a wrapped one is hard to read.
---@param lines string[]
---@param q sanderling.session.state.Question
---@param width integer
---@return sanderling.approval.Mark[]
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

--- Does the subject begin with the title? An address and a diff do not.
---@param event sanderling.ApprovalRequested
---@return boolean
local function says_title(event)
  local title = words.plain(event.title:sub(1, MAX_TITLE_BYTES)):gsub('%s+', ' '):gsub(' ?…$', '')
  local head = event.subject:sub(1, 2 * MAX_TITLE_BYTES) -- megabytes may follow
  return vim.startswith((words.plain(head):gsub('%s+', ' ')), words.trimmed(title))
end

--- Return a line that names the session that asks, if this tab page shows another one.
---@param q sanderling.session.state.Question
---@return string?
local function asker_of(q)
  local session = live.find(q.session_id)
  if session and #live.all() > 1 and not session:is_on_screen() then
    return ('Session %s asks.'):format(icons.quoted(words.plain(session:name())))
  end
end

--- Return the keys that allow what the rule covers, `s/A`.
---@return string
local function rule_keys()
  local session = config.key_name(config.options.keys.question_session, ':AgentAllow session')
  return ('%s/%s'):format(session, config.key_name(config.options.keys.question_always, 'always'))
end

--- Add what the rule would allow beyond this request.
---@param lines string[]
---@param marks sanderling.approval.Mark[]
---@param event sanderling.ApprovalRequested
local function add_rule(lines, marks, event)
  if (event.rule or '') == '' then
    return
  end
  local is_compound = event.tool == 'bash' and event.subject:find('[;&|\n`]') ~= nil
  local rule = rule_keys()
    .. ' allows: '
    .. words.plain(event.rule):gsub('^allow ', '')
    .. (is_compound and '  (only this command of the line)' or '')
  lines[#lines + 1] = rule
  marks[#marks + 1] = { row = #lines - 1, col = 0, end_col = #rule, hl = 'AgentStatus' }
end

---@class (exact) sanderling.approval.Progress hunks, and whether a window shows them
---@field buf integer
---@field left integer not decided yet
---@field count integer
---@field is_shown boolean in this tab page
---@field unseen integer invisible characters in undecided hunks

local GLUE = '\194\160' -- a blank without a line break

--- Return the lines on the progress of the review in the file, and its keys.
---@param progress sanderling.approval.Progress
---@param width integer
---@return string[]
local function review_lines(progress, width)
  local keys = {}
  for _, word in ipairs({ 'next', 'accept', 'reject' }) do
    local name = ui_keys.name_in(progress.buf, word .. '_hunk')
    keys[#keys + 1] = name and name .. GLUE .. word or nil
  end
  local of = progress.left < progress.count and ('%d of '):format(progress.left) or ''
  local state = of .. words.counted(progress.count, 'hunk') .. ' to review in the file:'
  local ways = #keys > 0 and table.concat(keys, ', ') or ':AgentAccept, :AgentReject'
  local lines = { state .. ' ' .. ways }
  if api.nvim_strwidth(lines[1]) > width then
    lines = vim.list_extend(words.wrapped(state, width), words.wrapped(ways, width))
  end
  return vim.tbl_map(function(line)
    return (line:gsub(GLUE, ' '))
  end, lines)
end

--- Add how many characters are invisible, if any.
---@param lines string[]
---@param marks sanderling.approval.Mark[]
---@param count integer characters
---@param width integer
local function add_unseen(lines, marks, count, width)
  local text = ('Contains %s that cannot be seen.'):format(words.counted(count, 'character'))
  for _, line in ipairs(count > 0 and words.wrapped(text, width) or {}) do
    lines[#lines + 1] = line
    marks[#marks + 1] = { row = #lines - 1, col = 0, end_col = #line, hl = 'AgentWarning' }
  end
end

--- Return the short body of a question whose subject is reviewed in its file.
---@param q sanderling.session.state.Question
---@param width integer
---@param progress sanderling.approval.Progress
---@return sanderling.approval.Body
local function small_body_of(q, width, progress)
  local lines = { asker_of(q) }
  vim.list_extend(lines, words.wrapped(words.plain(q.event.reason), width))
  local first, marks = #lines, {}
  vim.list_extend(lines, review_lines(progress, width))
  for row = first, #lines - 1 do
    marks[#marks + 1] = { row = row, col = 0, end_col = #lines[row + 1], hl = 'AgentApprovalTitle' }
  end
  add_unseen(lines, marks, progress.unseen, width)
  add_rule(lines, marks, q.event)
  return { lines = lines, marks = marks, subject_lnum = #lines + 1 }
end

---@param q sanderling.session.state.Question
---@return sanderling.approval.Progress?
local function progress_of(q)
  return q.event.proposal and queue.review.progress_of(q)
end

---@param q sanderling.session.state.Question
---@return boolean
function M.is_shown_in_file(q)
  local progress = progress_of(q)
  return progress ~= nil and progress.is_shown
end

---@param q sanderling.session.state.Question
---@return boolean
local function is_shown_whole(q)
  return vim.iter(api.nvim_tabpage_list_wins(0)):any(function(win)
    return vim.b[api.nvim_win_get_buf(win)].sanderling_subject_of == q.event.id
  end)
end

---@param q sanderling.session.state.Question
---@param width integer of the float
---@param is_terse? boolean little room: show a file change without directory and sandbox
---@return sanderling.approval.Body
function M.body_of(q, width, is_terse)
  local event = q.event
  if choosing.is_for(q) then
    return choosing.body_of(q, width, is_terse, asker_of(q))
  end
  local progress = progress_of(q)
  if progress and progress.is_shown then
    return small_body_of(q, width, progress)
  end
  is_terse = is_terse and (event.path or '') ~= ''
  local asker = asker_of(q)
  local lines = asker and { asker } or {}
  local reason = words.plain(event.reason)
    .. (progress and ' :Agent reviews shows it in the file.' or '')
  vim.list_extend(lines, words.wrapped(reason, width))
  local is_cut = api.nvim_strwidth(heading_of(q)) > heading_room(width)
  if is_cut and not headings[event.kind] and not says_title(event) then
    lines[#lines + 1] = words.plain(event.title)
  end
  local asks_back = event.kind == 'form' or event.kind == 'link'
  local marks = (asks_back or is_terse) and {} or add_place(lines, q, width)
  if asker then
    marks[#marks + 1] = { row = 0, col = 0, end_col = #asker, hl = 'AgentApprovalTitle' }
  end
  add_unseen(lines, marks, progress and progress.unseen or 0, width)
  add_rule(lines, marks, event)
  if is_shown_whole(q) then
    return { lines = lines, marks = marks, subject_lnum = #lines + 1 }
  end
  lines[#lines + 1] = not is_terse and '' or nil
  local subject_lnum = #lines + 1
  vim.list_extend(lines, words.lines_of(event.subject))
  return { lines = lines, marks = marks, subject_lnum = subject_lnum }
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
