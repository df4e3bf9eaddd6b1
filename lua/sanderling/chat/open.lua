--- Sessions in the chat's windows: start, show, switch and close them.
local api = vim.api
local lazy = require('sanderling.ui.lazy')
local bars = require('sanderling.ui.bars')
local bus = require('sanderling.host.bus')
local config = require('sanderling.config')
local ending = require('sanderling.session.ending')
local extensions = lazy('sanderling.extend.extensions')
local files = require('sanderling.access.files')
local log = require('sanderling.host.log')
local keys = require('sanderling.chat.keys')
local layout = require('sanderling.chat.layout')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')
local session_module = require('sanderling.chat.session')
local states = require('sanderling.session.state')
local stored = require('sanderling.session.stored')
local tabs = require('sanderling.chat.tabs')
local window_options = require('sanderling.chat.window_options')

local M = {}

---@param session sanderling.chat.session.Session
local function watch(session)
  local function on(events, bufs, desc, callback)
    for _, buf in ipairs(bufs) do
      api.nvim_create_autocmd(events, {
        group = tabs.augroup,
        buffer = buf,
        desc = 'Agent: ' .. desc,
        callback = callback,
      })
    end
  end
  local both = session:buffers()
  for _, buf in ipairs(both) do
    api.nvim_clear_autocmds({ group = tabs.augroup, buffer = buf })
  end
  on(
    { 'TextChanged', 'TextChangedI', 'TextChangedP' },
    { session.prompt and session.prompt.buf },
    'update the prompt',
    function()
      tabs.draw_prompt(session)
      session:keep_draft()
    end
  )
  on(
    { 'ModeChanged', 'WinEnter', 'WinLeave' },
    both,
    'update the mode in the winbar',
    vim.schedule_wrap(bars.redraw)
  )
  on(
    'BufWinEnter',
    { session.transcript_buf },
    'add folds and highlights to a new window',
    function()
      local win = api.nvim_get_current_win()
      window_options.set_transcript(win)
      if session:is_whole() then
        session.transcript:show_in(win)
      end
    end
  )
  on('BufEnter', both, 'make its session current', function()
    if session.prompt and not tabs.is_swapping then
      live.set_current(session)
    end
  end)
  on('BufLeave', { session.transcript_buf }, 'save the view, as a file may be next', function()
    local windows = tabs.windows_by_tab[api.nvim_get_current_tabpage()]
    local win = api.nvim_get_current_win()
    if windows and windows.transcript == win then
      tabs.save_view(session, win)
    end
  end)
  on('QuitPre', both, 'distinguish :quit from other ways to close a window', function()
    tabs.is_quitting = true
    vim.schedule(function()
      tabs.is_quitting = false
    end)
  end)
end

---@type table<string, sanderling.chat.Action> by key option
local actions

---@param by_option table<string, sanderling.chat.Action>
function M.register(by_option)
  actions = by_option
end

--- Set up keys and autocommands of a session's buffers. A hidden session, which has no prompt, gets only the keys of a
--- transcript.
---@param session sanderling.chat.session.Session
local function set_up(session)
  local prompt = session.prompt
  local mine = vim.tbl_map(function(action)
    return function(lhs)
      action(session, lhs)
    end
  end, actions)
  keys.set(session.transcript_buf, prompt and prompt.buf, mine)
  watch(session)
  if prompt then
    keys.set_words(session)
    prompt:draw_placeholder()
  end
end

--- Create the prompt of a hidden session.
---@param session sanderling.chat.session.Session
function M.give_prompt(session)
  if not session.prompt then
    session:make_prompt()
    set_up(session)
    session.todo:draw()
  end
end

--- Close the remaining windows of chats that are no longer complete.
local function close_torn_chats()
  for tab, windows in pairs(tabs.windows_by_tab) do
    if api.nvim_tabpage_is_valid(tab) and not tabs.shown_in(tab) then
      tabs.windows_by_tab[tab] = nil
      layout.close(vim.tbl_filter(function(win)
        return api.nvim_win_is_valid(win) and live.of_buffer(api.nvim_win_get_buf(win)) ~= nil
      end, { windows.prompt, windows.transcript }))
    end
  end
end

--- Restore deleted or emptied buffers of all sessions. If something is still running in one, say so.
local function restore_sessions()
  local is_any_new, is_any_busy = false, false
  for _, session in ipairs(live.all()) do
    if not session:is_whole() then
      local is_new = session:restore()
      if is_new then
        set_up(session)
      end
      for _, win in ipairs(vim.fn.win_findbuf(session.transcript_buf)) do
        tabs.restore_view(session, win)
      end
      is_any_new = is_any_new or is_new
      is_any_busy = is_any_busy
        or is_new and session.prompt ~= nil and states.is_busy(session.state)
    end
  end
  if is_any_new then
    close_torn_chats()
  end
  if is_any_busy then
    local text = 'Still running in the background. :AgentChat shows it, :AgentStop stops it.'
    message.tell(text, vim.log.levels.WARN)
  end
end

local is_restoring = false

--- Restore sessions as soon as text may be changed.
local function restore_sessions_soon()
  if is_restoring then
    return
  end
  is_restoring = true
  vim.schedule(function()
    is_restoring = false
    locked.retry(restore_sessions, log.note_defect)
  end)
end

---@return sanderling.chat.session.Session
local function new_session()
  return session_module.new({ on_lost = restore_sessions_soon, on_sent = tabs.go_to_end })
end

---@param session sanderling.chat.session.Session
---@param id? string
---@param project? string
---@param agent? string the external agent, if any
---@param worktree? string see `Session:begin`
---@return sanderling.chat.session.Session
local function begin(session, id, project, agent, worktree)
  if next(config.options.extensions) then
    extensions.load_configured()
  end
  session:begin(id or stored.new_id(), project or stored.root_here(), agent, worktree)
  set_up(session)
  live.add(session)
  return session
end

--- Start a hidden session: without prompt and windows, its transcript drawn in a hidden buffer. `M.open` shows it and
--- gives it a prompt.
---@param id? string of a stored session; nil: start a new one
---@param project? string
---@return sanderling.chat.session.Session
function M.begin_hidden(id, project)
  return begin(new_session(), id, project)
end

--- Start a session in new buffers, or resume the session `id`, and make it current.
---@param id? string
---@param project? string
---@param agent? string
---@param worktree? string
---@return sanderling.chat.session.Session
local function add_session(id, project, agent, worktree)
  local session = new_session()
  session:make_prompt()
  begin(session, id, project, agent, worktree)
  live.set_current(session)
  return session
end

--- Close `session`. Windows that show it show the next one, or close.
---@param session sanderling.chat.session.Session
function M.remove(session)
  session:close()
  local other = live.neighbour(session, 1)
  for tab in pairs(tabs.windows_by_tab) do
    local windows, shown = tabs.shown_in(tab)
    if windows and shown == session and other ~= session then
      tabs.put(other, windows)
    elseif shown == session then
      tabs.hide(tab)
    end
  end
  live.remove(session)
  session:delete_buffers()
end

--- Return the current session, or start one. Deleted buffers are restored first.
---@return sanderling.chat.session.Session
function M.current_session()
  restore_sessions()
  return live.current() or add_session()
end

--- Replace `session` by another one in the same buffers.
---@param session sanderling.chat.session.Session
---@param id string
---@param project string
---@param agent? string
---@return sanderling.chat.session.Session
function M.replace(session, id, project, agent)
  local previous_id = session.id
  session:close()
  session:begin(id, project, agent)
  bus.announce('AgentSessionChanged', { session_id = id, previous_id = previous_id })
  session:open()
  return session
end

---@class (exact) sanderling.chat.Entry
---@field id string
---@field title string empty if it has none
---@field name string the title, or the start time
---@field project string
---@field is_current boolean
---@field is_busy boolean a turn or command is running or queued
---@field transcript_buf integer
---@field prompt_buf integer

--- Return the sessions that the chat can show, in the order of the keys that switch between them.
---@return sanderling.chat.Entry[]
function M.list()
  return vim.tbl_map(function(session)
    return {
      id = session.id,
      title = session.state.title,
      name = session:name(),
      project = session.project,
      is_current = session == live.current(),
      is_busy = states.is_busy(session.state),
      transcript_buf = session.transcript_buf,
      prompt_buf = session.prompt.buf,
    }
  end, live.chats())
end

-- windows -------------------------------------------------------------------------------------------------------------

--- Start insert mode in an empty prompt, unless the user does not want it. It starts only after the command that shows the
--- chat, which may switch to another window.
---@param prompt sanderling.prompt.Prompt
---@param win integer its window
local function begin_to_type(prompt, win)
  local is_empty = vim.deep_equal(prompt:lines(), { '' })
  local is_there = api.nvim_get_current_win() == win -- not if an autocommand has left it
  local is_normal = api.nvim_get_mode().mode == 'n'
  if not (config.options.chat.start_insert and is_empty and is_there and is_normal) then
    return
  end
  vim.cmd.startinsert({ bang = true })
  local group = api.nvim_create_augroup('sanderling_start_insert', {})
  api.nvim_create_autocmd({ 'InsertEnter', 'WinLeave', 'BufLeave' }, {
    group = group,
    desc = 'Agent: do not start insert mode in another window',
    callback = function(event)
      api.nvim_del_augroup_by_id(group)
      if event.event ~= 'InsertEnter' then
        vim.cmd.stopinsert()
      end
    end,
  })
end

---@param opts sanderling.ChatOpts
function M.show(opts)
  local given = { position = opts.position, size = opts.size }
  config.validate(given, 'chat')
  local session = M.current_session()
  local tab = (given.position or config.options.chat.position) == 'tab' and tabs.other_tab(session)
  if tab and opts.focus == false then
    return session:open()
  elseif tab then
    api.nvim_set_current_tabpage(tab)
  end
  local windows, shown = tabs.shown_in()
  local before = api.nvim_get_current_win()
  if not windows then
    local layout_opts = vim.tbl_extend('force', config.options.chat, given)
    local left_alone = tabs.prompt_windows() -- after `:only`
    -- Raises an error if there is not enough room.
    windows = layout.open(layout_opts, session.transcript_buf, session.prompt.buf, tabs.win_options)
    tabs.windows_by_tab[api.nvim_get_current_tabpage()] = windows
    tabs.restore_view(session, windows.transcript)
    tabs.draw_prompt(session)
    layout.close(vim.tbl_filter(function(win)
      return win ~= windows.transcript and win ~= windows.prompt
    end, left_alone))
  elseif shown ~= session then
    tabs.put(session, windows)
  end
  if opts.focus == false and api.nvim_win_is_valid(before) then
    api.nvim_set_current_win(before)
  else
    api.nvim_set_current_win(windows.prompt)
    begin_to_type(session.prompt, windows.prompt)
  end
  session:open()
  stored.hint(session)
end

---@param opts sanderling.ChatOpts
function M.toggle(opts)
  config.validate({ position = opts.position, size = opts.size }, 'chat') -- even if it hides the chat
  local windows = tabs.shown_in()
  if windows then
    tabs.hide()
  end
  if not windows or (opts.position or windows.opts.position) ~= windows.opts.position then
    M.show(opts)
  end
end

--- Enter the prompt, showing the chat if necessary; from the chat's windows return to the last code window.
function M.go()
  local windows, win = tabs.shown_in(), api.nvim_get_current_win()
  if windows and vim.list_contains({ windows.prompt, windows.transcript }, win) then
    local code = files.code_window('')
    if code then
      api.nvim_set_current_win(code)
    end
  else
    M.show({})
  end
end

---@return { buf: integer, win: integer? }?
function M.transcript()
  local session = live.current()
  if not session or not api.nvim_buf_is_valid(session.transcript_buf) then
    return nil
  end
  local windows, shown = tabs.shown_in()
  return { buf = session.transcript_buf, win = shown == session and windows.transcript or nil }
end

-- choosing a session --------------------------------------------------------------------------------------------------

--- Open another session.
---@param worktree? string a branch or commit, from which it gets a worktree of its own
function M.new(worktree)
  add_session(nil, stored.project_here(), nil, worktree)
  M.show({})
end

--- Show the session `id`, which is open or stored. It replaces the current session if that is empty.
---@param id string
---@param project string
---@param opts sanderling.ChatOpts|{ agent?: string } the external agent of a new session
---@return sanderling.chat.session.Session
function M.open(id, project, opts)
  local open_one, current = live.find(id), live.current()
  if open_one then
    M.give_prompt(open_one)
    live.set_current(open_one)
  elseif current and current.is_fresh then
    M.replace(current, id, project, opts.agent)
  else
    add_session(id, project, opts.agent)
  end
  M.show(opts)
  return assert(live.current())
end

--- Show a child session, unless it has not started yet.
---@param id string
---@param project string
---@param opts sanderling.ChatOpts
function M.open_child(id, project, opts)
  local child = live.find_child(id)
  if child and child.state == 'queued' then
    message.tell('This child session has not started yet.')
  else
    M.open(id, project, opts)
  end
end

--- Stop a child session; its parent gets its work so far.
---@param id string
function M.stop_child(id)
  local child, parent = live.find_child(id)
  if child and parent and states.is_active[child.state] then
    parent:act({ type = 'stop_child', id = id })
  else
    message.tell('This child session has already ended.')
  end
end

--- Show the session opened `step` places after the current one.
---@param step integer
function M.switch(step)
  local session = M.current_session()
  local other = live.neighbour(session, step)
  if other == session then
    message.tell(
      'No other session is open. :AgentNew opens one, :AgentSessions lists earlier ones.'
    )
    return
  end
  local windows = tabs.shown_in()
  if windows then
    tabs.put(other, windows)
    live.set_current(other)
  else
    live.set_current(other)
    M.show({})
  end
end

--- Close the current session and show the next one. Its log stays on disk.
---@param is_at_once? boolean without a proposal of lines for AGENTS.md
function M.close(is_at_once)
  local session = live.current()
  if session then
    ending.run(session, is_at_once or false, function()
      M.remove(session)
    end)
  else
    message.tell('No session is open.')
  end
end

--- Start a new session in the buffers of the current one.
function M.clear()
  local session = live.current()
  if session then
    local project = stored.root_here()
    ending.run(session, false, function()
      M.replace(session, stored.new_id(), project, session.agent or session.state.agent)
    end)
  end
end

--- After the environment was built: start the host for the chat, if one is open. An empty session is replaced.
---@param is_wanted boolean go to the prompt
---@return boolean is_shown the chat is on the screen
function M.reopen(is_wanted)
  local session = live.current()
  if session and session.is_fresh then
    M.replace(session, stored.new_id(), session.project, session.agent)
  elseif session then
    session:open()
  end
  local windows = tabs.shown_in()
  if session and windows and is_wanted then
    api.nvim_set_current_win(windows.prompt)
    begin_to_type(session.prompt, windows.prompt)
  end
  return windows ~= nil
end

return M
