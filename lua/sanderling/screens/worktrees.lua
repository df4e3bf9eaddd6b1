--- :AgentWorktrees: the worktrees of the project's sessions, with what removing them would lose, and keys to see what
--- they changed, to apply it here, and to remove them.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local chat = require('sanderling.chat')
local float = require('sanderling.ui.float')
local icons = require('sanderling.ui.icons')
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local closed_files = lazy('sanderling.review.closed_files')
local hunks = lazy('sanderling.review.hunks')

local INDENT = '    '
local NONE = 'No worktrees. :AgentNew worktree opens a session in one.'
local NAMED = {
  { 'worktrees_diff', 'changes' },
  { 'worktrees_apply', 'apply' },
  { 'worktrees_open', 'session' },
  { 'worktrees_remove', 'remove' },
  { 'close', 'close' },
}
local ns = api.nvim_create_namespace('sanderling_worktrees')

---@class (exact) sanderling.screens.worktrees.Page
---@field buf integer
---@field win integer
---@field project string
---@field worktrees table<integer, sanderling.ShownWorktree> by lnum

---@type sanderling.screens.worktrees.Page?
local shown

---@param worktree sanderling.ShownWorktree
---@return string
local function title_of(worktree)
  local age = stored.age(os.time() - worktree.created_at)
  local size = worktree.directory and words.bytes(worktree.size_bytes or 0) or 'removed'
  local ref = worktree.ref ~= '' and worktree.ref or nil
  local from = ('from %s at %s'):format(ref or 'HEAD', worktree.base)
  local session, child = live.find(worktree.session_id), live.find_child(worktree.session_id)
  local title = session and session:name() or child and child.task
  local facts = { size, age, from, title and icons.quoted(title) or nil }
  return worktree.name .. '  ' .. table.concat(facts, icons.separator)
end

---@param worktrees sanderling.ShownWorktree[]
---@return string[] lines
---@return table<integer, sanderling.ShownWorktree> of each line, by lnum
---@return table[] marks
local function text_of(worktrees)
  local lines, of, marks = {}, {}, {}
  for _, worktree in ipairs(worktrees) do
    local function add(line, hl)
      lines[#lines + 1] = words.plain(line)
      of[#lines] = worktree
      marks[#marks + 1] = { row = #lines - 1, hl = hl }
    end
    add(title_of(worktree), 'AgentBusy')
    add(INDENT .. (worktree.directory or worktree.kept_ref), 'AgentStatus')
    if worktree.loss then
      add(INDENT .. 'removing loses ' .. worktree.loss, 'AgentWarning')
    else
      add(INDENT .. 'removing loses nothing', 'AgentStatus')
    end
    for _, note in ipairs(worktree.notes or {}) do
      add(INDENT .. note, 'AgentStatus')
    end
  end
  return lines, of, marks
end

--- Draw the list; the cursor stays on its worktree.
---@param worktrees sanderling.ShownWorktree[]
local function fill(worktrees)
  local self = assert(shown)
  local before = self.worktrees[vim.fn.line('.', self.win)]
  local lines, of, marks = text_of(worktrees)
  vim.bo[self.buf].modifiable = true
  api.nvim_buf_set_lines(self.buf, 0, -1, true, lines)
  vim.bo[self.buf].modifiable = false
  api.nvim_buf_clear_namespace(self.buf, ns, 0, -1)
  for _, mark in ipairs(marks) do
    local opts = { end_col = #lines[mark.row + 1], hl_group = mark.hl }
    api.nvim_buf_set_extmark(self.buf, ns, mark.row, 0, opts)
  end
  self.worktrees = of
  for lnum in vim.spairs(of) do
    if before and of[lnum].name == before.name then
      return api.nvim_win_set_cursor(self.win, { lnum, 0 })
    end
  end
end

---@param sentence string
local function complain(sentence)
  message.tell(sentence, vim.log.levels.ERROR)
end

---@param project string
---@param on_answer fun(worktrees: sanderling.ShownWorktree[], is_here: boolean)
local function list(project, on_answer)
  ask({ type = 'list_worktrees', project = project }, function(found, is_here)
    on_answer(found.worktrees, is_here)
  end, complain)
end

local function read_again()
  list(assert(shown).project, function(worktrees)
    if not shown then
      return
    elseif #worktrees == 0 then
      api.nvim_buf_delete(shown.buf, { force = true })
    else
      fill(worktrees)
    end
  end)
end

---@param fn fun(worktree: sanderling.ShownWorktree, project: string)
---@return fun()
local function with_worktree(fn)
  return function()
    local self = assert(shown)
    local worktree = self.worktrees[vim.fn.line('.')]
    if worktree then
      fn(worktree, self.project)
    end
  end
end

local show_diff = with_worktree(function(worktree, project)
  local request = { type = 'diff_worktree', project = project, name = worktree.name }
  ask(request, function(found)
    if found.text == '' then
      return message.tell(('%s changed nothing.'):format(worktree.name))
    end
    local lines = words.lines_of(found.text)
    local buf = page.view('Changes in ' .. worktree.name, lines, 'worktree-diff')
    vim.bo[buf].syntax = 'diff'
  end, complain)
end)

--- Return the session that makes the changes of a worktree, and show it: one that works in the project itself, or has the worktree from a
--- child of its own. It is the current one, another, or a new one.
---@param worktree sanderling.ShownWorktree
---@param project string
---@return sanderling.chat.session.Session
local function session_for(worktree, project)
  local _, parent = live.find_child(worktree.session_id)
  local function fits(session)
    local is_in_project = session.project == project and session.state.worktree == ''
    return session == parent or is_in_project and session.id ~= worktree.session_id
  end
  local current = live.current()
  if current and fits(current) then
    return current
  end
  local other = vim.iter(live.chats()):find(fits)
  if other then
    return chat.open(other.id, other.project, {})
  end
  chat.new()
  return assert(live.current())
end

local apply = with_worktree(function(worktree, project)
  api.nvim_win_close(assert(shown).win, true)
  session_for(worktree, project):act({ type = 'apply_worktree', name = worktree.name })
end)

local open_session = with_worktree(function(worktree, project)
  if not worktree.directory then
    return complain(('The worktree %s was removed.'):format(worktree.name))
  end
  api.nvim_win_close(assert(shown).win, true)
  chat.open(worktree.session_id, project, { focus = true })
end)

--- Drop what is to review in the files of a removed worktree.
---@param directory? string a real path
local function drop_changes(directory)
  if not (directory and package.loaded['sanderling.review.closed_files']) then
    return
  end
  for _, file in ipairs(closed_files.list()) do
    if vim.startswith(file.path, directory .. '/') then
      closed_files.forget(file.path)
    end
  end
  for _, buf in ipairs(hunks.buffers()) do
    if vim.startswith(vim.fn.resolve(api.nvim_buf_get_name(buf)), directory .. '/') then
      hunks.accept(hunks.list(buf))
    end
  end
end

local remove = with_worktree(function(worktree, project)
  local loss = worktree.loss or ''
  local prompt = ('Remove the worktree %s, and lose %s?'):format(
    worktree.name,
    loss ~= '' and loss or 'nothing'
  )
  local directory = vim.uv.fs_realpath(worktree.directory or '')
  message.confirm(words.plain(prompt), { 'Remove it', 'Keep it' }, function()
    local request =
      { type = 'remove_worktree', project = project, name = worktree.name, loses = loss }
    ask(request, function(removed)
      drop_changes(directory)
      local kept = removed.kept_ref and (' %s keeps its files.'):format(removed.kept_ref) or ''
      message.tell(('Removed the worktree %s.%s'):format(worktree.name, kept))
      if shown then
        read_again()
      end
    end, complain)
  end)
end)

---@param project string
---@param worktrees sanderling.ShownWorktree[]
local function open(project, worktrees)
  local lines, of = text_of(worktrees)
  local buf, win = page.view('Worktrees', lines, 'worktrees', {
    place = 'worktrees',
    footer = float.naming(NAMED),
    on_close = function()
      shown = nil
    end,
    actions = {
      worktrees_diff = show_diff,
      worktrees_apply = apply,
      worktrees_open = open_session,
      worktrees_remove = remove,
    },
  })
  shown = { buf = buf, win = win, project = project, worktrees = of }
  fill(worktrees)
end

--- Show the worktrees of the project.
function M.show()
  if shown then
    return api.nvim_set_current_win(shown.win)
  end
  local project = stored.project_here()
  list(project, function(worktrees, is_here)
    if #worktrees == 0 then
      message.tell(NONE)
    elseif not is_here then
      message.tell('Worktrees read. Run :AgentWorktrees again to show them.')
    else
      open(project, worktrees)
    end
  end)
end

return M
