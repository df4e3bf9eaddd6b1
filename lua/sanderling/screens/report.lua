--- Reports that the user has requested, as Markdown in a float: usage, settings.
local M = {}

local api = vim.api
local float = require('sanderling.ui.float')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local page = require('sanderling.access.page')
local parsing = require('sanderling.access.parsing')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local FOOTER = ' Run it again to focus, moving closes '
local augroup = api.nvim_create_augroup('sanderling_report', {})

---@type integer? the window of the report
local win
---@type string? the kind of report requested last
local asked

---@param session_id string
---@return boolean this tab page shows the session
local function is_here(session_id)
  return vim.iter(api.nvim_tabpage_list_wins(0)):any(function(each)
    return vim.b[api.nvim_win_get_buf(each)].sanderling_session == session_id
  end)
end

--- Close the report when the user moves the cursor in another window. Typing there keeps it.
local function close_when_left()
  api.nvim_create_autocmd({ 'CursorMoved', 'TabLeave' }, {
    group = augroup,
    desc = 'Agent: close the report',
    callback = function()
      if not win or not api.nvim_win_is_valid(win) then
        return true
      elseif api.nvim_win_get_config(0).zindex ~= float.ZINDEX.page then -- its list of keys is a page, too
        api.nvim_win_close(win, true)
        return true
      end
    end,
  })
end

--- Show `report` if this tab page still shows the session. It is not focused, because it comes some time after the request.
---@param session_id string
---@param report sanderling.Report
local function show(session_id, report)
  if not is_here(session_id) then
    return
  end
  if win and api.nvim_win_is_valid(win) then
    api.nvim_win_close(win, true)
  end
  local buf
  local lines = words.lines_of(report.text)
  buf, win = page.view(report.title, lines, 'report', { stays_out = true, footer = FOOTER })
  scratch.set_win_options(win, { conceallevel = 2 })
  parsing.start(buf)
  close_when_left()
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
