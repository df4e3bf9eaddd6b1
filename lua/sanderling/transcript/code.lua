--- Code in a fence whose language has no tree-sitter parser here: in the colors of Vim's own syntax files, as the same text would
--- have in a window.
local M = {}

local api = vim.api
local scratch = require('sanderling.ui.scratch')

---@type table<string, integer> buffers with the syntax of a filetype
local buffers = {}
---@type table<string, string|false> filetypes by the names that fences have
local filetypes = {}

---@param lang string
---@return boolean
local function has_parser(lang)
  local name = vim.treesitter.language.get_lang(lang) or lang
  local ok, added = pcall(vim.treesitter.language.add, name)
  return ok and added or false
end

---@param name string of a filetype
---@return boolean
local function has_syntax(name)
  return #api.nvim_get_runtime_file(('syntax/%s.vim'):format(name), false) > 0
end

--- The filetype that a fence names, if it has a syntax file and no parser.
---@param lang string
---@return string|false
local function filetype_of(lang)
  if not lang:find('^[%w_%-+#]+$') or has_parser(lang) then
    return false
  end
  local other = vim.filetype.match({ filename = 'a.' .. lang }) or ''
  if other ~= '' and has_parser(other) then
    return false
  end
  return has_syntax(lang) and lang or other ~= '' and has_syntax(other) and other
end

--- A buffer that nobody sees, with the syntax of `filetype`. Autocommands are left out: they are about files of the person's.
---@param filetype string
---@return integer?
local function buffer_for(filetype)
  local buf = buffers[filetype]
  if buf and api.nvim_buf_is_loaded(buf) then
    return buf
  end
  scratch.quietly(function()
    buf = api.nvim_create_buf(false, true)
    api.nvim_buf_call(buf, function()
      vim.cmd(('silent! runtime! syntax/%s.vim'):format(filetype))
    end)
  end)
  buffers[filetype] = buf
  return buf
end

--- Go through the words and signs of a line.
---@param line string
---@param see fun(col: integer, end_col: integer)
local function each_token(line, see)
  local at = 1
  while at <= #line do
    local first, last = line:find('^[%w_\128-\255]+', at)
    if not first then
      first, last = line:find('^%s+', at)
      if not first then
        see(at - 1, at)
      end
    else
      see(first - 1, last)
    end
    at = (last or at) + 1
  end
end

--- The runs of a line that have a group, for the buffer that is current.
---@param lnum integer
---@param line string
---@param see fun(col: integer, end_col: integer, group: string)
local function each_run(lnum, line, see)
  local first, behind, id = 0, 0, 0
  local function finish()
    if id ~= 0 then
      see(first, behind, vim.fn.synIDattr(id, 'name'))
    end
  end
  each_token(line, function(col, end_col)
    local here = vim.fn.synID(lnum, col + 1, 1)
    if here ~= id then
      finish()
      first, id = col, here
    end
    behind = end_col
  end)
  finish()
end

--- Color the code of the fence that `node` names the language of.
---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
function M.paint(piece, node)
  local lang = vim.treesitter.get_node_text(node, piece.text):lower()
  if filetypes[lang] == nil then
    filetypes[lang] = filetype_of(lang)
  end
  local filetype = vim.g.syntax_on and filetypes[lang]
  local buf = filetype and buffer_for(filetype) or nil
  local block = assert(assert(node:parent()):parent())
  for child in block:iter_children() do
    if buf and child:type() == 'code_fence_content' then
      local first, _, last, last_col = child:range()
      local behind = last_col > 0 and last + 1 or last
      local lines = vim.list_slice(piece.lines, first + 1, behind)
      api.nvim_buf_set_lines(buf, 0, -1, false, lines)
      api.nvim_buf_call(buf, function()
        for i, line in ipairs(lines) do
          each_run(i, line, function(col, end_col, group)
            local row = first + i - 1
            piece:mark(row, col, row, end_col, { hl_group = group, priority = 101 })
          end)
        end
      end)
    end
  end
end

return M
