--- Checks and limits for what is sent with a prompt.
local M = {}

local MAX_BYTES = 16 * 1024 * 1024 -- the API accepts 32 MB per request, including the conversation

--- Return the path of a buffer's file as the model reads it.
---@param buf integer
---@param project string root of the project; paths below it are relative
---@return string
function M.path_of(buf, project)
  local name = vim.api.nvim_buf_get_name(buf)
  return name == '' and '[No Name]' or vim.fs.relpath(project, name) or name
end

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

--- Join lines into a text that can be sent.
---@param lines string[]
---@param name string of the lines, for error messages
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
        ('%s contains %s in line %d. Nothing was sent.'):format(name, what, first_lnum + i - 1)
    end
  end
  if size > MAX_BYTES then
    return nil,
      ('%s is too large: %.1f MB, at most %d MB. Nothing was sent.'):format(
        name,
        size / 1024 / 1024,
        MAX_BYTES / 1024 / 1024
      )
  end
  return table.concat(lines, '\n')
end

--- Return the text of a prompt.
---@param lines string[]
---@return string? text
---@return string? error
function M.prompt(lines)
  local text, err = M.text(lines, 'The prompt', 1)
  if text and not text:find('%S') then
    return nil, 'The prompt is empty. Nothing was sent.'
  end
  return text, err
end

--- Return the text of a shell command.
---@param lines string[]
---@return string? text
---@return string? error
function M.command(lines)
  local text, err = M.text(lines, 'The command', 1)
  if text and not text:find('%S') then
    return nil, 'No command after `!`. Nothing was run.'
  end
  return text, err
end

--- Return lines of a buffer as the user sees them, including unsaved text.
---@param buf integer
---@param first_lnum integer
---@param last_lnum integer
---@param project string root of the project; paths below it are relative
---@return sanderling.Selection? selection
---@return string? error
function M.selection(buf, first_lnum, last_lnum, project)
  local path = M.path_of(buf, project)
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
