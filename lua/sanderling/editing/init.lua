--- Buffers of files, as the file tools see and change them: the half of src/sanderling/editor/buffers.py that Neovim runs.
---
--- What keeps a person's work intact:
---
--- Undo. `:let &l:undolevels = &l:undolevels` ends the undo block that is open, in any mode: before a change, so that it does not
--- join what the person just typed, and after it. The changes of one tool use are joined while nobody else has changed the buffer.
---
--- Writing. Python writes the file, inside of the sandbox; afterwards `:write` runs here with a BufWriteCmd autocommand that
--- writes nothing. Neovim then takes the file's present time and size for what it has read itself: no W11, no W12, no "changed
--- since reading", no E13. It does not do one thing that a real write does: mark the older undo states as modified. So a buffer is
--- modified before it is changed, and undoing a change that has been written makes it modified, as it must.
---
--- Waiting. Where a change would fail or harm (a pending operator, a prompt, textlock), nothing is done: Python asks again until
--- its deadline, and what is to happen in any case (`after_write`, `files_changed`) is tried again from here.
local M = {}

local api = vim.api
local files = require('sanderling.ui.files')
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')

local RETRY_MS = 50
local MAX_TEXT_BYTES = 8 * 1024 * 1024 -- asking for it stops the screen: for 0.3 s, at 250,000 lines
local MAX_PAIRED_LINES = 200 -- of a change; each is an event for every LSP client, which costs it the whole buffer
local MAX_COMPARED_LINES = 10000 -- on each side; the worst of them take 0.1 s
local MAX_LOADED_BYTES = 16 * 1024 * 1024 -- by itself, or twice what was held: 64 MB stop Neovim for 3 s, 1 GB takes 7 GB of memory
local MAX_RELOADED_LINES = 1000000 -- Neovim takes minutes for the old ones of a few millions
local KEPT = 'your unsaved changes are kept'
local READ_BY_PLUGIN = 'a plugin reads it: :e loads it'
local TOO_LARGE = 'it is %d MB now, and is not loaded by itself: :e loads it'
local OF_KERNEL = 'it leads to a file of the kernel, and is not loaded by itself'
local WRITE_MS = 10000 -- from the hooks before a write until it is done

---@alias sanderling.editing.Hunk [integer, integer, string[]] first line from 0, how many, what replaces them

---@class (exact) sanderling.editing.Buffer
---@field id integer
---@field path string
---@field tick integer
---@field text string
---@field is_modified boolean
---@field encoding string
---@field line_ending 'unix'|'dos'|'mac'
---@field has_bom boolean

---@class (exact) sanderling.editing.Answer one of them
---@field value? any
---@field error? string a sentence for the model
---@field waits_for? string what has to come first; ask again
---@field is_late? boolean the deadline had passed

---@type table<integer, { tool_use_id: string, tick: integer }> what a tool use left behind, by buffer
local last_changes = {}
local group = api.nvim_create_augroup('sanderling_buffers', {})
local ns = api.nvim_create_namespace('sanderling_buffers')

local VISUAL = '^[vVsS\22\19]' -- patterns of modes
local TYPING = '^[iR]'
local NOT_NORMAL = '^[^n]'

-- which buffers -------------------------------------------------------------------------------------------------------

--- What a name stands for, so that two names of one file have the same: the file where there is one, else the place.
---@param path string absolute
---@return string? identity nil: a directory, or nowhere
local function identity(path)
  local stat = vim.uv.fs_stat(path)
  if stat then
    return stat.type == 'file' and ('%d:%d'):format(stat.dev, stat.ino) or nil
  end
  local directory = vim.uv.fs_realpath(vim.fs.dirname(path))
  return directory and vim.fs.joinpath(directory, vim.fs.basename(path))
end

--- Does a plugin read or write this buffer in its own way (packed, encrypted, over a network)? Then its text is not what its file
--- holds.
---@param event 'BufReadCmd'|'BufWriteCmd'
---@param buf integer
---@return boolean
local function is_plugins(event, buf)
  local name = api.nvim_buf_get_name(buf)
  -- a pattern is compared with all of the name, with the end of it, and with what is short below the working directory
  local names = { name, vim.fs.basename(name), vim.fn.bufname(buf) }
  if event == 'BufReadCmd' then
    return files.is_read_otherwise(names, buf)
  end
  return files.is_handled(event, names, buf)
end

--- Is it loaded, and an ordinary buffer of a file?
---@param buf integer
---@return boolean
local function is_file_buffer(buf)
  if not (api.nvim_buf_is_loaded(buf) and vim.bo[buf].buftype == '') then
    return false
  end
  local name = api.nvim_buf_get_name(buf)
  return name ~= '' and identity(name) ~= nil and not is_plugins('BufWriteCmd', buf)
end

--- Is that the name of the very file that the sandbox has opened, or where it found none?
---@param name string absolute
---@param device integer
---@param inode integer
---@param place string of a file that was not there; then device and inode are its directory's
---@return boolean
local function names_file(name, device, inode, place)
  local stat = vim.uv.fs_stat(name)
  if place ~= '' then
    if stat or vim.fs.basename(name) ~= vim.fs.basename(place) then
      return false
    end
    stat = vim.uv.fs_stat(vim.fs.dirname(name))
  end
  return stat ~= nil
    and stat.type == (place == '' and 'file' or 'directory')
    and stat.dev == device
    and stat.ino == inode
end

---@param path string what it was asked for by; of two buffers of one file that one
---@param device integer
---@param inode integer
---@param place string
---@return integer? buf
local function find_buf(path, device, inode, place)
  local found
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local name = api.nvim_buf_get_name(buf)
    if
      name ~= ''
      and names_file(name, device, inode, place)
      and is_file_buffer(buf)
      and not is_plugins('BufReadCmd', buf)
    then
      if name == path then
        return buf
      end
      found = found or buf
    end
  end
  return found
end

-- text ----------------------------------------------------------------------------------------------------------------

--- A buffer without text shows one line, as does the buffer of a file that holds one empty line.
---@param buf integer
---@return boolean
local function is_empty(buf)
  return api.nvim_buf_line_count(buf) == 1
    and api.nvim_buf_get_lines(buf, 0, 1, true)[1] == ''
    and api.nvim_buf_call(buf, vim.fn.wordcount).bytes == 0
end

---@param buf integer
---@param path string the name that it was asked for by
---@return sanderling.editing.Buffer
local function describe(buf, path)
  local bytes = api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf))
  if bytes > MAX_TEXT_BYTES then
    error(
      ('Neovim holds %s in a buffer of %d MB, which is more than can be asked for. Use bash, or ask the user to unload it.'):format(
        path,
        bytes / 1024 / 1024
      ),
      0
    )
  end
  local options = vim.bo[buf]
  local text = ''
  if not is_empty(buf) then
    local lines = api.nvim_buf_get_lines(buf, 0, -1, true)
    text = table.concat(lines, '\n') .. (options.endofline and '\n' or '')
  end
  return {
    id = buf,
    path = path,
    tick = api.nvim_buf_get_changedtick(buf),
    text = text,
    is_modified = options.modified,
    encoding = options.binary and '' or options.fileencoding,
    line_ending = options.binary and 'unix' or options.fileformat,
    has_bom = options.bomb and not options.binary,
  }
end

-- changing ------------------------------------------------------------------------------------------------------------

---@class (exact) sanderling.editing.Edit
---@field row integer
---@field old string[] the lines that are there
---@field new string[] the lines that replace them

---@param lines string[]
---@param first integer
---@param last integer
---@return string
local function joined(lines, first, last)
  return first <= last and table.concat(lines, '\n', first, last) .. '\n' or ''
end

--- The parts of two lists of lines that differ: first and count in the old one, first and count in the new one; from 1.
---@param old string[]
---@param new string[]
---@return [integer, integer, integer, integer][]
local function differences(old, new)
  local head, tail, shorter = 0, 0, math.min(#old, #new)
  while head < shorter and old[head + 1] == new[head + 1] do
    head = head + 1
  end
  while tail < shorter - head and old[#old - tail] == new[#new - tail] do
    tail = tail + 1
  end
  local old_count, new_count = #old - head - tail, #new - head - tail
  if old_count + new_count == 0 then
    return {}
  elseif math.max(old_count, new_count) > MAX_COMPARED_LINES then
    return { { head + 1, old_count, head + 1, new_count } }
  end
  local before = joined(old, head + 1, #old - tail)
  local after = joined(new, head + 1, #new - tail)
  local parts = vim.diff(before, after, { result_type = 'indices' }) --[[@as [integer, integer, integer, integer][] ]]
  for _, part in ipairs(parts) do
    -- Of nothing, vim.diff() gives the line before it.
    part[1] = head + part[1] + (part[2] == 0 and 1 or 0)
    part[3] = head + part[3] + (part[4] == 0 and 1 or 0)
  end
  return parts
end

---@param hunks sanderling.editing.Hunk[]
---@return sanderling.editing.Hunk[] hunks none begins where another ends
local function merge(hunks)
  local merged = {}
  for _, hunk in ipairs(hunks) do
    local last = merged[#merged]
    if last and last[1] + last[2] == hunk[1] then
      last[2] = last[2] + hunk[2]
      last[3] = vim.list_extend(vim.list_slice(last[3]), hunk[3])
    else
      merged[#merged + 1] = { unpack(hunk) }
    end
  end
  return merged
end

--- What the hunks mean for the buffer. A text that ends in a newline has an empty line behind that, which hunks may name and
--- a buffer tells by 'endofline'.
---@param buf integer
---@param hunks sanderling.editing.Hunk[]
---@return sanderling.editing.Edit[] edits
---@return boolean has_end whether the text will end in a newline
local function plan(buf, hunks)
  local is_blank = is_empty(buf)
  local line_count = is_blank and 0 or api.nvim_buf_line_count(buf)
  local has_end = is_blank or vim.bo[buf].endofline
  local total = has_end and line_count + 1 or line_count
  local edits, free_from = {}, 0
  for _, hunk in ipairs(merge(hunks)) do
    local row, count, new = unpack(hunk)
    if row < free_from or count < 0 or row + count > total then
      error(('There are no lines %d to %d to replace.'):format(row + 1, row + count), 0)
    elseif table.concat(new):find('\n', 1, true) then
      error('A line of the replacement holds a newline.', 0)
    end
    free_from = row + count
    if free_from == total then -- it decides how the text ends
      if row > line_count then -- behind the newline at the end: that line now shows
        row, new = line_count, vim.list_extend({ '' }, new)
      elseif #new == 0 and row > 0 then -- the line before becomes the last one
        row, new = row - 1, api.nvim_buf_get_lines(buf, row - 1, row, true)
      end
      has_end = #new == 0 or new[#new] == ''
      new = has_end and vim.list_slice(new, 1, #new - 1) or new
    end
    local last = math.min(free_from, line_count)
    local old = row < last and api.nvim_buf_get_lines(buf, row, last, true) or {}
    edits[#edits + 1] = { row = row, old = old, new = new }
  end
  return edits, has_end
end

--- Only what differs of each edit, so that the rest keeps its marks.
---@param edits sanderling.editing.Edit[]
---@return sanderling.editing.Edit[]
local function narrow(edits)
  local narrowed = {}
  for _, edit in ipairs(edits) do
    for _, part in ipairs(differences(edit.old, edit.new)) do
      local from, count, new_from, new_count = unpack(part)
      narrowed[#narrowed + 1] = {
        row = edit.row + from - 1,
        old = vim.list_slice(edit.old, from, from + count - 1),
        new = vim.list_slice(edit.new, new_from, new_from + new_count - 1),
      }
    end
  end
  return narrowed
end

---@type fun()? what `M.run_due` is to run
local due

--- Run `fn` under modifiers of Ex commands, which reach what :lua runs.
---@param modifiers string
---@param fn fun()
local function with_modifiers(modifiers, fn)
  due = fn
  vim.cmd(modifiers .. " lua require('sanderling.editing').run_due()")
end

---@private
function M.run_due()
  local fn = assert(due)
  due = nil
  fn()
end

---@param byte? integer
---@return boolean
local function continues_character(byte)
  return byte ~= nil and byte >= 0x80 and byte < 0xC0
end

--- Change the line where it differs: marks, cursors and LSP clients see a change inside of it.
---@param buf integer
---@param row integer
---@param old string
---@param new string
local function change_line(buf, row, old, new)
  local shorter = math.min(#old, #new)
  local head = 0
  while head < shorter and old:byte(head + 1) == new:byte(head + 1) do
    head = head + 1
  end
  while
    head > 0
    and (continues_character(old:byte(head + 1)) or continues_character(new:byte(head + 1)))
  do
    head = head - 1
  end
  local tail = 0
  while tail < shorter - head and old:byte(#old - tail) == new:byte(#new - tail) do
    tail = tail + 1
  end
  while tail > 0 and continues_character(old:byte(#old - tail + 1)) do
    tail = tail - 1
  end
  local text = new:sub(head + 1, #new - tail)
  with_modifiers('keepjumps lockmarks', function() -- else the line's own marks go
    api.nvim_buf_set_text(buf, row, head, row, #old - tail, { text })
  end)
end

--- Lines are changed in place as long as there are old ones; then lines go, or come.
---@param buf integer
---@param edits sanderling.editing.Edit[] in order
local function apply(buf, edits)
  local paired = 0
  for _, edit in ipairs(edits) do
    paired = paired + math.min(#edit.old, #edit.new)
  end
  for n = #edits, 1, -1 do
    local edit = edits[n]
    local kept = paired <= MAX_PAIRED_LINES and math.min(#edit.old, #edit.new) or 0
    if is_empty(buf) then -- one step would leave it so if there is one empty line to be
      api.nvim_buf_set_lines(buf, 0, 0, true, edit.new)
      api.nvim_buf_set_lines(buf, #edit.new, -1, true, {})
    else
      local rest = vim.list_slice(edit.new, kept + 1)
      if kept < #edit.old or #rest > 0 then
        api.nvim_buf_set_lines(buf, edit.row + kept, edit.row + #edit.old, true, rest)
      end
      for i = kept, 1, -1 do
        change_line(buf, edit.row + i - 1, edit.old[i], edit.new[i])
      end
    end
  end
end

-- undo ----------------------------------------------------------------------------------------------------------------

--- Is somebody typing or selecting in this very buffer?
---@param buf integer
---@param modes string pattern of the modes that count
---@return boolean
local function is_under_hands(buf, modes)
  return api.nvim_get_current_buf() == buf and api.nvim_get_mode().mode:find(modes) ~= nil
end

--- End the undo block that is open, if one is.
---@param buf integer
local function end_undo_block(buf)
  api.nvim_buf_call(buf, function()
    vim.cmd('noautocmd let &l:undolevels = &l:undolevels')
  end)
  if is_under_hands(buf, TYPING) then
    -- Insert mode counts on lines that it has saved since it began. CTRL-G u lets it begin anew, before the next key.
    api.nvim_feedkeys('\7u', 'in', false)
  end
end

--- What a tool use left behind, if nobody has changed the buffer since.
---@param buf integer
---@return { tool_use_id: string, tick: integer }?
local function untouched_change(buf)
  local last = last_changes[buf]
  return last and last.tick == api.nvim_buf_get_changedtick(buf) and last or nil
end

--- Change the buffer in an undo block of its own.
---@param buf integer
---@param joins boolean the block is the last change's
---@param change fun()
local function in_undo_block(buf, joins, change)
  local was_modified, tick = vim.bo[buf].modified, api.nvim_buf_get_changedtick(buf)
  end_undo_block(buf)
  local ok, err = pcall(api.nvim_buf_call, buf, function()
    if joins then
      vim.cmd('silent! undojoin')
    else
      vim.bo[buf].modified = true -- see "Writing" above
    end
    change()
  end)
  if api.nvim_buf_is_loaded(buf) then
    end_undo_block(buf)
    if api.nvim_buf_get_changedtick(buf) == tick then
      vim.bo[buf].modified = was_modified
    end
  end
  if not ok then
    error(err, 0)
  end
end

--- Change the buffer while it may be the one in which somebody selects: the other end of the selection goes with its text, as the
--- cursor does by itself.
---@param buf integer
---@param change fun()
local function keeping_selection(buf, change)
  local mode = api.nvim_get_mode().mode
  if api.nvim_get_current_buf() ~= buf or not mode:find(VISUAL) then
    return change()
  end
  local _, lnum, col = unpack(vim.fn.getpos('v'))
  local mark = api.nvim_buf_set_extmark(buf, ns, lnum - 1, col - 1, { strict = false })
  change()
  local row, new_col = unpack(api.nvim_buf_get_extmark_by_id(buf, ns, mark, {}))
  api.nvim_buf_del_extmark(buf, ns, mark)
  if row + 1 ~= lnum or new_col + 1 ~= col then
    local toggle = mode:find('^[sS\19]') and '\7' or '' -- CTRL-G, between Select and Visual mode
    local cursor = api.nvim_win_get_cursor(0)
    vim.cmd.normal({ toggle .. 'o', bang = true })
    api.nvim_win_set_cursor(0, { row + 1, new_col })
    vim.cmd.normal({ 'o' .. toggle, bang = true })
    api.nvim_win_set_cursor(0, cursor)
  end
end

-- what windows show ---------------------------------------------------------------------------------------------------

---@class (exact) sanderling.editing.Views
---@field tick integer
---@field lines string[]
---@field by_win table<integer, vim.fn.winsaveview.ret>

---@param buf integer
---@return sanderling.editing.Views
local function save_views(buf)
  local by_win = {}
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    by_win[win] = api.nvim_win_call(win, vim.fn.winsaveview)
  end
  return {
    tick = api.nvim_buf_get_changedtick(buf),
    lines = api.nvim_buf_get_lines(buf, 0, -1, true),
    by_win = by_win,
  }
end

--- Where line `lnum` is after `parts` have changed.
---@param parts [integer, integer, integer, integer][]
---@param lnum integer
---@return integer
local function follow(parts, lnum)
  local shift = 0
  for _, part in ipairs(parts) do
    local from, count, new_from, new_count = unpack(part)
    if lnum < from then
      break
    elseif lnum < from + count then
      return math.max(1, new_from + math.min(lnum - from, new_count - 1))
    end
    shift = shift + new_count - count
  end
  return lnum + shift
end

--- Let the windows show what they showed before, whatever has changed and moved since.
---@param buf integer
---@param views sanderling.editing.Views
local function restore_views(buf, views)
  local is_same = api.nvim_buf_get_changedtick(buf) == views.tick
  local parts = is_same and {} or differences(views.lines, api.nvim_buf_get_lines(buf, 0, -1, true))
  for win, view in pairs(views.by_win) do
    if api.nvim_win_is_valid(win) and api.nvim_win_get_buf(win) == buf then
      view.lnum, view.topline = follow(parts, view.lnum), follow(parts, view.topline)
      api.nvim_win_call(win, function()
        vim.fn.winrestview(view)
      end)
    end
  end
end

-- what Neovim is busy with --------------------------------------------------------------------------------------------

---@class (exact) sanderling.editing.Wait
---@field modes string pattern
---@field is_for string what Neovim waits for
---@field only_there? boolean it concerns the buffer that is typed into

---@type sanderling.editing.Wait[]
local WAITS = {
  { modes = '^no', is_for = 'the motion of an operator' },
  { modes = '^r', is_for = 'the answer to a prompt' },
  { modes = '^!', is_for = 'a shell command' },
  -- It remembers lines by number: taking a match would delete those between.
  { modes = '^[iR]v?[cx]', is_for = 'the choice of a completion', only_there = true },
}

--- What has to come before the buffer may be changed.
---@param buf integer
---@return string?
local function what_is_awaited(buf)
  local mode = api.nvim_get_mode().mode
  for _, wait in ipairs(WAITS) do
    if mode:find(wait.modes) and not (wait.only_there and api.nvim_get_current_buf() ~= buf) then
      return wait.is_for
    end
  end
  -- There is no buffer -1. But where text is locked, Neovim says that first.
  local _, err = pcall(api.nvim_buf_set_lines, -1, 0, 0, true, {})
  return locked.reason(tostring(err))
end

--- Tell it in one line, which cannot become a hit-enter prompt.
---@param text string
local function notify(text)
  local line = ('Sanderling: ' .. text):gsub('%c+', ' ')
  vim.schedule(function()
    message.tell(line, vim.log.levels.WARN)
  end)
end

--- Do it now, or as soon as it is possible; never, if the buffer goes before.
---@param buf integer
---@param fn fun(buf: integer)
---@param is_possible? fun(): boolean
local function when_possible(buf, fn, is_possible)
  if not api.nvim_buf_is_loaded(buf) then
    return
  end
  local ok, err = false, nil
  if not what_is_awaited(buf) and (not is_possible or is_possible()) then
    ok, err = pcall(fn, buf)
  end
  if not ok and (not err or locked.reason(tostring(err))) then
    vim.defer_fn(function()
      when_possible(buf, fn, is_possible)
    end, RETRY_MS)
  elseif not ok then
    notify(tostring(err))
  end
end

-- writing and reading -------------------------------------------------------------------------------------------------

---@param buf integer
---@return string
local function shown_name(buf)
  return vim.fn.fnamemodify(api.nvim_buf_get_name(buf), ':~:.')
end

--- Run the autocommands of `event` as `:write` does. Their errors are told, and stop nothing.
---@param buf integer
---@param event 'BufWritePre'|'BufWritePost'
local function run_hooks(buf, event)
  if vim.fn.exists('#' .. event) == 0 then
    return
  end
  local views, name, earlier = save_views(buf), shown_name(buf), vim.v.errmsg
  vim.v.errmsg = ''
  local ok, err = pcall(api.nvim_buf_call, buf, function()
    vim.cmd('silent! doautocmd <nomodeline> ' .. event)
  end)
  local problem = ok and vim.v.errmsg or tostring(err)
  vim.v.errmsg = earlier
  if problem ~= '' then
    notify(('%s of %s: %s'):format(event, name, problem))
  end
  if api.nvim_buf_is_loaded(buf) then
    restore_views(buf, views)
  end
end

--- What to do about `reason` (see v:fcs_reason) is up to `choose`; nobody else is asked. It must be taken back.
---@param buf integer
---@param choose fun(reason: string): string of v:fcs_choice
---@return fun() take_back
local function answer_for_user(buf, choose)
  local id = api.nvim_create_autocmd('FileChangedShell', {
    group = group,
    buffer = buf,
    callback = function()
      vim.v.fcs_choice = choose(vim.v.fcs_reason)
    end,
  })
  return function()
    pcall(api.nvim_del_autocmd, id) -- it goes with its buffer
  end
end

---@type table<integer, fun()> by buffer that is being written: Neovim may ask about its file again
local ask_again = {}

--- Until it is written, the file of the buffer may change without a question.
---@param buf integer
local function expect_write(buf)
  local take_back = ask_again[buf] or answer_for_user(buf, function()
    return ''
  end)
  ask_again[buf] = take_back
  vim.defer_fn(function() -- nobody wrote
    if ask_again[buf] == take_back then
      take_back()
      ask_again[buf] = nil
    end
  end, WRITE_MS)
end

---@param buf integer
local function stop_expecting(buf)
  if ask_again[buf] then
    ask_again[buf]()
    ask_again[buf] = nil
  end
end

--- Take the file as it is now for what was read and written: see "Writing" above.
---@param buf integer
local function adopt_file(buf)
  local id = api.nvim_create_autocmd('BufWriteCmd', {
    group = group,
    buffer = buf,
    callback = function() end,
  })
  -- should the autocommand not run, for whatever reason, this writes nothing either
  scratch.set_buf_options(buf, { buftype = 'acwrite' })
  api.nvim_buf_call(buf, function()
    vim.cmd('silent! lockmarks write!')
  end)
  scratch.set_buf_options(buf, { buftype = '' })
  api.nvim_del_autocmd(id)
  vim.b[buf].sanderling_differs_on_disk = nil
end

---@param buf integer
local function write_undo_file(buf)
  if vim.bo[buf].undofile then
    local path = vim.fn.undofile(api.nvim_buf_get_name(buf))
    api.nvim_buf_call(buf, function()
      vim.cmd('silent! wundo! ' .. vim.fn.fnameescape(path))
    end)
  end
end

--- Say once that a buffer stays as it is while its file has changed. `:write` asks before it overwrites that.
---@param buf integer
---@param why string
local function note_conflict(buf, why)
  if vim.b[buf].sanderling_differs_on_disk ~= why then
    vim.b[buf].sanderling_differs_on_disk = why
    notify(('%s has changed on disk; %s'):format(shown_name(buf), why))
  end
end

--- Is the file of an unmodified buffer one that is not loaded without asking, for it has become too large, or leads to one of the
--- kernel's? Then that is said. Neovim must not compare it with the buffer either: for that it loads it.
---@param buf integer
---@return boolean
local function is_left_alone(buf)
  local name = api.nvim_buf_get_name(buf)
  if files.is_of_kernel(vim.uv.fs_realpath(name) or '') then -- a link that was put there: its size says nothing
    if not files.is_of_kernel(name) then
      note_conflict(buf, OF_KERNEL)
    end
    return true
  end
  local stat = vim.uv.fs_stat(name)
  local line_count = api.nvim_buf_line_count(buf)
  local held = math.max(0, api.nvim_buf_get_offset(buf, line_count))
  local limit = line_count > MAX_RELOADED_LINES and 0 or math.max(MAX_LOADED_BYTES, 2 * held)
  if not stat or stat.size <= limit then
    return false
  elseif stat.size ~= held then
    note_conflict(buf, TOO_LARGE:format(stat.size / 1024 / 1024))
  end
  return true
end

--- Was there no file when the buffer was made? Then checktime would ask ("created after editing started").
---@param buf integer
---@return boolean
local function is_new(buf)
  local info = api.nvim_buf_call(buf, function()
    return vim.fn.execute('file')
  end)
  return info:match('[^"]*$'):find(vim.fn.gettext('[New]'), 1, true) ~= nil
end

--- Read the file of a buffer again that was made before it.
---@param buf integer
local function load_created_file(buf)
  if not vim.uv.fs_stat(api.nvim_buf_get_name(buf)) then
    return
  elseif vim.bo[buf].modified then
    note_conflict(buf, KEPT)
    return
  end
  if is_plugins('BufReadCmd', buf) then
    note_conflict(buf, READ_BY_PLUGIN)
    return
  elseif is_left_alone(buf) then
    return
  end
  api.nvim_buf_call(buf, function()
    vim.cmd('silent! keepalt keepjumps edit!')
  end)
end

--- Read the file of the buffer again if it has changed. Never asks; unsaved changes stay.
---@param buf integer
local function reload_if_changed(buf)
  if not vim.bo[buf].modified and is_left_alone(buf) then
    return
  end
  local views, is_only_stamp
  local take_back = answer_for_user(buf, function(reason)
    if reason == 'conflict' then
      note_conflict(buf, KEPT)
    elseif reason == 'changed' and is_plugins('BufReadCmd', buf) then
      note_conflict(buf, READ_BY_PLUGIN)
    elseif reason == 'changed' then
      views = save_views(buf)
      return 'reload'
    end
    is_only_stamp = reason == 'time' or reason == 'mode'
    return ''
  end)
  local autoread = vim.go.autoread
  vim.go.autoread = false -- else it reloads without a word
  local ok, err = pcall(files.reading_plainly, function() -- it reads the file to compare it, too
    vim.cmd('silent! checktime ' .. buf)
  end)
  vim.go.autoread = autoread
  take_back()
  if not ok then
    error(err, 0)
  end
  if is_only_stamp then
    adopt_file(buf)
  elseif views and api.nvim_buf_is_loaded(buf) then
    end_undo_block(buf)
    restore_views(buf, views)
    vim.b[buf].sanderling_differs_on_disk = nil
  end
end

---@param buf integer
local function refresh(buf)
  if is_new(buf) then
    load_created_file(buf)
  else
    reload_if_changed(buf)
  end
end

-- what Python asks for ------------------------------------------------------------------------------------------------

---@type table<string, fun(...): any>
local questions = {}
local ONLY_LOOKS = { find = true, again = true }

--- The loaded buffer of a file, by whatever name it was opened.
---@param path string absolute, what the file is called: it is not looked up, for it may lead elsewhere by now
---@param device integer
---@param inode integer
---@param place string where the file would be, if there is none; then device and inode are its directory's
---@return sanderling.editing.Buffer|false
function questions.find(path, device, inode, place)
  local buf = find_buf(path, device, inode, place)
  return buf ~= nil and describe(buf, path)
end

--- The same buffer as it is now.
---@param buf integer
---@param path string
---@return sanderling.editing.Buffer|false
function questions.again(buf, path)
  return is_file_buffer(buf) and describe(buf, path)
end

---@param buf integer
---@param tick integer
---@param hunks sanderling.editing.Hunk[] in order
---@param tool_use_id string its changes are one undo block, as long as nobody else changes the buffer between them
---@return boolean is_done false: the buffer is no longer what it was
function questions.change(buf, tick, hunks, tool_use_id)
  if not api.nvim_buf_is_loaded(buf) or api.nvim_buf_get_changedtick(buf) ~= tick then
    return false
  end
  for option, value in pairs({ readonly = true, modifiable = false }) do
    if vim.bo[buf][option] == value then
      local words = "%s is locked in Neovim ('%s'). Ask the user to unlock it."
      error(words:format(shown_name(buf), value and option or 'no' .. option), 0)
    end
  end
  local edits, has_end = plan(buf, hunks)
  edits = narrow(edits)
  local last = untouched_change(buf)
  in_undo_block(buf, last ~= nil and last.tool_use_id == tool_use_id, function()
    keeping_selection(buf, function()
      with_modifiers('keepjumps', function()
        apply(buf, edits)
      end)
    end)
    -- Undo does not bring the option back, so it stays where it says nothing.
    if vim.bo[buf].endofline ~= has_end and not is_empty(buf) then
      if #edits == 0 then -- the tick would not tell
        api.nvim_buf_set_text(buf, 0, 0, 0, 0, { '' })
      end
      vim.bo[buf].endofline = has_end
    end
  end)
  last_changes[buf] = { tool_use_id = tool_use_id, tick = api.nvim_buf_get_changedtick(buf) }
  return true
end

--- Let the person's hooks at the buffer (format on save), unless they are typing or selecting in it.
---@param buf integer
---@param path string
---@return sanderling.editing.Buffer|false the person has changed the buffer since, and what they type is theirs to write
function questions.before_write(buf, path)
  if api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified and not untouched_change(buf) then
    expect_write(buf)
    return false
  end
  if api.nvim_buf_is_loaded(buf) and not is_under_hands(buf, NOT_NORMAL) then
    local last = untouched_change(buf)
    in_undo_block(buf, last ~= nil, function()
      run_hooks(buf, 'BufWritePre')
    end)
    if last and api.nvim_buf_is_loaded(buf) then
      last.tick = api.nvim_buf_get_changedtick(buf)
    end
  end
  if not api.nvim_buf_is_loaded(buf) then
    error(('The buffer of %s was closed in Neovim. Read the file again.'):format(path), 0)
  end
  expect_write(buf)
  return describe(buf, path)
end

--- The way in for what needs an answer.
---@param deadline_ms number by the monotonic clock; what comes later, after a prompt, is no longer wanted
---@param question string
---@param ... any its arguments: a path, or a buffer first
---@return sanderling.editing.Answer
function M.answer(deadline_ms, question, ...)
  if vim.uv.hrtime() / 1e6 > deadline_ms then
    return { is_late = true }
  end
  local waits_for = not ONLY_LOOKS[question] and what_is_awaited((...))
  if waits_for then
    return { waits_for = waits_for }
  end
  local ok, value = pcall(questions[question], ...)
  if ok then
    return { value = value }
  end
  waits_for = locked.reason(tostring(value))
  return waits_for and { waits_for = waits_for } or { error = tostring(value) }
end

---@alias sanderling.editing.Written [integer, integer, integer, integer] mtime in seconds and nanoseconds, size, inode

--- Is the file of the buffer still what Python has written?
---@param buf integer
---@param written sanderling.editing.Written
---@return boolean
local function is_as_written(buf, written)
  local stat = vim.uv.fs_stat(api.nvim_buf_get_name(buf))
  return stat ~= nil
    and vim.deep_equal({ stat.mtime.sec, stat.mtime.nsec, stat.size, stat.ino }, written)
end

--- The file holds what the buffer held at `tick`, written by Python. What follows a write follows.
---@param buf integer
---@param tick integer
---@param written sanderling.editing.Written
function M.after_write(buf, tick, written)
  when_possible(buf, function()
    local last = untouched_change(buf)
    if api.nvim_buf_get_changedtick(buf) == tick then
      vim.bo[buf].modified = false
    end
    stop_expecting(buf)
    if is_as_written(buf, written) then
      adopt_file(buf)
    else -- taken for ours, it would be overwritten without a question
      refresh(buf)
    end
    write_undo_file(buf)
    run_hooks(buf, 'BufWritePost')
    if last and api.nvim_buf_is_loaded(buf) then
      last.tick = api.nvim_buf_get_changedtick(buf)
    end
  end)
end

--- The buffer holds at `tick` what it did before a change that could not be written.
---@param buf integer
---@param tick integer
function M.not_written(buf, tick)
  when_possible(buf, function()
    if api.nvim_buf_get_changedtick(buf) == tick then
      vim.bo[buf].modified = false
    end
    stop_expecting(buf)
    refresh(buf)
  end)
end

--- Files have changed on disk: buffers that are not modified show it at once, or when nobody selects in them any more.
---@param paths string[] absolute; none: all
function M.files_changed(paths)
  local changed = {}
  for _, path in ipairs(paths) do
    changed[identity(path) or path] = true
  end
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local is_meant = #paths == 0 or changed[identity(api.nvim_buf_get_name(buf))]
    if is_meant and is_file_buffer(buf) then
      when_possible(buf, refresh, function()
        return not is_under_hands(buf, VISUAL)
      end)
    end
  end
end

return M
