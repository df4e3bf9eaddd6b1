--- Reports that the user has requested, as Markdown in a float: usage, settings.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local float = require('sanderling.ui.float')
local keys = require('sanderling.ui.keys')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local page = require('sanderling.access.page')
local parsing = require('sanderling.access.parsing')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local augroup = api.nvim_create_augroup('sanderling_report', {})

---@type integer? the window of the report
local win
---@type string? the kind of report requested last
local asked

---@return string
local function footer()
  return (' Run it again to focus, %s '):format(keys.hint('close', 'moving', 'closes'))
end

---@param session_id string
---@return boolean this tab page shows the session
local function is_here(session_id)
  return vim.iter(api.nvim_tabpage_list_wins(0)):any(function(each)
    return vim.b[api.nvim_win_get_buf(each)].sanderling_session == session_id
  end)
end

---@return boolean the report is on the screen
local function is_open()
  return win ~= nil and api.nvim_win_is_valid(win)
end

local function close()
  if is_open() then
    api.nvim_win_close(win, true)
  end
end

--- Close the report when the user moves the cursor in another window, or begins to type there. Typing that began before
--- keeps it.
local function close_when_left()
  api.nvim_create_autocmd({ 'CursorMoved', 'InsertEnter', 'TabLeave' }, {
    group = augroup,
    desc = 'Agent: close the report',
    callback = function()
      if not is_open() then
        return true
      end
      local here = api.nvim_get_current_win()
      local is_page = api.nvim_win_get_config(here).zindex == float.ZINDEX.page -- its list of keys is a page, too
      if here ~= win and not is_page then
        close()
        return true
      end
    end,
  })
end

--- Set the keys that close the report also in the buffer that the user is in, as long as it is open.
---@param buf integer
local function set_closing_keys(buf)
  local before = {}
  for _, lhs in ipairs(keys.of('close')) do
    local map = vim.fn.maparg(lhs, 'n', false, true)
    before[lhs] = map.buffer == 1 and map or false
    vim.keymap.set('n', lhs, function()
      close()
      if vim.fn.reg_recording() ~= '' then
        api.nvim_feedkeys('q', 'n', false)
      end
    end, { buffer = buf, nowait = true, desc = 'Agent: close the report' })
  end
  api.nvim_create_autocmd('WinClosed', {
    group = augroup,
    pattern = tostring(win),
    once = true,
    desc = 'Agent: restore the keys that closed the report',
    callback = function()
      if not api.nvim_buf_is_loaded(buf) then
        return
      end
      api.nvim_buf_call(buf, function()
        for lhs, map in pairs(before) do
          pcall(vim.keymap.del, 'n', lhs, { buffer = buf })
          if map then
            vim.fn.mapset('n', false, map)
          end
        end
      end)
    end,
  })
end

--- Close the report for a question, unless the user is in the report.
local function give_way()
  if win ~= api.nvim_get_current_win() then
    close()
  end
end

---@param fn fun()
---@return fun()
local function when_possible(fn)
  return function()
    if is_open() then
      locked.retry(fn, log.note_defect)
    end
  end
end

bus.subscribe('approval_requested', when_possible(give_way))
for _, type in ipairs({ 'turn_started', 'waiting_changed' }) do
  bus.subscribe(type, when_possible(close))
end
api.nvim_create_autocmd('User', {
  group = augroup,
  pattern = 'AgentSessionChanged',
  desc = 'Agent: close the report of another session',
  callback = when_possible(close),
})

--- Show `report` if this tab page still shows the session. It is not focused, because it comes some time after the request.
---@param session_id string
---@param report sanderling.Report
local function show(session_id, report)
  if not is_here(session_id) then
    return
  end
  close()
  local from = api.nvim_get_current_buf()
  local buf
  local lines = words.lines_of(report.text)
  buf, win = page.view(report.title, lines, 'report', { stays_out = true, footer = footer() })
  scratch.set_win_options(win, { conceallevel = 2 })
  parsing.start(buf)
  close_when_left()
  set_closing_keys(from)
end

--- Show `report` as soon as windows can be opened.
---@param session_id string
---@param report sanderling.Report
function M.show(session_id, report)
  locked.retry(function()
    show(session_id, report)
  end, log.note_defect)
end

--- Focus the report that is shown here, if it is of this kind.
---@param kind string
---@return boolean is_there
function M.enter(kind)
  local is_same = asked == kind
  asked = kind
  local is_there = is_same and vim.list_contains(api.nvim_tabpage_list_wins(0), win)
  if is_there then
    vim.cmd.stopinsert()
    api.nvim_set_current_win(win)
    api.nvim_win_set_config(win, { footer = float.closing(), footer_pos = 'right' })
  end
  return is_there
end

return M
