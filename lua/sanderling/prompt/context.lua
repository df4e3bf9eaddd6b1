--- The context of a prompt: what goes along with it, and whether it can be sent at all, whole or not.
local M = {}

local MAX_BYTES = 16 * 1024 * 1024 -- the API takes 32 MB a request, and the conversation goes along

local utf8
---@param text string
---@return boolean
local function is_utf8(text)
  if not utf8 then
    local P, R = vim.lpeg.P, vim.lpeg.R
    local tail = R('\128\191')
    local character = R('\0\127')
      + R('\194\223') * tail
      + P('\224') * R('\160\191') * tail
      + (R('\225\236') + R('\238\239')) * tail * tail
      + P('\237') * R('\128\159') * tail
      + P('\240') * R('\144\191') * tail * tail
      + R('\241\243') * tail * tail * tail
      + P('\244') * R('\128\143') * tail * tail
    utf8 = character ^ 0 * -1
  end
  return utf8:match(text) ~= nil
end

--- Join buffer lines into text.
---@param lines string[]
---@param name string of what they are, for the error
---@param first_lnum integer
---@return string? text
---@return string? error why the lines cannot be sent
function M.text(lines, name, first_lnum)
  local size = 0
  for i, line in ipairs(lines) do
    size = size + #line + 1
    local what = line:find('\0', 1, true) and 'a NUL byte'
      or not is_utf8(line) and 'bytes that are not UTF-8'
    if what then
      return nil,
        ('%s holds %s in line %d: nothing was sent'):format(name, what, first_lnum + i - 1)
    end
  end
  if size > MAX_BYTES then
    return nil,
      ('%s has %.1f MB, and at most %d MB can be sent: nothing was sent'):format(
        name,
        size / 1024 / 1024,
        MAX_BYTES / 1024 / 1024
      )
  end
  return table.concat(lines, '\n')
end

--- The words of a prompt.
---@param lines string[]
---@return string? text
---@return string? error
function M.prompt(lines)
  local text, err = M.text(lines, 'The prompt', 1)
  if text and not text:find('%S') then
    return nil, 'The prompt is empty: nothing was sent'
  end
  return text, err
end

--- A command for the shell.
---@param lines string[]
---@return string? text
---@return string? error
function M.command(lines)
  local text, err = M.text(lines, 'The command', 1)
  if text and not text:find('%S') then
    return nil, 'There is no command after the `!`: nothing was run.'
  end
  return text, err
end

--- The lines of a buffer as the user sees them, unsaved text included.
---@param buf integer
---@param first_lnum integer
---@param last_lnum integer
---@param project string root that the path is told from, where it is below it
---@return sanderling.Selection? selection
---@return string? error
function M.selection(buf, first_lnum, last_lnum, project)
  local name = vim.api.nvim_buf_get_name(buf)
  local path = name == '' and '[No Name]' or vim.fs.relpath(project, name) or name
  local lines = vim.api.nvim_buf_get_lines(buf, first_lnum - 1, last_lnum, false)
  local text, err = M.text(lines, path, first_lnum)
  if not text then
    return nil, err
  end
  return {
    path = path,
    first_line = first_lnum,
    last_line = first_lnum + #lines - 1,
    filetype = vim.bo[buf].filetype,
    text = text,
  }
end

return M
