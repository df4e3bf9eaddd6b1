--- The chat: a transcript over a prompt, their windows, keys and words. One object per session.
local api = vim.api
local config = require('sanderling.config')
local context = require('sanderling.context')
local host = require('sanderling.host')
local layout = require('sanderling.layout')
local prompt_history = require('sanderling.prompt_history')
local render = require('sanderling.render')

local M = {}

local PLACEHOLDER = 'Ask anything: %s sends, %s in insert mode'
local ns = api.nvim_create_namespace('sanderling_prompt')
local augroup = api.nvim_create_augroup('sanderling', {})

---@class (exact) sanderling.chat.Chat
---@field id string of the session
---@field project string root that the session is about
---@field transcript sanderling.render.Transcript
---@field transcript_buf integer
---@field prompt_buf integer
---@field windows table<integer, sanderling.layout.Windows> by tab page
---@field view? { topline: table, is_at_end: boolean } of the transcript, when it was last hidden
---@field pending { id: string, text: string }[] prompts that were sent and whose turn has not started
---@field is_in_turn boolean
---@field is_quitting? boolean `:quit` is closing one of the windows
---@field history_index? integer the entry of the prompt history that stands in the prompt
---@field draft? string[] what stood there before

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
  self.transcript = render.new(self.transcript_buf, host.note_defect)
  for _, buf in ipairs({ self.transcript_buf, self.prompt_buf }) do
    vim.b[buf].sanderling_session = self.id
  end
  host.register(self.id, self.project)
end

---@type { pattern: string, data: table }?
local announcement

--- Run the autocommands of `announcement`. (Not for callers outside: `announce` comes here by a command.)
function M.run_autocommands()
  local event = assert(announcement)
  api.nvim_exec_autocmds('User', { pattern = event.pattern, modeline = false, data = event.data })
end

--- Tell the user's autocommands. An error in one of them must not become a hit-enter prompt, which would stop the stream; a
--- command can be told to keep its errors to itself, nvim_exec_autocmds() cannot.
---@param pattern string
---@param data table
local function announce(pattern, data)
  announcement = { pattern = pattern, data = data }
  vim.v.errmsg = ''
  local run = "require('sanderling.chat').run_autocommands()"
  api.nvim_cmd({ cmd = 'lua', args = { run }, mods = { emsg_silent = true } }, {})
  if vim.v.errmsg ~= '' then
    host.note_defect(('an autocommand for User %s failed: %s'):format(pattern, vim.v.errmsg))
  end
end

--- Put the prompts that will not be answered back where they were typed.
---@param self sanderling.chat.Chat
local function take_back_pending(self)
  if #self.pending == 0 then
    return
  end
  local lines = {}
  for _, prompt in ipairs(self.pending) do
    vim.list_extend(lines, vim.split(prompt.text, '\n', { plain = true }))
  end
  local typed = api.nvim_buf_get_lines(self.prompt_buf, 0, -1, true)
  if #typed > 1 or typed[1] ~= '' then
    vim.list_extend(lines, typed)
  end
  self.pending = {}
  api.nvim_buf_set_lines(self.prompt_buf, 0, -1, true, lines)
end

--- What an event means for the chat beyond being drawn; called when it is on the screen.
---@type table<string, fun(self: sanderling.chat.Chat, event: any)>
local handlers = {}

function handlers.turn_started(self, event)
  self.is_in_turn = true
  self.pending = vim.tbl_filter(function(prompt)
    return prompt.id ~= event.prompt.id
  end, self.pending)
  announce('AgentTurnStarted', { session_id = self.id, prompt = event.prompt.text })
end

function handlers.error_occurred(self, event)
  announce('AgentError', {
    session_id = self.id,
    kind = event.kind,
    message = event.message,
    remedy = event.remedy,
  })
end

function handlers.turn_ended(self, event)
  self.is_in_turn = false
  if event.stop_reason == 'cancelled' then
    take_back_pending(self)
  end
  announce('AgentTurnEnded', { session_id = self.id, stop_reason = event.stop_reason })
end

function handlers.local_failed(self, event)
  local was_in_turn = self.is_in_turn
  self.is_in_turn = false
  take_back_pending(self)
  announce('AgentError', {
    session_id = self.id,
    kind = 'host',
    message = event.message,
    remedy = '',
  })
  if was_in_turn then
    announce('AgentTurnEnded', { session_id = self.id, stop_reason = 'interrupted' })
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
    local room = vim.o.columns - 15 -- a message that fills the line would ask for <Enter>
    vim.notify(vim.fn.strcharpart(message, 0, room), vim.log.levels.ERROR)
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

---@param self sanderling.chat.Chat
---@param lines string[]
local function set_prompt(self, lines)
  api.nvim_buf_set_lines(self.prompt_buf, 0, -1, true, lines)
  for _, win in ipairs(vim.fn.win_findbuf(self.prompt_buf)) do
    api.nvim_win_set_cursor(win, { #lines, #lines[#lines] })
  end
end

--- Send a prompt. When the host cannot start, it stands in the prompt again.
---@param self sanderling.chat.Chat
---@param text string
---@param selections? sanderling.Selection[]
local function send(self, text, selections)
  local prompt = { id = ('%d'):format(vim.uv.hrtime()), text = text, selections = selections }
  self.pending[#self.pending + 1] = { id = prompt.id, text = text }
  host.publish(self.id, { { type = 'local_prompt_sent', id = prompt.id } })
  local err = host.act(self.id, { type = 'submit_prompt', prompt = prompt })
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

--- Send what stands in the prompt.
---@param self sanderling.chat.Chat
local function send_prompt(self)
  local lines = api.nvim_buf_get_lines(self.prompt_buf, 0, -1, true)
  local sent = vim.list_slice(lines, 1, #lines)
  while #sent > 0 and vim.trim(sent[#sent]) == '' do
    sent[#sent] = nil
  end
  if #sent == 0 then
    return
  end
  set_prompt(self, { '' })
  if send_lines(self, sent) then
    prompt_history.add(table.concat(sent, '\n'))
    self.history_index, self.draft = nil, nil
  else
    set_prompt(self, lines)
  end
end

--- Step through the prompts that were sent; past the newest comes back what was being typed.
---@param self sanderling.chat.Chat
---@param step -1|1
local function recall(self, step)
  local entries = prompt_history.entries()
  local index = (self.history_index or #entries + 1) + step
  if index < 1 or index > #entries + 1 then
    return
  end
  if not self.history_index then
    self.draft = api.nvim_buf_get_lines(self.prompt_buf, 0, -1, true)
  end
  if index > #entries then
    self.history_index = nil
    set_prompt(self, self.draft or { '' })
  else
    self.history_index = index
    set_prompt(self, vim.split(entries[index], '\n', { plain = true }))
  end
end

--- `<C-p>` and `<C-n>` move in the completion menu when it is open and in the text where there is a line to go to.
---@param self sanderling.chat.Chat
---@param lhs string
---@param step -1|1
local function recall_or_move(self, lhs, step)
  local lnum = vim.fn.line('.')
  local edge = step < 0 and 1 or vim.fn.line('$')
  if vim.fn.pumvisible() == 0 and lnum == edge then
    recall(self, step)
    return
  end
  local move = step < 0 and '<Up>' or '<Down>'
  local keys = vim.fn.pumvisible() == 1 and lhs or move
  api.nvim_feedkeys(vim.keycode(keys), 'n', false)
end

---@param key sanderling.config.Key
---@return string
local function first_key(key)
  return type(key) == 'table' and key[1] or key or ':Send'
end

---@param self sanderling.chat.Chat
local function draw_placeholder(self)
  api.nvim_buf_clear_namespace(self.prompt_buf, ns, 0, -1)
  if api.nvim_buf_line_count(self.prompt_buf) > 1 then
    return
  end
  if api.nvim_buf_get_lines(self.prompt_buf, 0, 1, true)[1] == '' then
    local keys = config.options.keys
    local text = PLACEHOLDER:format(first_key(keys.send_normal), first_key(keys.send_insert))
    api.nvim_buf_set_extmark(self.prompt_buf, ns, 0, 0, {
      virt_text = { { text, 'AgentPlaceholder' } },
      virt_text_pos = 'overlay',
    })
  end
end

-- keys and words ------------------------------------------------------------------------------------------------------

---@param buf integer
---@param modes string|string[]
---@param key sanderling.config.Key
---@param rhs fun()|string
---@param desc string
local function map(buf, modes, key, rhs, desc)
  local keys = type(key) == 'table' and key or { key }
  for _, lhs in ipairs(keys) do
    if lhs then
      vim.keymap.set(modes, lhs, rhs, { buffer = buf, desc = 'Agent: ' .. desc })
    end
  end
end

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

--- `<C-c>` stops the turn; without one it does what it always does.
local function stop_or_interrupt()
  if chat and chat.is_in_turn or chat and #chat.pending > 0 then
    M.stop()
  else
    api.nvim_feedkeys(vim.keycode('<C-c>'), 'n', false)
  end
end

---@param self sanderling.chat.Chat
local function set_keys(self)
  local keys = config.options.keys
  local transcript, prompt = self.transcript_buf, self.prompt_buf

  map(transcript, 'n', keys.hide, M.hide, 'hide the chat')
  map(transcript, { 'n', 'x' }, keys.stop, stop_or_interrupt, 'stop the turn')
  map(transcript, 'n', keys.next_message, function()
    go_to_message(self, 1)
  end, 'next message')
  map(transcript, 'n', keys.previous_message, function()
    go_to_message(self, -1)
  end, 'previous message')
  map(transcript, 'n', keys.write, function()
    go_to_prompt(self)
  end, 'write a prompt')

  local function send_it()
    send_prompt(self)
  end
  map(prompt, 'n', keys.send_normal, send_it, 'send the prompt')
  map(prompt, 'i', keys.send_insert, send_it, 'send the prompt')
  map(prompt, 'n', keys.hide_prompt, M.hide, 'hide the chat')
  map(prompt, { 'n', 'i' }, keys.stop, stop_or_interrupt, 'stop the turn')
  for _, way in ipairs({ { 'history_previous', -1 }, { 'history_next', 1 } }) do
    local key = keys[way[1]]
    for _, lhs in ipairs(type(key) == 'table' and key or { key }) do
      map(prompt, { 'n', 'i' }, lhs, function()
        recall_or_move(self, lhs, way[2])
      end, way[2] < 0 and 'older prompt' or 'newer prompt')
    end
  end
end

--- Open the help on `topic`; not every way to install a plugin has written its tags.
---@param topic string
local function open_help(topic)
  if not pcall(vim.cmd.help, topic) then
    pcall(vim.cmd.helptags, vim.fs.joinpath(host.root(), 'doc'))
    local ok, err = pcall(vim.cmd.help, topic)
    if not ok then
      vim.notify((tostring(err):gsub('^.-(E%d+:)', '%1')), vim.log.levels.ERROR)
    end
  end
end

--- What the command line of the chat's windows knows besides: buffer-local commands, and the lower-case word for each as an
--- abbreviation of a line that is nothing else. Nothing outside these buffers changes.
---@param self sanderling.chat.Chat
local function set_words(self)
  local words = {
    quit = { M.hide, 'hide the chat' },
    clear = { M.clear, 'begin a new conversation' },
    stop = { M.stop, 'stop the turn' },
    send = {
      function()
        send_prompt(self)
      end,
      'send the prompt',
    },
    log = { host.open_log, "open the host's log" },
    help = {
      function(cmd)
        open_help(cmd.args ~= '' and cmd.args or 'sanderling')
      end,
      'open the help',
      '?',
    },
  }
  for _, buf in ipairs({ self.transcript_buf, self.prompt_buf }) do
    for word, entry in pairs(words) do
      local name = word:sub(1, 1):upper() .. word:sub(2)
      api.nvim_buf_create_user_command(buf, name, entry[1], {
        desc = 'Agent: ' .. entry[2],
        nargs = entry[3] or 0,
        bang = true,
        complete = entry[3] and 'help' or nil,
      })
      vim.keymap.set('ca', word, function()
        local is_whole = vim.fn.getcmdtype() == ':' and vim.fn.getcmdline() == word
        return is_whole and name or word
      end, { buffer = buf, expr = true, desc = 'Agent: ' .. entry[2] })
    end
  end
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

---@param self sanderling.chat.Chat
local function watch(self)
  api.nvim_clear_autocmds({ group = augroup })
  local buffers = { self.transcript_buf, self.prompt_buf }
  api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI' }, {
    group = augroup,
    buffer = self.prompt_buf,
    desc = 'Agent: placeholder of an empty prompt',
    callback = function()
      draw_placeholder(self)
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
    prompt_buf = new_buffer('prompt', 'sanderling_prompt'),
    windows = {},
  }
  vim.bo[self.transcript_buf].undolevels = -1
  begin_session(self)
  set_keys(self)
  set_words(self)
  watch(self)
  draw_placeholder(self)
  return self
end

--- The chat; a new one when there is none or its buffers were deleted.
---@return sanderling.chat.Chat
local function current_chat()
  local is_whole = chat
    and api.nvim_buf_is_loaded(chat.transcript_buf)
    and api.nvim_buf_is_loaded(chat.prompt_buf)
  if not is_whole then
    if chat then
      host.close(chat.id)
      render.forget(chat.transcript_buf)
      for _, buf in ipairs({ chat.transcript_buf, chat.prompt_buf }) do
        pcall(api.nvim_buf_delete, buf, { force = true })
      end
    end
    chat = new_chat()
  end
  return chat
end

--- The chat's windows in `tab`, if both are there.
---@param tab? integer
---@return sanderling.layout.Windows?
local function windows_in(tab)
  local windows = chat and chat.windows[tab or api.nvim_get_current_tabpage()]
  if windows and layout.is_shown(windows, tab or api.nvim_get_current_tabpage()) then
    return windows
  end
end

--- Give the transcript's window what it had when it was hidden: where it was, or the end if it was there.
---@param self sanderling.chat.Chat
---@param win integer
local function restore_view(self, win)
  self.transcript:show_in(win)
  local view = self.view
  api.nvim_win_call(win, function()
    if view and not view.is_at_end then
      vim.fn.winrestview(view.topline)
    else
      vim.cmd('normal! G$zb')
    end
  end)
end

---@param opts sanderling.ChatOpts
function M.show(opts)
  local given = { position = opts.position, size = opts.size }
  config.validate(given, 'chat')
  local self = current_chat()
  local windows = windows_in()
  local before = api.nvim_get_current_win()
  if not windows then
    local layout_opts = vim.tbl_extend('force', config.options.chat, given)
    windows = layout.open(layout_opts, self.transcript_buf, self.prompt_buf) -- may raise: there is no room
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

--- Hide the chat in `tab`. `closing` is a window that Neovim is closing already.
---@param tab? integer
---@param closing? integer
function M.hide(tab, closing)
  tab = type(tab) == 'number' and tab or api.nvim_get_current_tabpage()
  local self = chat
  local windows = self and self.windows[tab]
  if not self or not windows then
    if vim.b.sanderling_session then -- a window of the user's own on the transcript
      layout.close({ api.nvim_get_current_win() })
    end
    return
  end
  self.windows[tab] = nil
  if api.nvim_win_is_valid(windows.transcript) then
    self.view = api.nvim_win_call(windows.transcript, function()
      local view = vim.fn.winsaveview()
      return { topline = view, is_at_end = view.lnum == vim.fn.line('$') }
    end)
  end
  if not closing then
    layout.close({ windows.prompt, windows.transcript }, windows.replaced)
    return
  end
  local is_quitting = self.is_quitting
  self.is_quitting = false
  -- The other window cannot be closed from within the autocommand of the first.
  vim.schedule(function()
    local other = closing == windows.prompt and windows.transcript or windows.prompt
    local is_last = #api.nvim_list_tabpages() == 1 and #api.nvim_tabpage_list_wins(0) == 1
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

function M.stop()
  if chat and (chat.is_in_turn or #chat.pending > 0) then
    host.publish(chat.id, { { type = 'local_stop_sent' } })
    host.act(chat.id, { type = 'cancel_turn' })
  end
end

function M.clear()
  if not chat then
    return
  end
  if chat.is_in_turn then
    announce('AgentTurnEnded', { session_id = chat.id, stop_reason = 'cancelled' })
  end
  take_back_pending(chat)
  host.close(chat.id)
  begin_session(chat)
  open_session(chat)
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
