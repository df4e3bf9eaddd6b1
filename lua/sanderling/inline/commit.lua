--- :Agent commit: a message for the staged changes in the buffer that `git commit` opens, from the template `commit.md`. The
--- option `commit_trace` adds which lines the agent wrote: an Agent Trace record, as a trailer or a git note.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local config = require('sanderling.config')
local edits = require('sanderling.inline.edits')
local git = require('sanderling.access.git')
local host = require('sanderling.host')
local mentions = require('sanderling.prompt.mentions')
local message = require('sanderling.ui.message')
local regions = require('sanderling.inline.region')
local sources = require('sanderling.prompt.sources')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local group = api.nvim_create_augroup('sanderling_commit', {})

local TRAILER, MAX_TRAILER_BYTES = 'Agent-Trace: ', 8192
local TOO_LONG = "The record is too long for a trailer: set the option commit_trace to 'note'."
local NOT_READY = 'The trailer Agent-Trace is not ready yet: write again to add it.'

--- Return the lines of a commit message: those above the comments, without blank lines at the end.
---@param buf integer
---@return integer first
---@return integer last
local function message_lines(buf)
  local comment = words.trimmed(vim.bo[buf].commentstring:match('^(.-)%%s') or '#')
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

--- Return where git commits: it starts the editor at the top of the work tree, which need not be around the message's file.
---@return string
local function root_of_commit()
  return vim.env.GIT_INDEX_FILE and vim.fn.getcwd() or stored.root_here()
end

-- Agent Trace ---------------------------------------------------------------------------------------------------------

--- Add the trailer to a commit message, or replace the one that it has. A blank message stays so: git then gives up the commit.
---@param buf integer
---@param trailer string
local function add_trailer(buf, trailer)
  local _, last = message_lines(buf)
  local lines = api.nvim_buf_get_lines(buf, 0, last, true)
  local i = #lines
  while i > 0 and lines[i]:find('%S') do
    if vim.startswith(lines[i], TRAILER) then
      return api.nvim_buf_set_lines(buf, i - 1, i, true, { trailer })
    elseif not lines[i]:find('^[%w-]+: ') and not lines[i]:find('^%s') then
      break
    end
    i = i - 1
  end
  if i < #lines or lines[1]:find('%S') then
    local is_after_trailers = i > 0 and i < #lines and not lines[i]:find('%S')
    local added = is_after_trailers and { trailer } or { '', trailer }
    api.nvim_buf_set_lines(buf, last, last, true, added)
  end
end

---@type table<string, fun(buf: integer, root: string)> by the option `commit_trace`
local trace = {}

--- Add the record to the message when it is written.
function trace.trailer(buf, root)
  local trailer ---@type string?
  ask(
    { type = 'trace_staged', project = root, index = vim.env.GIT_INDEX_FILE or '' },
    function(result)
      trailer = result.trace ~= '' and TRAILER .. result.trace or ''
      if #trailer > MAX_TRAILER_BYTES then
        trailer = ''
        message.tell(TOO_LONG, vim.log.levels.WARN)
      end
    end,
    function(sentence)
      trailer = ''
      message.tell('No Agent-Trace: ' .. sentence, vim.log.levels.WARN)
    end
  )
  api.nvim_create_autocmd('BufWritePre', {
    group = group,
    buffer = buf,
    desc = 'Agent: add the trailer Agent-Trace',
    callback = function()
      if not trailer then
        message.tell(NOT_READY, vim.log.levels.WARN)
      elseif trailer ~= '' then
        add_trailer(buf, trailer)
      end
    end,
  })
end

--- Have a process add the record as a note once git has made the commit, which may be after the end of this Neovim.
function trace.note(buf, root)
  local python, err = host.python()
  if not python then
    return message.tell('No note: ' .. err, vim.log.levels.WARN)
  end
  local head ---@type string? the last commit, '' without one
  git.start(root, { 'rev-parse', '--verify', '--quiet', 'HEAD^{commit}' }, function(result)
    head = words.trimmed(result.stdout or '')
  end)
  local is_written = false
  api.nvim_create_autocmd('BufWritePost', {
    group = group,
    buffer = buf,
    desc = 'Agent: remember that there is a commit message',
    callback = function()
      is_written = true
    end,
  })
  api.nvim_create_autocmd('BufUnload', { -- also fires when Neovim ends
    group = group,
    buffer = buf,
    desc = 'Agent: add the note when the commit is made',
    callback = function()
      if is_written and head then
        is_written = false
        local argv = host.argv(python, 'sanderling')
        vim.list_extend(argv, { 'trace', '--note', '--after', head })
        vim.fn.jobstart(argv, { cwd = root, detach = true })
      end
    end,
  })
end

-- the message ---------------------------------------------------------------------------------------------------------

--- Ask for a commit message for the staged changes.
---@param arguments string
function M.write(arguments)
  local buf = commit_buffer()
  if not buf then
    local text =
      'No commit message is open. Use :Agent commit in the buffer that `git commit` opens.'
    return message.tell(text, vim.log.levels.WARN)
  end
  local root = root_of_commit()
  local found, problem = sources.BY_WORD.staged(root)
  local selection, err
  if found then
    selection, err = mentions.selection(found)
  end
  if not selection then
    local why = err or problem == 'no changes' and 'nothing is staged' or problem
    return message.tell(('No commit message generated: %s.'):format(why), vim.log.levels.WARN)
  end
  api.nvim_clear_autocmds({ group = group, buffer = buf })
  if config.options.commit_trace ~= 'off' then
    trace[config.options.commit_trace](buf, root)
  end
  local region = regions.lines(buf, message_lines(buf))
  edits.begin(region, words.trimmed('/commit ' .. arguments), { selection })
end

return M
