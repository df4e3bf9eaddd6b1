--- What a person has asked for, as Markdown in a float: usage, settings.
local M = {}

local api = vim.api
local tools = require('sanderling.tools')

---@param session_id string
---@return boolean this tab page shows the session
local function is_here(session_id)
  return vim.iter(api.nvim_tabpage_list_wins(0)):any(function(win)
    return vim.b[api.nvim_win_get_buf(win)].sanderling_session == session_id
  end)
end

--- Show `event` and go there, unless the user has gone elsewhere since.
---@param session_id string
---@param event sanderling.ReportShown
function M.show(session_id, event)
  if not is_here(session_id) then
    return
  end
  local buf, win = tools.view(event.title, tools.lines_of(event.text), 'report')
  vim.wo[win][0].conceallevel = 2
  vim.treesitter.start(buf, 'markdown')
  vim.cmd.stopinsert()
end

return M
