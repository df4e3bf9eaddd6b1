--- Jobs: background commands of the model, each in a buffer that shows it like a terminal.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local files = require('sanderling.access.files')
local page = require('sanderling.access.page')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

---@alias sanderling.screens.jobs.State 'text'|'escape'|'csi'|'other'|'string'

---@class (exact) sanderling.screens.jobs.Screen where a job is shown
---@field buf integer
---@field channel integer
---@field session_id string
---@field state sanderling.screens.jobs.State position in an escape sequence after the last output
---@field parameters string of an incomplete CSI sequence
---@field rest string an incomplete character
---@field is_over? boolean its end is shown
---@field bar? string the line above it, if the user can type there
---@field shared? integer the autocommands of a terminal that the user can take

---@type table<string, sanderling.screens.jobs.Screen> by session and job
local screens = {}

---@param session_id string
---@param id string of the job
---@return string
local function key(session_id, id)
  return session_id .. '/' .. id
end

-- writing -------------------------------------------------------------------------------------------------------------

-- Control characters to drop. Characters that end a sequence are handled there.
local IGNORED = '[%z\1-\6\11\12\14-\23\25\28-\31\127]'
local STRING_STARTS = '[PX%]^_]' -- after ESC: DCS, SOS, OSC, PM, APC
local MAX_PARAMETERS = 64 -- bytes; longer sequences are dropped

--- Is it a sequence for erasing, cursor movement, colours or modes? None makes the terminal answer.
---@param parameters string
---@param final string
---@return boolean
local function is_drawing(parameters, final)
  if #parameters > MAX_PARAMETERS then
    return false
  elseif parameters:find('^%?[%d;]*$') then
    return final:find('[hlJK]') ~= nil
  end
  return parameters:find('^[%d:;]*$') ~= nil and final:find('[@A-HJ-MPSTXZ`abdefghlmrsu]') ~= nil
end

---@type table<sanderling.screens.jobs.State, fun(screen: sanderling.screens.jobs.Screen, char: string): string?> returns what to write for a character
local write_char = {}

function write_char.escape(screen, char)
  if char == '[' then
    screen.state, screen.parameters = 'csi', ''
  elseif char:find(STRING_STARTS) then
    screen.state = 'string'
  elseif char:find('[ -/]') then
    screen.state = 'other'
  else
    screen.state = 'text'
    return char:find('[\128-\255]') and char or ''
  end
end

function write_char.other(screen, char)
  if not char:find('[ -/]') then
    screen.state = 'text'
    return char:find('[\128-\255]') and char or ''
  end
end

function write_char.csi(screen, char)
  if char:find('[ -?]') then
    if #screen.parameters <= MAX_PARAMETERS then
      screen.parameters = screen.parameters .. char
    end
    return
  end
  screen.state = 'text'
  if char:find('[\128-\255]') then
    return char
  elseif is_drawing(screen.parameters, char) then
    return '\27[' .. screen.parameters .. char
  end
end

--- Return a job's text and its CSI sequences. All other sequences control the terminal itself, and a job must not set the clipboard or
--- the title. The parser follows terminals (https://vt100.net/emu/dec_ansi_parser): a sequence may contain line breaks, and a character
--- of U+0080 to U+009F is one. Accepted sequences are rewritten in one piece, so that a terminal with another parser finds no other
--- sequence in them.
---@param screen sanderling.screens.jobs.Screen
---@param text string
---@return string
local function text_and_csi(screen, text)
  text = screen.rest .. text
  screen.rest = text:match('\194$') or '' -- the first half of a possible C1 character
  text = text:sub(1, #text - #screen.rest):gsub(IGNORED, ''):gsub('\194([\128-\159])', function(c1)
    return '\27' .. string.char(c1:byte() - 64)
  end)
  local pieces, pos = {}, 1
  while pos <= #text do
    local char = text:sub(pos, pos)
    if screen.state == 'text' or screen.state == 'string' then
      local at = text:find('[\7\24\26\27]', pos) or #text + 1
      if screen.state == 'text' then
        pieces[#pieces + 1] = text:sub(pos, at - 1)
      end
      pos, char = at, text:sub(at, at)
    end
    if char == '\27' then
      screen.state = 'escape'
    elseif char:find('[\24\26]') or (char == '\7' and screen.state == 'string') then
      screen.state = 'text'
    elseif char:find('[\8-\13]') then
      pieces[#pieces + 1] = char
    elseif char ~= '' and char ~= '\7' then
      pieces[#pieces + 1] = write_char[screen.state](screen, char)
    end
    pos = pos + 1
  end
  return table.concat(pieces)
end

---@param screen sanderling.screens.jobs.Screen
---@param text string
local function write(screen, text)
  text = text_and_csi(screen, text):gsub('\r?\n', '\r\n')
  pcall(api.nvim_chan_send, screen.channel, text) -- the buffer may be closing
end

--- Say above the terminal who has it and which key changes that, or how it ended.
---@param screen sanderling.screens.jobs.Screen
---@param text? string default: as before
local function set_bar(screen, text)
  screen.bar = text or screen.bar
  for _, win in ipairs(screen.bar and vim.fn.win_findbuf(screen.buf) or {}) do
    vim.wo[win][0].winbar = screen.bar
  end
end

--- End what `share` began.
---@param screen sanderling.screens.jobs.Screen
local function stop_sharing(screen)
  if screen.shared then
    api.nvim_del_augroup_by_id(screen.shared)
    screen.shared = nil
  end
end

--- Show how it ended: below the text, or above a terminal, whose program may still draw its last screen.
---@param screen sanderling.screens.jobs.Screen
---@param sentence string
local function write_end(screen, sentence)
  if screen.is_over then
    return
  end
  screen.is_over = true
  stop_sharing(screen)
  sentence = words.plain(sentence)
  if screen.bar then
    sentence = sentence:gsub('^%l', string.upper):gsub('%.$', '')
    local text = (' %s. <C-\\><C-n> leaves terminal mode.'):format(sentence)
    set_bar(screen, (text:gsub('%%', '%%%%')))
  else
    screen.state, screen.rest = 'text', ''
    write(screen, ('\27[0m\n[%s]\n'):format(sentence))
  end
end

-- events --------------------------------------------------------------------------------------------------------------

bus.subscribe('jobs_changed', function(session_id, event)
  for _, job in ipairs(event.jobs) do
    local screen = screens[key(session_id, job.id)]
    if screen and job.outcome ~= '' then
      write_end(screen, job.outcome)
    end
  end
end)

bus.subscribe('job_output', function(session_id, event)
  local screen = screens[key(session_id, event.id)]
  if screen then
    write(screen, event.text)
  end
end)

-- A command that was watched while it ran in the foreground. As a job it has another id, with which its end is reported.
bus.subscribe('tool_ended', function(session_id, event)
  local screen = screens[key(session_id, event.id)]
  if screen and (event.job or '') ~= '' then
    screens[key(session_id, event.job)] = screen
  elseif screen then
    write_end(screen, event.summary)
  end
end)

for type, sentence in pairs({
  local_failed = 'The agent process ended.',
  local_closed = 'The conversation was closed.',
}) do
  bus.subscribe(type, function(session_id)
    for _, screen in pairs(screens) do
      if screen.session_id == session_id then
        write_end(screen, sentence)
      end
    end
  end)
end

-- showing and stopping ------------------------------------------------------------------------------------------------

---@return sanderling.ShownJob[] of the current session
local function known()
  return live.state_of(live.current_id()).jobs
end

--- Return the command that runs in the foreground and is not asked about.
---@return sanderling.ShownJob?
local function in_front()
  local state = live.state_of(live.current_id())
  for _, tool in ipairs(state.tools) do
    local is_asked = vim.iter(state.questions):any(function(question)
      return vim.startswith(question.event.id, tool.id)
    end)
    if tool.name == 'bash' and not is_asked then
      return { id = tool.id, command = tool.title, outcome = '' }
    end
  end
end

--- Is it the job that the tool has just started? One with a terminal is a job before its tool has ended.
---@param job sanderling.ShownJob
---@param tool sanderling.ShownJob
---@return boolean
local function is_of(job, tool)
  return job.has_terminal == true and vim.startswith(job.command, (tool.command:gsub(' ?…$', '')))
end

--- Return what one wants to watch: the command in the foreground, else the newest running job, else the newest.
---@param list sanderling.ShownJob[]
---@return sanderling.ShownJob?
local function most_wanted(list)
  local running = vim.tbl_filter(function(job)
    return job.outcome == ''
  end, list)
  local newest, tool = running[#running], in_front()
  if newest and tool and is_of(newest, tool) then
    return newest
  end
  return tool or newest or list[#list]
end

--- Return the job `id`; report it if there is none.
---@param id string empty: see `most_wanted`
---@return sanderling.ShownJob?
local function find(id)
  local list = known()
  local wanted = id == '' and most_wanted(list)
  if wanted then
    return wanted
  end
  for _, job in ipairs(list) do
    if job.id == id then
      return job
    end
  end
  local sentence = id == '' and 'No jobs in this conversation.' or ('No job %s.'):format(id)
  message.tell(sentence, vim.log.levels.WARN)
end

--- Show `buf` below all other windows, without the current window's local options.
---@param buf integer
local function open_split(buf)
  local win = api.nvim_open_win(buf, true, {
    split = 'below',
    win = -1,
    height = math.max(3, math.floor(vim.o.lines / 3)),
  })
  scratch.set_win_options(win, {
    winbar = '',
    winfixbuf = false,
    winfixheight = true,
    number = false,
    relativenumber = false,
    signcolumn = 'no',
    foldcolumn = '0',
    statuscolumn = '',
  })
end

---@param job sanderling.ShownJob
---@param session_id string
local function stop(job, session_id)
  if job.outcome ~= '' then
    message.tell(('%s is over: %s.'):format(job.id, words.plain(job.outcome)))
  elseif live.act(session_id, { type = 'stop_job', id = job.id }) then
    message.tell(('Stopping %s: %s'):format(job.id, words.first_line(job.command)))
  end
end

---@param buf integer
---@param job sanderling.ShownJob
---@param session_id string
local function set_keys(buf, job, session_id)
  files.guard(buf, function()
    local session = live.find(session_id)
    files.go_to_name_here(session and session.project or vim.fn.getcwd())
  end)
  page.set_keys(buf, 'job', {
    stop = function()
      stop(job, session_id)
    end,
    close = function()
      if not pcall(api.nvim_win_close, 0, false) then
        vim.cmd.enew() -- the last window
      end
    end,
  })
end

-- the user's terminal -------------------------------------------------------------------------------------------------

---@return string? id of a job that runs in a terminal which the user has opened
local function opened()
  for name, screen in pairs(screens) do
    if screen.shared then
      return name:match('[^/]+$')
    end
  end
end

-- Only a changed buffer makes Neovim refuse `:qa` but not `:qa!`, and a terminal's never counts as changed. (With a running `:terminal`, Neovim
-- 0.11 and 0.12 just quit.) The buffer is in a window of its own, because Neovim shows it in the current one otherwise.
api.nvim_create_autocmd('ExitPre', {
  desc = 'Agent: refuse to quit while a terminal that the user has opened runs',
  callback = function()
    local id = opened()
    if not id then
      return
    end
    local buf = scratch.new(('job %s, which runs in its terminal'):format(id))
    scratch.set_buf_options(buf, { buftype = 'acwrite', modified = true })
    api.nvim_open_win(buf, false, {
      relative = 'editor',
      row = 0,
      col = 0,
      width = 1,
      height = 1,
      hide = true,
      noautocmd = true,
    })
    api.nvim_create_autocmd('SafeState', {
      desc = 'Agent: go on after the refusal',
      callback = function()
        if api.nvim_get_mode().mode:find('^r') then
          return false -- `:confirm` asks about the buffer
        end
        api.nvim_buf_delete(buf, { force = true })
        message.tell(('Job %s runs in its terminal. :qa! ends it.'):format(id))
        return true
      end,
    })
  end,
})

-- A narrow window shows the beginning.
local MODELS = ' The model has the terminal. i takes it%<: the model then sees and sends nothing.'
local USERS = ' You have the terminal. <C-\\><C-n>%< hands it back. The model sees nothing of it.'

--- Give the job's terminal the size of the window.
---@param buf integer
---@param job sanderling.ShownJob
---@param session_id string
local function report_size(buf, job, session_id)
  local win = vim.fn.bufwinid(buf)
  if win ~= -1 then
    live.act(session_id, {
      type = 'resize_terminal',
      id = job.id,
      rows = api.nvim_win_get_height(win) - (vim.wo[win].winbar ~= '' and 1 or 0),
      columns = api.nvim_win_get_width(win) - vim.fn.getwininfo(win)[1].textoff,
    })
  end
end

--- Let the user type in the job's terminal: terminal mode takes it, leaving the mode hands it back.
---@param screen sanderling.screens.jobs.Screen
---@param job sanderling.ShownJob
---@param session_id string
local function share(screen, job, session_id)
  local buf = screen.buf
  screen.shared = api.nvim_create_augroup('sanderling.terminal.' .. buf, {})
  ---@param what 'take'|'hand_back'
  local function use(what)
    if not screen.is_over then
      live.act(session_id, { type = 'use_terminal', id = job.id, what = what })
      set_bar(screen, what == 'take' and USERS or MODELS)
    end
  end
  for _, map in ipairs(api.nvim_buf_get_keymap(buf, 't')) do
    api.nvim_buf_del_keymap(buf, 't', map.lhs) -- all keys are the program's
  end
  api.nvim_create_autocmd('TermEnter', {
    group = screen.shared,
    buffer = buf,
    desc = 'Agent: take the terminal',
    callback = function()
      use('take')
      -- Not for the buffer: who leaves the mode by leaving the window is in another one when this fires.
      api.nvim_create_autocmd('TermLeave', { -- not in the group either: it comes after BufUnload
        once = true,
        desc = 'Agent: hand the terminal back',
        callback = function()
          use('hand_back')
        end,
      })
    end,
  })
  -- Not for the buffer: of several windows it names only the first.
  api.nvim_create_autocmd('WinResized', {
    group = screen.shared,
    desc = 'Agent: resize the terminal',
    callback = function()
      report_size(buf, job, session_id)
    end,
  })
  report_size(buf, job, session_id)
end

---@param job sanderling.ShownJob
---@param session_id string
local function open(job, session_id)
  local is_in_front = not vim.startswith(job.id, 'j')
  local buf = scratch.new(is_in_front and 'command' or 'job ' .. job.id)
  scratch.set_buf_options(buf, { bufhidden = 'hide' })
  open_split(buf)
  ---@type sanderling.screens.jobs.Screen
  local screen = {
    buf = buf,
    channel = 0,
    session_id = session_id,
    state = 'text',
    parameters = '',
    rest = '',
  }
  if job.has_terminal then
    set_bar(screen, MODELS) -- before the terminal gets its size
    if job.outcome ~= '' then
      write_end(screen, job.outcome)
    end
  end
  screen.channel = api.nvim_open_term(buf, { -- in its window, which determines its size
    on_input = function(_, _, _, data)
      if job.has_terminal and not screen.is_over then
        live.act(session_id, {
          type = 'type_in_terminal',
          id = job.id,
          data = vim.base64.encode(data),
        })
      end
    end,
  })
  screens[key(session_id, job.id)] = screen
  set_keys(buf, job, session_id)
  if job.has_terminal and not screen.is_over then
    share(screen, job, session_id)
  end
  api.nvim_create_autocmd('BufUnload', {
    buffer = buf,
    once = true,
    desc = 'Agent: stop watching the job',
    callback = function()
      stop_sharing(screen)
      for name, other in pairs(screens) do
        if other == screen then
          screens[name] = nil
        end
      end
      local state = live.state_of(session_id)
      if #state.jobs + #state.tools > 0 then
        live.act(session_id, { type = 'watch_job', id = job.id, is_on = false })
      end
    end,
  })
  vim.cmd('normal! G') -- the window follows the output
  live.act(session_id, { type = 'watch_job', id = job.id, is_on = true })
end

--- Show a job's output in a split, that of the running command unless `id` is given.
---@param id string
function M.show(id)
  local job = find(id)
  if not job then
    return
  end
  local session_id = assert(live.current_id())
  local screen = screens[key(session_id, job.id)]
  local win = screen and vim.fn.bufwinid(screen.buf) or -1
  if win ~= -1 then
    api.nvim_set_current_win(win)
  elseif screen and api.nvim_buf_is_loaded(screen.buf) then
    open_split(screen.buf)
    set_bar(screen)
  else
    open(job, session_id)
  end
end

--- Let the model see what is on the screen of a job's terminal now, although the user typed it.
---@param id string of the job; empty: the newest terminal that runs
function M.reveal(id)
  local shared = vim.tbl_filter(function(job)
    return job.has_terminal == true and job.outcome == ''
  end, known())
  local job = id == '' and shared[#shared] or (id ~= '' and find(id)) or nil
  if vim.list_contains(shared, job) then
    live.act(assert(live.current_id()), { type = 'use_terminal', id = job.id, what = 'show' })
    message.tell(('The model sees the whole screen of %s.'):format(job.id))
  elseif id == '' then
    message.tell('No terminal runs in this conversation.', vim.log.levels.WARN)
  elseif job and job.has_terminal then
    message.tell(('%s is over: %s.'):format(job.id, words.plain(job.outcome)))
  elseif job then
    message.tell(('%s has no terminal.'):format(job.id), vim.log.levels.WARN)
  end
end

--- Stop a job, the running command unless `id` is given.
---@param id string
function M.stop(id)
  local job = find(id)
  if job then
    stop(job, assert(live.current_id()))
  end
end

---@param lead string
---@return string[] ids
function M.complete(lead)
  local ids = vim.tbl_map(function(job)
    return job.id
  end, known())
  return words.beginning_with(ids, lead)
end

return M
