--- Buffers of files, as the file tools see and change them: the half of src/sanderling/editor/buffers.py that Neovim runs.
---
--- A person's work stays intact:
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

--- Call a function each time an edit of the agent's has changed lines.
M.on_change = listeners.on_change

local VISUAL = '^[vVsS\22\19]' -- patterns of modes
local NOT_NORMAL = '^[^n]'

-- questions -----------------------------------------------------------------------------------------------------------

--- The loaded buffer of a file, by whatever name it was opened.
---@param path string absolute, what the file is called: it is not looked up, for it may lead elsewhere by now
---@param device integer
---@param inode integer
---@param place string where the file would be, if there is none; then device and inode are its directory's
---@return sanderling.editing.Buffer|false
local function find_buffer(path, device, inode, place)
  local buf = find.buffer_of(path, device, inode, place)
  return buf ~= nil and find.describe(buf, path)
end

--- The buffer as it is now.
---@param buf integer
---@param path string
---@return sanderling.editing.Buffer|false
local function look_again(buf, path)
  return find.is_file_buffer(buf) and find.describe(buf, path)
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
      -- Undo does not bring the option back, so it stays where it says nothing.
      if vim.bo[buf].endofline ~= has_end and not find.is_empty(buf) then
        if #edits == 0 then -- the tick would not tell
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
---@param tool_use_id string its changes are one undo block, as long as nobody else changes the buffer between them
---@return boolean is_done false: the buffer is no longer what it was
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
    disk.expect_write(buf) -- undo runs no hooks, so that nothing else says it before the write
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

--- Let the person's hooks at the buffer (format on save), unless they are typing or selecting in it.
---@param buf integer
---@param path string
---@return sanderling.editing.Buffer|false the person has changed the buffer since, and what they type is theirs to write
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

--- The way in for what needs an answer.
M.answer = door.serve({
  find = { answer = find_buffer },
  open = {
    answer = function(...)
      return reviews.loaded().open(...)
    end,
  },
  again = { answer = look_again },
  change = { answer = change, what_is_awaited = busy.what_is_awaited },
  before_write = { answer = before_write, what_is_awaited = busy.what_is_awaited },
})

-- what follows --------------------------------------------------------------------------------------------------------

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
    else -- taken for ours, it would be overwritten without a question
      disk.refresh(buf)
    end
    disk.write_undo_file(buf)
    disk.run_hooks(buf, 'BufWritePost')
    if last and api.nvim_buf_is_loaded(buf) then
      last.tick = api.nvim_buf_get_changedtick(buf)
    end
  end)
end

--- The buffer holds at `tick` what it did before a change that could not be written.
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

--- Files have changed on disk: buffers that are not modified show it at once, or when nobody selects in them any more.
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

--- A tool has changed a file, and no buffer: what one reads of it now is the tool's work.
---@param path string absolute
---@param counts [integer, integer, integer][] of hunks: the first line from 0, how many went, how many came
---@param tool_use_id string
function M.changed_on_disk(path, counts, tool_use_id)
  M.files_changed({ path }, tool_use_id)
  if package.loaded['vim.lsp'] then
    servers.tell({ { path, 'created' }, { path, 'changed' } }) -- the host does not say which
  end
  local parts = {} ---@type sanderling.editing.Part[]
  for i, each in ipairs(counts) do
    parts[i] = { row = each[1], old_count = each[2], new_count = each[3] }
  end
  listeners.tell(path, nil, tool_use_id, parts)
end

return M
