--- Positions in files, converted between a server's units and Neovim's.
local M = {}

local api = vim.api

local MAX_PLACES = 50000

---@class (exact) sanderling.code.Places of one file
---@field path string
---@field rows integer[] from 0
---@field names? string[] the name at each place, or the function around it
---@field is_modified? boolean a buffer has unsaved changes of it

---@param buf integer
---@param row integer
---@return string
function M.line(buf, row)
  return api.nvim_buf_get_lines(buf, row, row + 1, false)[1] or ''
end

--- Return a server's position for a byte.
---@param client vim.lsp.Client
---@param buf integer
---@param row integer
---@param col integer
---@return lsp.TextDocumentPositionParams
function M.params(client, buf, row, col)
  local character = vim.str_utfindex(M.line(buf, row), client.offset_encoding, col, false)
  return {
    textDocument = { uri = vim.uri_from_bufnr(buf) },
    position = { line = row, character = character },
  }
end

---@param client vim.lsp.Client
---@param buf integer
---@param row integer
---@param character integer
---@return integer col
function M.col(client, buf, row, character)
  return vim.str_byteindex(M.line(buf, row), client.offset_encoding, character, false)
end

--- Return the path of a file URI; other URIs are returned unchanged.
---@param uri string
---@return string
function M.path(uri)
  return vim.startswith(uri, 'file:') and vim.uri_to_fname(uri) or uri
end

---@class (exact) sanderling.code.Found
---@field files sanderling.code.Places[] in order of arrival
---@field by_path table<string, sanderling.code.Places>
---@field count integer

---@return sanderling.code.Found
function M.none()
  return { files = {}, by_path = {}, count = 0 }
end

---@param found sanderling.code.Found
---@param uri string
---@param row integer
---@param name? string
function M.add(found, uri, row, name)
  local path = M.path(uri)
  local file = found.by_path[path]
  if not file then
    file = { path = path, rows = {}, names = name and {} or nil }
    found.by_path[path] = file
    found.files[#found.files + 1] = file
  end
  found.count = found.count + 1
  if found.count <= MAX_PLACES then
    file.rows[#file.rows + 1] = row
    if file.names then
      file.names[#file.names + 1] = name or ''
    end
  end
end

--- Return the files, marking those with unsaved changes in a buffer.
---@param found sanderling.code.Found
---@return sanderling.code.Places[]
function M.files(found)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local file = api.nvim_buf_is_loaded(buf) and found.by_path[api.nvim_buf_get_name(buf)]
    if file and vim.bo[buf].modified then
      file.is_modified = true
    end
  end
  return found.files
end

--- Return the places in a server's answer: one, several, or links.
---@param result table? Location, Location[] or LocationLink[]
---@return sanderling.code.Found
function M.found(result)
  local found = M.none()
  for _, each in ipairs(vim.islist(result or {}) and result or { result }) do
    local range = each.range or each.targetSelectionRange or each.targetRange
    M.add(found, each.uri or each.targetUri, range.start.line)
  end
  return found
end

return M
