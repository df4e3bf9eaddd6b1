--- Buffers of others in the chat's windows: they move to a code window, and the chat's buffers return.
---
--- The windows had 'winfixbuf' before. Then every command and plugin that opens a file in the current window fails with
--- E1513, and Telescope fails without a message; other plugins (mini.bufremove) fail when they only want to leave.
--- Moving a buffer within BufWinEnter was no alternative: the command continues afterwards: it sets the cursor, runs
--- `+cmd` or jumps to a definition in the window that it has chosen before. SafeState comes after all of that, and
--- before the screen is drawn, so that the chat does not flicker; a scheduled function would run after drawing.
local api = vim.api
local files = require('sanderling.access.files')
local layout = require('sanderling.chat.layout')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local tabs = require('sanderling.chat.tabs')

local M = {}

---@class (exact) sanderling.chat.foreign.Visit
---@field session sanderling.chat.session.Session the one that the chat shows
---@field cursors table<integer, [integer, integer]> where the buffers in the chat's windows were entered

---@type table<sanderling.chat.layout.Windows, sanderling.chat.foreign.Visit>
local visits = {}

local OPPOSITE = { left = 'right', top = 'below', bottom = 'above' } -- of the chat's position; default: left

---@param tab integer
---@param buf integer
---@param windows sanderling.chat.layout.Windows
---@return integer? win outside the chat that shows `buf`
local function window_with(tab, buf, windows)
  return vim.iter(api.nvim_tabpage_list_wins(tab)):find(function(win)
    local is_chats = win == windows.transcript or win == windows.prompt
    return not is_chats
      and api.nvim_win_get_buf(win) == buf
      and api.nvim_win_get_config(win).relative == ''
  end)
end

--- Show `buf` in a code window: where it is shown already, else in the last used one. Without one, or if that has unsaved text
--- and must keep it, open a window next to the chat.
---@param tab integer
---@param windows sanderling.chat.layout.Windows
---@param buf integer
---@return integer win
local function show_outside(tab, windows, buf)
  local win = window_with(tab, buf, windows)
  if win then
    api.nvim_win_call(win, function()
      vim.cmd("normal! m'")
    end)
    return win
  end
  win = files.code_window(api.nvim_buf_get_name(buf), { windows.transcript, windows.prompt })
  if win and pcall(api.nvim_win_set_buf, win, buf) then
    return win
  end
  local split = OPPOSITE[windows.opts.position] or 'left'
  return api.nvim_open_win(buf, false, { split = split, win = -1 })
end

--- Move the buffer in `win` to a code window, with its cursor.
---@param tab integer
---@param windows sanderling.chat.layout.Windows
---@param win integer
---@param entered [integer, integer]? cursor
local function move_out(tab, windows, win, entered)
  local is_current = api.nvim_get_current_win() == win
  local cursor = api.nvim_win_get_cursor(win)
  local target = show_outside(tab, windows, api.nvim_win_get_buf(win))
  api.nvim_win_set_cursor(target, cursor)
  if not vim.deep_equal(cursor, entered) then
    api.nvim_win_call(target, function()
      vim.cmd('silent! normal! zv')
    end)
  end
  if is_current then
    api.nvim_set_current_win(target)
  end
end

--- Move the buffers of others out of the chat's windows in `tab`, and show the chat's buffers there again. If one of
--- them belongs to another session, show that.
---@param tab integer
---@param windows sanderling.chat.layout.Windows
---@param visit sanderling.chat.foreign.Visit
local function restore_chat(tab, windows, visit)
  local session, wanted = visit.session, nil
  if not vim.list_contains(live.chats(), session) or not session:is_whole() then
    return tabs.hide(tab) -- a plugin that deletes the chat's buffer showed another one before
  end
  for win, buf in pairs({
    [windows.transcript] = session.transcript_buf,
    [windows.prompt] = session.prompt.buf,
  }) do
    local shown = api.nvim_win_get_buf(win)
    local owner = live.of_buffer(shown)
    if shown ~= buf then
      if owner and owner.prompt then
        wanted = owner ~= session and owner or wanted
      else
        move_out(tab, windows, win, visit.cursors[win])
      end
      layout.put_back(win, buf)
    end
  end
  tabs.restore_view(session, windows.transcript)
  tabs.draw_prompt(session)
  if wanted then
    tabs.put(wanted, windows)
    live.set_current(wanted)
  elseif windows.opts.position == 'float' and not live.of_buffer(api.nvim_get_current_buf()) then
    tabs.hide(tab) -- it would hide the file
  end
end

--- Return the session of the chat whose window `win` has just shown another buffer.
---@param windows sanderling.chat.layout.Windows
---@param win integer
---@return sanderling.chat.session.Session?
local function session_next_to(windows, win)
  local other = win == windows.transcript and windows.prompt or windows.transcript
  local session = api.nvim_win_is_valid(other) and live.of_buffer(api.nvim_win_get_buf(other))
  return session and session.prompt and session or nil
end

---@param tab integer
---@param windows sanderling.chat.layout.Windows
local function restore_chat_soon(tab, windows)
  api.nvim_create_autocmd('SafeState', {
    group = tabs.augroup,
    once = true,
    nested = true,
    desc = "Agent: move the buffers of others out of the chat's windows",
    callback = function()
      locked.retry(function()
        local visit = visits[windows]
        local is_open = tabs.windows_by_tab[tab] == windows
          and api.nvim_win_is_valid(windows.transcript)
          and api.nvim_win_is_valid(windows.prompt)
        if visit and is_open then
          tabs.is_swapping = true
          local ok, err = pcall(restore_chat, tab, windows, visit)
          tabs.is_swapping = false
          if not ok then
            error(err, 0)
          end
        end
        visits[windows] = nil
      end, log.note_defect)
    end,
  })
end

--- The current window has begun to show a buffer: note it if the window belongs to a chat and the buffer does not.
function M.note()
  local win, buf = api.nvim_get_current_win(), api.nvim_get_current_buf()
  local tab = api.nvim_get_current_tabpage()
  local windows = tabs.windows_by_tab[tab]
  local is_chats = windows and (win == windows.transcript or win == windows.prompt)
  if tabs.is_swapping or not is_chats or not windows.keeps_buffers then
    return
  end
  local visit = visits[windows]
  local session = visit and visit.session or session_next_to(windows, win)
  local expected = session
    and (win == windows.transcript and session.transcript_buf or session.prompt.buf)
  if not session or expected == buf then
    return
  end
  if not visit then
    visits[windows] = { session = session, cursors = {} }
    restore_chat_soon(tab, windows)
  end
  -- A buffer that is visible elsewhere begins with that cursor, so that it moves only if the command moves it.
  local other = window_with(tab, buf, windows)
  if other then
    pcall(api.nvim_win_set_cursor, win, api.nvim_win_get_cursor(other))
  end
  visits[windows].cursors[win] = api.nvim_win_get_cursor(win)
end

return M
