--- :AgentAgain: repeats the last prompt in a fork of the session that works on a private copy, and shows both results
--- next to each other. The user reviews the second one's changes as hunks that replace the first one's, or takes lines in
--- diff mode.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local float = require('sanderling.ui.float')
local icons = require('sanderling.ui.icons')
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local loading = lazy('sanderling.access.loading')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')
local worktrees = lazy('sanderling.screens.worktrees')

local ns = api.nvim_create_namespace('sanderling_again')

local NO_REPEATED = 'No prompt was repeated here. :AgentAgain repeats the last one.'
local COMPARE = ':AgentAgain! compares both results.'
local NAMED = {
  { 'again_diff', 'diff' },
  { 'again_apply', 'apply' },
  { 'again_remove', 'remove' },
  { 'close', 'close' },
}

---@param sentence string
local function complain(sentence)
  message.tell(sentence, vim.log.levels.WARN)
end

-- repeating -----------------------------------------------------------------------------------------------------------

---@type table<string, sanderling.RepeatedPrompt> prompts that are about to be sent, by their new session
local starting = {}
---@type table<string, true> sessions in which the repeated turn runs
local running = {}

---@param session sanderling.chat.session.Session
---@param found sanderling.RepeatedPrompt
local function send(session, found)
  local about =
    { ('Repeats the prompt with %s in a private copy.'):format(found.model), found.cost }
  vim.list_extend(about, found.notes or {})
  session:say('info', words.plain(table.concat(about, ' ')))
  running[session.id] = true
  local opts = { selections = found.prompt.selections, is_verbatim = true }
  session:send(vim.split(found.prompt.text, '\n', { plain = true }), opts)
end

bus.subscribe('history_shown', function(session_id)
  vim.schedule(function() -- after it is drawn
    local session, found = live.find(session_id), starting[session_id]
    if session and found then
      starting[session_id] = nil
      send(session, found)
    end
  end)
end)

bus.subscribe('turn_ended', function(session_id)
  if running[session_id] then
    running[session_id] = nil
    vim.schedule(function()
      local session = live.find(session_id)
      if session then
        session:say('info', COMPARE)
      end
    end)
  end
end)

---@param session sanderling.chat.session.Session
---@param model string
local function repeat_prompt(session, model)
  local request = { type = 'repeat_prompt', new_id = stored.new_id(), model = model }
  session:ask(request, function(found, is_here)
    starting[request.new_id] = found
    chat.open(request.new_id, session.project, { focus = is_here })
  end, complain)
end

-- comparing -----------------------------------------------------------------------------------------------------------

--- Two results of a prompt: the first is in the files of its session, the second in the worktree.
---@class (exact) sanderling.screens.again.Pair
---@field first sanderling.chat.session.Session
---@field second sanderling.chat.session.Session
---@field worktree sanderling.ShownWorktree

---@param id string
---@param project string
---@return sanderling.chat.session.Session
local function session_of(id, project)
  return live.find(id) or chat.begin_hidden(id, project)
end

---@param pair sanderling.screens.again.Pair
local function remove_copy(pair)
  local project = pair.first.project
  worktrees.remove(pair.worktree, project, {
    before = function()
      chat.remove(pair.second)
    end,
  })
end

---@type table<string, sanderling.screens.again.Pair> whose second result is being applied, by the worktree
local applying = {}

bus.subscribe('files_restored', function(_, event)
  local pair = applying[event.worktree or '']
  if not pair then
    return
  end
  applying[event.worktree] = nil
  local is_whole = vim.iter(event.files or {}):all(function(file)
    return file.how ~= 'left'
  end)
  vim.schedule(function()
    if is_whole then
      chat.remove(pair.second)
      worktrees.forget(pair.worktree, pair.first.project)
    else
      complain('Some lines were not replaced, so the second result stays. ' .. COMPARE)
    end
  end)
end)

---@param file sanderling.ChangedFile
---@return string
local function line_of(file)
  local what = file.what ~= 'changed' and file.what .. ' ' or ''
  local counts = words.counts(file.added or 0, file.removed or 0)
  return ('  %s  %s%s'):format(words.plain(file.path), what, counts)
end

---@param result sanderling.TurnResult
---@return string[] lines
---@return table<integer, string> paths by lnum
local function lines_of(result)
  local cost = result.is_priced and words.dollars(result.usd) or '$?'
  local files = result.files or {}
  local facts = { result.model, cost, words.counted(#files, 'file') }
  facts[#facts + 1] = result.is_running and 'still running' or nil
  local lines = { words.plain(table.concat(facts, icons.separator)) }
  local paths = {} ---@type table<integer, string>
  for _, file in ipairs(files) do
    lines[#lines + 1] = line_of(file)
    paths[#lines] = file.path
  end
  lines[#lines + 1] = ''
  for _, line in ipairs(words.lines_of(result.answer)) do
    lines[#lines + 1] = words.plain(line)
  end
  return lines, paths
end

--- Compare a file of both results in Neovim's diff mode, in a tab page of its own.
---@param sides [string, string] directories
---@param path string
local function show_file(sides, path)
  for i, side in ipairs(sides) do
    local buf, problem = loading.load(vim.fs.joinpath(side, path))
    if not buf then
      return complain(assert(problem))
    end
    if i == 1 then
      vim.cmd.tabnew()
    else
      vim.cmd('rightbelow vnew')
    end
    vim.bo.bufhidden = 'wipe'
    loading.show(api.nvim_get_current_win(), buf)
    vim.cmd.diffthis()
    vim.wo[0][0].winbar = ('%s: %s'):format(
      i == 1 and 'First result' or 'Second result',
      (words.plain(path):gsub('%%', '%%%%'))
    )
  end
  vim.cmd.wincmd('p')
end

---@param pair sanderling.screens.again.Pair
---@param results [sanderling.TurnResult, sanderling.TurnResult]
local function show(pair, results)
  vim.cmd.tabnew()
  vim.bo.bufhidden = 'wipe'
  local bufs = {} ---@type integer[]
  local sides = { assert(pair.worktree.source), assert(pair.worktree.directory) }
  local function close()
    for _, buf in ipairs(bufs) do
      if api.nvim_buf_is_valid(buf) then
        api.nvim_buf_delete(buf, { force = true })
      end
    end
  end
  for i, result in ipairs(results) do
    local lines, paths = lines_of(result)
    local buf = page.new_buffer(i == 1 and 'again-first' or 'again-second', {})
    bufs[i] = buf
    local marks = { { row = 0, end_col = #lines[1], hl = 'AgentBusy' } }
    for lnum in pairs(paths) do
      marks[#marks + 1] = { row = lnum - 1, end_col = #lines[lnum], hl = 'AgentStatus' }
    end
    page.write(buf, ns, lines, marks)
    if i == 2 then
      vim.cmd('rightbelow vsplit')
    end
    loading.show(api.nvim_get_current_win(), buf)
    vim.wo[0][0].wrap, vim.wo[0][0].linebreak = true, true
    vim.wo[0][0].winbar = i == 1 and ' First result, in the project'
      or ' Second result, in its copy'
    vim.wo[0][0].statusline = (float.naming(NAMED):gsub('%%', '%%%%'))
    page.set_keys(buf, 'again', {
      again_diff = function()
        local path = paths[vim.fn.line('.')]
        if path then
          show_file(sides, path)
        end
      end,
      again_apply = function()
        if results[2].is_running then
          return complain('The second result is not finished. Wait, or stop its turn.')
        end
        close()
        applying[pair.worktree.name] = pair
        chat.open(pair.first.id, pair.first.project, {})
        pair.first:act({ type = 'apply_worktree', name = pair.worktree.name })
      end,
      again_remove = function()
        close()
        remove_copy(pair)
      end,
      close = close,
      close_page = close,
    })
  end
end

--- Show both results of the prompt that was repeated last, in the current session if there are several.
function M.compare()
  local project, current = stored.project_here(), live.current_id()
  ask({ type = 'list_worktrees', project = project }, function(found)
    local repeated = vim.tbl_filter(function(worktree)
      return worktree.repeated_session ~= nil and worktree.directory ~= nil
    end, found.worktrees or {})
    local own = vim.iter(repeated):find(function(worktree)
      return current == worktree.session_id or current == worktree.repeated_session
    end)
    local worktree = own or repeated[1]
    if not worktree then
      return message.tell(NO_REPEATED)
    end
    local pair = {
      first = session_of(worktree.repeated_session, project),
      second = session_of(worktree.session_id, project),
      worktree = worktree,
    }
    pair.first:ask({ type = 'show_result', turn = worktree.repeated_turn }, function(first)
      pair.second:ask({ type = 'show_result' }, function(second)
        show(pair, { first, second })
      end)
    end)
  end, complain)
end

---@param call sanderling.verbs.Call
function M.run(call)
  if call.bang then
    M.compare()
  else
    repeat_prompt(call.session, call.args)
  end
end

return M
