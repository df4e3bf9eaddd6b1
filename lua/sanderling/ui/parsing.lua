--- Text that Neovim's parsers are kept from: what others have written must not stall or end the editor.
---
--- A parse cannot be interrupted: the limits of time that tree-sitter has are looked at between its steps, and one of those took 47 s
--- on 0.12 (`*a **b ` in 32 kB), 0.9 s on 0.11. So what is parsed at once is small, and what costs more than its length says is
--- counted beforehand. At these limits the worst that was found takes 20 ms; text that people write is far from them.
local M = {}

local words = require('sanderling.ui.words')

M.MAX_BYTES = 8192 -- of a piece: 40 lines of prose or code have 3,000
local MAX_CODE_BYTES = 64 * 1024 -- of a page that was asked for, in a fence
local MAX_SIGNS = 600 -- in prose, that could begin or end something: each is held against those before it
local MAX_EMPHASES = 300 -- likewise, of those that take most: 12 s for 9,000
local MAX_NESTING = 100 -- of brackets in code: each node is looked for from the root on
local MAX_DEPTH = 200 -- of quotes and lists within one another: with 252 the parser writes beyond its memory
local MAX_RUN = 200 -- delimiters in a row, of which each is held against all of the others
local MAX_DOCUMENTS = 8 -- in fences: all that is in one is parsed again, and what is in a fence there once more
local MAX_EXCESS = 400 -- of operators over words: a parser that finds no sense in code tries all that it could be
local MAX_OPENERS = 500 -- of long strings of Lua, for each of which an end is looked for

--- The most blocks within one another that `line` can be in: each needs a sign, or two columns of the indent.
---@param line string
---@return integer
local function depth_of(line)
  local prefix = line:match('^[%s>%-+*%d.)]*'):gsub('\t', '    ')
  return select(2, prefix:gsub('[%s>]', ''))
end

---@param line string
---@return boolean
local function has_long_run(line)
  return vim.iter({ '*', '_', '~' }):any(function(delimiter)
    return line:find(delimiter:rep(MAX_RUN), 1, true) ~= nil
  end)
end

--- Count the signs in a line of prose; the same one some times in a row is one.
---@param line string
---@param signs string[] patterns
---@return integer
local function count(line, signs)
  local found = 0
  for _, sign in ipairs(signs) do
    found = found + select(2, line:gsub(sign, ''))
  end
  return found
end

--- The brackets that are open behind `line`, or one more than there may be.
---@param line string
---@param open integer before it
---@return integer
local function nesting_behind(line, open)
  for bracket in line:gmatch('[][(){}]') do
    open = math.max(0, open + (bracket:find('[[({]') and 1 or -1))
    if open > MAX_NESTING then
      break
    end
  end
  return open
end

--- The fences that `line` could open in a quote or a list, too, whose language is one in which there are fences again.
---@param line string
---@return integer
local function documents_begun_by(line)
  local found = 0
  for fence, name in line:gmatch('([`~]+)[%s{.]*([%w_]*)') do
    if #fence >= 3 and name ~= '' then
      local lang = vim.treesitter.language.get_lang(name:lower()) or name:lower()
      found = found + ((vim.startswith(lang, 'markdown') or lang == 'vimdoc') and 1 or 0)
    end
  end
  return found
end

--- The operators in a line of code beyond its words, of which most have none; a line across is few.
---@param line string
---@return integer
local function excess_in(line)
  for _ = 1, 3 do
    line = line:gsub('([^%w%s])%1', '%1')
  end
  local _, words_there = line:gsub('[%w_]+', '')
  local _, operators = line:gsub('[^%w%s_()%[%]{},;.:"\']', '')
  local _, brackets = line:gsub('[()%[%]{},;.:"\']', '')
  return math.max(operators - words_there, math.floor(brackets / 4) - words_there)
end

--- Does code nest so deeply that each of its nodes is found late?
---@param lines string[]
---@return boolean
function M.nests_too_deeply(lines)
  local open = 0
  return vim.iter(lines):any(function(line)
    open = open > MAX_NESTING and open or nesting_behind(line, open)
    return open > MAX_NESTING
  end)
end

---@param lines string[]
---@param fence? string the line that opened the code fence in which they begin
---@param max_bytes? integer
---@return boolean
function M.is_too_much(lines, fence, max_bytes)
  local bytes, signs, emphases, openers, open, documents, excess = 0, 0, 0, 0, 0, 0, 0
  for _, line in ipairs(lines) do
    local before = fence
    fence = words.fence_behind(line, fence)
    bytes = bytes + #line + 1
    openers = openers + select(2, line:gsub('%[=*%[', ''))
    documents = documents + documents_begun_by(line)
    if before and fence then
      open = nesting_behind(line, open)
      excess = math.max(0, excess + excess_in(line))
    else
      open = 0
      signs = signs + count(line, { '`+', '[%[!<$&\\]' })
      emphases = emphases + count(line, { '%*+', '_+', '~+' })
    end
    if
      bytes > (max_bytes or M.MAX_BYTES)
      or openers > MAX_OPENERS
      or documents > MAX_DOCUMENTS
      or open > MAX_NESTING
      or excess > MAX_EXCESS
      or signs > MAX_SIGNS
      or emphases > MAX_EMPHASES
      or depth_of(line) > MAX_DEPTH
      or has_long_run(line)
    then
      return true
    end
  end
  return false
end

--- Is any paragraph or fence too much? They are parsed one by one, by what shows them.
---@param lines string[]
---@return boolean
function M.has_too_much(lines)
  local piece, fence, has_code = {}, nil, false ---@type string[], string?, boolean
  for i, line in ipairs(lines) do
    piece[#piece + 1] = line
    fence = words.fence_behind(line, fence)
    has_code = has_code or fence ~= nil
    if line == '' and not fence or i == #lines then
      if M.is_too_much(piece, nil, has_code and MAX_CODE_BYTES or nil) then
        return true
      end
      piece, has_code = {}, false
    end
  end
  return false
end

--- Give a buffer the colors of Markdown.
---@param buf integer
function M.start(buf)
  if not M.has_too_much(vim.api.nvim_buf_get_lines(buf, 0, -1, false)) then
    vim.treesitter.start(buf, 'markdown')
  end
end

return M
