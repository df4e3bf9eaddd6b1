--- Markdown that Neovim's parser is kept from: what others have written must not stall or end the editor.
local M = {}

local MAX_DEPTH = 200 -- of quotes and lists within one another: with 252 the parser writes beyond its memory
local MAX_RUN = 200 -- delimiters in a row, of which each is held against all of the others

local MAX_OPENERS = 500 -- of long strings of Lua, for each of which an end is looked for

--- The most blocks within one another that `line` can be in: each needs a sign, or two columns of the indent.
---@param line string
---@return integer
local function depth_of(line)
  local prefix = line:match('^[%s>%-+*%d.)]*'):gsub('\t', '    ')
  return select(2, prefix:gsub('[%s>]', ''))
end

---@param lines string[]
---@return boolean
function M.is_too_much(lines)
  local openers = 0
  return vim.iter(lines):any(function(line)
    openers = openers + select(2, line:gsub('%[=*%[', ''))
    return openers > MAX_OPENERS
      or depth_of(line) > MAX_DEPTH
      or vim.iter({ '*', '_', '~' }):any(function(delimiter)
        return line:find(delimiter:rep(MAX_RUN), 1, true) ~= nil
      end)
  end)
end

--- Give a buffer the colors of Markdown.
---@param buf integer
function M.start(buf)
  if not M.is_too_much(vim.api.nvim_buf_get_lines(buf, 0, -1, false)) then
    vim.treesitter.start(buf, 'markdown')
  end
end

return M
