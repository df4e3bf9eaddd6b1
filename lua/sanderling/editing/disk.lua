--- Buffers and their files on disk: write hooks, writes by Python, changed files.
local M = {}

local api = vim.api
local busy = require('sanderling.editing.busy')
local files = require('sanderling.access.files')
local find = require('sanderling.editing.find')
local kinds = require('sanderling.editing.kinds')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')
local undo = require('sanderling.editing.undo')
local views = require('sanderling.editing.views')

local MAX_LOADED_BYTES = 16 * 1024 * 1024 -- without asking, or twice the buffer's size: 64 MB freeze Neovim for 3 s, 1 GB takes 7 GB of memory
local MAX_RELOADED_LINES = 1000000 -- Neovim takes minutes to replace a few million lines
local OVERWRITE = 'Do you really want to write to it'
local KEPT = 'your unsaved changes are kept'
local READ_BY_PLUGIN = 'a plugin reads it; :e loads it'
local TOO_LARGE = 'it is %d MB now, so it was not loaded; :e loads it'
local OF_KERNEL = 'it now leads to a kernel file, so it was not loaded'
local OTHER_KIND = 'it is %s now, so it is left alone'
local NOT_WRITTEN = '%s was not written: %s.'
local HOW_TO_WRITE = ' :w NAME writes elsewhere, and :w! overwrites a file.'
local WRITE_MS = 10000 -- from the hooks before a write until it is done
local USERS_WRITE_WAITS_MS = 1000
local CONFIRM_EVERY_MS = 20 -- after the answer Neovim takes a moment to ask for <Enter>
local MAX_CONFIRM_MS = 500

local group = api.nvim_create_augroup('sanderling_buffers', {})
local alone_group = api.nvim_create_augroup('sanderling_alone', {})

---@param buf integer
---@return string
function M.shown_name(buf)
  return vim.fn.fnamemodify(api.nvim_buf_get_name(buf), ':~:.')
end

---@type boolean the user's hooks run, but for a write by the agent
M.are_hooks_running = false

--- Run the autocommands of `event` as `:write` does. Their errors are shown, and stop nothing. None run in a file that
--- the user has not opened: a formatter can be the project's own.
---@param buf integer
---@param event 'BufWritePre'|'BufWritePost'
function M.run_hooks(buf, event)
  if vim.fn.exists('#' .. event) == 0 or loading.is_quiet(buf) then
    return
  end
  local saved, name, earlier = views.save(buf), M.shown_name(buf), vim.v.errmsg
  vim.v.errmsg = ''
  M.are_hooks_running = true
  local ok, err = pcall(api.nvim_buf_call, buf, function()
    vim.cmd('silent! doautocmd <nomodeline> ' .. event)
  end)
  M.are_hooks_running = false
  local problem = ok and vim.v.errmsg or tostring(err)
  vim.v.errmsg = earlier
  if problem ~= '' then
    busy.notify(('%s of %s: %s'):format(event, name, problem))
  end
  if api.nvim_buf_is_loaded(buf) then
    views.restore(buf, saved)
  end
end

--- Let `choose` answer FileChangedShell for the buffer by `reason` (see v:fcs_reason), until the returned function is
--- called.
---@param buf integer
---@param choose fun(reason: string): string of v:fcs_choice
---@return fun() take_back
local function answer_for_user(buf, choose)
  local id = api.nvim_create_autocmd('FileChangedShell', {
    group = group,
    buffer = buf,
    callback = function()
      vim.v.fcs_choice = choose(vim.v.fcs_reason)
      if vim.v.fcs_choice == 'reload' then
        loading.will_reload(buf)
      end
    end,
  })
  return function()
    pcall(api.nvim_del_autocmd, id) -- deleted with its buffer
  end
end

---@type table<integer, fun()> by buffer that is being written: lets Neovim ask about its file again
local ask_again = {}

--- Let the user's write wait for Python's: between that and `adopt_file` Neovim would ask whether to overwrite the
--- file.
---@param buf integer
---@return integer autocommand
local function hold_users_write(buf)
  return api.nvim_create_autocmd('BufWritePre', {
    group = group,
    buffer = buf,
    nested = true, -- `adopt_file`, which comes while this one waits, needs an autocommand
    callback = function(event)
      if M.are_hooks_running or event.match ~= api.nvim_buf_get_name(buf) then
        return false
      end
      vim.wait(USERS_WRITE_WAITS_MS, function()
        return ask_again[buf] == nil
      end, 5)
      return true -- wait only once for a write that does not end
    end,
  })
end

--- Suppress questions about the buffer's file until it is written.
---@param buf integer
function M.expect_write(buf)
  M.stop_expecting(buf)
  local ask = answer_for_user(buf, function()
    return ''
  end)
  local held = hold_users_write(buf)
  local function take_back()
    ask()
    pcall(api.nvim_del_autocmd, held)
  end
  ask_again[buf] = take_back
  vim.defer_fn(function() -- it was not written
    if ask_again[buf] == take_back then
      M.stop_expecting(buf)
    end
  end, WRITE_MS)
end

---@param buf integer
function M.stop_expecting(buf)
  if ask_again[buf] then
    ask_again[buf]()
    ask_again[buf] = nil
  end
end

--- Return the text at the end of the screen, where Neovim asks.
---@return string
local function last_words()
  local cells = {}
  for row = math.max(1, vim.o.lines - 2), vim.o.lines do
    for column = 1, vim.o.columns do
      cells[#cells + 1] = vim.fn.screenstring(row, column)
    end
  end
  return vim.trim(table.concat(cells))
end

--- Answer no if Neovim asks whether to overwrite the buffer's file, which Python has written just now. An autosave can
--- cause that question: a write by an autocommand runs no other autocommands, which could make it wait.
---@param buf integer
function M.decline_overwriting(buf)
  local may_be_asked = api.nvim_get_mode().mode == 'r?' and api.nvim_get_current_buf() == buf
  if not (may_be_asked and vim.endswith(last_words(), vim.fn.gettext(OVERWRITE) .. ' (y/n)?')) then
    return
  end
  api.nvim_input('n')
  local deadline = vim.uv.now() + MAX_CONFIRM_MS
  local timer = assert(vim.uv.new_timer()) -- a timer, because nothing scheduled runs while Neovim waits for a key
  timer:start(CONFIRM_EVERY_MS, CONFIRM_EVERY_MS, function()
    local mode = api.nvim_get_mode().mode
    if mode ~= 'r?' or vim.uv.now() > deadline then
      timer:close()
    end
    if mode == 'r' then
      api.nvim_input('<CR>')
    end
  end)
end

--- Make Neovim take the current file for the one it has read and written: see "Writing" in init.lua.
---@param buf integer
function M.adopt_file(buf)
  local id = api.nvim_create_autocmd('BufWriteCmd', {
    group = group,
    buffer = buf,
    callback = function() end,
  })
  -- if the autocommand does not run, this prevents a write
  scratch.set_buf_options(buf, { buftype = 'acwrite' })
  api.nvim_buf_call(buf, function()
    vim.cmd('silent! lockmarks write!')
  end)
  scratch.set_buf_options(buf, { buftype = '' })
  api.nvim_del_autocmd(id)
  vim.b[buf].sanderling_differs_on_disk = nil
  kinds.note(buf)
end

---@param buf integer
function M.write_undo_file(buf)
  if vim.bo[buf].undofile then
    local path = vim.fn.undofile(api.nvim_buf_get_name(buf))
    api.nvim_buf_call(buf, function()
      vim.cmd('silent! wundo! ' .. vim.fn.fnameescape(path))
    end)
  end
end

--- Report once that a buffer is kept although its file has changed. `:write` asks before it overwrites the file.
---@param buf integer
---@param why string
local function note_conflict(buf, why)
  if vim.b[buf].sanderling_differs_on_disk ~= why then
    vim.b[buf].sanderling_differs_on_disk = why
    busy.notify(('%s has changed on disk; %s'):format(M.shown_name(buf), why))
  end
end

--- Should the file of a buffer not be loaded without asking: because it is no longer a file, leads to a kernel file, or
--- has become too large for an unmodified buffer?
---@param buf integer
---@return boolean
---@return string? why, if the user must know
local function judge(buf)
  local name = api.nvim_buf_get_name(buf)
  if files.is_of_kernel(vim.uv.fs_realpath(name) or '') then -- a new link: its size says nothing
    return true, not files.is_of_kernel(name) and OF_KERNEL or nil
  end
  local kind = kinds.changed_kind(buf)
  if kind then
    return true, OTHER_KIND:format(kind)
  end
  local stat = vim.uv.fs_stat(name)
  local line_count = api.nvim_buf_line_count(buf)
  local held = math.max(0, api.nvim_buf_get_offset(buf, line_count))
  local limit = line_count > MAX_RELOADED_LINES and 0 or math.max(MAX_LOADED_BYTES, 2 * held)
  if vim.bo[buf].modified or not stat or stat.size <= limit then
    return false
  end
  return true, stat.size ~= held and TOO_LARGE:format(stat.size / 1024 / 1024) or nil
end

---@type table<integer, string> why the files of buffers are left alone
local alone = {}

---@param buf integer
---@return string?
function M.left_alone(buf)
  return alone[buf]
end

---@type fun(buf: integer, why: string)
local leave_alone

--- Write a buffer whose file is left alone, when the user writes it, or writes it elsewhere.
---@param args { buf: integer, match: string, file: string }
local function write_by_hand(args)
  local buf, why = args.buf, alone[args.buf]
  local stat = vim.uv.fs_stat(args.match)
  local is_own = args.match == api.nvim_buf_get_name(buf)
  if is_own and not (vim.v.cmdbang == 1 and (not stat or stat.type == 'file')) then
    return busy.notify(NOT_WRITTEN:format(M.shown_name(buf), why) .. HOW_TO_WRITE)
  end
  local bang = vim.v.cmdbang == 1 and '!' or ''
  M.take_back(buf)
  local ok, err = pcall(
    vim.cmd --[[@as fun(cmd: string)]],
    ('write%s %s'):format(bang, vim.fn.fnameescape(args.file))
  )
  if not is_own then
    leave_alone(buf, why)
  end
  if not ok then
    busy.notify(message.without_place(err))
  end
end

--- Leave the file of a buffer alone, and make Neovim do so. 'noautoread' is not enough: Neovim asks or, if the size is
--- unchanged, reads the file to compare it, and a named pipe blocks it forever. It never checks the file of an
--- "acwrite" buffer.
---@param buf integer
---@param why string
function leave_alone(buf, why)
  note_conflict(buf, why)
  if alone[buf] then
    alone[buf] = why
    return
  end
  alone[buf] = why
  scratch.set_buf_options(buf, { buftype = 'acwrite', autoread = false })
  api.nvim_create_autocmd('BufWriteCmd', {
    group = alone_group,
    buffer = buf,
    nested = true,
    desc = 'Agent: do not write what is no longer a file',
    callback = write_by_hand,
  })
  api.nvim_create_autocmd({ 'BufReadPre', 'BufUnload' }, {
    group = alone_group,
    buffer = buf,
    desc = 'Agent: the user reads the file again',
    callback = function()
      M.take_back(buf)
    end,
  })
end

--- Allow reading and writing the buffer's file again.
---@param buf integer
function M.take_back(buf)
  if alone[buf] then
    alone[buf] = nil
    api.nvim_clear_autocmds({ group = alone_group, buffer = buf })
    scratch.set_buf_options(buf, { buftype = '' })
    loading.set_autoread(buf)
  end
end

---@param buf integer
---@return boolean
local function is_left_alone(buf)
  local is_so, why = judge(buf)
  if why then
    leave_alone(buf, why)
  else
    M.take_back(buf)
  end
  return is_so
end

---@param buf integer
---@return boolean
function M.may_be_left_alone(buf)
  local is_ordinary = api.nvim_buf_is_loaded(buf) and vim.bo[buf].buftype == ''
  return alone[buf] ~= nil or is_ordinary and kinds.changed_kind(buf) ~= nil
end

--- Was there no file when the buffer was created? Then checktime would ask ("created after editing started").
---@param buf integer
---@return boolean
local function is_new(buf)
  local info = api.nvim_buf_call(buf, function()
    return vim.fn.execute('file')
  end)
  return info:match('[^"]*$'):find(vim.fn.gettext('[New]'), 1, true) ~= nil
end

--- Load the file of a buffer that is older than the file.
---@param buf integer
local function load_created_file(buf)
  if not vim.uv.fs_stat(api.nvim_buf_get_name(buf)) then
    return
  elseif vim.bo[buf].modified then
    note_conflict(buf, KEPT)
    return
  end
  if find.is_plugins('BufReadCmd', buf) then
    note_conflict(buf, READ_BY_PLUGIN)
    return
  end
  local function read()
    api.nvim_buf_call(buf, function()
      vim.cmd('silent! keepalt keepjumps edit!')
    end)
  end
  if loading.is_quiet(buf) then
    scratch.quietly(read)
    kinds.note(buf)
  else
    read()
  end
end

--- Reload the buffer's file if it has changed, without asking; unsaved changes stay.
---@param buf integer
local function reload_if_changed(buf)
  local saved, is_only_stamp
  local take_back = answer_for_user(buf, function(reason)
    if reason == 'conflict' then
      note_conflict(buf, KEPT)
    elseif reason == 'changed' and find.is_plugins('BufReadCmd', buf) then
      note_conflict(buf, READ_BY_PLUGIN)
    elseif reason == 'changed' then
      saved = views.save(buf)
      return 'reload'
    end
    is_only_stamp = reason == 'time' or reason == 'mode'
    return ''
  end)
  local autoread = vim.go.autoread
  vim.go.autoread = false -- otherwise it reloads without the autocommand
  local ok, err = pcall(files.reading_plainly, function() -- it also reads the file to compare it
    vim.cmd('silent! checktime ' .. buf)
  end)
  vim.go.autoread = autoread
  take_back()
  if not ok then
    error(err, 0)
  end
  if is_only_stamp then
    M.adopt_file(buf)
  elseif saved and api.nvim_buf_is_loaded(buf) then
    kinds.note(buf)
    undo.end_block(buf)
    views.restore(buf, saved)
    vim.b[buf].sanderling_differs_on_disk = nil
  end
end

---@param buf integer
function M.refresh(buf)
  if is_left_alone(buf) then
    return
  elseif is_new(buf) then
    load_created_file(buf)
  else
    reload_if_changed(buf)
  end
end

-- A background job changes files without notice. When Neovim gets the focus it checks all files, after this.
api.nvim_create_autocmd({ 'FocusGained', 'VimResume' }, {
  group = group,
  desc = 'Agent: do not read what is no longer a file',
  callback = function()
    vim.iter(api.nvim_list_bufs()):filter(M.may_be_left_alone):each(is_left_alone)
  end,
})

return M
