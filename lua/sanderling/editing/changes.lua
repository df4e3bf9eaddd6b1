--- Changing lines in place, so that marks, cursors and LSP clients see only what differs.
local M = {}

local api = vim.api
local find = require('sanderling.editing.find')

local MAX_PAIRED_LINES = 200 -- of a change; each is an event for every LSP client, which then copies the buffer

---@type fun()? what `M.run_due` will run
local due

--- Run `fn` under modifiers of Ex commands, which apply to what :lua runs.
---@param modifiers string
---@param fn fun()
function M.with_modifiers(modifiers, fn)
  due = fn
  vim.cmd(modifiers .. " lua require('sanderling.editing.changes').run_due()")
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

--- Change only the part of the line that differs.
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
  M.with_modifiers('keepjumps lockmarks', function() -- otherwise the line's own marks are lost
    api.nvim_buf_set_text(buf, row, head, row, #old - tail, { text })
  end)
end

--- Change as many lines in place as there are old ones, then delete or insert the rest.
---@param buf integer
---@param edits sanderling.editing.Edit[] in order
function M.apply(buf, edits)
  local paired = 0
  for _, edit in ipairs(edits) do
    paired = paired + math.min(#edit.old, #edit.new)
  end
  for n = #edits, 1, -1 do
    local edit = edits[n]
    local kept = paired <= MAX_PAIRED_LINES and math.min(#edit.old, #edit.new) or 0
    if find.is_empty(buf) then -- in one step it would stay empty if the new text is one empty line
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

return M
