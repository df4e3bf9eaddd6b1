--- Limits on the text that Neovim's parsers get: text from others must not freeze or crash the editor.
---
--- A parse cannot be interrupted: tree-sitter checks its time limit between its steps, and one step took 47 s on 0.12
--- (`*a **b ` in 32 kB), 0.9 s on 0.11. So text is parsed in small pieces, and constructs that cost more than their
--- length are counted first. At these limits the worst case found takes 20 ms; ordinary text is far below them.
local M = {}

local words = require('sanderling.ui.words')

M.MAX_BYTES = 8192 -- of a piece: 40 lines of prose or code have 3,000
local MAX_CODE_BYTES = 64 * 1024 -- of a piece with code, on a page that the user opened
local MAX_SIGNS = 600 -- in prose: each possible delimiter is compared with those before it
local MAX_EMPHASES = 300 -- of the most expensive delimiters: 12 s for 9,000
local MAX_UNCLOSED = 8 -- brackets in prose: with emphasis between 20 of them, each more doubles the time
local MAX_NESTING = 100 -- of brackets in code: each node is searched from the root
local MAX_DEPTH = 200 -- of nested quotes and lists: with 252 the parser writes out of bounds
local MAX_RUN = 200 -- delimiters in a row: each is compared with all others
local MAX_DOCUMENTS = 8 -- in fences: each is parsed again, with the fences in it
local MAX_EXCESS = 400 -- of operators over words: a parser tries everything on code that makes no sense
local MAX_OPENERS = 500 -- of long strings in Lua: the end of each is searched

--- Return the most nested blocks that `line` can be in: each needs a sign, or two columns of indent.
---@param line string
---@return integer
local function depth_of(line)
  local prefix = line:match('^[%s>%-+*%d.)]*'):gsub('\t', '    ')
  return select(2, prefix:gsub('[%s>]', ''))
end

---@param line string
---@return boolean
local function has_long_run(line)
  return vim.iter({ '*', '_', '~', '`' }):any(function(delimiter)
    return line:find(delimiter:rep(MAX_RUN), 1, true) ~= nil
  end)
end

--- Count the signs in a line of prose; repetitions in a row count once.
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

--- Return how many brackets are open after `line`, at most one more than allowed.
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

--- Return how many fences of a language with fences of its own `line` could open, also in a quote or a list.
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

--- Return how many operators a line of code has beyond its words. A run of one operator counts little.
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

--- Return how many square brackets are open at most in a line of prose, and how many behind it.
---@param line string
---@param open integer before it
---@return integer
---@return integer
local function unclosed_in(line, open)
  local most = open
  for bracket in line:gmatch('[%[%]]') do
    open = math.max(0, open + (bracket == '[' and 1 or -1))
    most = math.max(most, open)
  end
  return most, line:find('^%s*$') and 0 or open
end

--- Does code nest so deeply that finding its nodes is slow?
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
  local unclosed = 0
  for _, line in ipairs(lines) do
    local before, most_unclosed = fence, 0
    fence = words.fence_behind(line, fence)
    bytes = bytes + #line + 1
    openers = openers + select(2, line:gsub('%[=*%[', ''))
    documents = documents + documents_begun_by(line)
    if before and fence then
      open = nesting_behind(line, open)
      excess = math.max(0, excess + excess_in(line))
      unclosed = 0
    else
      open = 0
      most_unclosed, unclosed = unclosed_in(line, unclosed)
      signs = signs + count(line, { '`+', '[%[!<$&\\]' })
      emphases = emphases + count(line, { '%*+', '_+', '~+' })
    end
    if
      bytes > (max_bytes or M.MAX_BYTES)
      or openers > MAX_OPENERS
      or documents > MAX_DOCUMENTS
      or open > MAX_NESTING
      or excess > MAX_EXCESS
      or most_unclosed > MAX_UNCLOSED
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

--- Is any paragraph or fence too much? They are parsed one by one.
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

---@param buf integer
function M.start(buf)
  if not M.has_too_much(vim.api.nvim_buf_get_lines(buf, 0, -1, false)) then
    vim.treesitter.start(buf, 'markdown')
  end
end

return M
