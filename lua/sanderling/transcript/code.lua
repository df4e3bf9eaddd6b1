--- Highlighting of fenced code whose language has no tree-sitter parser: with Vim's own syntax files, as in a window.
local M = {}

local api = vim.api
local scratch = require('sanderling.ui.scratch')
local time = require('sanderling.ui.time')

local MAX_COLUMNS = 200 -- of a line are highlighted, because the cost of some patterns grows at least quadratically
local FENCE_MS = 20 -- a fence that takes longer stays plain
local MAX_SLOW = 2 -- fences that exceed FENCE_MS before their language is no longer highlighted
local MAX_NAME_BYTES = 40
local MAX_NAMES = 300 -- of languages are remembered: an answer can contain any number

---@type table<string, integer> hidden buffers with the syntax of a filetype
local buffers = {}
---@type table<string, string|false> filetypes by the names in fences
local filetypes = {}
local name_count = 0
---@type table<string, integer> number of fences that took too long, by filetype
local slow = {}

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

--- Return the filetype named by a fence, if it has a syntax file but no parser.
---@param lang string
---@return string|false
local function filetype_of(lang)
  if #lang > MAX_NAME_BYTES or not lang:find('^[%w_%-+#]+$') or has_parser(lang) then
    return false
  end
  local other = vim.filetype.match({ filename = 'a.' .. lang }) or ''
  if other ~= '' and has_parser(other) then
    return false
  end
  return has_syntax(lang) and lang or other ~= '' and has_syntax(other) and other
end

--- Return a hidden buffer with the syntax of `filetype`. It triggers no autocommands, which are for the user's files.
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

--- Call `see` for each word and each punctuation character of a line.
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

--- Call `see` for each highlighted run of a line in the current buffer.
---@param lnum integer
---@param line string
---@param is_spent fun(): boolean returns true when the time is up
---@param see fun(col: integer, end_col: integer, group: string)
local function each_run(lnum, line, is_spent, see)
  local first, behind, id = 0, 0, 0
  local function finish()
    if id ~= 0 then
      see(first, behind, vim.fn.synIDattr(id, 'name'))
    end
  end
  each_token(line, function(col, end_col)
    if is_spent() then
      return
    end
    local here = vim.fn.synID(lnum, col + 1, 1)
    if here ~= id then
      finish()
      first, id = col, here
    end
    behind = end_col
  end)
  finish()
end

---@class (exact) sanderling.transcript.code.Run
---@field index integer of the line
---@field col integer
---@field end_col integer
---@field group string

---@type table<integer, sanderling.transcript.code.Run[]> the fence whose lines a hidden buffer has
local owners = {}

--- Return the highlighted runs of `lines`, or none if that takes too long. A language that is too slow twice is no
--- longer highlighted.
---@param piece sanderling.transcript.paint.Piece
---@param buf integer
---@param filetype string
---@param lines string[]
---@return sanderling.transcript.code.Run[]
local function runs_of(piece, buf, filetype, lines)
  local runs, spent_s = {}, 0
  lines = vim.tbl_map(function(line)
    return line:sub(1, MAX_COLUMNS)
  end, lines)
  for i, line in ipairs(lines) do
    local began, is_spent = time.clock(), time.budget(FENCE_MS)
    if owners[buf] ~= runs then -- another fence of this language was highlighted between two slices
      owners[buf] = runs
      api.nvim_buf_set_lines(buf, 0, -1, false, lines)
    end
    api.nvim_buf_call(buf, function()
      each_run(i, line, is_spent, function(col, end_col, group)
        runs[#runs + 1] = { index = i, col = col, end_col = end_col, group = group }
      end)
    end)
    spent_s = spent_s + time.clock() - began
    if spent_s > FENCE_MS / 1000 then
      slow[filetype] = (slow[filetype] or 0) + 1
      return {}
    end
    piece:rest()
  end
  return runs
end

--- Return the filetype of a fence, or nil if it is not highlighted.
---@param lang string
---@return string?
local function known_filetype(lang)
  if filetypes[lang] == nil and name_count < MAX_NAMES then
    filetypes[lang], name_count = filetype_of(lang), name_count + 1
  end
  local filetype = vim.g.syntax_on and filetypes[lang]
  return filetype and (slow[filetype] or 0) < MAX_SLOW and filetype or nil
end

--- Highlight the code of a fence. `node` contains its language.
---@param piece sanderling.transcript.paint.Piece
---@param node TSNode
function M.paint(piece, node)
  local filetype = known_filetype(vim.treesitter.get_node_text(node, piece.text):lower())
  local buf = filetype and buffer_for(filetype) or nil
  local block = assert(assert(node:parent()):parent())
  for child in block:iter_children() do
    if buf and child:type() == 'code_fence_content' then
      local first, _, last, last_col = child:range()
      local behind = last_col > 0 and last + 1 or last
      local lines = vim.list_slice(piece.lines, first + 1, behind)
      for _, run in ipairs(runs_of(piece, buf, assert(filetype), lines)) do
        local row = first + run.index - 1
        piece:mark(row, run.col, row, run.end_col, { hl_group = run.group, priority = 101 })
      end
    end
  end
end

return M
