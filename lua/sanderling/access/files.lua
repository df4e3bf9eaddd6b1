--- Opening files that other people's text names: names in a model's answer or a command's output are resolved and
--- opened only here.
---
--- A file is opened by its real, absolute path. A name as written can be one that Neovim or a plugin runs instead of
--- reading it: `/project/term://sh x` is a file, but its relative name, `term://sh x`, is a command. Files that a
--- plugin reads in its own way (archives, schemes), or that a program unpacks, are left to the user.
local M = {}

local api = vim.api
local links = require('sanderling.access.links')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local reading = require('sanderling.access.reading')
local scratch = require('sanderling.ui.scratch')

M.NOT_NAMED = 'No existing file is named here.'

local MAX_LINE_BYTES = 2048 -- of a line that is searched for a file
local MAX_TRIES = 40 -- words of it that are looked up on the disk

-- from a line to a file -----------------------------------------------------------------------------------------------

---@class (exact) sanderling.access.files.Place
---@field path string real and absolute, of a file
---@field lnum? integer
---@field col? integer from 1

---@param name string
---@param project string
---@return string? path real, of a regular file only: opening a FIFO would block forever
function M.find(name, project)
  for _, path in ipairs({ name, name:match('^[abciow]/(.+)$') }) do
    if path:sub(1, 1) == '~' then
      path = vim.fs.normalize(path, { expand_env = false })
    elseif path:sub(1, 1) ~= '/' then
      path = vim.fs.joinpath(project, path)
    end
    local real = vim.uv.fs_realpath(path)
    local stat = real and vim.uv.fs_stat(real)
    if stat and stat.type == 'file' and not reading.is_of_kernel(real) then
      return real
    end
  end
end

---@param word string
---@param project string
---@return sanderling.access.files.Place?
local function place_of(word, project)
  local bare = word:match('^["\'`(%[{<]*(.-)["\'`)%]}>,;:.]*$')
  for _, name in ipairs({ word, bare }) do
    local path = name ~= '' and M.find(name, project)
    if path then
      return { path = path }
    end
  end
  local name, lnum, rest = bare:match('^([^:]+):(%d+)(.*)$')
  local path = name and M.find(name, project)
  return path and { path = path, lnum = tonumber(lnum), col = tonumber(rest:match('^:(%d+)')) }
    or nil
end

--- Return the words of `line` in the order to try them: the one under the cursor, then those after it, then those
--- before.
---@param line string
---@param col integer byte, from 0
---@return string[]
local function words_from(line, col)
  local behind, before = {}, {}
  for first, word in line:gmatch('()(%S+)') do
    local words = first + #word > col and behind or before
    words[#words + 1] = word
  end
  return vim.list_extend(behind, before)
end

--- Return the file that a line names.
---@param line string
---@param col integer byte of the cursor, from 0
---@param project string root for relative paths
---@return sanderling.access.files.Place?
function M.place_in(line, col, project)
  line = line:sub(1, MAX_LINE_BYTES)
  local name, lnum = line:match('File "([^"]+)", line (%d+)') -- a traceback of Python
  local path = name and M.find(name, project)
  if path then
    return { path = path, lnum = tonumber(lnum) }
  end
  for i, word in ipairs(words_from(line, col)) do
    local place = i <= MAX_TRIES and place_of(word, project)
    if place then
      return place
    end
  end
end

M.is_handled, M.is_read_otherwise = reading.is_handled, reading.is_read_otherwise
M.is_read_by_plugin, M.reading_plainly = reading.is_read_by_plugin, reading.reading_plainly
M.is_of_kernel = reading.is_of_kernel

-- opening -------------------------------------------------------------------------------------------------------------

---@type integer? the last used code window
local code_win

---@param win integer
---@return boolean a file can be shown here
function M.is_code_window(win)
  local buf = api.nvim_win_get_buf(win)
  return api.nvim_win_get_config(win).relative == ''
    and (vim.bo[buf].buftype == '' or vim.b[buf].sanderling_proposed) -- see proposals/write.lua
    and not vim.b[buf].sanderling_session
    and not vim.wo[win].winfixbuf
end

api.nvim_create_autocmd('WinLeave', {
  group = api.nvim_create_augroup('sanderling_files', {}),
  desc = 'Agent: remember the last code window',
  callback = function()
    local win = api.nvim_get_current_win()
    code_win = M.is_code_window(win) and win or code_win
  end,
})

---@param path string real
---@param buf integer
---@return boolean
local function is_shown_in(path, buf)
  return vim.uv.fs_realpath(api.nvim_buf_get_name(buf)) == path
end

local LARGER_THAN_ANY = 1e9 -- window, in cells

--- Return the window that shows `path`, else the last used code window, else the largest one.
---@param path string
---@param except? integer[] windows
---@return integer? win
function M.code_window(path, except)
  local best, best_size = nil, 0
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    if M.is_code_window(win) and not vim.list_contains(except or {}, win) then
      local size = api.nvim_win_get_width(win) * api.nvim_win_get_height(win)
      if is_shown_in(path, api.nvim_win_get_buf(win)) then
        size = math.huge
      elseif win == code_win then
        size = LARGER_THAN_ANY
      end
      if size > best_size then
        best, best_size = win, size
      end
    end
  end
  return best
end

---@param path string real and absolute
---@return boolean it may be opened; else the user is shown why not
local function may_open(path)
  local problem = loading.problem_with(path)
  if problem then
    message.tell(problem, vim.log.levels.WARN)
  end
  return problem == nil
end

---@param fn fun()
local function telling_errors(fn)
  local ok, err = pcall(fn)
  if not ok then
    message.tell(message.without_place(err), vim.log.levels.ERROR)
  end
end

--- Show a file in the current window, at its line if that is known.
---@param place sanderling.access.files.Place
local function show_here(place)
  vim.cmd("normal! m'")
  if not is_shown_in(place.path, api.nvim_get_current_buf()) then
    loading.edit(place.path, 'edit')
  end
  loading.show(0, api.nvim_get_current_buf(), place.lnum, place.col)
end

--- Open a file in a code window.
---@param place sanderling.access.files.Place
function M.open(place)
  if not may_open(place.path) then
    return
  end
  telling_errors(function()
    local win = M.code_window(place.path)
    if win then
      api.nvim_set_current_win(win)
    else
      vim.cmd('topleft vnew')
    end
    show_here(place)
  end)
end

--- Show a file in a window, which may be another than the current one, without opening it for the user. Only regular
--- files are shown.
---@param win integer
---@param place sanderling.access.files.Place
function M.show_in(win, place)
  local buf = api.nvim_win_get_buf(win) ---@type integer?
  if not is_shown_in(place.path, assert(buf)) then
    buf = loading.load(place.path, true)
  end
  if buf then
    pcall(function()
      api.nvim_win_call(win, function()
        vim.cmd("normal! m'")
      end)
      loading.show(win, buf, place.lnum, place.col)
    end)
  end
end

--- Open a file in a new tab page.
---@param path string absolute
---@return boolean is_file else nothing was done
function M.open_in_tab(path)
  local real = vim.startswith(path, '/') and M.find(path, '')
  if not real then
    return false
  elseif may_open(real) then
    telling_errors(function()
      loading.edit(real, 'tabedit')
    end)
  end
  return true
end

-- Neovim's own keys ---------------------------------------------------------------------------------------------------

-- Keys that open the literal name under the cursor. <C-w><C-f> is <C-w>f; `[f` and `]f` are gf.
local BY_NAME = { 'gf', 'gF', '[f', ']f', '<C-w>f', '<C-w><C-f>', '<C-w>F', '<C-w>gf', '<C-w>gF' }

function M.no_tags()
  return {}
end

---@param project string
---@return sanderling.access.files.Place?
function M.place_here(project)
  return M.place_in(api.nvim_get_current_line(), api.nvim_win_get_cursor(0)[2], project)
end

--- Open the file named under the cursor, or report that there is none.
---@param project string what names are relative to
---@param leave? fun() called before a file opens
function M.go_to_name_here(project, leave)
  local place = M.place_here(project)
  if not place then
    message.tell(M.NOT_NAMED)
    return
  end
  if leave then
    leave()
  end
  M.open(place)
end

--- Make Neovim's keys treat names in `buf`, whose text others have written, as names of files only.
---@param buf integer
---@param go? fun() action of the keys that open a file
function M.guard(buf, go)
  go = go or function()
    M.go_to_name_here(vim.fn.getcwd())
  end
  for _, lhs in ipairs(BY_NAME) do
    vim.keymap.set(
      { 'n', 'x' },
      lhs,
      go,
      { buffer = buf, desc = 'Agent: open the file named here' }
    )
  end
  vim.keymap.set({ 'n', 'x' }, 'gx', function()
    links.confirm(api.nvim_get_current_line(), api.nvim_win_get_cursor(0)[2])
  end, { buffer = buf, desc = 'Agent: open the link here' })
  scratch.set_buf_options(buf, {
    keywordprg = ':help', -- the default, `:Man`, would get any name under the cursor
    tagfunc = "v:lua.require'sanderling.access.files'.no_tags", -- the model can write the project's tags file
  })
end

return M
