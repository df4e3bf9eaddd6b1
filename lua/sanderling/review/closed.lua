--- Files that the agent has changed while no buffer held them: their hunks are made when they are opened.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local hunks = require('sanderling.review.hunks')
local message = require('sanderling.ui.message')

---@class (exact) sanderling.review.closed.File
---@field source sanderling.review.Source of its last change
---@field lnum integer

---@type table<string, sanderling.review.closed.File> by real path
local closed = {}

--- Lines of a text as a buffer would hold them.
---@param text string
---@return string[]
function M.lines_of(text)
  local lines = vim.split(text, '\n', { plain = true })
  if lines[#lines] == '' then
    lines[#lines] = nil
  end
  return lines
end

---@param path string
---@param lnum integer
---@param source sanderling.review.Source
function M.add(path, lnum, source)
  closed[vim.uv.fs_realpath(path) or path] = { source = source, lnum = lnum }
end

--- Make the hunks of a file that has just been loaded.
---@param buf integer
---@param path string
---@param file sanderling.review.closed.File
local function make_hunks(buf, path, file)
  ask({
    type = 'show_difference',
    session_id = file.source.session_id,
    what = 'session',
    path = path,
  }, function(result)
    local before = result.files[1]
    if before and api.nvim_buf_is_loaded(buf) then
      hunks.add(buf, M.lines_of(before.text or ''), file.source)
    end
  end, function(sentence)
    closed[path] = file
    message.tell(sentence, vim.log.levels.WARN)
  end)
end

api.nvim_create_autocmd('BufReadPost', {
  group = api.nvim_create_augroup('sanderling_closed', {}),
  desc = 'Agent: show what was changed in the file while it was not open',
  callback = function(args)
    local path = vim.uv.fs_realpath(api.nvim_buf_get_name(args.buf))
    local file = path and closed[path]
    if file then
      closed[path] = nil
      make_hunks(args.buf, path, file)
    end
  end,
})

--- The files, as entries of the quickfix list.
---@return vim.quickfix.entry[]
function M.entries()
  local entries = {}
  for path, file in vim.spairs(closed) do
    local text = 'Changed while it was not open.'
    entries[#entries + 1] = { filename = path, lnum = file.lnum, text = text }
  end
  return entries
end

return M
