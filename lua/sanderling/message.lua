--- What is said below all windows.
local M = {}

local api = vim.api

local SHOWN_MS = 4000
local ZINDEX = 250 -- above all else, as messages are

---@type integer? the window that says something where there is no line for messages
local win

local function close()
  if win and api.nvim_win_is_valid(win) then
    api.nvim_win_close(win, true)
  end
  win = nil
end

---@return boolean it is Neovim's own, and has no line to say something in
local function would_ask_for_enter()
  local source = debug.getinfo(vim.notify, 'S').source
  local is_neovims = source == '?' or source:find('vim/_', 1, true) ~= nil -- 0.12 is compiled without names
  return vim.o.cmdheight == 0 and is_neovims
end

--- Show `text` in the last row for a while.
---@param text string
---@param level? integer
local function show(text, level)
  local hl = level == vim.log.levels.ERROR and 'ErrorMsg'
    or level == vim.log.levels.WARN and 'WarningMsg'
    or 'MsgArea'
  close()
  local buf = api.nvim_create_buf(false, true)
  vim.bo[buf].bufhidden = 'wipe'
  api.nvim_buf_set_lines(buf, 0, -1, true, { text })
  local shown = api.nvim_open_win(buf, false, {
    relative = 'editor',
    width = math.max(1, math.min(api.nvim_strwidth(text), vim.o.columns)),
    height = 1,
    row = vim.o.lines - 1,
    col = 0,
    style = 'minimal',
    focusable = false,
    noautocmd = true,
    zindex = ZINDEX,
  })
  vim.wo[shown][0].winhighlight = 'NormalFloat:' .. hl
  win = shown
  vim.defer_fn(function()
    if win == shown then
      close()
    end
  end, SHOWN_MS)
end

--- Say something: cut, because a message that fills the line would ask for <Enter>, as any would where 'cmdheight' is 0.
---@param text string
---@param level? integer
function M.tell(text, level)
  local line = vim.fn.strcharpart(text:gsub('\n.*', ' …'), 0, vim.o.columns - 15)
  if not would_ask_for_enter() or not pcall(show, line, level) then
    vim.notify(line, level)
  end
end

return M
