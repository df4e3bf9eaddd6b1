--- The functions and classes that a buffer declares, by its grammar.
local M = {}

local api = vim.api
local enclosing = require('sanderling.code.enclosing')
local names = require('sanderling.code.names')
local time = require('sanderling.ui.time')

local SLICE_MS, PAUSE_MS = 3, 5 -- of walking a tree
local MAX_LISTED = 2000

---@class (exact) sanderling.code.Declared
---@field name string
---@field first integer row
---@field last integer

---@type table<integer, { tick: integer, list: sanderling.code.Declared[] }> by buffer
local known = {}

api.nvim_create_autocmd('BufUnload', {
  group = api.nvim_create_augroup('sanderling_declared', {}),
  desc = 'Agent: forget what the buffer declares',
  callback = function(event)
    known[event.buf] = nil
  end,
})

--- Return the node that names a declaration: its field `name`, or the innermost declarator or left side.
---@param node TSNode
---@return TSNode?
local function naming(node)
  local name = node:field('name')[1]
  if name then
    return name
  end
  local inner = node:field('declarator')[1] or node:field('left')[1] or node:field('definition')[1]
  for child in node:iter_children() do
    inner = inner or child:named() and not child:type():find('comment') and child or nil
  end
  return inner and (naming(inner) or inner)
end

---@param node TSNode
---@param buf integer
---@return sanderling.code.Declared?
local function declared_by(node, buf)
  local is_table = node:type() == 'table_constructor' -- of Lua; it is named like a constructor
  local whole = not is_table and enclosing.declaration(node, (node:start())) or nil
  local name_node = whole and naming(whole)
  local text = name_node and vim.treesitter.get_node_text(name_node, buf) or ''
  local name = names.last(text)
  if not whole or not text:find('^[%w_][^\n]*$') or name:find('%s') then
    return nil
  end
  local first, _, last, last_col = whole:range()
  return { name = name, first = first, last = last_col == 0 and last > first and last - 1 or last }
end

--- List the declarations of a buffer, as far as its grammar knows them.
---@param buf integer
---@param on_list fun(list: sanderling.code.Declared[]) called at once if they are known
---@param is_waiting? boolean list them at once; otherwise between keys
function M.list(buf, on_list, is_waiting)
  local tick = api.nvim_buf_get_changedtick(buf)
  if known[buf] and known[buf].tick == tick then
    return on_list(known[buf].list)
  end
  local parser = names.parser_of(buf)
  local list, seen = {}, {} ---@type sanderling.code.Declared[], table<string, true>
  local function walk(nodes)
    local till = time.now_ms() + SLICE_MS
    while #nodes > 0 and #list < MAX_LISTED do
      local node = table.remove(nodes)
      local found = declared_by(node, buf)
      local id = found and ('%s %d'):format(found.name, found.first)
      if found and not seen[id] then
        seen[id] = true
        list[#list + 1] = found
      end
      for i = node:named_child_count() - 1, 0, -1 do
        nodes[#nodes + 1] = node:named_child(i)
      end
      if not is_waiting and time.now_ms() > till then
        return vim.defer_fn(function()
          if api.nvim_buf_is_loaded(buf) and api.nvim_buf_get_changedtick(buf) == tick then
            walk(nodes)
          end
        end, PAUSE_MS)
      end
    end
    known[buf] = { tick = tick, list = list }
    on_list(list)
  end
  local function begin(_, trees)
    walk(vim.tbl_map(function(tree)
      return tree:root()
    end, vim.tbl_values(trees or {})))
  end
  if not parser then
    begin()
  elseif is_waiting then
    begin(pcall(parser.parse, parser))
  else
    parser:parse(nil, vim.schedule_wrap(begin))
  end
end

return M
