--- :AgentWorktrees: the worktrees of the project's sessions, with what removing them would lose, and keys to see what
--- they changed, to apply it here, and to remove them.
local M = {}

local Listing = require('sanderling.screens.listing')
local api = vim.api
local ask = require('sanderling.host.ask')
local chat = require('sanderling.chat')
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

---@param worktree sanderling.ShownWorktree
---@param add fun(line: string, hl: string)
local function write(worktree, add)
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

local listing ---@type sanderling.screens.Listing
local project ---@type string whose worktrees are listed

---@param worktree sanderling.ShownWorktree
local function show_diff(worktree)
  local request = { type = 'diff_worktree', project = project, name = worktree.name }
  ask(request, function(found)
    if found.text == '' then
      return message.tell(('%s changed nothing.'):format(worktree.name))
    end
    local lines = words.lines_of(found.text)
    local buf = page.view('Changes in ' .. worktree.name, lines, 'worktree-diff')
    vim.bo[buf].syntax = 'diff'
  end, Listing.complain)
end

--- Return the session that makes the changes of a worktree, and show it: the one with the first result of a repeated prompt, else one
--- that works in the project itself, or has the worktree from a child of its own. It is the current one, another, or a new one.
---@param worktree sanderling.ShownWorktree
---@return sanderling.chat.session.Session
local function session_for(worktree)
  if worktree.repeated_session then
    return chat.open(worktree.repeated_session, project, {})
  end
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

---@param worktree sanderling.ShownWorktree
local function apply(worktree)
  listing:close()
  session_for(worktree):act({ type = 'apply_worktree', name = worktree.name })
end

---@param worktree sanderling.ShownWorktree
local function open_session(worktree)
  if not worktree.directory then
    return Listing.complain(('The worktree %s was removed.'):format(worktree.name))
  end
  listing:close()
  chat.open(worktree.session_id, project, { focus = true })
end

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

---@param request table
---@param worktree sanderling.ShownWorktree
---@param on_removed fun(removed: table)
local function ask_to_remove(request, worktree, on_removed)
  local directory = vim.uv.fs_realpath(worktree.directory or '')
  ask(request, function(removed)
    drop_changes(directory)
    on_removed(removed)
  end, Listing.complain)
end

---@class (exact) sanderling.screens.worktrees.Removing
---@field before? fun() called once the user has agreed
---@field on_removed? fun()

--- Remove a worktree, after naming what is lost.
---@param worktree sanderling.ShownWorktree
---@param of string its project
---@param opts sanderling.screens.worktrees.Removing
function M.remove(worktree, of, opts)
  local loss = worktree.loss or ''
  local prompt = ('Remove the worktree %s, and lose %s?'):format(
    worktree.name,
    loss ~= '' and loss or 'nothing'
  )
  message.confirm(words.plain(prompt), { 'Remove it', 'Keep it' }, function()
    if opts.before then
      opts.before()
    end
    local request = { type = 'remove_worktree', project = of, name = worktree.name, loses = loss }
    ask_to_remove(request, worktree, function(removed)
      local kept = removed.kept_ref and (' %s keeps its files.'):format(removed.kept_ref) or ''
      message.tell(('Removed the worktree %s.%s'):format(worktree.name, kept))
      if opts.on_removed then
        opts.on_removed()
      end
    end)
  end)
end

--- Remove a worktree whose work was applied, and what was kept of it.
---@param worktree sanderling.ShownWorktree
---@param of string its project
function M.forget(worktree, of)
  local request =
    { type = 'remove_worktree', project = of, name = worktree.name, is_applied = true }
  ask_to_remove(request, worktree, function()
    message.tell(('Applied the work in %s and removed it.'):format(worktree.name))
  end)
end

listing = Listing.new({
  title = 'Worktrees',
  place = 'worktrees',
  none = 'No worktrees. :AgentNew worktree opens a session in one.',
  keys = {
    { 'worktrees_diff', 'changes' },
    { 'worktrees_apply', 'apply' },
    { 'worktrees_open', 'session' },
    { 'worktrees_remove', 'remove' },
    { 'close', 'close' },
  },
  request = function()
    return { type = 'list_worktrees', project = project }
  end,
  key = 'name',
  write = write,
  actions = {
    worktrees_diff = show_diff,
    worktrees_apply = apply,
    worktrees_open = open_session,
    worktrees_remove = function(worktree)
      M.remove(worktree, project, {
        on_removed = function()
          listing:refresh()
        end,
      })
    end,
  },
})

--- Show the worktrees of the project.
function M.show()
  if not listing:is_shown() then
    project = stored.project_here()
  end
  listing:show()
end

return M
