--- Read-only text, in a buffer that is wiped with its window, or in a float in the middle of the screen. Others may have
--- written the text, so the buffer is guarded: names in it are names of files only.
local M = {}

local api = vim.api
local files = require('sanderling.access.files')
local float = require('sanderling.ui.float')
local keys = require('sanderling.ui.keys')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local MARGIN = 6 -- free rows and columns, the border included
local MIN_WIDTH, MAX_WIDTH = 20, 100
local MEASURED_LINES, MEASURED_BYTES = 200, 200 -- enough to know how wide the text is

---@param what string for its name
---@param lines string[]
---@return integer buf unmodifiable, wiped with its window
function M.new_buffer(what, lines)
  local buf = scratch.new(what)
  api.nvim_buf_set_lines(buf, 0, -1, true, lines)
  scratch.set_buf_options(buf, { bufhidden = 'wipe', modifiable = false })
  files.guard(buf)
  return buf
end

---@class (exact) sanderling.access.page.Mark
---@field row integer
---@field col? integer default: 0
---@field end_col integer
---@field hl string

--- Replace the text of an unmodifiable buffer, and its marks in `ns`.
---@param buf integer
---@param ns integer
---@param lines string[]
---@param marks sanderling.access.page.Mark[]
function M.write(buf, ns, lines, marks)
  scratch.set_buf_options(buf, { modifiable = true })
  api.nvim_buf_set_lines(buf, 0, -1, true, lines)
  scratch.set_buf_options(buf, { modifiable = false })
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  for _, mark in ipairs(marks) do
    local opts = { end_col = mark.end_col, hl_group = mark.hl, strict = false }
    api.nvim_buf_set_extmark(buf, ns, mark.row, mark.col or 0, opts)
  end
end

--- Set the keys of `place` in `buf`, and the key that lists them.
---@param buf integer
---@param place sanderling.ui.keys.Place
---@param actions table<string, fun(lhs?: string): any>
function M.set_keys(buf, place, actions)
  local function show()
    M.view('Keys', keys.lines(place), 'keys', { has_columns = true })
  end
  keys.set(buf, place, vim.tbl_extend('keep', actions, { show_keys = show }))
end

---@class (exact) sanderling.access.page.ViewOpts
---@field stays_out? boolean the cursor stays where it is
---@field place? sanderling.ui.keys.Place whose keys it has, default 'page'
---@field actions? table<string, fun(): any> of these keys, except the closing ones
---@field footer? string in its border, default: how to close it
---@field on_close? fun() called when its buffer is gone
---@field is_above? boolean it belongs to a question, so it may cover it; default: if it was opened from there
---@field has_columns? boolean two columns: wrapped text continues in the second

---@param width integer
---@param height integer
---@return vim.api.keyset.win_config
local function in_the_middle(width, height)
  return {
    relative = 'editor',
    width = width,
    height = height,
    row = math.floor((vim.o.lines - height) / 2) - 1,
    col = math.floor((vim.o.columns - width) / 2) - 1,
  }
end

--- Return the height at which a window shows all of its text, within the screen.
---@param win integer
---@return integer
local function fitting_height(win)
  return math.max(1, math.min(api.nvim_win_text_height(win, {}).all, vim.o.lines - MARGIN))
end

--- Fit the height of a page to its text, which has changed.
---@param win integer
function M.fit_height(win)
  api.nvim_win_set_height(win, fitting_height(win))
end

--- Fit the window to its lines, within the screen.
---@param win integer
---@param lines string[]
---@param title string
---@param footer string
local function fit(win, lines, title, footer)
  local room = vim.o.lines - MARGIN
  local height = math.max(1, math.min(#lines, room))
  local width = math.max(MIN_WIDTH, api.nvim_strwidth(title), api.nvim_strwidth(footer))
  api.nvim_win_call(win, function() -- uses the window's 'tabstop'
    for i = 1, math.min(#lines, MEASURED_LINES) do
      width = math.max(width, vim.fn.strdisplaywidth(lines[i]:sub(1, MEASURED_BYTES)))
    end
  end)
  width = math.max(1, math.min(width, vim.o.columns - MARGIN, MAX_WIDTH))
  api.nvim_win_set_config(win, in_the_middle(width, height))
  scratch.set_win_options(win, { linebreak = true }) -- only now, as it would change the widths above
  if #lines <= room then -- lines that are wrapped need more rows
    api.nvim_win_set_config(win, in_the_middle(width, fitting_height(win)))
  end
  local is_longer = #lines > height or api.nvim_win_text_height(win, {}).all > height
  if is_longer and api.nvim_get_current_win() == win then
    footer = ' <C-d> scrolls ' .. footer
  end
  api.nvim_win_set_config(win, {
    title = vim.fn.strcharpart(title, 0, width),
    footer = vim.fn.strcharpart(footer, 0, width),
    footer_pos = 'right',
  })
end

--- Show `lines` in a float in the middle of the screen and focus it; `q` and <Esc> close it.
---@param title string
---@param lines string[]
---@param what string for the buffer's name
---@param opts? sanderling.access.page.ViewOpts
---@return integer buf
---@return integer win
function M.view(title, lines, what, opts)
  opts = opts or {}
  local from = api.nvim_get_current_win()
  local is_above = opts.is_above
    or (api.nvim_win_get_config(from).zindex or 0) >= float.ZINDEX.question
  local buf = M.new_buffer(what, lines)
  if opts.on_close then
    api.nvim_create_autocmd('BufWipeout', {
      buffer = buf,
      once = true,
      desc = 'Agent: forget the page',
      callback = opts.on_close,
    })
  end
  local height = math.max(1, math.min(#lines, vim.o.lines - MARGIN))
  local win_config = vim.tbl_extend('error', in_the_middle(1, height), {
    style = 'minimal',
    border = 'rounded',
    zindex = is_above and float.ZINDEX.above or float.ZINDEX.page,
  })
  local win = float.open(buf, not opts.stays_out, win_config)
  files.guard(buf, function()
    files.go_to_name_here(vim.fn.getcwd(), function() -- it would cover the file
      api.nvim_win_close(win, true)
    end)
  end)
  if not opts.stays_out then
    vim.cmd.stopinsert() -- the user may be writing a prompt
  end
  scratch.set_win_options(win, { wrap = true, breakindent = true, smoothscroll = true })
  if opts.has_columns then
    scratch.set_buf_options(buf, { formatlistpat = [[^\S.\{-}\s\{2,}]] })
    scratch.set_win_options(win, { breakindentopt = 'list:-1' })
  end
  fit(win, lines, (' %s '):format(words.plain(title)), opts.footer or float.closing())
  local function close()
    vim.cmd.close() -- fails if it has unsaved changes
    float.leave(win, from)
  end
  local closing = { close = close, close_page = close }
  M.set_keys(buf, opts.place or 'page', vim.tbl_extend('error', closing, opts.actions or {}))
  return buf, win
end

return M
