--- Buffers of files as the file tools see and change them: Neovim's half of src/sanderling/editor/buffers.py.
---
--- The user's work stays intact:
---
--- Undo. `:let &l:undolevels = &l:undolevels` ends the open undo block in any mode: before a change, so that it does not join what the
--- user just typed, and after it. The changes of one tool use are joined while nothing else changes the buffer.
---
--- Writing. Python writes the file, inside the sandbox. Afterwards `:write` runs here with a BufWriteCmd autocommand that writes
--- nothing, so Neovim takes the file's current time and size for those it has read: no W11, no W12, no "changed since reading", no E13.
--- Unlike a real write it does not mark older undo states as modified. So a buffer is marked as modified before it is changed, and
--- undoing a written change makes it modified, as it must.
---
--- Waiting. Where a change would fail or harm (a pending operator, a prompt, textlock), nothing is done: Python asks again until its
--- deadline, and steps that must happen (`after_write`, `files_changed`) are retried here.
local M = {}

local api = vim.api
local busy = require('sanderling.editing.busy')
local changes = require('sanderling.editing.changes')
local disk = require('sanderling.editing.disk')
local door = require('sanderling.host.door')
local find = require('sanderling.editing.find')
local hunks = require('sanderling.editing.hunks')
local lazy = require('sanderling.ui.lazy')
local listeners = require('sanderling.editing.listeners')
local reviews = require('sanderling.editing.reviews')
local servers = lazy('sanderling.editing.servers')
local undo = require('sanderling.editing.undo')

--- Call a function each time an edit by the agent has changed lines.
M.on_change = listeners.on_change

local VISUAL = '^[vVsS\22\19]' -- patterns of modes
local NOT_NORMAL = '^[^n]'

-- requests ------------------------------------------------------------------------------------------------------------

--- Find the loaded buffer of a file, under any of its names.
---@param path string absolute; not looked up, as it may lead elsewhere by now
---@param device integer
---@param inode integer
---@param place string where the file would be, if there is none; then device and inode are its directory's
---@return sanderling.editing.Buffer|false
local function find_buffer(path, device, inode, place)
  local buf = find.buffer_of(path, device, inode, place)
  return buf ~= nil and find.describe(buf, path)
end

---@param buf integer
---@param path string
---@return sanderling.editing.Buffer|false
local function look_again(buf, path)
  return find.is_file_buffer(buf) and find.describe(buf, path)
end

--- Return the names of files whose buffers have unsaved changes.
---@return string[]
local function unsaved()
  local names = {}
  for _, buf in ipairs(api.nvim_list_bufs()) do
    if vim.bo[buf].modified and find.is_file_buffer(buf) then
      names[#names + 1] = api.nvim_buf_get_name(buf)
    end
  end
  return names
end

--- Write a buffer as the user does, who has agreed to it: with their hooks, and with Neovim's question if the file is newer.
---@param path string from `unsaved`
---@return string problem or ''
local function save(path)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    if api.nvim_buf_get_name(buf) == path and find.is_file_buffer(buf) then
      local ok, err = pcall(api.nvim_buf_call, buf, function()
        vim.cmd('silent lockmarks keepalt write')
      end)
      return ok and '' or (tostring(err):gsub('^.-(E%d+:)', '%1'):gsub('\n.*', ''))
    end
  end
  return 'it is no longer open'
end

---@param edit sanderling.editing.Edit
---@return sanderling.editing.Part
local function part_of(edit)
  return { row = edit.row, old_count = #edit.old, new_count = #edit.new, old = edit.old }
end

---@param buf integer
---@param replacements sanderling.editing.Hunk[] in order
---@param tool_use_id string
---@return boolean is_done
local function make_change(buf, replacements, tool_use_id)
  local edits, has_end = hunks.plan(buf, replacements)
  edits = hunks.narrow(edits)
  local last = undo.untouched_change(buf)
  listeners.changing(buf, tool_use_id, function()
    undo.in_block(buf, last ~= nil and last.tool_use_id == tool_use_id, function()
      undo.keeping_selection(buf, function()
        changes.with_modifiers('keepjumps', function()
          changes.apply(buf, edits)
        end)
      end)
      -- Undo does not restore the option, so it is not set where it has no meaning.
      if vim.bo[buf].endofline ~= has_end and not find.is_empty(buf) then
        if #edits == 0 then -- otherwise the tick stays the same
          api.nvim_buf_set_text(buf, 0, 0, 0, 0, { '' })
        end
        vim.bo[buf].endofline = has_end
      end
    end)
  end)
  undo.remember_change(buf, tool_use_id)
  listeners.tell(api.nvim_buf_get_name(buf), buf, tool_use_id, vim.tbl_map(part_of, edits))
  return true
end

---@param buf integer
---@param tick integer
---@param replacements sanderling.editing.Hunk[] in order
---@param tool_use_id string its changes are one undo block, unless something else changes the buffer in between
---@return boolean is_done false: the buffer has changed
local function change(buf, tick, replacements, tool_use_id)
  if not api.nvim_buf_is_loaded(buf) or api.nvim_buf_get_changedtick(buf) ~= tick then
    return false
  end
  for option, value in pairs({ readonly = true, modifiable = false }) do
    if vim.bo[buf][option] == value then
      local words = "%s is locked in Neovim ('%s'). Ask the user to unlock it."
      error(words:format(disk.shown_name(buf), value and option or 'no' .. option), 0)
    end
  end
  if listeners.is_restoring(tool_use_id) and not vim.bo[buf].modified then
    disk.expect_write(buf) -- undo runs no hooks, so nothing else calls this before the write
  end
  local parts = reviews.now.accepted(buf, replacements, tool_use_id)
  if parts then
    undo.remember_change(buf, tool_use_id)
    listeners.tell(api.nvim_buf_get_name(buf), buf, tool_use_id, parts)
    return true
  end
  return reviews.now.aside(buf, function()
    return make_change(buf, replacements, tool_use_id)
  end)
end

--- Run the user's hooks on the buffer (format on save), unless they are typing or selecting in it.
---@param buf integer
---@param path string
---@return sanderling.editing.Buffer|false false: the user has changed the buffer since, so they will write it
local function before_write(buf, path)
  if api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified and not undo.untouched_change(buf) then
    disk.expect_write(buf)
    return false
  end
  if api.nvim_buf_is_loaded(buf) and not undo.is_under_hands(buf, NOT_NORMAL) then
    local last = undo.untouched_change(buf)
    undo.in_block(buf, last ~= nil, function()
      reviews.now.aside(buf, function()
        disk.run_hooks(buf, 'BufWritePre')
      end)
    end)
    if last and api.nvim_buf_is_loaded(buf) then
      last.tick = api.nvim_buf_get_changedtick(buf)
    end
  end
  if not api.nvim_buf_is_loaded(buf) then
    error(('The buffer of %s was closed in Neovim. Read the file again.'):format(path), 0)
  end
  disk.expect_write(buf)
  return find.describe(buf, path)
end

--- The entry point for requests that need an answer.
M.answer = door.serve({
  find = { answer = find_buffer },
  open = {
    answer = function(...)
      return reviews.loaded().open(...)
    end,
  },
  again = { answer = look_again },
  unsaved = { answer = unsaved },
  save = {
    answer = save,
    what_is_awaited = function()
      return busy.what_is_awaited(0)
    end,
  },
  change = { answer = change, what_is_awaited = busy.what_is_awaited },
  before_write = { answer = before_write, what_is_awaited = busy.what_is_awaited },
})

-- notifications -------------------------------------------------------------------------------------------------------

---@alias sanderling.editing.Written [integer, integer, integer, integer] mtime in seconds and nanoseconds, size, inode

---@param buf integer
---@param written sanderling.editing.Written
---@return boolean
local function is_as_written(buf, written)
  local stat = vim.uv.fs_stat(api.nvim_buf_get_name(buf))
  return stat ~= nil
    and vim.deep_equal({ stat.mtime.sec, stat.mtime.nsec, stat.size, stat.ino }, written)
end

--- Python has written the file with the buffer's content at `tick`: do what follows a write.
---@param buf integer
---@param tick integer
---@param written sanderling.editing.Written
function M.after_write(buf, tick, written)
  if is_as_written(buf, written) then
    disk.decline_overwriting(buf)
  end
  busy.when_possible(buf, function()
    local last = undo.untouched_change(buf)
    if api.nvim_buf_get_changedtick(buf) == tick then
      vim.bo[buf].modified = false
    end
    disk.stop_expecting(buf)
    if is_as_written(buf, written) then
      disk.adopt_file(buf)
    else -- adopting it would let it be overwritten without a question
      disk.refresh(buf)
    end
    disk.write_undo_file(buf)
    disk.run_hooks(buf, 'BufWritePost')
    if last and api.nvim_buf_is_loaded(buf) then
      last.tick = api.nvim_buf_get_changedtick(buf)
    end
  end)
end

--- A change could not be written. At `tick` the buffer has its content from before that change.
---@param buf integer
---@param tick integer
function M.not_written(buf, tick)
  busy.when_possible(buf, function()
    if api.nvim_buf_get_changedtick(buf) == tick then
      vim.bo[buf].modified = false
    end
    disk.stop_expecting(buf)
    disk.refresh(buf)
  end)
end

--- Files have changed on disk: unmodified buffers show it at once, or when the user's selection ends.
---@param paths string[] absolute; none: all
---@param tool_use_id? string that has changed them
function M.files_changed(paths, tool_use_id)
  local hidden = package.loaded['sanderling.editing.hidden']
  if hidden then
    hidden.drop_stale()
  end
  local changed = {}
  for _, path in ipairs(paths) do
    changed[find.identity(path) or path] = true
  end
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local name = api.nvim_buf_get_name(buf)
    local is_meant = #paths == 0 or changed[find.identity(name) or name]
    if is_meant and (find.is_file_buffer(buf) or disk.may_be_left_alone(buf)) then
      busy.when_possible(buf, function()
        local function read()
          reviews.now.reading(buf, disk.refresh)
        end
        if tool_use_id and not vim.bo[buf].modified then
          listeners.changing(buf, tool_use_id, read)
        else
          read()
        end
      end, function()
        return not undo.is_under_hands(buf, VISUAL)
      end)
    end
  end
end

--- A tool has changed a file without a buffer: buffers that read it now contain the tool's changes.
---@param path string absolute
---@param counts [integer, integer, integer][] of hunks: first line from 0, lines removed, lines added
---@param tool_use_id string
function M.changed_on_disk(path, counts, tool_use_id)
  M.files_changed({ path }, tool_use_id)
  if package.loaded['vim.lsp'] then
    servers.tell({ { path, 'created' }, { path, 'changed' } }) -- the host does not report which
  end
  local parts = {} ---@type sanderling.editing.Part[]
  for i, each in ipairs(counts) do
    parts[i] = { row = each[1], old_count = each[2], new_count = each[3] }
  end
  listeners.tell(path, nil, tool_use_id, parts)
end

return M
