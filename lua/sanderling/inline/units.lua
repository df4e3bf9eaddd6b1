--- The lines that an entry of a list is about: those it names, or the statement or definition that begins on its line.
local M = {}

local api = vim.api
local names = require('sanderling.code.names')

local MAX_LINES = 200 -- of a unit; a longer one is changed only on its line

--- Return whether `parent` is a list whose next item begins below `node` in the same column, such as the statements of a block.
---@param parent TSNode
---@param node TSNode
---@return boolean
local function is_list(parent, node)
  local row, col = node:start()
  for each in parent:iter_children() do
    local each_row, each_col = each:start()
    if each:named() and each_row > row and each_col == col then
      return true
    end
  end
  return false
end

---@param buf integer
---@param row integer
---@return integer? last row of the statement or definition that begins on `row`
local function last_row(buf, row)
  local parser = names.parser_of(buf)
  if not parser or not pcall(parser.parse, parser) then
    return nil
  end
  local line = api.nvim_buf_get_lines(buf, row, row + 1, false)[1] or ''
  local col = #line:match('^%s*')
  local node = col < #line and parser:named_node_for_range({ row, col, row, col + 1 }) or nil
  local last ---@type integer?
  while node and node:parent() do
    local first, first_col, end_row, end_col = node:range()
    if first ~= row or first_col ~= col then
      break
    end
    last = end_col == 0 and end_row > row and end_row - 1 or end_row
    if is_list(assert(node:parent()), node) then
      break
    end
    node = node:parent()
  end
  return last
end

--- Return the last line of the unit that begins on line `lnum`.
---@param buf integer
---@param lnum integer
---@return integer
function M.last_line(buf, lnum)
  local last = (last_row(buf, lnum - 1) or lnum - 1) + 1
  local is_small = last - lnum < MAX_LINES and last <= api.nvim_buf_line_count(buf)
  return is_small and math.max(last, lnum) or lnum
end

return M
