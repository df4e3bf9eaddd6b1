--- The two windows of a chat: their positions and sizes.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local scratch = require('sanderling.ui.scratch')
local window_options = require('sanderling.chat.window_options')

local MIN_CELLS, CELLS_LEFT = 10, 4 -- of a split, and of the windows next to it
local FEW_COLUMNS = 100 -- of a screen of which the chat takes half by default
local MIN_FLOAT_SHARE = 0.6 -- of the screen's width
local BORDERS = 2 -- rows of a float's border
local FLOAT_MARGIN, MIN_FLOAT_HEIGHT = 8, 4 -- rows: the borders of both floats and some space below
local MIN_PROMPT = 2 -- rows of the prompt's text
local BARS = 2 -- rows between transcript and prompt: statusline and winbar

---@class (exact) sanderling.chat.layout.Windows
---@field transcript integer
---@field prompt integer
---@field replaced? integer the buffer that the transcript's window showed before the chat
---@field opts sanderling.chat.layout.Options options it was opened with
---@field keeps_buffers boolean other buffers move to a code window, see `chat/foreign.lua`
---@field has_winbar boolean the prompt has one, as no statusline is between it and the transcript
---@field prompt_height integer height that its text last needed, including a winbar
---@field sizes? sanderling.chat.layout.Sizes intended sizes; nil: the chat floats

---@class (exact) sanderling.chat.layout.Sizes
---@field width number of both windows; below 1: a share of the screen
---@field height number of both together; below 1: a share of the screen
---@field prompt_height integer
---@field surroundings string what the sizes depend on, see `surroundings_in`

---@class (exact) sanderling.chat.layout.Options
---@field position string
---@field size number
---@field prompt_height integer

---@param size number
---@param whole integer
---@return integer
local function cells(size, whole)
  local wanted = size < 1 and math.floor(size * whole) or math.floor(size)
  return math.max(MIN_CELLS, math.min(wanted, whole - CELLS_LEFT))
end

--- Return the columns of a chat at the side.
---@param size number
---@return integer
local function side_cells(size)
  local is_default = size == config.defaults.chat.size
  return cells(is_default and vim.o.columns < FEW_COLUMNS and 0.5 or size, vim.o.columns)
end

--- Return the rows of the prompt: as wanted, but at most half of the room.
---@param wanted integer
---@param room integer
---@return integer
local function prompt_rows(wanted, room)
  return math.max(1, math.min(wanted, math.floor(room / 2)))
end

---@param opts sanderling.chat.layout.Options
---@param has_winbar boolean
---@return integer
local function first_height(opts, has_winbar)
  return math.min(MIN_PROMPT + (has_winbar and 1 or 0), opts.prompt_height)
end

--- Return the positions of the two floats: one above the other, centred.
---@param opts sanderling.chat.layout.Options
---@param prompt_height integer
---@return vim.api.keyset.win_config transcript
---@return vim.api.keyset.win_config prompt
local function float_places(opts, prompt_height)
  local width =
    cells(opts.size < 1 and math.max(opts.size, MIN_FLOAT_SHARE) or opts.size, vim.o.columns)
  local room = math.max(MIN_FLOAT_HEIGHT, vim.o.lines - FLOAT_MARGIN)
  prompt_height = prompt_rows(prompt_height, room)
  local transcript = {
    relative = 'editor',
    width = width,
    height = math.max(1, room - prompt_height),
    row = 1,
    col = math.floor((vim.o.columns - width) / 2),
    border = 'rounded',
  }
  local prompt = vim.tbl_extend('force', transcript, {
    height = prompt_height,
    row = transcript.row + transcript.height + BORDERS,
  })
  return transcript, prompt
end

local side_splits = { right = 'botright vsplit', left = 'topleft vsplit' }
local row_splits = { bottom = 'botright split', top = 'topleft split' }

-- sizes ---------------------------------------------------------------------------------------------------------------

---@param tab integer
---@return integer[] windows that are not floating
local function tiled_windows(tab)
  return vim.tbl_filter(function(win)
    return api.nvim_win_get_config(win).relative == ''
  end, api.nvim_tabpage_list_wins(tab))
end

--- Return what the sizes depend on, apart from the user. If sizes have changed and this has not, the user changed them.
---@param tab integer
---@return string
local function surroundings_in(tab)
  local o = vim.o
  local parts =
    { #tiled_windows(tab), o.columns, o.lines, o.cmdheight, o.laststatus, o.showtabline }
  return table.concat(parts, ' ')
end

---@param windows sanderling.chat.layout.Windows
---@return boolean the prompt is still below the transcript
local function is_stacked(windows)
  local row, col = unpack(api.nvim_win_get_position(windows.transcript))
  local prompt_row, prompt_col = unpack(api.nvim_win_get_position(windows.prompt))
  return col == prompt_col and prompt_row > row
end

---@param windows sanderling.chat.layout.Windows
---@return integer of both windows, including the bars between them
local function height_of(windows)
  local row = api.nvim_win_get_position(windows.transcript)[1]
  local prompt_row = api.nvim_win_get_position(windows.prompt)[1]
  return prompt_row - row + api.nvim_win_get_height(windows.prompt)
end

--- Store sizes that the user has set. A share of the screen remains a share.
---@param windows sanderling.chat.layout.Windows
---@param tab integer
local function keep_sizes(windows, tab)
  local is_share = windows.opts.size < 1
  local width, height = api.nvim_win_get_width(windows.transcript), height_of(windows)
  local last = windows.sizes and windows.sizes.width
  local is_same = last and side_cells(last) == width
  windows.sizes = {
    width = is_same and last or is_share and width / vim.o.columns or width,
    height = is_share and height / vim.o.lines or height,
    prompt_height = api.nvim_win_get_height(windows.prompt),
    surroundings = surroundings_in(tab),
  }
end

--- Restore the sizes after Neovim gave the room of a closed window to its neighbour, which it also does for windows of
--- fixed size.
---@param windows sanderling.chat.layout.Windows
---@param tab integer
local function restore_sizes(windows, tab)
  local sizes, position = windows.sizes, windows.opts.position
  local has_others = #tiled_windows(tab) > 2
  if has_others and side_splits[position] then
    api.nvim_win_set_width(windows.transcript, side_cells(sizes.width))
  end
  local is_row = has_others and row_splits[position] ~= nil
  local height = is_row and cells(sizes.height, vim.o.lines) or height_of(windows)
  local prompt_height = prompt_rows(sizes.prompt_height, height - BARS)
  api.nvim_win_set_height(windows.prompt, prompt_height)
  if is_row then
    local rest = height_of(windows) - api.nvim_win_get_height(windows.transcript)
    api.nvim_win_set_height(windows.transcript, math.max(1, height - rest))
    api.nvim_win_set_height(windows.prompt, prompt_height)
  end
end

--- Window sizes in `tab`, or the screen size, have changed: restore the chat's sizes, or store the user's.
---@param windows sanderling.chat.layout.Windows
---@param tab integer the current one
function M.settle(windows, tab)
  if windows.opts.position == 'float' then
    local transcript, prompt = float_places(windows.opts, windows.prompt_height)
    api.nvim_win_set_config(windows.transcript, transcript)
    api.nvim_win_set_config(windows.prompt, prompt)
  elseif not is_stacked(windows) then
    return -- the user has moved them
  elseif windows.sizes and windows.sizes.surroundings ~= surroundings_in(tab) then
    restore_sizes(windows, tab)
    windows.sizes.surroundings = surroundings_in(tab)
  else
    keep_sizes(windows, tab)
  end
end

--- Fit the prompt's height to its text, unless the user has changed the height.
---@param windows sanderling.chat.layout.Windows
---@param rows integer of its text and of the lines below it
---@param tab integer the current one
---@return boolean is_changed
function M.fit_prompt(windows, rows, tab)
  local opts, before = windows.opts, api.nvim_win_get_height(windows.prompt)
  if before ~= windows.prompt_height or windows.sizes and not is_stacked(windows) then
    return false
  end
  local room = before + api.nvim_win_get_height(windows.transcript)
  local least = first_height(opts, windows.has_winbar)
  rows = windows.has_winbar and rows + 1 or rows
  local wanted = math.min(math.max(rows, least), opts.prompt_height)
  windows.prompt_height = prompt_rows(wanted, room)
  if windows.prompt_height == before then
    return false
  elseif windows.sizes then
    api.nvim_win_set_height(windows.prompt, windows.prompt_height)
    keep_sizes(windows, tab)
  else
    M.settle(windows, tab)
  end
  return true
end

-- opening -------------------------------------------------------------------------------------------------------------

---@param opts sanderling.chat.layout.Options
---@param transcript_win integer
---@param prompt_buf integer
---@return integer win
local function open_prompt(opts, transcript_win, prompt_buf)
  if opts.position == 'float' then
    local _, place = float_places(opts, first_height(opts, true))
    return api.nvim_open_win(prompt_buf, false, place)
  end
  local room = api.nvim_win_get_height(transcript_win) - BARS
  local has_winbar = not window_options.has_state_bar(transcript_win)
  return api.nvim_open_win(prompt_buf, false, {
    win = transcript_win,
    split = 'below',
    height = prompt_rows(first_height(opts, has_winbar), room),
  })
end

--- Set the options of the prompt's window.
---@param win integer
---@param transcript_win integer
---@return boolean has_winbar
local function set_prompt_options(win, transcript_win)
  local has_winbar = not window_options.has_state_bar(transcript_win)
  window_options.set_prompt(win)
  window_options.set_prompt_winbar(win, has_winbar)
  return has_winbar
end

--- Show or hide the prompt's winbar after the statusline above it has gone or come. The rows of its text stay.
---@param windows sanderling.chat.layout.Windows
function M.fit_bars(windows)
  local is_wanted = not window_options.has_state_bar(windows.transcript)
  if is_wanted == windows.has_winbar then
    return
  end
  local height = api.nvim_win_get_height(windows.prompt)
  local change = is_wanted and 1 or -1
  windows.has_winbar = is_wanted
  window_options.set_prompt_winbar(windows.prompt, is_wanted)
  windows.prompt_height = math.max(1, windows.prompt_height + change)
  if windows.sizes then
    windows.sizes.prompt_height = math.max(1, windows.sizes.prompt_height + change)
    api.nvim_win_set_height(windows.prompt, math.max(1, height + change))
  end
end

---@param opts sanderling.chat.layout.Options
---@param transcript_buf integer
---@param options? table<string, any>
---@return integer win
local function open_transcript(opts, transcript_buf, options)
  local position = opts.position
  if position == 'float' then
    local place = float_places(opts, first_height(opts, true))
    place.title = ' Sanderling '
    api.nvim_open_win(transcript_buf, true, place)
  elseif side_splits[position] then
    vim.cmd(side_splits[position])
    vim.cmd('vertical resize ' .. side_cells(opts.size))
  elseif row_splits[position] then
    vim.cmd(row_splits[position])
    vim.cmd('resize ' .. cells(opts.size, vim.o.lines))
  elseif position == 'tab' then
    vim.cmd('tab split')
  end
  local win = api.nvim_get_current_win()
  scratch.set_win_options(win, { winfixbuf = false }) -- a split has the options of the window that it was split from
  api.nvim_win_set_buf(win, transcript_buf)
  window_options.set_transcript(win)
  scratch.set_win_options(win, options or {})
  return win
end

--- Open both windows in this tab page, with the cursor in the prompt.
---@param opts sanderling.chat.layout.Options
---@param transcript_buf integer
---@param prompt_buf integer
---@param transcript_win_options? table<string, any> options of the window that last showed the transcript
---@return sanderling.chat.layout.Windows
function M.open(opts, transcript_buf, prompt_buf, transcript_win_options)
  local buf = api.nvim_get_current_buf()
  local replaced = opts.position == 'current' and buf ~= prompt_buf and buf or nil
  local transcript = open_transcript(opts, transcript_buf, transcript_win_options)
  local ok, prompt = pcall(open_prompt, opts, transcript, prompt_buf)
  if not ok then
    M.close({ transcript }, replaced)
    error('sanderling: not enough room for the chat: ' .. tostring(prompt), 0)
  end
  local has_winbar = set_prompt_options(prompt, transcript)
  api.nvim_win_call(prompt, function()
    pcall(vim.fn.setreg, '#', buf) -- else the transcript would be its alternate file
  end)
  if side_splits[opts.position] then
    scratch.set_win_options(transcript, { winfixwidth = true })
    scratch.set_win_options(prompt, { winfixwidth = true })
  end
  api.nvim_set_current_win(prompt) -- last, so that the user's autocommands for entering a window find the sizes fixed
  local windows = {
    transcript = transcript,
    prompt = prompt,
    replaced = replaced,
    opts = opts,
    keeps_buffers = opts.position ~= 'current',
    has_winbar = has_winbar,
    prompt_height = api.nvim_win_get_height(prompt),
  }
  if opts.position ~= 'float' then
    keep_sizes(windows, api.nvim_get_current_tabpage())
    windows.sizes.width, windows.sizes.height = opts.size, opts.size
  end
  return windows
end

--- Open the prompt below the current window, which shows a transcript, and enter it.
---@param opts sanderling.chat.layout.Options
---@param prompt_buf integer
---@return sanderling.chat.layout.Windows
function M.open_below(opts, prompt_buf)
  local transcript = api.nvim_get_current_win()
  opts = vim.tbl_extend('force', opts, { position = 'current' })
  local prompt = open_prompt(opts, transcript, prompt_buf)
  local has_winbar = set_prompt_options(prompt, transcript)
  return {
    transcript = transcript,
    prompt = prompt,
    opts = opts,
    keeps_buffers = true,
    has_winbar = has_winbar,
    prompt_height = api.nvim_win_get_height(prompt),
  }
end

--- Show `buf` in `win` and keep the window's options, which Neovim stores per buffer.
---@param win integer
---@param buf integer
---@param names table<string, any> of the options
local function swap_buffer(win, buf, names)
  local options = window_options.get(win, names)
  for _, name in ipairs({ 'winfixwidth', 'statusline' }) do
    options[name] = vim.wo[win][0][name]
  end
  api.nvim_win_set_buf(win, buf)
  scratch.set_win_options(win, options)
end

--- Show a buffer of the chat again in the window whose buffer it is: Neovim knows the window's options for it. The
--- other buffer becomes the alternate file, and no jump.
---@param win integer
---@param buf integer
function M.put_back(win, buf)
  api.nvim_win_call(win, function()
    api.nvim_cmd({ cmd = 'buffer', args = { tostring(buf) }, mods = { keepjumps = true } }, {})
  end)
end

---@param windows sanderling.chat.layout.Windows
---@param transcript_buf integer
---@param prompt_buf integer
function M.swap(windows, transcript_buf, prompt_buf)
  swap_buffer(windows.transcript, transcript_buf, window_options.transcript)
  swap_buffer(windows.prompt, prompt_buf, window_options.prompt)
end

---@param win integer
---@param buf integer
---@return boolean
function M.shows(win, buf)
  return api.nvim_win_is_valid(win) and api.nvim_win_get_buf(win) == buf
end

---@param windows sanderling.chat.layout.Windows
---@param tab integer
---@param transcript_buf integer
---@param prompt_buf integer
---@return boolean
function M.is_shown(windows, tab, transcript_buf, prompt_buf)
  local wins = api.nvim_tabpage_list_wins(tab)
  return vim.list_contains(wins, windows.transcript)
    and vim.list_contains(wins, windows.prompt)
    and M.shows(windows.transcript, transcript_buf)
    and M.shows(windows.prompt, prompt_buf)
end

--- Close `wins`. The last one shows `replaced` instead, if given. Neovim's last window cannot be closed and gets an
--- empty buffer.
---@param wins integer[]
---@param replaced? integer
function M.close(wins, replaced)
  for i, win in ipairs(wins) do
    if api.nvim_win_is_valid(win) then
      if i == #wins and replaced and api.nvim_buf_is_valid(replaced) then
        api.nvim_win_set_buf(win, replaced)
      elseif not pcall(api.nvim_win_close, win, true) then
        api.nvim_win_set_buf(win, api.nvim_create_buf(true, false))
      end
    end
  end
end

return M
