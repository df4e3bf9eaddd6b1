--- The options of the chat's windows. They are set once and are the user's afterwards.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')
local scratch = require('sanderling.ui.scratch')

local shared_options = {
  wrap = true,
  linebreak = true,
  breakindent = true,
  number = false,
  relativenumber = false,
  signcolumn = 'no',
  statuscolumn = '',
  colorcolumn = '',
  cursorcolumn = false,
  cursorline = false,
}

---@type table<string, any>
M.transcript = vim.tbl_extend('error', shared_options, {
  spell = false,
  breakindentopt = 'list:-1',
  smoothscroll = true,
  conceallevel = 2,
  concealcursor = '',
  foldcolumn = '1',
  foldenable = true,
  foldmethod = 'manual',
  fillchars = '',
  list = true,
  listchars = '',
  foldtext = "v:lua.require'sanderling.transcript'.foldtext()",
  winbar = "%{%v:lua.require'sanderling.status'.transcript_winbar()%}",
})

-- What a wrapped line continues behind: the sign of a list item with its box, or the signs of a quote.
local LIST_PATTERN = [[^\s*\%(>\s*\)*\%([-*+]\|\d\+[.)]\)\s\+\%(\[[ xX]\]\s\+\)\?\|^\s*\%(>\s*\)\+]]

-- 'breakat' is global only, and its default breaks `src/app.py:12` at the slash and the colon: no text with paths can be
-- read so. Inline padding that moves a path to the next row was no alternative, as it depends on the width of each
-- window and is laid out again with each delta. So a default value is replaced while a transcript is visible: it has
-- an effect only in windows with 'linebreak'.
local BREAKAT = ' \t'
local before ---@type string?

---@return boolean
local function is_transcript_visible()
  return vim.iter(api.nvim_list_wins()):any(function(win)
    return vim.w[win].sanderling_transcript == api.nvim_win_get_buf(win)
  end)
end

---@param value string
local function set_breakat(value)
  scratch.quietly(function()
    vim.go.breakat = value
  end)
end

--- Break lines at blanks only, until no window shows a transcript. A value of the user's own stays.
local function break_at_blanks()
  if before or vim.go.breakat ~= api.nvim_get_option_info2('breakat', {}).default then
    return
  end
  before = vim.go.breakat
  set_breakat(BREAKAT)
  api.nvim_create_autocmd({ 'BufWinLeave', 'WinClosed' }, {
    group = api.nvim_create_augroup('sanderling_breakat', {}),
    desc = "Agent: the default of 'breakat' returns when no transcript is visible",
    callback = vim.schedule_wrap(function()
      if not before or is_transcript_visible() then
        return
      elseif vim.go.breakat == BREAKAT then
        set_breakat(before)
      end
      before = nil
      api.nvim_create_augroup('sanderling_breakat', {})
    end),
  })
end

---@return string
local function fill_characters()
  local open, bar = icons.narrow('open'), icons.narrow('bar')
  return ('fold: ,eob: ,foldclose: ,foldopen:%s,foldsep:%s'):format(open, bar)
end

--- Return 'listchars' with only the sign of a first row that continues a line above the window. Without it Neovim
--- writes `<<<` over the beginning of that row.
---@return string
local function list_characters()
  local more = icons.more
  return ('precedes:%s,tab:  '):format(api.nvim_strwidth(more) == 1 and more or '<')
end

local PROMPT_WINBAR = "%{%v:lua.require'sanderling.status'.prompt_winbar()%}"

---@type table<string, any>
M.prompt = vim.tbl_extend('error', shared_options, {
  foldcolumn = '0',
  winbar = PROMPT_WINBAR,
  winfixheight = true,
  list = false,
  fillchars = 'eob: ',
})

-- The colors of the bars' parts are legible on a winbar; many color schemes invert the statusline.
local AS_WINBAR = 'StatusLine:WinBar,StatusLineNC:WinBarNC'

--- Set a window's statusline, unless the user has changed the option globally. A float has none: Neovim 0.12 would draw it
--- above the border.
---@param win integer
---@param text string
local function set_statusline(win, text)
  local is_float = api.nvim_win_get_config(win).relative ~= ''
  if not is_float and vim.go.statusline == api.nvim_get_option_info2('statusline', {}).default then
    scratch.set_win_options(win, { statusline = text, winhighlight = AS_WINBAR })
  end
end

local TRANSCRIPT_STATUSLINE = "%{%v:lua.require'sanderling.status'.transcript_statusline()%}"
local PROMPT_STATUSLINE = "%{%v:lua.require'sanderling.status'.prompt_statusline()%}"

---@param win integer
function M.set_prompt(win)
  scratch.set_win_options(win, M.prompt)
  set_statusline(win, PROMPT_STATUSLINE)
end

--- Return whether the statusline of a transcript's window is the line between it and the prompt. Floats have none, and
--- neither have windows with a global one; users and plugins have their own.
---@param win integer
---@return boolean
function M.has_state_bar(win)
  return vim.o.laststatus ~= 3
    and vim.wo[win].statusline == TRANSCRIPT_STATUSLINE
    and api.nvim_win_get_config(win).relative == ''
end

--- Show or hide the winbar of a prompt, unless the user has set another one.
---@param win integer
---@param is_wanted boolean
function M.set_prompt_winbar(win, is_wanted)
  local winbar = vim.wo[win][0].winbar
  if winbar == '' or winbar == PROMPT_WINBAR then
    scratch.set_win_options(win, { winbar = is_wanted and PROMPT_WINBAR or '' })
  end
end

--- Set the options of a window that shows a transcript, one of the chat's or any other. They are set once and are the
--- user's afterwards.
---@param win integer
function M.set_transcript(win)
  local buf = api.nvim_win_get_buf(win)
  if vim.w[win].sanderling_transcript ~= buf then
    vim.w[win].sanderling_transcript = buf
    M.transcript.fillchars, M.transcript.listchars = fill_characters(), list_characters()
    scratch.set_win_options(win, M.transcript)
    scratch.set_buf_options(buf, { formatlistpat = LIST_PATTERN })
    break_at_blanks()
    set_statusline(win, TRANSCRIPT_STATUSLINE)
  end
end

---@param win integer
---@param names table<string, any>
---@return table<string, any>
function M.get(win, names)
  local options = {}
  for name in pairs(names) do
    options[name] = vim.wo[win][0][name]
  end
  return options
end

---@param win integer
---@return table<string, any>
function M.get_transcript(win)
  return M.get(win, M.transcript)
end

return M
