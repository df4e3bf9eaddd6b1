--- Finding the buffers of a file, and describing them.
local M = {}

local api = vim.api
local lazy = require('sanderling.ui.lazy')

local diagnostics = lazy('sanderling.editing.diagnostics')
local files = require('sanderling.access.files')
local reviews = require('sanderling.editing.reviews')

local MAX_TEXT_BYTES = 8 * 1024 * 1024 -- fetching it freezes the screen: for 0.3 s, at 250,000 lines

---@class (exact) sanderling.editing.Buffer
---@field id integer
---@field path string
---@field tick integer
---@field text string
---@field is_modified boolean
---@field encoding string
---@field line_ending 'unix'|'dos'|'mac'
---@field has_bom boolean
---@field is_diagnosed boolean a language server may report on a change

--- Return the file's directory, or its nearest existing parent.
---@param path string
---@return string? directory nil: not an absolute path
---@return string rest of the path, beginning with a slash
local function directory_above(path)
  if not vim.startswith(path, '/') then
    return nil, ''
  end
  local directory = vim.fs.dirname(path)
  while not vim.uv.fs_stat(directory) do
    directory = vim.fs.dirname(directory)
  end
  return directory, directory == '/' and path or path:sub(#directory + 1)
end

--- Return an identity that all names of one file share: the file's, or its place if it does not exist.
---@param path string absolute
---@return string? identity nil: a directory, or nowhere
function M.identity(path)
  local stat = vim.uv.fs_stat(path)
  if stat then
    return stat.type == 'file' and ('%d:%d'):format(stat.dev, stat.ino) or nil
  end
  local directory, rest = directory_above(path)
  local real = directory and vim.uv.fs_realpath(directory)
  return real and vim.fs.joinpath(real, rest)
end

--- Does a plugin read or write this buffer in its own way (packed, encrypted, over a network)? Then its text is not the
--- file's.
---@param event 'BufReadCmd'|'BufWriteCmd'
---@param buf integer
---@return boolean
function M.is_plugins(event, buf)
  local name = api.nvim_buf_get_name(buf)
  -- patterns match the whole name, its tail, and the short name below the working directory
  local names = { name, vim.fs.basename(name), vim.fn.bufname(buf) }
  if event == 'BufReadCmd' then
    return files.is_read_otherwise(names, buf)
  end
  return files.is_handled(event, names, buf, function(autocmd)
    return autocmd.group_name ~= 'sanderling_proposals' -- proposals/write.lua: Neovim writes these
  end)
end

--- Is the buffer loaded, and an ordinary file buffer?
---@param buf integer
---@return boolean
function M.is_file_buffer(buf)
  if not api.nvim_buf_is_loaded(buf) or vim.b[buf].sanderling_hidden then -- see hidden.lua
    return false
  elseif vim.bo[buf].buftype ~= '' and not vim.b[buf].sanderling_proposed then
    return false
  end
  local name = api.nvim_buf_get_name(buf)
  return name ~= '' and M.identity(name) ~= nil and not M.is_plugins('BufWriteCmd', buf)
end

--- Does `name` name the very file that the sandbox has opened, or the place where it found none?
---@param name string absolute
---@param device integer
---@param inode integer
---@param place string path of a missing file; then device and inode are those of its nearest existing parent
---@return boolean
function M.names_file(name, device, inode, place)
  local stat = vim.uv.fs_stat(name)
  if place ~= '' then
    local directory, rest = directory_above(name)
    if stat or not directory or not vim.endswith(place, rest) then
      return false
    end
    stat = vim.uv.fs_stat(directory)
  end
  return stat ~= nil
    and stat.type == (place == '' and 'file' or 'directory')
    and stat.dev == device
    and stat.ino == inode
end

---@param path string requested name, preferred among several buffers of the file
---@param device integer
---@param inode integer
---@param place string
---@return integer? buf
function M.buffer_of(path, device, inode, place)
  local found
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local name = api.nvim_buf_get_name(buf)
    if
      name ~= ''
      and api.nvim_buf_is_loaded(buf)
      and M.names_file(name, device, inode, place)
      and M.is_file_buffer(buf)
      and not M.is_plugins('BufReadCmd', buf)
    then
      if name == path then
        return buf
      end
      found = found or buf
    end
  end
  return found
end

---@param buf integer
---@return boolean
function M.is_empty(buf)
  return api.nvim_buf_line_count(buf) == 1
    and api.nvim_buf_get_lines(buf, 0, 1, true)[1] == ''
    and api.nvim_buf_call(buf, vim.fn.wordcount).bytes == 0
end

---@param buf integer
---@param path string the requested name
---@return sanderling.editing.Buffer
function M.describe(buf, path)
  local bytes = api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf))
  if bytes > MAX_TEXT_BYTES then
    error(
      ('The Neovim buffer of %s has %d MB, too much to fetch. Use bash, or ask the user to unload it.'):format(
        path,
        bytes / 1024 / 1024
      ),
      0
    )
  end
  local options = vim.bo[buf]
  local lines, is_modified = reviews.now.own_text(buf)
  if not lines then
    lines = M.is_empty(buf) and {} or api.nvim_buf_get_lines(buf, 0, -1, true)
    is_modified = options.modified
  end
  local text = #lines == 0 and '' or table.concat(lines, '\n') .. (options.endofline and '\n' or '')
  return {
    id = buf,
    path = path,
    tick = api.nvim_buf_get_changedtick(buf),
    text = text,
    is_modified = is_modified,
    encoding = options.binary and '' or options.fileencoding,
    line_ending = options.binary and 'unix' or options.fileformat,
    has_bom = options.bomb and not options.binary,
    is_diagnosed = package.loaded['vim.lsp'] ~= nil and diagnostics.can_come(buf),
  }
end

return M
