--- Keys that answer a question from any window. They are set while a question is pending, where the user has not mapped them.
local M = {}

local queue = require('sanderling.approval.queue')
local ui_keys = require('sanderling.ui.keys')

---@type [string, string][] mode and key of each map
local given = {}

---@class (exact) sanderling.approval.anywhere.Action
---@field option string of the keys
---@field word string
---@field run fun()

---@type sanderling.approval.anywhere.Action[]
local actions = {}

---@param list sanderling.approval.anywhere.Action[]
function M.register(list)
  actions = list
end

local function take_away()
  for _, map in ipairs(given) do
    local mode, lhs = unpack(map)
    if vim.startswith(vim.fn.maparg(lhs, mode, false, true).desc or '', 'Agent: ') then
      pcall(vim.keymap.del, mode, lhs)
    end
  end
  given = {}
end

---@param option string
---@return string[]
local function modes_of(option)
  return vim.split(ui_keys.modes_of(option, 'anywhere'), '')
end

local function give()
  for _, action in ipairs(actions) do
    for _, lhs in ipairs(ui_keys.of(action.option)) do
      for _, mode in ipairs(modes_of(action.option)) do
        if not ui_keys.is_taken(mode, lhs) then
          vim.keymap.set(mode, lhs, action.run, { desc = 'Agent: ' .. action.word })
          given[#given + 1] = { mode, lhs }
        end
      end
    end
  end
end

--- Set the keys while a question is pending.
function M.update()
  local is_asked = #queue.list() > 0
  if is_asked and #given == 0 then
    give()
  elseif not is_asked then
    take_away()
  end
end

---@param lhs? string
---@param option string
---@return boolean it is set in all its modes
local function is_given(lhs, option)
  local count = #vim.tbl_filter(function(map)
    return map[2] == lhs
  end, given)
  return count > 0 and count == #modes_of(option)
end

--- Return the first key of an option if it is set, as the user types it.
---@param option string
---@return string?
function M.key_of(option)
  local lhs = ui_keys.of(option)[1]
  return is_given(lhs, option) and lhs or nil
end

--- Return the keys that are set and what they do.
---@param words table<string, string|false> by option, where a key does something else, or nothing
---@return string
function M.describe(words)
  local parts = {}
  for _, action in ipairs(actions) do
    local lhs, word = M.key_of(action.option), words[action.option]
    if lhs and word ~= false then
      parts[#parts + 1] = ('%s %s'):format(lhs, word or action.word)
    end
  end
  return table.concat(parts, '  ')
end

return M
