--- Loading files: the only place where a file is read into a buffer.
---
--- Opening a file in Neovim runs code: filetype plugins, modelines and, through FileType, language servers and linters,
--- many of which run files of the project (node_modules/typescript, eslint.config.js, build.rs). None of that may
--- happen because the agent reads a file or proposes a change: the user may not have trusted the project, and no
--- sandbox confines a language server. So `load` fires none of the user's autocommands and leaves the buffer *quiet*:
--- without a filetype or swap file, colored only by Vim's syntax files. When the user enters it, `open` fires the
--- events of `:edit`.
---
--- `:edit` itself would be simpler, and hidden buffers once used it. But it discards what only the buffer contains: a
--- proposal, an unwritten change, and the undo history of both. So the events are fired on the text as it is. The
--- effects of `:edit` apart from events are three options, which are restored first.
local M = {}

local api = vim.api
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')
local reading = require('sanderling.access.reading')
local scratch = require('sanderling.ui.scratch')

---@type boolean events are being fired for a file that was read earlier
M.is_opening = false

M.MAX_BYTES = 64 * 1024 * 1024 -- Neovim freezes or crashes on larger files

local MAX_COLORED_BYTES = 256 * 1024
local PLUGINS = 'A plugin would read %s. Open it with :edit if you trust it.'
local TOO_LARGE = '%s is %.0f MB. Open it with :edit if you want all of it.'
local SWAP_FILE =
  '%s has a swap file: another editor may have it open, or has crashed. :recover shows what it holds.'
local KINDS = {
  fifo = 'a named pipe',
  directory = 'a directory',
  socket = 'a socket',
  char = 'a device',
  block = 'a device',
  link = 'a symbolic link',
}

local OWN_GROUP = 'sanderling_loading'
local group = api.nvim_create_augroup(OWN_GROUP, {})

---@class (exact) sanderling.access.loading.Quiet
---@field is_announced boolean BufNew was fired
---@field is_known boolean our own autocommands were fired
---@field is_shown boolean a window shows it, but BufWinEnter was not fired
---@field has_filetype boolean it has one, but FileType was not fired

---@type table<integer, sanderling.access.loading.Quiet> by buffer
local quiet = {}

---@type fun(buf: integer)[]
local before_use = {}

--- Call `fn` before the user opens a quiet buffer, or it is used for another purpose.
---@param fn fun(buf: integer)
function M.before_use(fn)
  before_use[#before_use + 1] = fn
end

---@param buf integer
---@return boolean
function M.is_quiet(buf)
  return quiet[buf] ~= nil
end

---@param kind string as `vim.uv.fs_stat()` calls it
---@return string?
function M.kind_in_words(kind)
  return kind ~= 'file' and (KINDS[kind] or 'not a regular file') or nil
end

---@param path string absolute
---@return string
local function shown_name(path)
  return (vim.fs.basename(path):gsub('%c', ' '))
end

--- Return a sentence on why the file cannot be opened. (Opening a named pipe would block forever.)
---@param path string absolute
---@return string?
function M.problem_with(path)
  local stat, name = vim.uv.fs_stat(path), shown_name(path)
  if not stat then
    return vim.uv.fs_lstat(path) and ('%s is a broken symbolic link.'):format(name) or nil
  elseif stat.type ~= 'file' then
    return ('%s is %s, so it was not opened.'):format(name, M.kind_in_words(stat.type))
  elseif reading.is_of_kernel(vim.uv.fs_realpath(path) or '') then
    return ('%s is a kernel file, so it was not opened.'):format(name)
  elseif reading.is_read_by_plugin(path) then
    return PLUGINS:format(name)
  elseif stat.size > M.MAX_BYTES then
    return TOO_LARGE:format(name, stat.size / 1024 / 1024)
  elseif not vim.uv.fs_access(path, 'R') then
    return ('Cannot read %s: permission denied.'):format(name)
  end
end

-- colors of a quiet buffer ---------------------------------------------------------------------------------------------

--- Color the buffer with Vim's syntax files for `path`. They only match text; input can crash a tree-sitter parser.
---@param buf integer
---@param path string
function M.color(buf, path)
  pcall(scratch.quietly, function()
    local size = api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf))
    if not vim.g.syntax_on or size > MAX_COLORED_BYTES then
      return
    end
    local filetype = vim.filetype.match({ buf = buf, filename = path }) or ''
    api.nvim_buf_call(buf, function()
      for part in filetype:gmatch('[%w_%-+]+') do
        vim.cmd(('silent! runtime! syntax/%s.vim'):format(part))
      end
    end)
  end)
end

--- Set the filetype of a quiet buffer, by which language servers recognize it.
---@param buf integer
function M.set_filetype(buf)
  local filename = api.nvim_buf_get_name(buf)
  local filetype = vim.filetype.match({ buf = buf, filename = filename }) or ''
  scratch.set_buf_options(buf, { filetype = filetype })
  quiet[buf].has_filetype = true
end

-- loading --------------------------------------------------------------------------------------------------------------

--- Fire an event for our own autocommands only.
---@param event string
---@param buf integer
local function tell_ours(event, buf)
  local groups = {}
  for _, autocmd in ipairs(api.nvim_get_autocmds({ event = event })) do
    local name = autocmd.group_name or ''
    groups[name] = vim.startswith(name, 'sanderling_') and name ~= OWN_GROUP or nil
  end
  for name in pairs(groups) do
    api.nvim_exec_autocmds(event, { group = name, buffer = buf, modeline = false })
  end
end

--- Let Neovim reload the file as 'autoread' says, but never that of a quiet buffer, which would fire autocommands.
---@param buf integer
function M.set_autoread(buf)
  local value ---@type boolean? nil: the global value
  if quiet[buf] then
    value = false
  end
  scratch.quietly(function()
    vim.bo[buf].autoread = value
  end)
end

---@param buf integer
local function forget(buf)
  if quiet[buf] then
    quiet[buf] = nil
    api.nvim_clear_autocmds({ group = group, buffer = buf })
    scratch.set_buf_options(buf, { modeline = vim.go.modeline })
    M.set_autoread(buf)
  end
end

--- Set the buffer's 'swapfile'. If a swap file exists, that would show E325, without SwapExists. With "A" in
--- 'shortmess' Neovim takes the next free name, which shows the same.
---@param buf integer
local function set_swapfile(buf)
  local shortmess = vim.go.shortmess
  scratch.quietly(function()
    vim.go.shortmess = shortmess .. 'A'
    vim.bo[buf].swapfile = vim.go.swapfile
    vim.go.shortmess = shortmess
  end)
  local name = vim.fn.swapname(buf)
  if name ~= '' and not vim.endswith(name, '.swp') then
    message.tell(SWAP_FILE:format(shown_name(api.nvim_buf_get_name(buf))), vim.log.levels.WARN)
  end
end

---@type string all events except FileChangedShell: Neovim must keep asking about changed files
local all_but_changes

--- Suppress events while Neovim reloads the file of a quiet buffer, which v:fcs_choice asked for.
---@param buf integer
function M.will_reload(buf)
  if not quiet[buf] then
    return
  end
  all_but_changes = all_but_changes
    or table.concat(
      vim.tbl_filter(function(event)
        return not event:find('^FileChangedShell')
      end, vim.fn.getcompletion('', 'event')),
      ','
    )
  local before = vim.go.eventignore
  local function restore()
    if vim.go.eventignore == all_but_changes then
      vim.go.eventignore = before
    end
  end
  vim.go.eventignore = all_but_changes
  vim.schedule(restore) -- in case the event below does not come
  api.nvim_create_autocmd('FileChangedShellPost', {
    group = group,
    buffer = buf,
    once = true,
    callback = restore,
  })
end

--- Answer what to do about the changed file of a quiet buffer. (If editing/disk.lua answers, it does so after this.)
---@param buf integer
local function answer_changed(buf)
  local is_answered = #api.nvim_get_autocmds({ event = 'FileChangedShell', buffer = buf }) > 1
  local is_wanted = vim.v.fcs_reason == 'changed'
    and not vim.bo[buf].modified
    and not M.problem_with(api.nvim_buf_get_name(buf))
  vim.v.fcs_choice = is_wanted and 'reload' or ''
  if is_wanted and not is_answered then
    M.will_reload(buf)
  end
end

---@param buf integer
---@param is_announced boolean
local function be_quiet(buf, is_announced)
  quiet[buf] =
    { is_announced = is_announced, is_known = false, is_shown = false, has_filetype = false }
  api.nvim_clear_autocmds({ group = group, buffer = buf })
  local function on(events, callback)
    api.nvim_create_autocmd(events, {
      group = group,
      buffer = buf,
      nested = true,
      desc = 'Agent: a file that is not opened yet',
      callback = function()
        callback(buf)
      end,
    })
  end
  on('BufEnter', function()
    M.open(buf, true)
  end)
  on({ 'BufReadPre', 'BufNewFile' }, function() -- read in the usual way
    forget(buf)
    set_swapfile(buf)
  end)
  on('FileChangedShell', answer_changed)
  local function attach()
    api.nvim_buf_attach(buf, false, {
      on_detach = vim.schedule_wrap(function()
        if quiet[buf] and api.nvim_buf_is_loaded(buf) then
          attach() -- only reloaded
        elseif quiet[buf] and api.nvim_buf_is_valid(buf) then
          forget(buf)
          scratch.set_buf_options(buf, { swapfile = vim.go.swapfile, filetype = '' })
        end
        quiet[buf] = api.nvim_buf_is_valid(buf) and quiet[buf] or nil
      end),
    })
  end
  attach()
end

--- Load a file without autocommands, or return the buffer that contains it already.
---@param path string absolute
---@return integer? buf
---@return string? problem a sentence
function M.read(path)
  local name = vim.fn.fnamemodify(vim.fs.normalize(path, { expand_env = false }), ':.')
  local is_announced = vim.fn.bufexists(name) == 1
  local buf ---@type integer
  scratch.quietly(function()
    buf = vim.fn.bufadd(name)
  end)
  if api.nvim_buf_is_loaded(buf) then
    return buf
  end
  local problem = M.problem_with(path)
  if problem then
    return nil, problem
  end
  local ok, err = pcall(scratch.quietly, function()
    vim.bo[buf].swapfile, vim.bo[buf].modeline, vim.bo[buf].autoread = false, false, false
    vim.fn.bufload(buf)
  end)
  if not ok or not api.nvim_buf_is_loaded(buf) then
    return nil, ('Cannot load %s: %s'):format(shown_name(path), err)
  end
  be_quiet(buf, is_announced)
  return buf
end

--- Load a file that the user may want to see, or return its buffer. Only our own autocommands are fired.
---@param path string absolute
---@param is_listed? boolean add it to the buffer list
---@return integer? buf
---@return string? problem a sentence
function M.load(path, is_listed)
  local buf, problem = M.read(path)
  if buf and quiet[buf] and not quiet[buf].is_known then
    for _, fn in ipairs(before_use) do
      fn(buf)
    end
    buf, problem = M.read(path) -- the buffer may have been outdated
  end
  if not buf then
    return nil, problem
  end
  if is_listed then
    scratch.set_buf_options(buf, { buflisted = true })
  end
  if quiet[buf] and not quiet[buf].is_known then
    quiet[buf].is_known = true
    M.color(buf, path)
    tell_ours(vim.uv.fs_stat(path) and 'BufReadPost' or 'BufNewFile', buf)
  end
  return buf
end

-- opening --------------------------------------------------------------------------------------------------------------

--- Fire these events for the current buffer. An error in one autocommand does not stop the others.
---@param events string[]
---@param has_modelines boolean
local function fire(events, has_modelines)
  local earlier = vim.v.errmsg
  vim.v.errmsg = ''
  for _, event in ipairs(events) do
    local modeline = has_modelines and '' or '<nomodeline> '
    pcall(vim.cmd --[[@as fun(cmd: string)]], ('silent! doautocmd %s%s'):format(modeline, event))
  end
  local problem = vim.v.errmsg
  vim.v.errmsg = earlier
  if problem ~= '' then
    local name = shown_name(api.nvim_buf_get_name(0))
    message.tell(('An autocommand for %s failed: %s'):format(name, problem), vim.log.levels.WARN)
  end
end

--- Open a quiet buffer as the user would, firing the events of `:edit`. Other buffers are left alone.
---@param buf integer
---@param is_entering? boolean Neovim itself fires BufEnter, and BufWinEnter if the buffer was in no window
function M.open(buf, is_entering)
  local here = quiet[buf]
  if not here or not api.nvim_buf_is_loaded(buf) then
    return
  elseif here.has_filetype then
    -- `:setfiletype` has no effect if the option was set since autocommands began to run, so wait until they end.
    here.has_filetype = false
    scratch.set_buf_options(buf, { filetype = '' })
    return vim.schedule(function()
      M.open(buf, is_entering)
    end)
  end
  for _, fn in ipairs(before_use) do
    fn(buf)
  end
  forget(buf)
  local win = api.nvim_get_current_buf() == buf and api.nvim_get_current_win()
    or vim.fn.win_findbuf(buf)[1]
  local is_proposed = vim.b[buf].sanderling_proposed
  local is_new = not vim.uv.fs_stat(api.nvim_buf_get_name(buf))
  local function open()
    local view = here.is_shown and vim.fn.winsaveview() or nil
    scratch.quietly(function()
      vim.cmd('silent! syntax clear')
    end)
    set_swapfile(buf)
    if is_proposed then -- language servers do not attach to "acwrite" buffers
      scratch.set_buf_options(buf, { buftype = '' })
    end
    M.is_opening = true
    if not here.is_announced then
      fire(vim.bo[buf].buflisted and { 'BufNew', 'BufAdd' } or { 'BufNew' }, false)
    end
    fire(is_new and { 'BufNewFile' } or { 'BufReadPre', 'BufReadPost' }, not is_proposed)
    fire(here.is_shown and { 'BufWinEnter' } or {}, false)
    if not is_entering and api.nvim_get_current_buf() == buf then
      fire({ 'BufEnter' }, false)
    end
    M.is_opening = false
    if is_proposed and vim.b[buf].sanderling_proposed then
      scratch.set_buf_options(buf, { buftype = 'acwrite' })
    end
    if view then
      vim.fn.winrestview(view)
    end
  end
  if win then
    api.nvim_win_call(win, open)
  else
    api.nvim_buf_call(buf, open)
  end
end

-- showing --------------------------------------------------------------------------------------------------------------

local key_ns = api.nvim_create_namespace('sanderling_loading')

--- Open the quiet buffer of the current window, unless a command waits for a key that autocommands could discard.
local function open_here()
  local buf, mode = api.nvim_get_current_buf(), api.nvim_get_mode().mode
  local is_possible = mode:find('^[nivVRsS\22\19]')
    and not mode:find('^no')
    and not mode:find('[cx]$')
    and not locked.text_waits_for()
  if is_possible or not quiet[buf] then
    vim.on_key(nil, key_ns)
    M.open(buf)
  end
end

--- Open the quiet buffer of the current window, which the user has not entered, when they type the next key.
local function open_at_next_key()
  vim.on_key(function(_, typed)
    if typed and typed ~= '' then
      vim.schedule(open_here)
    end
  end, key_ns)
end

--- Show a loaded buffer in a window. As long as it is quiet, only our own autocommands are fired.
---@param win integer
---@param buf integer
---@param lnum? integer
---@param col? integer from 1
function M.show(win, buf, lnum, col)
  if api.nvim_win_get_buf(win) ~= buf and quiet[buf] then
    quiet[buf].is_shown = true
    reading.without({ 'BufEnter', 'BufWinEnter' }, function()
      api.nvim_win_set_buf(win, buf)
    end)
    tell_ours('BufWinEnter', buf)
  elseif api.nvim_win_get_buf(win) ~= buf then
    api.nvim_win_set_buf(win, buf)
  end
  if lnum then
    api.nvim_win_call(win, function()
      local last = api.nvim_buf_line_count(buf)
      api.nvim_win_set_cursor(0, { math.max(1, math.min(lnum, last)), math.max((col or 1) - 1, 0) })
      vim.cmd('normal! zv')
    end)
  end
  if quiet[buf] and win == api.nvim_get_current_win() then
    open_at_next_key()
  end
end

---@param buf integer
function M.enter(buf)
  if api.nvim_get_current_buf() ~= buf then
    vim.cmd.buffer({ buf, mods = { hide = true } })
  end
  M.open(buf)
end

--- Open a file at the user's request.
---@param path string absolute
---@param cmd 'edit'|'tabedit'|'split'
---@param is_silent? boolean
function M.edit(path, cmd, is_silent)
  local id = api.nvim_create_autocmd('SwapExists', {
    group = group,
    nested = true,
    callback = function()
      vim.v.swapchoice = vim.v.swapchoice ~= '' and vim.v.swapchoice or 'e'
    end,
  })
  local magic, mods = { file = false, bar = false }, { hide = true, silent = is_silent }
  local ok, err = pcall(reading.reading_plainly, function()
    api.nvim_cmd({ cmd = cmd, args = { path }, magic = magic, mods = mods }, {})
  end)
  api.nvim_del_autocmd(id)
  if not ok then
    error(err, 0)
  end
end

return M
