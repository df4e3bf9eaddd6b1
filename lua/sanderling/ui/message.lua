--- Messages to the user, in the message line or in a window above it.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local SHOWN_MS = 4000 -- for each row
local MAX_ROWS = 4
local augroup = api.nvim_create_augroup('sanderling_message', {})
local ZINDEX = 250 -- above everything, as messages are

---@type integer? the window for a message that does not fit the message line
local win

---@type integer? a buffer that could not be shown while text was locked; it can be neither written nor deleted then
local spare

local function close()
  api.nvim_clear_autocmds({ group = augroup })
  if win and api.nvim_win_is_valid(win) then
    api.nvim_win_close(win, true)
  end
  win = nil
end

--- Is vim.notify() Neovim's own? It has the same source as vim.print(): some builds do not name it. So has a function of
--- a plugin that vim.schedule_wrap() returned, such as mini.notify's, but that one has no named parameters.
---@return boolean
local function is_neovims()
  local own, other = debug.getinfo(vim.notify, 'Su'), debug.getinfo(vim.print, 'S')
  return own.source == other.source and own.nparams ~= 0
end

--- Return how many cells of the message line can be used without a prompt for <Enter>.
---@return integer
local function room()
  return math.max(1, vim.v.echospace - 1 + math.max(0, vim.o.cmdheight - 1) * vim.o.columns)
end

---@return boolean a message would be replaced by "-- INSERT --" at once
local function has_mode_shown()
  return vim.o.showmode and api.nvim_get_mode().mode:find('^[iRvVsS\19\22]') ~= nil
end

--- Show `text` in the last rows for a while, or until the user begins a command.
---@param text string
---@param hl string
local function show(text, hl)
  local is_spare = spare and api.nvim_buf_is_valid(spare)
  local buf = is_spare and spare or api.nvim_create_buf(false, true)
  spare = buf
  vim.bo[buf].bufhidden = 'wipe'
  api.nvim_buf_set_lines(buf, 0, -1, true, { text })
  local last_row = vim.o.lines - (api.nvim_get_mode().mode:find('^c') and vim.o.cmdheight or 0)
  local shown = api.nvim_open_win(buf, false, {
    relative = 'editor',
    width = math.max(1, math.min(api.nvim_strwidth(text), vim.o.columns)),
    height = 1,
    row = last_row - 1,
    col = 0,
    style = 'minimal',
    focusable = false,
    noautocmd = true,
    zindex = ZINDEX,
  })
  spare = nil
  local wo = vim.wo[shown][0]
  wo.winhighlight, wo.wrap, wo.linebreak = 'NormalFloat:' .. hl, true, true
  local height = math.min(api.nvim_win_text_height(shown, {}).all, MAX_ROWS)
  api.nvim_win_set_config(shown, {
    relative = 'editor',
    row = last_row - height,
    col = 0,
    height = height,
  })
  win = shown
  local function close_this()
    if win == shown then
      close()
      pcall(vim.cmd.redraw)
    end
  end
  vim.defer_fn(close_this, SHOWN_MS * height)
  api.nvim_create_autocmd('CmdlineEnter', {
    group = augroup,
    once = true,
    desc = 'Agent: uncover the command line',
    callback = vim.schedule_wrap(close_this),
  })
end

--- Show a message without a prompt for <Enter>. It has its own window if the message line is too short, missing, or
--- shows the mode. It is never a Vim error, which would abort an open prompt.
---@param text string plugins that show messages get all lines, Neovim's message line the first one
---@param level? integer
function M.tell(text, level)
  pcall(close) -- not while text is locked
  if not is_neovims() then
    return vim.notify(unseen.visible(text), level, { title = 'Sanderling' })
  end
  text = words.plain((text:gsub('\n.*', ' ' .. icons.more)))
  local is_long = api.nvim_strwidth(text) > room()
  local line = words.fitting(text, room())
  local hl = level == vim.log.levels.ERROR and 'ErrorMsg'
    or level == vim.log.levels.WARN and 'WarningMsg'
    or 'MsgArea'
  local has_no_line = vim.o.cmdheight == 0
  local is_seen = (has_no_line or is_long or has_mode_shown()) and pcall(show, text, hl)
  if not (is_seen and has_no_line) then
    api.nvim_echo({ { line, hl } }, true, {}) -- in :messages, too
  end
end

--- Ask for a line with vim.ui.input(), and clear it from the screen afterwards.
---
--- Neovim takes the default as typed keys: after a <C-r>= in a name that the model or a server has chosen, the user's <CR>
--- would evaluate the rest as an expression, outside the sandbox. So control characters become blanks.
---@param opts table
---@param on_answer fun(answer?: string)
function M.ask(opts, on_answer)
  local default = opts.default and opts.default:gsub('[%z\1-\31\127]', ' ')
  opts = vim.tbl_extend('force', opts, { default = default })
  vim.ui.input(opts, function(answer)
    vim.cmd.redraw() -- otherwise an empty echo leaves the line as it is
    api.nvim_echo({ { '' } }, false, {})
    on_answer(answer)
  end)
end

--- Ask whether to do something. Both answers are words for what happens then; the first one is that it is done.
---@param prompt string
---@param answers [string, string]
---@param on_yes fun()
---@param on_no? fun() also if the user leaves the question
function M.confirm(prompt, answers, on_yes, on_no)
  vim.ui.select(answers, { prompt = prompt, kind = 'sanderling_confirm' }, function(answer)
    if answer == answers[1] then
      on_yes()
    elseif on_no then
      on_no()
    end
  end)
end

--- Show why a command failed.
---@param command string
---@param err any
function M.tell_error(command, err)
  local line =
    tostring(err):gsub('\nstack traceback:.*', ''):gsub('^[^\n]-%.lua:%d+: ', ''):gsub('Vim:', '')
  local known, word = line:match('^[%w_.]+: expected ([^\n]+), got ([^\n]+)$')
  if known then
    line = ("%s: %s, not '%s'."):format(command, (known:gsub("'", '')), word)
  end
  M.tell(line, vim.log.levels.ERROR)
end

--- Return an error of a command without the place in the code that ran it.
---@param err any
---@return string
function M.without_place(err)
  return (tostring(err):gsub('^.-(E%d+:)', '%1'))
end

return M
