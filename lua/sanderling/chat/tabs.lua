--- The chat's windows in each tab page: the session they show, their view, and closing both together.
local api = vim.api
local bars = require('sanderling.ui.bars')
local layout = require('sanderling.chat.layout')
local live = require('sanderling.session.live')
local scroll = require('sanderling.ui.scroll')
local window_options = require('sanderling.chat.window_options')

local M = {}

local FILETYPE = 'sanderling'

M.augroup = api.nvim_create_augroup('sanderling', {})

---@type table<integer, sanderling.chat.layout.Windows>
M.windows_by_tab = {}
---@type table<string, any>? options of the last transcript window
M.win_options = nil
M.is_swapping = false
M.is_quitting = false -- `:quit` is closing one of the windows

--- Return the chat's windows in `tab`, if both are there, and the session that they show.
---@param tab? integer
---@return sanderling.chat.layout.Windows?
---@return sanderling.chat.session.Session?
function M.shown_in(tab)
  tab = tab or api.nvim_get_current_tabpage()
  local windows = M.windows_by_tab[tab]
  for _, session in ipairs(windows and live.chats() or {}) do
    if layout.is_shown(windows, tab, session.transcript_buf, session.prompt.buf) then
      return windows, session
    end
  end
end

---@param session sanderling.chat.session.Session
---@param win integer that shows its transcript
function M.save_view(session, win)
  session.view = api.nvim_win_call(win, function()
    local view = vim.fn.winsaveview()
    local last = math.max(view.lnum, vim.fn.foldclosedend(view.lnum))
    return { saved = view, is_at_end = last == vim.fn.line('$') }
  end)
end

--- Save the view, folds and options of a transcript's window before it shows something else or closes.
---@param win integer
function M.leave(win)
  local session = api.nvim_win_is_valid(win) and live.of_buffer(api.nvim_win_get_buf(win))
  if session and layout.shows(win, session.transcript_buf) then
    session.transcript:leave(win)
    M.win_options = window_options.get_transcript(win)
    M.save_view(session, win)
  end
end

--- Restore the view of a transcript's window, or show the end if the user was there.
---@param session sanderling.chat.session.Session
---@param win integer
function M.restore_view(session, win)
  session.transcript:show_in(win)
  session:draw_hint()
  local view = session.view
  api.nvim_win_call(win, function()
    if view and not view.is_at_end then
      vim.fn.winrestview(view.saved)
    else
      scroll.to_end()
    end
  end)
end

---@return boolean
local function is_at_end_here()
  return math.max(vim.fn.line('.'), vim.fn.foldclosedend('.')) == vim.fn.line('$')
end

--- Return whether the user is selecting text in `win`, or has a pending operator. The cursor must not move then.
---@param win integer
---@return boolean
local function is_selecting(win)
  local mode = api.nvim_get_mode().mode
  local is_selecting_here = mode:find('^[vVsS\22\19]') ~= nil or vim.startswith(mode, 'no')
  return is_selecting_here and win == api.nvim_get_current_win()
end

---@param session sanderling.chat.session.Session
function M.go_to_end(session)
  local windows, shown = M.shown_in()
  if windows and shown == session and not is_selecting(windows.transcript) then
    api.nvim_win_call(windows.transcript, scroll.to_end)
  end
end

--- Scroll the transcript from another window. At its end, follow new text again.
---@param session sanderling.chat.session.Session
---@param step -1|1
function M.scroll(session, step)
  local windows, shown = M.shown_in()
  if not windows or shown ~= session then
    return
  end
  local key = vim.v.count1 .. vim.keycode(step < 0 and '<C-b>' or '<C-f>')
  api.nvim_win_call(windows.transcript, function()
    vim.cmd('normal! ' .. key)
    if step > 0 and vim.fn.line('w$') == vim.fn.line('$') then
      scroll.to_end()
    end
  end)
end

--- Show `session` in windows that show another one.
---@param session sanderling.chat.session.Session
---@param windows sanderling.chat.layout.Windows
function M.put(session, windows)
  M.leave(windows.transcript)
  M.is_swapping = true -- this BufEnter does not make another session current
  local ok, err = pcall(layout.swap, windows, session.transcript_buf, session.prompt.buf)
  M.is_swapping = false
  if not ok then
    error(err, 0)
  end
  M.restore_view(session, windows.transcript)
  M.draw_prompt(session)
  bars.redraw()
end

--- Return another tab page that shows `session`.
---@param session sanderling.chat.session.Session
---@return integer?
function M.other_tab(session)
  for tab in pairs(M.windows_by_tab) do
    local _, shown = M.shown_in(tab)
    if api.nvim_tabpage_is_valid(tab) and shown == session then
      return tab
    end
  end
end

---@return integer[] windows of this tab page that show a prompt
function M.prompt_windows()
  return vim.tbl_filter(function(win)
    return vim.bo[api.nvim_win_get_buf(win)].filetype == 'sanderling_prompt'
  end, api.nvim_tabpage_list_wins(0))
end

---@param tab integer
---@return integer[] its focusable windows
local function windows_to_be_in(tab)
  return vim.tbl_filter(function(win)
    return api.nvim_win_get_config(win).focusable
  end, api.nvim_tabpage_list_wins(tab))
end

--- Hide the chat in `tab`. `closing` is a window that Neovim is already closing.
---@param tab? integer
---@param closing? integer
function M.hide(tab, closing)
  tab = tab or api.nvim_get_current_tabpage()
  local windows = M.windows_by_tab[tab]
  if not windows then
    if vim.b.sanderling_session then -- a window of the user's own on the transcript
      layout.close({ api.nvim_get_current_win() })
    end
    return
  end
  M.windows_by_tab[tab] = nil
  M.leave(windows.transcript)
  if not closing then
    if api.nvim_get_current_win() == windows.prompt then
      vim.cmd.stopinsert()
    end
    layout.close({ windows.prompt, windows.transcript }, windows.replaced)
    return
  end
  local was_quitting = M.is_quitting
  local is_only = api.nvim_get_current_win() ~= closing -- `:only` closes windows from another one
  M.is_quitting = false
  -- The other window cannot be closed from within the autocommand of the first.
  vim.schedule(function()
    local other = closing == windows.prompt and windows.transcript or windows.prompt
    local is_alone = api.nvim_tabpage_is_valid(tab) and #windows_to_be_in(tab) == 1
    local is_last = is_alone and #api.nvim_list_tabpages() == 1
    if not was_quitting and (is_last or is_alone and is_only) then
      return -- after `:only` the user wants to see just this window
    end
    if is_last and api.nvim_win_is_valid(other) and pcall(vim.cmd.quit) then
      return -- `:quit` in a Neovim that shows only the chat
    end
    if api.nvim_win_is_valid(other) and live.of_buffer(api.nvim_win_get_buf(other)) then
      layout.close({ other }, windows.replaced) -- a session file may show a file there by now
    end
  end)
end

--- Fit the height of the session's prompt to its text, if this tab page shows it.
---@param session sanderling.chat.session.Session
function M.fit_prompt(session)
  local windows, shown = M.shown_in()
  if not windows or shown ~= session then
    return
  end
  local height = api.nvim_win_text_height(windows.prompt, {})
  local rows = height.all - height.fill + session.todo:wanted_rows()
  local is_at_end = api.nvim_win_call(windows.transcript, is_at_end_here)
  if layout.fit_prompt(windows, rows, api.nvim_get_current_tabpage()) then
    session.todo:follow()
    if is_at_end and not is_selecting(windows.transcript) then
      api.nvim_win_call(windows.transcript, scroll.put_last)
    end
  end
  if height.all <= vim.fn.getwininfo(windows.prompt)[1].height then
    api.nvim_win_call(windows.prompt, function()
      vim.fn.winrestview({ topline = 1 }) -- the window scrolls before it has grown
    end)
  end
end

--- Redraw the placeholder and the todo list of a prompt whose text has changed, and fit its height.
---@param session sanderling.chat.session.Session
function M.draw_prompt(session)
  session.prompt:draw_placeholder()
  session.todo:follow()
  M.fit_prompt(session)
end

--- Adjust the window sizes in this tab page, and redraw what depends on them.
local function settle_windows()
  local windows, session = M.shown_in()
  if windows and session then
    layout.fit_bars(windows)
    layout.settle(windows, api.nvim_get_current_tabpage())
    session.prompt:draw_placeholder()
    session.transcript.markdown:fit_tables()
    session:draw_hint()
  end
end

--- Put the transcript's last line at the bottom again where a resize left empty rows below it, or where a plugin that
--- animates windows scrolled past it. In the current window, the user may have scrolled.
---@param is_resized boolean
local function settle_end(is_resized)
  local windows = M.shown_in()
  local win = windows and windows.transcript
  if not win or is_selecting(win) or not is_resized and win == api.nvim_get_current_win() then
    return
  end
  api.nvim_win_call(win, function()
    if vim.fn.line('w0') > 1 and is_at_end_here() and scroll.has_room_below(win) then
      scroll.put_last()
    end
  end)
end

--- Follow the text again after a cancelled search. While a pattern is typed, Neovim shows matches; cancelling returns
--- to where the search started, which was the end but no longer is.
local function watch_searches()
  local win ---@type integer? where a search started at the end of a transcript
  api.nvim_create_autocmd('CmdlineEnter', {
    group = M.augroup,
    pattern = { '/', '?' },
    desc = 'Agent: note the start of a search in a transcript',
    callback = function()
      local is_transcript = live.of_buffer(api.nvim_get_current_buf())
        and vim.bo.filetype == FILETYPE
      win = is_transcript and is_at_end_here() and api.nvim_get_current_win() or nil
    end,
  })
  api.nvim_create_autocmd('CmdlineLeave', {
    group = M.augroup,
    pattern = { '/', '?' },
    desc = 'Agent: follow the text after a cancelled search',
    callback = function()
      local left = vim.v.event.abort and win or nil
      win = nil
      vim.schedule(function()
        if left and api.nvim_get_current_win() == left and not is_at_end_here() then
          scroll.to_end()
        end
      end)
    end,
  })
end

local function watch_windows()
  ---@param event string|string[]
  local function on(event, desc, callback)
    local opts = { group = M.augroup, desc = 'Agent: ' .. desc, callback = callback }
    api.nvim_create_autocmd(event, opts)
  end
  on('TabEnter', "make the tab page's session current", function()
    local _, session = M.shown_in()
    if session then
      live.set_current(session)
    end
  end)
  on({ 'WinResized', 'VimResized', 'TabEnter' }, "adjust the chat's sizes", settle_windows)
  on({ 'WinResized', 'WinScrolled' }, 'fill the window of the transcript', function(args)
    settle_end(args.event == 'WinResized')
  end)
  api.nvim_create_autocmd('OptionSet', {
    group = M.augroup,
    pattern = { 'laststatus', 'statusline' },
    desc = "Agent: show or hide the prompt's winbar",
    callback = vim.schedule_wrap(settle_windows),
  })
  on('WinClosed', 'close both windows of the chat together', function(args)
    local closed = tonumber(args.match)
    for tab, windows in pairs(M.windows_by_tab) do
      if windows.transcript == closed or windows.prompt == closed then
        M.hide(tab, closed)
        return
      end
    end
    vim.schedule(settle_windows) -- after the window has closed
  end)
end

watch_windows()
watch_searches()

return M
