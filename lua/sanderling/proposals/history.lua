--- The undo tree of a buffer, saved while the buffer shows a proposal.
---
--- A proposal is inserted as real lines, so Neovim's undo tree records states that contain them. After the proposal has
--- gone, undo must not return to those states: the lines would look like the user's own. So the tree from before is
--- saved in a file and restored afterwards, with the user's changes since then as one change on top of it.
local M = {}

local api = vim.api
local changes = require('sanderling.editing.changes')
local edits = require('sanderling.editing.hunks')
local find = require('sanderling.editing.find')
local tracker = require('sanderling.review.tracker')
local regions = require('sanderling.review.regions')
local undo = require('sanderling.editing.undo')
local views = require('sanderling.editing.views')

---@class (exact) sanderling.proposals.history.Saved
---@field lines string[] the text that the tree belongs to; empty for an empty buffer
---@field file? string of `:wundo`; nil: there was nothing to undo
---@field last integer number of the last undo state

---@param buf integer
---@return integer last
---@return integer current
---@return boolean has_any
local function tree(buf)
  local found = api.nvim_buf_call(buf, vim.fn.undotree)
  return found.seq_last, found.seq_cur, #found.entries > 0
end

---@param buf integer
---@return string[]
function M.text_of(buf)
  return find.is_empty(buf) and {} or api.nvim_buf_get_lines(buf, 0, -1, true)
end

--- Save the undo tree of a buffer.
---@param buf integer
---@return sanderling.proposals.history.Saved? nil: it could not be saved
function M.save(buf)
  undo.end_block(buf)
  return api.nvim_buf_call(buf, function()
    local last, _, has_any = tree(buf)
    local file = has_any and vim.fn.tempname() or nil
    if file then
      vim.cmd('silent! noautocmd wundo! ' .. vim.fn.fnameescape(file))
    end
    if not file or vim.uv.fs_stat(file) then
      return { lines = M.text_of(buf), file = file, last = last }
    end
  end)
end

---@param saved? sanderling.proposals.history.Saved
function M.drop(saved)
  if saved and saved.file then
    os.remove(saved.file)
  end
end

--- Return whether the undo tree has exactly one new state, which is the current one.
---@param buf integer
---@param saved? sanderling.proposals.history.Saved
---@return boolean
function M.is_one_ahead(buf, saved)
  local last, current = tree(buf)
  return saved ~= nil and last == saved.last + 1 and current == last
end

--- Return whether undo has led to a state from before the tree was saved.
---@param buf integer
---@param saved? sanderling.proposals.history.Saved
---@return boolean
function M.is_before(buf, saved)
  local _, current = tree(buf)
  return saved ~= nil and current <= saved.last
end

--- Replace the text of a buffer by `lines` in one undo block.
---@param buf integer
---@param lines string[]
---@param is_modified boolean 'modified' of the text that undo returns to
function M.set_text(buf, lines, is_modified)
  undo.end_block(buf)
  vim.bo[buf].modified = is_modified
  undo.keeping_selection(buf, function()
    api.nvim_buf_call(buf, function()
      changes.with_modifiers('keepjumps', function()
        changes.apply(buf, edits.narrow({ { row = 0, old = M.text_of(buf), new = lines } }))
      end)
    end)
  end)
  undo.end_block(buf)
end

local function clear()
  local levels = vim.bo.undolevels
  vim.bo.undolevels = -1
  api.nvim_buf_set_text(0, 0, 0, 0, 0, { '' })
  vim.bo.undolevels = levels
end

---@param buf integer
---@param saved sanderling.proposals.history.Saved
local function read_tree(buf, saved)
  api.nvim_buf_call(buf, function()
    local _, current = tree(buf)
    M.set_text(buf, saved.lines, true)
    if saved.file then
      vim.cmd('silent! noautocmd rundo ' .. vim.fn.fnameescape(saved.file))
    else
      clear()
    end
    if current <= saved.last then -- the user went back to it while the change was proposed
      vim.cmd(('silent! noautocmd keepjumps undo %d'):format(current))
    end
  end)
end

--- Restore the tree, and end with the text `own` and its hunks. The caller sets 'modified'.
---@param buf integer
---@param saved? sanderling.proposals.history.Saved
---@param own string[]
---@param is_modified boolean the saved text differs from the file
function M.bring_back(buf, saved, own, is_modified)
  if not saved then
    return
  end
  local self = tracker.follow(buf)
  tracker.settle(self)
  local hunks, shown = regions.copy(self.hunks), views.save(buf)
  read_tree(buf, saved)
  M.drop(saved)
  M.set_text(buf, own, is_modified)
  tracker.exchange_tree(self, saved.last, hunks)
  views.restore(buf, shown)
end

return M
