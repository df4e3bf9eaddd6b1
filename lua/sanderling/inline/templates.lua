--- Questions from Markdown templates: `fix.md`, `explain.md`, `test.md` and `commit.md`, built in or replaced by the user's.
local M = {}

local api = vim.api
local questions = require('sanderling.inline.questions')
local lazy = require('sanderling.ui.lazy')
local message = require('sanderling.ui.message')
local mentions = require('sanderling.prompt.mentions')
local enclosing = lazy('sanderling.code.enclosing')
local regions = lazy('sanderling.inline.region')
local edits = lazy('sanderling.inline.edits')
local sources = require('sanderling.prompt.sources')
local stored = require('sanderling.session.stored')

---@param name string
---@param arguments string
---@return string
local function command(name, arguments)
  return vim.trim(('/%s %s'):format(name, arguments))
end

---@return [integer, integer]
local function line_here()
  local lnum = api.nvim_win_get_cursor(0)[1]
  return { lnum, lnum }
end

--- Return the lines that a question about `range` is about: for one line, the function around it.
---@param range? [integer, integer]
---@return [integer, integer]
local function meant(range)
  range = range or line_here()
  if range[1] ~= range[2] then
    return range
  end
  return enclosing.lines(api.nvim_get_current_buf(), range[1])
end

--- Ask to fix the diagnostics of `range`, of the cursor's line, or of the whole buffer.
---@param arguments string
---@param range? [integer, integer]
---@param is_all boolean
function M.fix(arguments, range, is_all)
  local buf = api.nvim_get_current_buf()
  range = is_all and { 1, api.nvim_buf_line_count(buf) } or range or line_here()
  local found, lines = sources.reported(buf, stored.project_here(), range)
  local selection = found and mentions.selection(found)
  if not selection then
    local hint = is_all and '' or ' :AgentFix! takes the whole buffer.'
    return message.tell('No diagnostics here.' .. hint, vim.log.levels.WARN)
  end
  questions.ask(
    command('fix', arguments),
    is_all and lines or meant(range),
    { answer = 'chat', extra = { selection } }
  )
end

--- Ask for an explanation of `range`, or of the function at the cursor.
---@param arguments string
---@param range? [integer, integer]
function M.explain(arguments, range)
  questions.ask(command('explain', arguments), meant(range))
end

--- Ask for tests of `range`, or of the code at the cursor.
---@param arguments string
---@param range? [integer, integer]
function M.test(arguments, range)
  questions.ask(command('test', arguments), meant(range), { answer = 'chat' })
end

-- commit messages -----------------------------------------------------------------------------------------------------

--- Return the lines of a commit message: those above the comments, without blank lines at the end.
---@param buf integer
---@return integer first
---@return integer last
local function message_lines(buf)
  local comment = vim.trim(vim.bo[buf].commentstring:match('^(.-)%%s') or '#')
  local lines, last = api.nvim_buf_get_lines(buf, 0, -1, false), nil
  for i, line in ipairs(lines) do
    if comment ~= '' and vim.startswith(line, comment) then
      last = i - 1
      break
    end
  end
  last = last or #lines
  while last > 1 and not lines[last]:find('%S') do
    last = last - 1
  end
  if last == 0 then -- no line for it yet
    api.nvim_buf_set_lines(buf, 0, 0, true, { '' })
  end
  return 1, math.max(1, last)
end

--- Return the buffer of a commit message: the current one, or one in this tab page.
---@return integer?
local function commit_buffer()
  local here = { api.nvim_get_current_win() }
  for _, win in ipairs(vim.list_extend(here, api.nvim_tabpage_list_wins(0))) do
    local buf = api.nvim_win_get_buf(win)
    if vim.bo[buf].filetype == 'gitcommit' then
      return buf
    end
  end
end

--- Ask for a commit message for the staged changes.
---@param arguments string
function M.commit(arguments)
  local buf = commit_buffer()
  if not buf then
    local text =
      'No commit message is open. Use :Agent commit in the buffer that `git commit` opens.'
    return message.tell(text, vim.log.levels.WARN)
  end
  local found, problem = sources.BY_WORD.staged(stored.root_here())
  local selection, err
  if found then
    selection, err = mentions.selection(found)
  end
  if not selection then
    local why = err or problem == 'no changes' and 'nothing is staged' or problem
    return message.tell(('No commit message generated: %s.'):format(why), vim.log.levels.WARN)
  end
  local region = regions.lines(buf, message_lines(buf))
  edits.begin(region, command('commit', arguments), { selection })
end

return M
