--- Questions from Markdown templates: `fix.md`, `explain.md` and `test.md`, built in or replaced by the user's.
local M = {}

local api = vim.api
local questions = require('sanderling.inline.questions')
local lazy = require('sanderling.ui.lazy')
local message = require('sanderling.ui.message')
local mentions = require('sanderling.prompt.mentions')
local enclosing = lazy('sanderling.code.enclosing')
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

return M
