--- The chat: a transcript over a prompt, what is said in them, and their windows. One object per session.
local api = vim.api
local config = require('sanderling.config')
local context = require('sanderling.context')
local host = require('sanderling.host')
local keys = require('sanderling.keys')
local layout = require('sanderling.layout')
local prompt = require('sanderling.prompt')
local render = require('sanderling.render')
local sandbox = require('sanderling.sandbox')
local todo = require('sanderling.todo')
local tools = require('sanderling.tools')

local M = {}

local augroup = api.nvim_create_augroup('sanderling', {})

---@class (exact) sanderling.chat.Pending
---@field id string
---@field text string
---@field is_stopped? boolean the user stopped it: it will not be answered

---@class (exact) sanderling.chat.Command
---@field id string
---@field command string
---@field has_started? boolean

---@class (exact) sanderling.chat.View
---@field saved table as winsaveview() gives it
---@field is_at_end boolean
---@field options table<string, any> of the window

---@class (exact) sanderling.chat.Chat
---@field id string of the session
---@field project string root that the session is about
---@field transcript sanderling.render.Transcript
---@field transcript_buf integer
---@field prompt sanderling.prompt.Prompt
---@field windows table<integer, sanderling.layout.Windows> by tab page
---@field view? sanderling.chat.View of the transcript, when it was last hidden
---@field pending sanderling.chat.Pending[] prompts that were sent and whose turn has not started
---@field is_in_turn boolean
---@field commands sanderling.chat.Command[] that were sent and have not ended
---@field network string the network that is known to the user
---@field mode 'ask'|'auto'|'plan'
---@field wanted_mode? 'ask'|'auto'|'plan' that was asked for and is not confirmed
---@field todo sanderling.todo.Todo
---@field inspected? string id of the tool use that is to be shown whole
---@field code_win? integer the window for code that was used last
---@field is_quitting? boolean `:quit` is closing one of the windows

---@type sanderling.chat.Chat?
local chat

-- session -------------------------------------------------------------------------------------------------------------

---@return string id that sorts by time: 20261121-183005-7f3a
local function new_session_id()
  local random = vim.uv.random(2)
  return ('%s-%02x%02x'):format(os.date('%Y%m%d-%H%M%S'), random:byte(1, 2))
end

---@return string
local function project_root()
  return vim.fs.root(0, '.git') or vim.fn.getcwd()
end

---@param self sanderling.chat.Chat
local function begin_session(self)
  self.id = new_session_id()
  self.project = project_root()
  self.pending, self.is_in_turn, self.view = {}, false, nil
  self.commands, self.network = {}, 'off'
  self.mode, self.wanted_mode = 'ask', nil
  self.todo:set({})
  self.transcript = render.new(self.transcript_buf, host.note_defect)
  for _, buf in ipairs({ self.transcript_buf, self.prompt.buf }) do
    vim.b[buf].sanderling_session = self.id
  end
  host.register(self.id, self.project)
end

---@param self sanderling.chat.Chat
---@param pending sanderling.chat.Pending[]
local function set_pending(self, pending)
  self.pending = pending
  host.publish(self.id, { { type = 'local_queue', count = #pending } })
end

--- Put the prompts that will not be answered back where they were typed.
---@param self sanderling.chat.Chat
---@param is_lost fun(pending: sanderling.chat.Pending): boolean?
local function take_back(self, is_lost)
  local texts, kept = {}, {}
  for _, pending in ipairs(self.pending) do
    if is_lost(pending) then
      texts[#texts + 1] = pending.text
    else
      kept[#kept + 1] = pending
    end
  end
  if #texts > 0 then
    set_pending(self, kept)
    self.prompt:put_back(texts)
  end
end

---@param pending sanderling.chat.Pending
local function is_stopped(pending)
  return pending.is_stopped
end

local function is_any()
  return true
end

--- Say something below: cut, because a message that fills the line would ask for <Enter>.
---@param message string
---@param level? integer
local function tell(message, level)
  vim.notify(vim.fn.strcharpart(message, 0, vim.o.columns - 15), level)
end

--- Take the command `id` from those that run.
---@param self sanderling.chat.Chat
---@param id string
---@return sanderling.chat.Command?
local function take_command(self, id)
  for i, command in ipairs(self.commands) do
    if command.id == id then
      return table.remove(self.commands, i)
    end
  end
end

---@param self sanderling.chat.Chat
---@param command string
---@param outcome string
---@param is_success boolean
local function announce_command_end(self, command, outcome, is_success)
  local data =
    { session_id = self.id, command = command, outcome = outcome, is_success = is_success }
  host.announce('AgentCommandEnded', data)
end

--- No command runs any more: those that never started come back into the prompt.
---@param self sanderling.chat.Chat
---@param outcome string
local function end_commands(self, outcome)
  local commands, texts = self.commands, {}
  self.commands = {}
  for _, command in ipairs(commands) do
    if command.has_started then
      announce_command_end(self, command.command, outcome, false)
    else
      texts[#texts + 1] = '!' .. command.command
    end
  end
  if #texts > 0 then
    self.prompt:put_back(texts)
  end
end

--- What an event means for the chat beyond being drawn; called when it is on the screen.
---@type table<string, fun(self: sanderling.chat.Chat, event: any)>
local handlers = {}

function handlers.turn_started(self, event)
  self.is_in_turn = true
  self.todo:set_turn(true)
  local function waits(pending)
    return pending.id ~= event.prompt.id
  end
  set_pending(self, vim.tbl_filter(waits, self.pending))
  host.announce('AgentTurnStarted', { session_id = self.id, prompt = event.prompt.text })
end

function handlers.error_occurred(self, event)
  host.announce('AgentError', {
    session_id = self.id,
    kind = event.kind,
    message = event.message,
    remedy = event.remedy,
  })
end

function handlers.turn_ended(self, event)
  self.is_in_turn = false
  self.todo:set_turn(false)
  take_back(self, is_stopped)
  host.announce('AgentTurnEnded', { session_id = self.id, stop_reason = event.stop_reason })
end

function handlers.command_started(self, event)
  local command = take_command(self, event.id) or { id = event.id, command = event.command }
  command.has_started = true
  table.insert(self.commands, command)
end

function handlers.command_ended(self, event)
  local command = take_command(self, event.id)
  self.transcript:when_drawn(function()
    local text = command and command.command or ''
    announce_command_end(self, text, event.outcome, event.is_success or false)
  end)
end

--- The transcript confirms a new network; where it is not on the screen, a message does.
function handlers.sandbox_changed(self, event)
  local shown = M.transcript()
  if event.network ~= self.network and not (shown and shown.win) then
    tell(('Network %s, for commands started from now on.'):format(event.network))
  end
  self.network = event.network
end

local mode_sentences = {
  ask = 'Mode ask: changes, commands and fetches ask first.',
  auto = 'Mode auto: what the sandbox confines runs without asking.',
  plan = 'Mode plan: nothing can be changed, the sandbox is read-only.',
}

--- The winbar shows the new mode; where it is not on the screen, a message does.
function handlers.mode_changed(self, event)
  local shown = M.transcript()
  if event.mode ~= self.mode and not (shown and shown.win) then
    tell(mode_sentences[event.mode])
  end
  self.mode = event.mode
  if self.wanted_mode == event.mode then
    self.wanted_mode = nil
  end
end

function handlers.todo_changed(self, event)
  self.todo:set(event.items)
end

--- Show what was asked for, unless the user has gone on to something else.
function handlers.tool_use_shown(self, event)
  local is_here = api.nvim_get_current_buf() == self.transcript_buf
  if is_here and self.inspected == event.id then
    self.inspected = nil
    tools.show(event)
  end
end

function handlers.local_failed(self, event)
  local was_in_turn = self.is_in_turn
  self.is_in_turn = false
  self.mode, self.wanted_mode = 'ask', nil -- as every session begins
  self.todo:set_turn(false)
  take_back(self, is_any)
  end_commands(self, 'Interrupted.')
  host.announce('AgentError', {
    session_id = self.id,
    kind = 'host',
    message = event.message,
    remedy = '',
  })
  if was_in_turn then
    host.announce('AgentTurnEnded', { session_id = self.id, stop_reason = 'interrupted' })
  end
end

host.subscribe(function(session_id, events, seq)
  local self = chat
  if not self or self.id ~= session_id then
    return
  end
  self.transcript:apply(events, function()
    for _, event in ipairs(events) do
      if handlers[event.type] then
        handlers[event.type](self, event)
      end
    end
    if seq then
      host.drawn(session_id, seq)
    end
  end)
end)

--- Tell the user what was not sent: in the transcript, or below it while an answer is being written there.
---@param self sanderling.chat.Chat
---@param message string
local function refuse(self, message)
  if self.is_in_turn then
    tell(message, vim.log.levels.ERROR)
  else
    host.publish(self.id, { { type = 'local_refused', message = message } })
  end
end

--- Open the session in the host; where there is none to start, offer to build its environment.
---@param self sanderling.chat.Chat
local function open_session(self)
  local err = host.open(self.id)
  if err then
    host.publish(self.id, { { type = 'local_failed', message = err } })
    vim.schedule(require('sanderling.install').offer)
  end
end

-- prompt --------------------------------------------------------------------------------------------------------------

--- Send a prompt. When the host cannot start, it stands in the prompt again.
---@param self sanderling.chat.Chat
---@param text string
---@param selections? sanderling.Selection[]
local function send(self, text, selections)
  local id = ('%d'):format(vim.uv.hrtime())
  local err = host.act(self.id, { -- first of all: what the screen is told can wait
    type = 'submit_prompt',
    prompt = { id = id, text = text, selections = selections },
  })
  set_pending(self, vim.list_extend(vim.list_slice(self.pending), { { id = id, text = text } }))
  if err then
    host.publish(self.id, { { type = 'local_failed', message = err } })
  end
end

--- Send `lines`, or refuse them whole and say why.
---@param self sanderling.chat.Chat
---@param lines string[]
---@param selections? sanderling.Selection[]
---@return boolean
local function send_lines(self, lines, selections)
  local text, err = context.prompt(lines)
  if not text then
    refuse(self, assert(err))
    return false
  end
  send(self, text, selections)
  return true
end

--- Send an action of which nothing is to be put back when the host cannot start.
---@param self sanderling.chat.Chat
---@param action sanderling.Action
local function act(self, action)
  local err = host.act(self.id, action)
  if err then
    host.publish(self.id, { { type = 'local_failed', message = err } })
  end
end

--- Run a command in the sandbox, or refuse it whole and say why. When the host cannot start, it stands in the prompt.
---@param self sanderling.chat.Chat
---@param lines string[]
---@return boolean
local function run_lines(self, lines)
  local command, err = context.command(lines)
  if not command then
    refuse(self, assert(err))
    return false
  end
  local id = ('%d'):format(vim.uv.hrtime())
  table.insert(self.commands, { id = id, command = command })
  act(self, { type = 'run_command', id = id, command = command })
  return true
end

--- Send what was typed into the prompt: to the model, or after a `!` to the shell.
---@param self sanderling.chat.Chat
---@param lines string[]
---@return boolean
local function send_typed(self, lines)
  if not vim.startswith(lines[1], '!') then
    return send_lines(self, lines)
  end
  local command = vim.list_slice(lines)
  command[1] = command[1]:sub(2)
  return run_lines(self, command)
end

-- moving and stopping -------------------------------------------------------------------------------------------------

--- Go to the header before or after the cursor, `vim.v.count1` times.
---@param self sanderling.chat.Chat
---@param step -1|1
local function go_to_message(self, step)
  local row = vim.fn.line('.') - 1
  local target
  for _ = 1, vim.v.count1 do
    local next_row
    for _, header in ipairs(self.transcript.headers) do
      if step > 0 and header > row then
        next_row = next_row or header
      elseif step < 0 and header < row then
        next_row = header
      end
    end
    row = next_row or row
    target = next_row or target
  end
  if target then
    vim.cmd("normal! m'")
    api.nvim_win_set_cursor(0, { target + 1, 0 })
  end
end

---@param self sanderling.chat.Chat
local function go_to_prompt(self)
  local windows = self.windows[api.nvim_get_current_tabpage()]
  if windows and api.nvim_win_is_valid(windows.prompt) then
    api.nvim_set_current_win(windows.prompt)
    vim.cmd.startinsert({ bang = true })
  end
end

--- Open the file that the line under the cursor is about.
---@param self sanderling.chat.Chat
local function go_to_file(self)
  local lnum, col = unpack(api.nvim_win_get_cursor(0))
  local closed = vim.fn.foldclosed(lnum)
  local row = closed == -1 and lnum - 1 or closed - 1
  local place = tools.place_at(self.transcript, row, closed == -1 and col or 0, self.project)
  if not place then
    tell('No file that exists is named here.')
    return
  end
  local windows = self.windows[api.nvim_get_current_tabpage()]
  if windows and windows.float then
    M.hide() -- it would cover the file
  end
  local ok, err = pcall(tools.open, place, self.code_win)
  if not ok then
    tell((tostring(err):gsub('^.-(E%d+:)', '%1')), vim.log.levels.ERROR)
  end
end

--- Open the fold that is closed under the cursor, or else the file.
---@param self sanderling.chat.Chat
local function open_fold_or_file(self)
  if vim.fn.foldclosed('.') ~= -1 then
    vim.cmd('normal! zo')
  else
    go_to_file(self)
  end
end

--- Ask for all that is known of the tool use under the cursor.
---@param self sanderling.chat.Chat
local function inspect(self)
  local block = tools.block_at(self.transcript, vim.fn.line('.') - 1)
  if block then
    self.inspected = block.id
    act(self, { type = 'inspect_tool_use', id = block.id })
  else
    tell('There is no use of a tool here.')
  end
end

---@param self sanderling.chat.Chat
local function cycle_mode(self)
  local mode = self.wanted_mode or self.mode
  for i, name in ipairs(config.MODES) do
    if name == mode then
      M.mode(config.MODES[i % #config.MODES + 1])
      return
    end
  end
end

---@return boolean there is something to stop
local function is_busy()
  return chat ~= nil and (chat.is_in_turn or #chat.pending > 0 or #chat.commands > 0)
end

--- `<C-c>` stops the turn, or the command; without either it does what it always does.
local function stop_or_interrupt()
  if is_busy() then
    M.stop()
  else
    api.nvim_feedkeys(vim.keycode('<C-c>'), 'ni', false)
  end
end

---@param self sanderling.chat.Chat
---@return sanderling.keys.Actions
local function actions_of(self)
  return {
    hide = function()
      M.hide()
    end,
    stop = M.stop,
    stop_or_interrupt = stop_or_interrupt,
    clear = M.clear,
    send = function()
      self.prompt:send(function(lines)
        return send_typed(self, lines)
      end)
    end,
    run = M.run,
    net = M.set_or_tell_network,
    sandbox = M.sandbox,
    mode = M.set_or_tell_mode,
    cycle_mode = function()
      cycle_mode(self)
    end,
    todo = M.todo,
    go_to_file = function()
      go_to_file(self)
    end,
    open = function()
      open_fold_or_file(self)
    end,
    inspect = function()
      inspect(self)
    end,
    write = function()
      go_to_prompt(self)
    end,
    go_to_message = function(step)
      go_to_message(self, step)
    end,
    recall = function(lhs, step)
      self.prompt:recall_or_move(lhs, step)
    end,
  }
end

-- windows -------------------------------------------------------------------------------------------------------------

---@param name string
---@param filetype string
---@return integer
local function new_buffer(name, filetype)
  local buf = api.nvim_create_buf(false, true)
  local number = buf
  while vim.fn.bufexists(('sanderling://%d/%s'):format(number, name)) == 1 do
    number = number + 1 -- a session file of Vim's brings back the names of old chats
  end
  api.nvim_buf_set_name(buf, ('sanderling://%d/%s'):format(number, name))
  vim.bo[buf].bufhidden = 'hide'
  vim.bo[buf].swapfile = false
  vim.bo[buf].filetype = filetype
  return buf
end

--- The chat's windows in `tab`, if both are there.
---@param tab? integer
---@return sanderling.layout.Windows?
local function windows_in(tab)
  tab = tab or api.nvim_get_current_tabpage()
  local windows = chat and chat.windows[tab]
  if chat and windows and layout.is_shown(windows, tab, chat.transcript_buf, chat.prompt.buf) then
    return windows
  end
end

---@param self sanderling.chat.Chat
local function watch(self)
  api.nvim_clear_autocmds({ group = augroup })
  local buffers = { self.transcript_buf, self.prompt.buf }
  api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI', 'TextChangedP' }, {
    group = augroup,
    buffer = self.prompt.buf,
    desc = 'Agent: placeholder of an empty prompt',
    callback = function()
      self.prompt:draw_placeholder()
      self.todo:follow()
    end,
  })
  for _, buf in ipairs(buffers) do
    api.nvim_create_autocmd({ 'ModeChanged', 'WinEnter', 'WinLeave' }, {
      group = augroup,
      buffer = buf,
      desc = 'Agent: mode in the winbar',
      callback = vim.schedule_wrap(function()
        pcall(vim.cmd.redrawstatus, { bang = true })
      end),
    })
  end
  api.nvim_create_autocmd('BufWinEnter', {
    group = augroup,
    buffer = self.transcript_buf,
    desc = 'Agent: folds and highlights in a new window',
    callback = function()
      local win = api.nvim_get_current_win()
      layout.set_transcript_options(win)
      self.transcript:show_in(win)
    end,
  })
  api.nvim_create_autocmd('WinScrolled', {
    group = augroup,
    desc = 'Agent: highlight what comes into view',
    callback = function()
      for _, win in ipairs(vim.fn.win_findbuf(self.transcript_buf)) do
        if vim.v.event[tostring(win)] then
          self.transcript:show_markdown(win)
        end
      end
    end,
  })
  for _, buf in ipairs(buffers) do
    api.nvim_create_autocmd('QuitPre', {
      group = augroup,
      buffer = buf,
      desc = 'Agent: tell :quit from other ways to close a window',
      callback = function()
        self.is_quitting = true
        vim.schedule(function()
          self.is_quitting = false
        end)
      end,
    })
  end
  api.nvim_create_autocmd('WinLeave', {
    group = augroup,
    desc = 'Agent: remember where files are to open',
    callback = function()
      local win = api.nvim_get_current_win()
      self.code_win = tools.is_code_window(win) and win or self.code_win
    end,
  })
  api.nvim_create_autocmd('VimResized', {
    group = augroup,
    desc = 'Agent: keep floats on the screen',
    callback = function()
      for tab, windows in pairs(self.windows) do
        if api.nvim_tabpage_is_valid(tab) and windows_in(tab) then
          layout.place_floats(windows)
        end
      end
    end,
  })
  api.nvim_create_autocmd('WinClosed', {
    group = augroup,
    desc = 'Agent: both windows of the chat close together',
    callback = function(args)
      local closed = tonumber(args.match)
      for tab, windows in pairs(self.windows) do
        if windows.transcript == closed or windows.prompt == closed then
          M.hide(tab, closed)
          return
        end
      end
    end,
  })
end

---@return sanderling.chat.Chat
local function new_chat()
  local self = {
    transcript_buf = new_buffer('transcript', 'sanderling'),
    prompt = prompt.new(new_buffer('prompt', 'sanderling_prompt')),
    windows = {},
  }
  self.todo = todo.new(self.prompt.buf)
  vim.bo[self.transcript_buf].undolevels = -1
  begin_session(self)
  local actions = actions_of(self)
  keys.set(self.transcript_buf, self.prompt.buf, actions)
  keys.set_words({ self.transcript_buf, self.prompt.buf }, actions)
  watch(self)
  self.prompt:draw_placeholder()
  return self
end

--- The chat; a new one when there is none or its buffers were deleted.
---@return sanderling.chat.Chat
local function current_chat()
  local is_whole = chat
    and api.nvim_buf_is_loaded(chat.transcript_buf)
    and api.nvim_buf_is_loaded(chat.prompt.buf)
  if not is_whole then
    if chat then
      host.close(chat.id)
      render.forget(chat.transcript_buf)
      for _, buf in ipairs({ chat.transcript_buf, chat.prompt.buf }) do
        pcall(api.nvim_buf_delete, buf, { force = true })
      end
    end
    chat = new_chat()
  end
  return chat
end

--- Give the transcript's window what it had when it was hidden: where it was, or the end if it was there.
---@param self sanderling.chat.Chat
---@param win integer
local function restore_view(self, win)
  self.transcript:show_in(win)
  local view = self.view
  api.nvim_win_call(win, function()
    if view and not view.is_at_end then
      vim.fn.winrestview(view.saved)
    else
      vim.cmd('normal! G$zb')
    end
  end)
end

--- The tab page, other than this one, that shows the chat.
---@param self sanderling.chat.Chat
---@return integer?
local function other_tab(self)
  for tab in pairs(self.windows) do
    if api.nvim_tabpage_is_valid(tab) and windows_in(tab) then
      return tab
    end
  end
end

---@param opts sanderling.ChatOpts
function M.show(opts)
  local given = { position = opts.position, size = opts.size }
  config.validate(given, 'chat')
  local self = current_chat()
  local tab = (given.position or config.options.chat.position) == 'tab' and other_tab(self)
  if tab and opts.focus == false then
    return open_session(self)
  elseif tab then
    api.nvim_set_current_tabpage(tab)
  end
  local windows = windows_in()
  local before = api.nvim_get_current_win()
  if not windows then
    local layout_opts = vim.tbl_extend('force', config.options.chat, given)
    local win_options = self.view and self.view.options
    -- May raise: there is no room.
    windows = layout.open(layout_opts, self.transcript_buf, self.prompt.buf, win_options)
    self.windows[api.nvim_get_current_tabpage()] = windows
    restore_view(self, windows.transcript)
  end
  if opts.focus == false then
    api.nvim_set_current_win(before)
  else
    api.nvim_set_current_win(windows.prompt)
    if config.options.chat.start_insert then
      vim.cmd.startinsert({ bang = true })
    end
  end
  open_session(self)
end

---@return integer[] windows of this tab page, without those that only tell something
local function windows_to_be_in()
  return vim.tbl_filter(function(win)
    return api.nvim_win_get_config(win).focusable
  end, api.nvim_tabpage_list_wins(0))
end

--- Hide the chat in `tab`. `closing` is a window that Neovim is closing already.
---@param tab? integer
---@param closing? integer
function M.hide(tab, closing)
  tab = tab or api.nvim_get_current_tabpage()
  local self = chat
  local windows = self and self.windows[tab]
  if not self or not windows then
    if vim.b.sanderling_session then -- a window of the user's own on the transcript
      layout.close({ api.nvim_get_current_win() })
    end
    return
  end
  self.windows[tab] = nil
  if layout.shows(windows.transcript, self.transcript_buf) then
    self.transcript:leave(windows.transcript)
    self.view = api.nvim_win_call(windows.transcript, function()
      local view = vim.fn.winsaveview()
      local last = math.max(view.lnum, vim.fn.foldclosedend(view.lnum))
      return {
        saved = view,
        is_at_end = last == vim.fn.line('$'),
        options = layout.get_transcript_options(0),
      }
    end)
  end
  if not closing then
    if api.nvim_get_current_win() == windows.prompt then
      vim.cmd.stopinsert()
    end
    layout.close({ windows.prompt, windows.transcript }, windows.replaced)
    return
  end
  local is_quitting = self.is_quitting
  self.is_quitting = false
  -- The other window cannot be closed from within the autocommand of the first.
  vim.schedule(function()
    local other = closing == windows.prompt and windows.transcript or windows.prompt
    local is_last = #api.nvim_list_tabpages() == 1 and #windows_to_be_in() == 1
    if is_last and not is_quitting then
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
  if windows_in() then
    M.hide()
  else
    M.show(opts)
  end
end

-- commands ------------------------------------------------------------------------------------------------------------

---@param text string
function M.submit(text)
  vim.validate('text', text, 'string')
  send_lines(current_chat(), vim.split(text, '\n', { plain = true }))
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
  local self = current_chat()
  M.show({ focus = opts.focus or false })
  local selections
  if opts.range then
    local selection, err = context.selection(buf, opts.range[1], opts.range[2], self.project)
    if not selection then
      return refuse(self, assert(err))
    end
    selections = { selection }
  end
  send_lines(self, vim.split(text, '\n', { plain = true }), selections)
end

---@param command string
function M.run(command)
  vim.validate('command', command, 'string')
  M.show({ focus = false })
  run_lines(current_chat(), vim.split(command, '\n', { plain = true }))
end

---@param mode? string
---@return string? mode the one that is in force, when none is given
function M.net(mode)
  if mode == nil then
    return chat and sandbox.of(chat.id).network or 'off'
  end
  vim.validate('mode', mode, function(value)
    return vim.list_contains(sandbox.NETWORK_MODES, value)
  end, "'off', 'proxy' or 'on'")
  act(current_chat(), { type = 'set_network', mode = mode })
end

--- `:AgentNet`: without a mode, say in one sentence what the network is.
---@param mode string
function M.set_or_tell_network(mode)
  if mode ~= '' then
    M.net(mode)
  elseif chat and sandbox.of(chat.id).level == 'off' then
    tell('The sandbox is off, and with it any hold on the network.', vim.log.levels.WARN)
  else
    tell(sandbox.network_sentence(M.net()))
  end
end

---@param mode? string
---@return string? mode the one that is in force, when none is given
function M.mode(mode)
  if mode == nil then
    return chat and chat.mode or 'ask'
  end
  vim.validate('mode', mode, function(value)
    return vim.list_contains(config.MODES, value)
  end, "'ask', 'auto' or 'plan'")
  local self = current_chat()
  self.wanted_mode = mode
  act(self, { type = 'set_mode', mode = mode })
end

--- `:AgentMode`: without a mode, say in one sentence which one is in force.
---@param mode string
function M.set_or_tell_mode(mode)
  if mode ~= '' then
    M.mode(mode)
  else
    tell(mode_sentences[M.mode()])
  end
end

--- Show the whole list of what the model means to do.
function M.todo()
  if chat and #chat.todo.items > 0 then
    chat.todo:show()
  else
    tell('The model has made no list of what is to be done.')
  end
end

--- Say in the transcript what is known of the sandbox.
local function tell_sandbox()
  M.show({ focus = false })
  local self = current_chat()
  local text, is_weaker = sandbox.report(self.id)
  local level = is_weaker and 'warning' or 'info'
  host.publish(self.id, { { type = 'local_notice', level = level, text = text } })
end

--- Ask whether commands are to run without a sandbox, and do as is answered.
local function offer_no_sandbox()
  local self = current_chat()
  local id = self.id
  local choices = { 'Run without a sandbox in this session', 'Keep the sandbox' }
  vim.ui.select(choices, {
    prompt = 'Without a sandbox, commands can do all that you can:',
  }, function(choice)
    if choice == choices[1] and chat == self and self.id == id then
      M.show({ focus = false }) -- under a banner
      act(self, { type = 'set_sandbox', is_on = false })
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
    act(current_chat(), { type = 'set_sandbox', is_on = true })
  else
    tell_sandbox()
  end
end

function M.stop()
  if chat and is_busy() then
    for _, pending in ipairs(chat.pending) do
      pending.is_stopped = true
    end
    host.publish(chat.id, { { type = 'local_stop_sent' } })
    host.act(chat.id, { type = 'cancel_turn' })
  end
end

function M.clear()
  if not chat then
    return
  end
  if chat.is_in_turn then
    host.announce('AgentTurnEnded', { session_id = chat.id, stop_reason = 'cancelled' })
  end
  take_back(chat, is_any)
  end_commands(chat, 'Stopped.')
  host.close(chat.id)
  begin_session(chat)
  open_session(chat)
end

--- There is an environment now: start the host for the chat, if there is one.
---@return boolean is_shown the chat is on the screen
function M.resume()
  if chat then
    open_session(chat)
  end
  return windows_in() ~= nil
end

---@return { buf: integer, win: integer? }?
function M.transcript()
  if not chat or not api.nvim_buf_is_valid(chat.transcript_buf) then
    return nil
  end
  local windows = windows_in()
  return { buf = chat.transcript_buf, win = windows and windows.transcript }
end

-- The winbars ask this module's sibling; it listens to the host on its own.
require('sanderling.status')

return M
