--- The chat: two windows per tab page that show a session, and the actions of its commands and keys.
local api = vim.api
local lazy = require('sanderling.ui.lazy')

local approval = lazy('sanderling.approval')
local browse = lazy('sanderling.chat.browse')
local config = require('sanderling.config')
local context = lazy('sanderling.prompt.context')
local fences = lazy('sanderling.chat.fences')
local files = require('sanderling.access.files')
local foreign = lazy('sanderling.chat.foreign')
local install = require('sanderling.host.install')
local layout = require('sanderling.chat.layout')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local open = require('sanderling.chat.open')
local places = lazy('sanderling.chat.places')
local review_commands = lazy('sanderling.review.commands')
local sandbox = require('sanderling.session.sandbox')
local session_events = require('sanderling.chat.events')
local states = require('sanderling.session.state')
local tabs = require('sanderling.chat.tabs')
local waiting = lazy('sanderling.chat.waiting')
local words = require('sanderling.ui.words')

-- Includes the functions that show and close sessions.
local M = vim.tbl_extend('error', { hide = tabs.hide }, open)

-- sending -------------------------------------------------------------------------------------------------------------

---@param text string
---@return string[]
local function lines_of(text)
  return vim.split(text, '\n', { plain = true })
end

---@param text string
function M.submit(text)
  vim.validate('text', text, 'string')
  open.current_session():send(lines_of(text))
end

---@param text string
function M.steer(text)
  vim.validate('text', text, 'string')
  open.current_session():send(lines_of(text), { is_steering = true })
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
  local session = open.current_session()
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
  open.current_session():run(lines_of(command))
end

function M.stop()
  local session = live.current()
  if session then
    session:stop()
  end
end

function M.queue()
  waiting.show(live.current_id() or '')
end

--- Retry a failed request, or a lost connection, without further waiting.
function M.retry()
  local session = live.current()
  local connection = session and session.state.connection
  local is_lost = connection and (connection.state == 'waiting' or connection.state == 'refused')
  if session and (is_lost or session.transcript:is_counting_down()) then
    session:act({ type = 'retry_now' })
  else
    local key = config.key_name(config.options.keys.history_previous, 'The prompt history')
    message.tell(('Nothing to retry. %s brings back the last prompt.'):format(key))
  end
end

-- modes ---------------------------------------------------------------------------------------------------------------

---@param name string
---@param word string
---@param known string[]
local function validate_word(name, word, known)
  vim.validate(name, word, function(value)
    return vim.list_contains(known, value)
  end, words.one_of(known, "'"))
end

---@param mode? string
---@return string? mode the current one, if none is given
function M.net(mode)
  if mode == nil then
    return live.state_of(live.current_id()).sandbox.network
  end
  validate_word('mode', mode, sandbox.NETWORK_MODES)
  open.current_session():act({ type = 'set_network', mode = mode })
end

--- If `word` is not one of `known`, report what the command accepts.
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

--- `:AgentNet`: set the network mode. Without a mode, report the current one.
---@param mode string
function M.set_or_tell_network(mode)
  local session = live.current()
  if mode ~= '' then
    if not refuse_other_word('AgentNet', sandbox.NETWORK_MODES, mode) then
      M.net(mode)
    end
  elseif session and sandbox.of(session.id).level == 'off' then
    local text = 'The sandbox is off, so the network is not restricted.'
    message.tell(text, vim.log.levels.WARN)
  else
    message.tell(sandbox.network_sentence(M.net()))
  end
end

---@param mode? string
---@return string? mode the current one, if none is given
function M.mode(mode)
  if mode == nil then
    return live.state_of(live.current_id()).mode
  end
  validate_word('mode', mode, config.MODES)
  local sent = { type = 'local_mode_wanted', mode = mode }
  open.current_session():act({ type = 'set_mode', mode = mode }, sent)
end

--- `:AgentMode`: set the permission mode. Without a mode, report the current one.
---@param mode string
function M.set_or_tell_mode(mode)
  if mode ~= '' then
    if not refuse_other_word('AgentMode', config.MODES, mode) then
      M.mode(mode)
    end
  else
    message.tell(session_events.MODE_SENTENCES[M.mode()])
  end
end

---@param session sanderling.chat.session.Session
local function cycle_mode(session)
  local mode = session.state.wanted_mode or session.state.mode
  for i, name in ipairs(config.MODES) do
    if name == mode then
      M.mode(config.MODES[i % #config.MODES + 1])
      return
    end
  end
end

--- Show the model's whole to-do list.
function M.todo()
  local session = live.current()
  if session and #session.state.todo > 0 then
    session.todo:show()
  else
    message.tell('No todo list yet.')
  end
end

--- Show when each prompt was sent and each turn ended, or hide it.
function M.times()
  M.show({ focus = false })
  open.current_session().transcript:toggle_times()
end

local function tell_sandbox()
  M.show({ focus = false })
  local session = open.current_session()
  local text, is_weaker = sandbox.report(session.id)
  session:say(is_weaker and 'warning' or 'info', text)
end

--- Ask the user whether to switch off the sandbox, and do so if they agree.
local function offer_no_sandbox()
  local session = open.current_session()
  local id = session.id
  local answers = { 'Run without a sandbox in this session', 'Keep the sandbox' }
  message.confirm('Without a sandbox, commands can do anything you can:', answers, function()
    if live.find(id) == session then
      live.set_current(session)
      M.show({ focus = false }) -- from now on the chat shows that the sandbox is off
      session:act({ type = 'set_sandbox', is_on = false })
    end
  end)
end

---@param action? string
function M.sandbox(action)
  if action ~= nil then
    validate_word('action', action, sandbox.ACTIONS)
  end
  if action == 'off' then
    offer_no_sandbox()
  elseif action == 'on' then
    open.current_session():act({ type = 'set_sandbox', is_on = true })
  else
    tell_sandbox()
  end
end

-- keys ----------------------------------------------------------------------------------------------------------------

--- `<C-c>` stops the turn or the command. If nothing is running, it keeps its usual meaning.
---@param session sanderling.chat.session.Session
local function stop_or_interrupt(session)
  if states.is_busy(session.state) then
    session:stop()
  else
    api.nvim_feedkeys(vim.keycode('<C-c>'), 'ni', false)
  end
end

--- Go to the prompt of the transcript's session. If |:only| has closed it, open it again.
---@param session sanderling.chat.session.Session
local function go_to_prompt(session)
  local windows, shown = tabs.shown_in()
  if not windows or shown ~= session then
    M.give_prompt(session)
    windows = layout.open_below(config.options.chat, session.prompt.buf)
    tabs.windows_by_tab[api.nvim_get_current_tabpage()] = windows
  end
  api.nvim_set_current_win(windows.prompt)
  vim.cmd.startinsert({ bang = true })
end

--- Show the child session that the line under the cursor is about.
---@param session sanderling.chat.session.Session
---@return boolean is_there
local function open_child(session)
  local is_transcript = api.nvim_get_current_buf() == session.transcript_buf
  local id = is_transcript and browse.child_here(session)
  if not id then
    return false
  end
  open.open_child(id, session.project, {})
  return true
end

--- Open the file or child session of the line under the cursor.
---@param session sanderling.chat.session.Session
local function go_to_file(session)
  if open_child(session) then
    return
  end
  local place = browse.place_here(session)
  if not place then
    return
  end
  local windows = tabs.shown_in()
  if windows and windows.opts.position == 'float' then
    M.hide() -- it would hide the file
  end
  files.open(place)
end

--- Open the child session of the line under the cursor, its fold, else the file named there.
---@param session sanderling.chat.session.Session
local function open_here(session)
  if open_child(session) then
    return
  elseif vim.fn.foldclosed('.') ~= -1 then
    vim.cmd('normal! zo')
  else
    go_to_file(session)
  end
end

---@alias sanderling.chat.Action fun(session: sanderling.chat.session.Session, lhs?: string)

---@param fn fun(session: sanderling.chat.session.Session, argument: any)
---@param argument any
---@return sanderling.chat.Action
local function with(fn, argument)
  return function(session)
    fn(session, argument)
  end
end

--- Return an action that leaves the key to the completion menu while that is visible.
---@param run sanderling.chat.Action
---@return sanderling.chat.Action
local function unless_selecting(run)
  return function(session, lhs)
    if lhs and vim.fn.pumvisible() == 1 then
      api.nvim_feedkeys(vim.keycode(lhs), 'ni', false)
    else
      run(session)
    end
  end
end

--- Return an action that only accepts the selected entry of the completion menu, if its key is <CR>.
---@param run sanderling.chat.Action
---@return sanderling.chat.Action
local function unless_accepting(run)
  return function(session, lhs)
    local is_enter = lhs and lhs:lower() == '<cr>'
    if is_enter and vim.fn.complete_info({ 'selected' }).selected >= 0 then
      api.nvim_feedkeys(vim.keycode('<C-y>'), 'ni', false)
    else
      run(session)
    end
  end
end

local function hide()
  tabs.hide()
end

---@param session sanderling.chat.session.Session
local function toggle_times(session)
  session.transcript:toggle_times()
end

---@param session sanderling.chat.session.Session
---@param is_steering boolean
local function send(session, is_steering)
  session:send_prompt(is_steering)
end

---@param session sanderling.chat.session.Session
---@param step -1|1
local function recall(session, step)
  session.prompt:recall_or_move(step)
end

---@param direction -1|1
local function switch(_, direction)
  M.switch(direction * vim.v.count1)
end

--- Stop the child session that the line under the cursor is about.
---@param session sanderling.chat.session.Session
local function stop_child(session)
  local id = browse.child_here(session)
  if not id then
    message.tell('No child session under the cursor.')
    return
  end
  open.stop_child(id)
end

--- Show the session that has started this one.
---@param session sanderling.chat.session.Session
local function go_to_parent(session)
  if session.state.parent ~= '' then
    M.open(session.state.parent, session.project, {})
  else
    message.tell('No other session has started this one.')
  end
end

--- Go to the first hunk of the pending question, else to the next change to review.
---@param direction -1|1
local function go_to_hunk(_, direction)
  if not approval.go_to_hunk() then
    review_commands.go(direction)
  end
end

open.register({
  next_session = with(switch, 1),
  previous_session = with(switch, -1),
  waiting = M.queue,
  undo_turn = function(session)
    session:act({ type = 'undo_turn' })
  end,
  redo_turn = function(session)
    session:act({ type = 'redo_turn' })
  end,
  question = approval.focus,
  hide = hide,
  hide_prompt = hide,
  stop = stop_or_interrupt,
  next_message = with(browse.go_to_message, 1),
  previous_message = with(browse.go_to_message, -1),
  next_hunk = with(go_to_hunk, 1),
  previous_hunk = with(go_to_hunk, -1),
  next_tool = with(browse.go_to_tool, 1),
  previous_tool = with(browse.go_to_tool, -1),
  select_message = with(browse.select_message, true),
  select_whole_message = with(browse.select_message, false),
  select_code = with(browse.select_code, true),
  select_whole_code = with(browse.select_code, false),
  yank_code = fences.yank,
  open_code = fences.open,
  apply_code = fences.apply,
  write = go_to_prompt,
  open = open_here,
  go_to_file = go_to_file,
  places = places.list,
  inspect = browse.inspect,
  stop_child = stop_child,
  parent = go_to_parent,
  times = toggle_times,
  send_normal = with(send, false),
  send_insert = unless_accepting(with(send, false)),
  line_break = require('sanderling.prompt').break_line,
  steer = with(send, true),
  mode = unless_selecting(cycle_mode),
  scroll_up = unless_selecting(with(tabs.scroll, -1)),
  scroll_down = unless_selecting(with(tabs.scroll, 1)),
  go_to_end = unless_selecting(tabs.go_to_end),
  history_previous = with(recall, -1),
  history_next = with(recall, 1),
  mention_pasted = function(session)
    session.prompt:mention_pasted()
  end,
})

api.nvim_create_autocmd({ 'BufWinEnter', 'WinEnter' }, {
  group = tabs.augroup,
  desc = "Agent: notice other buffers in the chat's windows",
  callback = function()
    if not vim.b.sanderling_session or not tabs.shown_in() then
      foreign.note()
    end
  end,
})

install.register(M.reopen)
require('sanderling.extend.session').register(open.open)
-- The winbars use this module, which subscribes to events itself.
require('sanderling.status')

return M
