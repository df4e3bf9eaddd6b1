--- The chat: two windows in each tab page that show a session, and what commands and keys do with it.
local api = vim.api
local browse = require('sanderling.chat.browse')
local config = require('sanderling.config')
local context = require('sanderling.prompt.context')
local files = require('sanderling.ui.files')
local host = require('sanderling.host')
local install = require('sanderling.host.install')
local keys = require('sanderling.chat.keys')
local layout = require('sanderling.chat.layout')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')
local sandbox = require('sanderling.session.sandbox')
local session_module = require('sanderling.chat.session')
local stored = require('sanderling.session.stored')
local waiting = require('sanderling.transcript.waiting')
local words = require('sanderling.ui.words')

local M = {}

local RETRY_MS = 20
local FILETYPE = 'sanderling'

local augroup = api.nvim_create_augroup('sanderling', {})

---@type table<integer, sanderling.chat.layout.Windows>
local windows_by_tab = {}
---@type table<string, any>? options of the transcript's window that was closed last
local win_options
local is_swapping = false
local is_quitting = false -- `:quit` is closing one of the windows

-- what is shown where -------------------------------------------------------------------------------------------------

--- The chat's windows in `tab`, if both are there, and the session that they show.
---@param tab? integer
---@return sanderling.chat.layout.Windows?
---@return sanderling.chat.session.Session?
local function shown_in(tab)
  tab = tab or api.nvim_get_current_tabpage()
  local windows = windows_by_tab[tab]
  for _, session in ipairs(windows and live.all() or {}) do
    if layout.is_shown(windows, tab, session.transcript_buf, session.prompt.buf) then
      return windows, session
    end
  end
end

--- The transcript's window shows it no more: remember where it was.
---@param win integer
local function leave(win)
  local session = api.nvim_win_is_valid(win) and live.of_buffer(api.nvim_win_get_buf(win))
  if not session or not layout.shows(win, session.transcript_buf) then
    return
  end
  session.transcript:leave(win)
  win_options = layout.get_transcript_options(win)
  session.view = api.nvim_win_call(win, function()
    local view = vim.fn.winsaveview()
    local last = math.max(view.lnum, vim.fn.foldclosedend(view.lnum))
    return { saved = view, is_at_end = last == vim.fn.line('$') }
  end)
end

--- Give the transcript's window what it had when it was left: where it was, or the end if it was there.
---@param session sanderling.chat.session.Session
---@param win integer
local function restore_view(session, win)
  session.transcript:show_in(win)
  local view = session.view
  api.nvim_win_call(win, function()
    if view and not view.is_at_end then
      vim.fn.winrestview(view.saved)
    else
      vim.cmd('normal! G$zb')
    end
  end)
end

--- Is the person selecting text in `win`, or about to name some? Then its cursor is theirs.
---@param win integer
---@return boolean
local function is_selecting(win)
  local mode = api.nvim_get_mode().mode
  local is_selecting_here = mode:find('^[vVsS\22\19]') ~= nil or vim.startswith(mode, 'no')
  return is_selecting_here and win == api.nvim_get_current_win()
end

--- Show the end of the transcript, and what comes from now on.
---@param session sanderling.chat.session.Session
local function go_to_end(session)
  local windows, shown = shown_in()
  if windows and shown == session and not is_selecting(windows.transcript) then
    api.nvim_win_call(windows.transcript, function()
      vim.cmd('normal! G$zb')
    end)
  end
end

--- Turn the pages of the transcript from elsewhere. At its end the window goes along with the text again.
---@param session sanderling.chat.session.Session
---@param step -1|1
local function scroll(session, step)
  local windows, shown = shown_in()
  if not windows or shown ~= session then
    return
  end
  local key = vim.v.count1 .. vim.keycode(step < 0 and '<C-b>' or '<C-f>')
  api.nvim_win_call(windows.transcript, function()
    vim.cmd('normal! ' .. key)
    if step > 0 and vim.fn.line('w$') == vim.fn.line('$') then
      vim.cmd('normal! G$zb')
    end
  end)
end

--- Show `session` in windows that show another one.
---@param session sanderling.chat.session.Session
---@param windows sanderling.chat.layout.Windows
local function put(session, windows)
  leave(windows.transcript)
  is_swapping = true -- nobody has entered a buffer
  local ok, err = pcall(layout.swap, windows, session.transcript_buf, session.prompt.buf)
  is_swapping = false
  if not ok then
    error(err, 0)
  end
  restore_view(session, windows.transcript)
  pcall(vim.cmd.redrawstatus, { bang = true })
end

-- autocommands --------------------------------------------------------------------------------------------------------

---@param session sanderling.chat.session.Session
local function watch(session)
  local function on(events, bufs, desc, callback)
    for _, buf in ipairs(bufs) do
      api.nvim_create_autocmd(events, {
        group = augroup,
        buffer = buf,
        desc = 'Agent: ' .. desc,
        callback = callback,
      })
    end
  end
  local both = session:buffers()
  for _, buf in ipairs(both) do
    api.nvim_clear_autocmds({ group = augroup, buffer = buf })
  end
  on(
    { 'TextChanged', 'TextChangedI', 'TextChangedP' },
    { session.prompt.buf },
    'placeholder of an empty prompt',
    function()
      session.prompt:draw_placeholder()
      session.todo:follow()
      session:keep_draft()
    end
  )
  on(
    { 'ModeChanged', 'WinEnter', 'WinLeave' },
    both,
    'mode in the winbar',
    vim.schedule_wrap(function()
      pcall(vim.cmd.redrawstatus, { bang = true })
    end)
  )
  on('BufWinEnter', { session.transcript_buf }, 'folds and highlights in a new window', function()
    local win = api.nvim_get_current_win()
    layout.set_transcript_options(win)
    if session:is_whole() then
      session.transcript:show_in(win)
    end
  end)
  on('BufEnter', both, 'the session that is meant', function()
    if not is_swapping then
      live.set_current(session)
    end
  end)
  on('QuitPre', both, 'tell :quit from other ways to close a window', function()
    is_quitting = true
    vim.schedule(function()
      is_quitting = false
    end)
  end)
end

--- Give the windows of this tab page the sizes that they are to have, and draw what is made to fit them.
local function settle_windows()
  local windows, session = shown_in()
  if windows and session then
    layout.settle(windows, api.nvim_get_current_tabpage())
    session.prompt:draw_placeholder()
    session:draw_hint()
  end
end

--- A search shows matches while it is typed. One that is given up goes back to where it began: that was the end, whose text has
--- moved on meanwhile.
local function watch_searches()
  local win ---@type integer? in which a search began at the end of a transcript
  local function is_at_end()
    local last = math.max(vim.fn.line('.'), vim.fn.foldclosedend('.'))
    return last == vim.fn.line('$')
  end
  api.nvim_create_autocmd('CmdlineEnter', {
    group = augroup,
    pattern = { '/', '?' },
    desc = 'Agent: a search begins in a transcript',
    callback = function()
      local is_transcript = live.of_buffer(api.nvim_get_current_buf())
        and vim.bo.filetype == FILETYPE
      win = is_transcript and is_at_end() and api.nvim_get_current_win() or nil
    end,
  })
  api.nvim_create_autocmd('CmdlineLeave', {
    group = augroup,
    pattern = { '/', '?' },
    desc = 'Agent: a search that is given up in a transcript',
    callback = function()
      local left = vim.v.event.abort and win or nil
      win = nil
      vim.schedule(function()
        if left and api.nvim_get_current_win() == left and not is_at_end() then
          vim.cmd('normal! G$zb')
        end
      end)
    end,
  })
end

local function watch_windows()
  ---@param event string|string[]
  local function on(event, desc, callback)
    local opts = { group = augroup, desc = 'Agent: ' .. desc, callback = callback }
    api.nvim_create_autocmd(event, opts)
  end
  on('TabEnter', 'the session that is meant', function()
    local _, session = shown_in()
    if session then
      live.set_current(session)
    end
  end)
  on({ 'WinResized', 'VimResized', 'TabEnter' }, 'the sizes of the chat', settle_windows)
  on('WinClosed', 'both windows of the chat close together', function(args)
    local closed = tonumber(args.match)
    for tab, windows in pairs(windows_by_tab) do
      if windows.transcript == closed or windows.prompt == closed then
        M.hide(tab, closed)
        return
      end
    end
    vim.schedule(settle_windows) -- when it is closed
  end)
end

-- sessions that are open ----------------------------------------------------------------------------------------------

---@type fun(session: sanderling.chat.session.Session): sanderling.chat.keys.Actions
local actions_of

--- Make the buffers of `session` a chat's.
---@param session sanderling.chat.session.Session
local function set_up(session)
  local actions = actions_of(session)
  keys.set(session.transcript_buf, session.prompt.buf, actions)
  keys.set_words(session:buffers(), actions)
  watch(session)
  session.prompt:draw_placeholder()
end

--- Close what is left of chats that somebody has taken apart.
local function close_torn_chats()
  for tab, windows in pairs(windows_by_tab) do
    if api.nvim_tabpage_is_valid(tab) and not shown_in(tab) then
      windows_by_tab[tab] = nil
      layout.close(vim.tbl_filter(function(win)
        return api.nvim_win_is_valid(win) and live.of_buffer(api.nvim_win_get_buf(win)) ~= nil
      end, { windows.prompt, windows.transcript }))
    end
  end
end

--- Give sessions back the buffers that somebody has deleted or emptied. What runs has gone on meanwhile, which is told.
local function restore_sessions()
  local is_any_new, is_any_busy = false, false
  for _, session in ipairs(live.all()) do
    if not session:is_whole() then
      local is_new = session:restore()
      if is_new then
        set_up(session)
      end
      for _, win in ipairs(vim.fn.win_findbuf(session.transcript_buf)) do
        restore_view(session, win)
      end
      is_any_new = is_any_new or is_new
      is_any_busy = is_any_busy or is_new and session:is_busy()
    end
  end
  if is_any_new then
    close_torn_chats()
  end
  if is_any_busy then
    local text = 'What runs here goes on: :AgentChat shows it, :AgentStop stops it.'
    message.tell(text, vim.log.levels.WARN)
  end
end

local is_restoring = false

--- Restore sessions as soon as that is allowed.
local function restore_sessions_soon()
  if is_restoring then
    return
  end
  is_restoring = true
  vim.schedule(function()
    is_restoring = false
    local ok, err = pcall(restore_sessions)
    if not ok and locked.reason(err) then
      vim.defer_fn(restore_sessions_soon, RETRY_MS)
    elseif not ok then
      host.note_defect(err)
    end
  end)
end

--- Begin a session in buffers of its own, or resume the one that `id` names. It is current.
---@param id? string
---@param project? string
---@return sanderling.chat.session.Session
local function add_session(id, project)
  local session = session_module.new({ on_lost = restore_sessions_soon, on_sent = go_to_end })
  session:begin(id or stored.new_id(), project or stored.root_here())
  set_up(session)
  live.add(session)
  live.set_current(session)
  return session
end

--- Close `session`. Windows that show it show the next one, or close.
---@param session sanderling.chat.session.Session
local function remove_session(session)
  session:close()
  local other = live.neighbour(session, 1)
  for tab in pairs(windows_by_tab) do
    local windows, shown = shown_in(tab)
    if windows and shown == session and other ~= session then
      put(other, windows)
    elseif shown == session then
      M.hide(tab)
    end
  end
  live.remove(session)
  session:delete_buffers()
end

--- The current session; a new one when there is none. Those whose buffers were deleted have them again.
---@return sanderling.chat.session.Session
local function current_session()
  restore_sessions()
  return live.current() or add_session()
end

--- Make another session of the one that `session` is, in the same buffers.
---@param session sanderling.chat.session.Session
---@param id string
---@param project string
---@return sanderling.chat.session.Session
function M.replace(session, id, project)
  local previous_id = session.id
  session:close()
  session:begin(id, project)
  host.announce('AgentSessionChanged', { session_id = id, previous_id = previous_id })
  session:open()
  return session
end

---@class (exact) sanderling.chat.Entry
---@field id string
---@field title string empty while there is none
---@field name string the title, or the time at which it began
---@field project string
---@field is_current boolean
---@field is_busy boolean a turn or a command runs, or waits to
---@field transcript_buf integer
---@field prompt_buf integer

--- The sessions that are open here, in the order of the keys that switch.
---@return sanderling.chat.Entry[]
function M.list()
  return vim.tbl_map(function(session)
    return {
      id = session.id,
      title = session.title,
      name = session:name(),
      project = session.project,
      is_current = session == live.current(),
      is_busy = session:is_busy(),
      transcript_buf = session.transcript_buf,
      prompt_buf = session.prompt.buf,
    }
  end, live.all())
end

-- windows -------------------------------------------------------------------------------------------------------------

--- The tab page, other than this one, that shows `session`.
---@param session sanderling.chat.session.Session
---@return integer?
local function other_tab(session)
  for tab in pairs(windows_by_tab) do
    local _, shown = shown_in(tab)
    if api.nvim_tabpage_is_valid(tab) and shown == session then
      return tab
    end
  end
end

---@return integer[] windows of this tab page that show a prompt
local function prompt_windows()
  return vim.tbl_filter(function(win)
    return vim.bo[api.nvim_win_get_buf(win)].filetype == 'sanderling_prompt'
  end, api.nvim_tabpage_list_wins(0))
end

---@param opts sanderling.ChatOpts
function M.show(opts)
  local given = { position = opts.position, size = opts.size }
  config.validate(given, 'chat')
  local session = current_session()
  local tab = (given.position or config.options.chat.position) == 'tab' and other_tab(session)
  if tab and opts.focus == false then
    return session:open()
  elseif tab then
    api.nvim_set_current_tabpage(tab)
  end
  local windows, shown = shown_in()
  local before = api.nvim_get_current_win()
  if not windows then
    local layout_opts = vim.tbl_extend('force', config.options.chat, given)
    local left_alone = prompt_windows() -- by `:only`
    -- May raise: there is no room.
    windows = layout.open(layout_opts, session.transcript_buf, session.prompt.buf, win_options)
    windows_by_tab[api.nvim_get_current_tabpage()] = windows
    restore_view(session, windows.transcript)
    session.prompt:draw_placeholder()
    layout.close(vim.tbl_filter(function(win)
      return win ~= windows.transcript and win ~= windows.prompt
    end, left_alone))
  elseif shown ~= session then
    put(session, windows)
  end
  if opts.focus == false and api.nvim_win_is_valid(before) then
    api.nvim_set_current_win(before)
  else
    api.nvim_set_current_win(windows.prompt)
    if config.options.chat.start_insert then
      vim.cmd.startinsert({ bang = true })
    end
  end
  session:open()
  stored.hint(session)
end

---@param tab integer
---@return integer[] its windows, without those that only tell something
local function windows_to_be_in(tab)
  return vim.tbl_filter(function(win)
    return api.nvim_win_get_config(win).focusable
  end, api.nvim_tabpage_list_wins(tab))
end

--- Hide the chat in `tab`. `closing` is a window that Neovim is closing already.
---@param tab? integer
---@param closing? integer
function M.hide(tab, closing)
  tab = tab or api.nvim_get_current_tabpage()
  local windows = windows_by_tab[tab]
  if not windows then
    if vim.b.sanderling_session then -- a window of the user's own on the transcript
      layout.close({ api.nvim_get_current_win() })
    end
    return
  end
  windows_by_tab[tab] = nil
  leave(windows.transcript)
  if not closing then
    if api.nvim_get_current_win() == windows.prompt then
      vim.cmd.stopinsert()
    end
    layout.close({ windows.prompt, windows.transcript }, windows.replaced)
    return
  end
  local was_quitting = is_quitting
  local is_only = api.nvim_get_current_win() ~= closing -- `:only` closes windows from another one
  is_quitting = false
  -- The other window cannot be closed from within the autocommand of the first.
  vim.schedule(function()
    local other = closing == windows.prompt and windows.transcript or windows.prompt
    local is_alone = api.nvim_tabpage_is_valid(tab) and #windows_to_be_in(tab) == 1
    local is_last = is_alone and #api.nvim_list_tabpages() == 1
    if not was_quitting and (is_last or is_alone and is_only) then
      return -- `:only`: what the user wants to see is this window
    end
    if is_last and api.nvim_win_is_valid(other) and pcall(vim.cmd.quit) then
      return -- `:quit` in a Neovim that showed nothing but the chat
    end
    layout.close({ other }, windows.replaced)
  end)
end

---@param opts sanderling.ChatOpts
function M.toggle(opts)
  config.validate({ position = opts.position, size = opts.size }, 'chat') -- to hide it, too
  if shown_in() then
    M.hide()
  else
    M.show(opts)
  end
end

---@return { buf: integer, win: integer? }?
function M.transcript()
  local session = live.current()
  if not session or not api.nvim_buf_is_valid(session.transcript_buf) then
    return nil
  end
  local windows, shown = shown_in()
  return { buf = session.transcript_buf, win = shown == session and windows.transcript or nil }
end

-- which session -------------------------------------------------------------------------------------------------------

--- Begin a session beside those that are open, and show it.
function M.new()
  add_session(nil, stored.project_here())
  M.show({})
end

--- Show the session `id`, which is open here or whose log exists. It takes the place of one in which nothing was said.
---@param id string
---@param project string
---@param opts sanderling.ChatOpts
---@return sanderling.chat.session.Session
function M.open(id, project, opts)
  local open_one, current = live.find(id), live.current()
  if open_one then
    live.set_current(open_one)
  elseif current and current.is_fresh then
    M.replace(current, id, project)
  else
    add_session(id, project)
  end
  M.show(opts)
  return assert(live.current())
end

--- Show the session that was opened `step` places after the one that is shown.
---@param step integer
function M.switch(step)
  local session = current_session()
  local other = live.neighbour(session, step)
  if other == session then
    message.tell(
      'No other session is open: :AgentNew begins one, :AgentSessions has the earlier ones.'
    )
    return
  end
  local windows = shown_in()
  if windows then
    put(other, windows)
    live.set_current(other)
  else
    live.set_current(other)
    M.show({})
  end
end

--- Close the current session. Its log stays, and the next one is shown.
function M.close()
  local session = live.current()
  if session then
    remove_session(session)
  else
    message.tell('No session is open.')
  end
end

--- Begin a new session in the buffers of the current one.
function M.clear()
  local session = live.current()
  if session then
    M.replace(session, stored.new_id(), stored.root_here())
  end
end

--- There is an environment now: start the host for the chat, if there is one. Where nothing was said, only that there was none
--- stands in the transcript, which is taken back.
---@param is_wanted boolean go to the prompt
---@return boolean is_shown the chat is on the screen
function M.reopen(is_wanted)
  local session = live.current()
  if session and session.is_fresh then
    M.replace(session, stored.new_id(), session.project)
  elseif session then
    session:open()
  end
  local windows = shown_in()
  if windows and is_wanted then
    api.nvim_set_current_win(windows.prompt)
  end
  return windows ~= nil
end

-- what is said --------------------------------------------------------------------------------------------------------

---@param text string
---@return string[]
local function lines_of(text)
  return vim.split(text, '\n', { plain = true })
end

---@param text string
function M.submit(text)
  vim.validate('text', text, 'string')
  current_session():send(lines_of(text))
end

---@param text string
function M.steer(text)
  vim.validate('text', text, 'string')
  current_session():send(lines_of(text), { is_steering = true })
end

---@param text string
---@param opts sanderling.AskOpts
function M.ask(text, opts)
  vim.validate('text', text, 'string')
  local buf = opts.buf or api.nvim_get_current_buf()
  vim.validate('opts.range', opts.range, function(range)
    local first, last = unpack(type(range) == 'table' and range or {})
    return range == nil
      or type(first) == 'number'
        and type(last) == 'number'
        and first >= 1
        and first <= last
        and last <= api.nvim_buf_line_count(buf)
  end, '{ first, last }, line numbers of the buffer')
  local session = current_session()
  M.show({ focus = opts.focus or false })
  local selections
  if opts.range then
    local selection, err = context.selection(buf, opts.range[1], opts.range[2], session.project)
    if not selection then
      return session:refuse(assert(err))
    end
    selections = { selection }
  end
  session:send(lines_of(text), { selections = selections })
end

---@param command string
function M.run(command)
  vim.validate('command', command, 'string')
  M.show({ focus = false })
  current_session():run(lines_of(command))
end

function M.stop()
  local session = live.current()
  if session then
    session:stop()
  end
end

--- Show the prompts that wait, to be changed.
function M.queue()
  waiting.show(live.current_id() or '')
end

--- Make the request again at once that waits for its retry.
function M.retry()
  local session = live.current()
  if session and session.transcript:is_counting_down() then
    session:act({ type = 'retry_now' })
  else
    message.tell('No request waits for its retry.')
  end
end

-- what is allowed -----------------------------------------------------------------------------------------------------

---@param mode? string
---@return string? mode the one that is in force, when none is given
function M.net(mode)
  local session = live.current()
  if mode == nil then
    return session and sandbox.of(session.id).network or 'off'
  end
  vim.validate('mode', mode, function(value)
    return vim.list_contains(sandbox.NETWORK_MODES, value)
  end, "'off', 'proxy' or 'on'")
  current_session():act({ type = 'set_network', mode = mode })
end

--- Say what a command takes, if `word` is nothing of it.
---@param command string
---@param known string[]
---@param word string
---@return boolean is_refused
local function refuse_other_word(command, known, word)
  local is_known = vim.list_contains(known, word)
  if not is_known then
    message.tell(words.not_one_of(command, known, word), vim.log.levels.ERROR)
  end
  return not is_known
end

--- `:AgentNet`: without a mode, say in one sentence what the network is.
---@param mode string
function M.set_or_tell_network(mode)
  local session = live.current()
  if mode ~= '' then
    if not refuse_other_word('AgentNet', sandbox.NETWORK_MODES, mode) then
      M.net(mode)
    end
  elseif session and sandbox.of(session.id).level == 'off' then
    local text = 'The sandbox is off, and with it any hold on the network.'
    message.tell(text, vim.log.levels.WARN)
  else
    message.tell(sandbox.network_sentence(M.net()))
  end
end

---@param mode? string
---@return string? mode the one that is in force, when none is given
function M.mode(mode)
  local session = live.current()
  if mode == nil then
    return session and session.mode or 'ask'
  end
  vim.validate('mode', mode, function(value)
    return vim.list_contains(config.MODES, value)
  end, "'ask', 'auto' or 'plan'")
  session = current_session()
  session.wanted_mode = mode
  session:act({ type = 'set_mode', mode = mode })
end

--- `:AgentMode`: without a mode, say in one sentence which one is in force.
---@param mode string
function M.set_or_tell_mode(mode)
  if mode ~= '' then
    if not refuse_other_word('AgentMode', config.MODES, mode) then
      M.mode(mode)
    end
  else
    message.tell(session_module.MODE_SENTENCES[M.mode()])
  end
end

---@param session sanderling.chat.session.Session
local function cycle_mode(session)
  local mode = session.wanted_mode or session.mode
  for i, name in ipairs(config.MODES) do
    if name == mode then
      M.mode(config.MODES[i % #config.MODES + 1])
      return
    end
  end
end

--- Show the whole list of what the model means to do.
function M.todo()
  local session = live.current()
  if session and #session.todo.items > 0 then
    session.todo:show()
  else
    message.tell('The model has not made a todo list.')
  end
end

--- Say in the transcript what is known of the sandbox.
local function tell_sandbox()
  M.show({ focus = false })
  local session = current_session()
  local text, is_weaker = sandbox.report(session.id)
  local level = is_weaker and 'warning' or 'info'
  host.publish(session.id, { { type = 'local_notice', level = level, text = text } })
end

--- Ask whether commands are to run without a sandbox, and do as is answered.
local function offer_no_sandbox()
  local session = current_session()
  local id = session.id
  local choices = { 'Run without a sandbox in this session', 'Keep the sandbox' }
  vim.ui.select(choices, {
    prompt = 'Without a sandbox, commands can do all that you can:',
  }, function(choice)
    if choice == choices[1] and live.find(id) == session then
      live.set_current(session)
      M.show({ focus = false }) -- under a banner
      session:act({ type = 'set_sandbox', is_on = false })
    end
  end)
end

---@param action? string
function M.sandbox(action)
  vim.validate('action', action, function(value)
    return value == nil or vim.list_contains(sandbox.ACTIONS, value)
  end, "'status', 'off' or 'on'")
  if action == 'off' then
    offer_no_sandbox()
  elseif action == 'on' then
    current_session():act({ type = 'set_sandbox', is_on = true })
  else
    tell_sandbox()
  end
end

-- keys ----------------------------------------------------------------------------------------------------------------

--- `<C-c>` stops the turn, or the command; without either it does what it always does.
---@param session sanderling.chat.session.Session
local function stop_or_interrupt(session)
  if session:is_busy() then
    session:stop()
  else
    api.nvim_feedkeys(vim.keycode('<C-c>'), 'ni', false)
  end
end

--- Go to the prompt of the session whose transcript the person is in; where |:only| has closed it, it opens again.
---@param session sanderling.chat.session.Session
local function go_to_prompt(session)
  local windows, shown = shown_in()
  if not windows or shown ~= session then
    windows = layout.open_below(config.options.chat, session.prompt.buf)
    windows_by_tab[api.nvim_get_current_tabpage()] = windows
  end
  api.nvim_set_current_win(windows.prompt)
  vim.cmd.startinsert({ bang = true })
end

--- Open the file that the line under the cursor is about.
---@param session sanderling.chat.session.Session
local function go_to_file(session)
  local place = browse.place_here(session)
  if not place then
    return
  end
  local windows = shown_in()
  if windows and windows.opts.position == 'float' then
    M.hide() -- it would cover the file
  end
  files.open(place)
end

---@param session sanderling.chat.session.Session
---@return sanderling.chat.keys.Actions
function actions_of(session)
  ---@param fn fun(session: sanderling.chat.session.Session, ...)
  local function with_session(fn)
    return function(...)
      fn(session, ...)
    end
  end
  return {
    hide = function()
      M.hide()
    end,
    stop = M.stop,
    stop_or_interrupt = with_session(stop_or_interrupt),
    clear = M.clear,
    send = function()
      session:send_prompt(false)
    end,
    steer = function()
      session:send_prompt(true)
    end,
    queue = M.queue,
    switch = M.switch,
    run = M.run,
    net = M.set_or_tell_network,
    sandbox = M.sandbox,
    mode = M.set_or_tell_mode,
    cycle_mode = with_session(cycle_mode),
    todo = M.todo,
    go_to_file = with_session(go_to_file),
    open = function()
      if vim.fn.foldclosed('.') ~= -1 then
        vim.cmd('normal! zo')
      else
        go_to_file(session)
      end
    end,
    inspect = with_session(browse.inspect),
    write = with_session(go_to_prompt),
    scroll = with_session(scroll),
    go_to_end = with_session(go_to_end),
    go_to_message = function(step)
      browse.go_to_message(session.transcript, step)
    end,
    recall = function(step)
      session.prompt:recall_or_move(step)
    end,
  }
end

install.on_ready = M.reopen
watch_windows()
watch_searches()
-- The winbars ask this module's sibling; it listens to the host on its own.
require('sanderling.status')

return M
