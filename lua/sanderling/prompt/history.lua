--- The history of sent prompts, across sessions: a file with one JSON string per line, newest last.
local slash = require('sanderling.prompt.slash')

local M = {}

local MAX_ENTRIES = 500

---@type string[]?
local entries

---@return string
local function path()
  return vim.fs.joinpath(vim.fn.stdpath('state'), 'sanderling', 'prompt_history.jsonl')
end

---@param lines string[]
---@param mode 'a'|'w'
local function write(lines, mode)
  pcall(vim.fn.mkdir, vim.fs.dirname(path()), 'p', tonumber('700', 8)) -- if this fails, there is no history
  local fd = vim.uv.fs_open(path(), mode, tonumber('600', 8))
  if fd then
    vim.uv.fs_write(fd, table.concat(lines, '\n') .. '\n')
    vim.uv.fs_close(fd)
  end
end

---@return string[] oldest first
function M.entries()
  if entries then
    return entries
  end
  entries = {}
  local file = io.open(path(), 'r')
  if not file then
    return entries
  end
  for line in file:lines() do
    local ok, text = pcall(vim.json.decode, line)
    if ok and type(text) == 'string' then
      entries[#entries + 1] = text
    end
  end
  file:close()
  if #entries > 2 * MAX_ENTRIES then
    entries = vim.list_slice(entries, #entries - MAX_ENTRIES + 1)
    write(vim.tbl_map(vim.json.encode, entries), 'w')
  end
  return entries
end

--- Add `text`, unless it may contain a secret.
---@param text string
function M.add(text)
  local known = M.entries()
  if known[#known] ~= text and slash.is_kept(text) then
    known[#known + 1] = text
    write({ vim.json.encode(text) }, 'a')
  end
end

return M
