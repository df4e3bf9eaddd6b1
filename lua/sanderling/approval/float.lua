--- The float that shows a question. It is never focused automatically, and reopens if the user's commands close it.
local M = {}

local api = vim.api
local anywhere = require('sanderling.approval.anywhere')
local attention = require('sanderling.ui.attention')
local choosing = require('sanderling.approval.choosing')
local diff = require('sanderling.transcript.diff')
local footer = require('sanderling.approval.footer')
local geometry = require('sanderling.approval.place')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local queue = require('sanderling.approval.queue')
local scratch = require('sanderling.ui.scratch')
local ui_float = require('sanderling.ui.float')
local wording = require('sanderling.approval.wording')

local RETRY_MS = 50
local REPEAT_GRACES = 3 -- times attention.GRACE_NS: the pause after which a key counts as pressed again

local ns = api.nvim_create_namespace('sanderling_approval')
local augroup = api.nvim_create_augroup('sanderling_approval', {})

---@type { win: integer, buf: integer, place?: sanderling.approval.Place }?
local float
---@type integer? the window from which the user entered the float
local entered_from
---@type { question: sanderling.session.state.Question, step: integer, since: integer }? the question on the screen, which of its
---fields, and since when
local shown
M.is_left = false -- by the user: the float stays closed until it is requested, or another question arrives
local is_waiting = false

---@alias sanderling.approval.float.SetKeys fun(buf: integer, q: sanderling.session.state.Question)

---@type sanderling.approval.float.SetKeys
local set_keys

---@param fn sanderling.approval.float.SetKeys sets the keys of the float for a question
function M.register(fn)
  set_keys = fn
end

---@return boolean in this tab page
function M.is_open()
  return float ~= nil
    and api.nvim_win_is_valid(float.win)
    and api.nvim_win_get_tabpage(float.win) == api.nvim_get_current_tabpage()
end

---@return boolean
function M.is_focused()
  return float ~= nil and api.nvim_get_current_win() == float.win
end

local keep_ends_soon = vim.schedule_wrap(function()
  if float and float.place and not M.is_focused() and api.nvim_win_is_valid(float.win) then
    log.guarded(geometry.keep_ends_above, float.place)
  end
end)

--- Return the keys that answer from any window, and the way into the float.
---@param q sanderling.session.state.Question
---@param width integer
---@return string
local function ways_to_answer(q, width)
  local keys = anywhere.describe(footer.words_anywhere(q))
  local taken = api.nvim_strwidth(keys)
  local room = width - taken - #'  '
  local way = wording.ways_in('to answer', room)
  if keys ~= '' and api.nvim_strwidth(way) <= room then
    return keys .. '  ' .. way
  end
  return keys ~= '' and taken <= width and keys or wording.ways_in('to answer', width)
end

--- Scheduled, so that text that came with the question is drawn first.
function M.keep_ends_in_sight()
  if float then
    keep_ends_soon()
  end
end

--- Close the float's window. If it was the current one of its tab page, return to the window from which it was entered.
---@param win integer
local function close_window(win)
  local tab = api.nvim_win_get_tabpage(win)
  local was_entered = api.nvim_tabpage_get_win(tab) == win
  api.nvim_win_close(win, true)
  if
    was_entered
    and entered_from
    and api.nvim_win_is_valid(entered_from)
    and api.nvim_win_get_tabpage(entered_from) == tab
  then
    api.nvim_tabpage_set_win(tab, entered_from) -- after `g?` Neovim's previous window is another one
  end
end

function M.close()
  local old = float
  if not old then
    return
  end
  float = nil -- before closing, so that WinClosed does not take it for our float
  if api.nvim_win_is_valid(old.win) then
    local ok, err = pcall(close_window, old.win)
    if not ok then
      float = old
      error(err, 0)
    end
  end
  shown = nil
end

---@param q sanderling.session.state.Question
---@return integer number of the field that is shown
local function step_of(q)
  return choosing.is_for(q) and select(2, choosing.field(q)) or 1
end

---@param q? sanderling.session.state.Question
---@return boolean
local function is_shown(q)
  return q ~= nil and shown ~= nil and shown.question == q and shown.step == step_of(q)
end

---@type fun(buf: integer)
local watch

---@param config_ vim.api.keyset.win_config
local function open(config_)
  local buf = page.new_buffer('question', {})
  local win = api.nvim_open_win(
    buf,
    false,
    vim.tbl_extend('error', config_, { focusable = false, style = 'minimal', noautocmd = true })
  )
  float = { win = win, buf = buf }
  scratch.set_win_options(win, {
    wrap = true,
    linebreak = false, -- every blank is visible
    breakindent = false,
    showbreak = wording.showbreak(),
    smoothscroll = true,
    conceallevel = 0,
    foldenable = false,
    winbar = '',
    winfixbuf = true,
    winhighlight = 'NormalFloat:AgentApproval,FloatBorder:AgentApprovalBorder',
  })
  watch(buf)
end

---@param place sanderling.approval.Place
---@param q sanderling.session.state.Question
local function fill(place, q)
  local buf, body = assert(float).buf, place.body
  scratch.set_buf_options(buf, { modifiable = true })
  api.nvim_buf_set_lines(buf, 0, -1, true, body.lines)
  scratch.set_buf_options(buf, { modifiable = false })
  api.nvim_buf_clear_namespace(buf, -1, 0, -1)
  for _, mark in ipairs(body.marks) do
    api.nvim_buf_set_extmark(buf, ns, mark.row, mark.col, {
      end_col = mark.end_col,
      hl_group = mark.hl,
      strict = false,
    })
  end
  local filetype = body.last >= body.first and q.event.filetype or ''
  diff.set_syntax(buf, filetype, body.first, body.last)
  if body.more then
    api.nvim_buf_set_extmark(buf, ns, body.more - 1, 0, {
      end_col = #body.lines[body.more],
      hl_group = 'AgentWarning',
      priority = 200, -- above the syntax
    })
  end
end

--- Draw the question.
local function draw()
  local q = assert(queue.question())
  if float and not M.is_open() then
    M.close()
  end
  local place = geometry.find(q, M.is_focused())
  local win_config = {
    relative = 'editor',
    row = place.row,
    col = place.col,
    width = place.width,
    height = place.height,
    zindex = ui_float.ZINDEX.question,
    border = 'rounded',
    title = wording.title_of(q, place.width),
    footer = M.is_focused() and footer.keys_line(q, place.width, place.has_list) or {
      { (' %s '):format(ways_to_answer(q, place.width - #'  ')), 'AgentApprovalKey' },
    },
    footer_pos = 'right',
  }
  if float then
    api.nvim_win_set_config(float.win, win_config)
  else
    open(win_config)
  end
  set_keys(assert(float).buf, q)
  fill(place, q)
  float.place = place
  M.keep_ends_in_sight()
  if not is_shown(q) then
    api.nvim_win_set_cursor(float.win, { 1, 0 })
    pcall(vim.cmd.redraw) -- before its time begins
    shown = { question = q, step = step_of(q), since = vim.uv.hrtime() }
  end
end

--- Show or close the float in this tab page; retry while Neovim does not allow it.
function M.update()
  local question = queue.question()
  if is_waiting or M.is_left and question then
    return
  end
  local ok, err = xpcall(question and draw or M.close, debug.traceback)
  if not ok and locked.reason(err) then
    is_waiting = true
    vim.defer_fn(function()
      is_waiting = false
      M.update()
    end, RETRY_MS)
  elseif not ok then
    log.note_defect(err)
  end
end

local update_soon = vim.schedule_wrap(M.update)

--- Note that the user has left the question unanswered, and show how to return to it.
function M.set_left()
  M.is_left = true
  local count = #queue.list()
  message.tell(
    ('%s: %s.'):format(
      count == 1 and 'Question pending' or ('%d questions pending'):format(count),
      wording.ways_in('brings it back')
    )
  )
end

--- Watch events that move or close the float, or change its text.
---@param buf integer
function watch(buf)
  api.nvim_clear_autocmds({ group = augroup })
  local function on(events, callback, desc, buffer)
    api.nvim_create_autocmd(events, {
      group = augroup,
      buffer = buffer,
      desc = 'Agent: ' .. desc,
      callback = callback,
    })
  end
  on({ 'TabEnter', 'VimResized', 'TabClosed' }, update_soon, 'keep the question on the screen')
  on({ 'WinScrolled', 'WinResized' }, function()
    local q = queue.question()
    local is_moved = float and float.place and q and q.event.proposal
    if is_moved and geometry.seen(wording.progress_of(q)) ~= float.place.seen then
      update_soon()
    end
  end, 'show the change that its window no longer shows')
  on('BufWinEnter', update_soon, 'name the session that asks')
  on({ 'WinEnter', 'WinLeave' }, update_soon, 'keys of the question', buf)
  on('WinClosed', function(args)
    local is_ours = float and tonumber(args.match) == float.win
    if is_ours and M.is_focused() then
      M.set_left() -- `:quit` in it
    end
    update_soon() -- the closed window may have shown the reviewed file
  end, 'reopen the question after :only')
  on({ 'CursorMoved', 'CursorMovedI' }, function()
    if
      float
      and M.is_open()
      and geometry.covers(float.place, geometry.cursor_cell(M.is_focused()))
    then
      M.update()
    end
  end, 'move the question away from the cursor')
end

---@return boolean it has been on the screen for long enough that a key is meant for it
function M.is_seen()
  return is_shown(queue.question()) and vim.uv.hrtime() - assert(shown).since >= attention.GRACE_NS
end

---@type { lhs: string, question: sanderling.session.state.Question, step: integer, at: integer }? the last key that answered
local pressed

--- Is a key, which was just typed, held down since it answered another question? A terminal sends the repetitions of a key like new
--- presses, the first after up to 0.7 s. So the key that answered last answers the next question only after a longer pause.
---@param lhs? string
---@return boolean
function M.is_held(lhs)
  local q, now = queue.question(), vim.uv.hrtime()
  local is_last = q ~= nil and pressed ~= nil and pressed.lhs == lhs
  local is_other = is_last and not (pressed.question == q and pressed.step == step_of(q))
  local is_held = is_other and now - pressed.at < REPEAT_GRACES * attention.GRACE_NS
  if is_held then
    pressed.at = now
  end
  return is_held
end

--- Does a key that was just typed answer the question on the screen? Not before the question was seen.
---@param lhs? string
---@return boolean
function M.is_meant(lhs)
  local q, is_held = queue.question(), M.is_held(lhs)
  if not q or is_held or not M.is_seen() then
    return false
  end
  pressed = { lhs = lhs or '', question = q, step = step_of(q), at = vim.uv.hrtime() }
  return true
end

--- Return the number of the choice at the cursor, if the float is focused.
---@return integer?
function M.choice_at_cursor()
  local choices = float and float.place and float.place.body.choices
  return choices and M.is_focused() and choices[vim.fn.line('.')] or nil
end

--- Return the window from which the user entered the float, if it is focused.
---@return integer?
function M.entered_from()
  return M.is_focused() and entered_from or nil
end

--- Focus the float, if it is in this tab page.
function M.enter()
  if M.is_open() and not M.is_focused() then
    vim.cmd.stopinsert()
    if api.nvim_get_mode().mode:find('^[vV\22]') then
      vim.cmd.normal({ '\27', bang = true }) -- otherwise `a` would begin a text object
    end
    entered_from = api.nvim_get_current_win()
    api.nvim_set_current_win(float.win)
    M.update()
  end
end

return M
