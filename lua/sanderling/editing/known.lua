--- Known diagnostics and their positions. Extmarks follow their lines, so that a diagnostic that has only moved is not new.
local M = {}

local api = vim.api

local ns = api.nvim_create_namespace('sanderling_diagnostics')

---@class (exact) sanderling.editing.known.Entry
---@field key string its text
---@field row integer
---@field mark? integer follows its line

--- Return the text without positions: line numbers in a message change as lines move.
---@param diagnostic vim.Diagnostic
---@return string
local function key_of(diagnostic)
  local message = diagnostic.message:gsub('([Ll]ines?) %d+', '%1'):gsub(':%d+', '')
  return table.concat({ message, diagnostic.code or '', diagnostic.source or '' }, '\0')
end

--- Add `diagnostics` to the known ones.
---@param known table<integer, sanderling.editing.known.Entry[]>
---@param diagnostics vim.Diagnostic[]
function M.add(known, diagnostics)
  for _, diagnostic in ipairs(diagnostics) do
    local buf, row = assert(diagnostic.bufnr), diagnostic.lnum
    local entry = { key = key_of(diagnostic), row = row }
    if api.nvim_buf_is_loaded(buf) then
      local opts = { strict = false, undo_restore = false }
      entry.mark = api.nvim_buf_set_extmark(buf, ns, row, 0, opts)
    end
    known[buf] = known[buf] or {}
    table.insert(known[buf], entry)
  end
end

--- Forget all known diagnostics and their marks.
---@param known table<integer, sanderling.editing.known.Entry[]>
function M.forget(known)
  for buf, entries in pairs(known) do
    for _, entry in ipairs(entries) do
      if entry.mark and api.nvim_buf_is_loaded(buf) then
        api.nvim_buf_del_extmark(buf, ns, entry.mark)
      end
    end
  end
end

---@param counts table<string, integer>
---@param key string
---@return boolean is_there
local function take(counts, key)
  local count = counts[key] or 0
  counts[key] = count > 0 and count - 1 or nil
  return count > 0
end

--- Return the diagnostics that are not known. Each known one matches one, preferably on its line.
---@param buf integer
---@param diagnostics vim.Diagnostic[] of the buffer
---@param known sanderling.editing.known.Entry[]
---@return vim.Diagnostic[]
function M.others(buf, diagnostics, known)
  local placed, by_key = {}, {} ---@type table<string, integer>, table<string, integer>
  for _, entry in ipairs(known) do
    local is_marked = entry.mark and api.nvim_buf_is_loaded(buf)
    local pos = is_marked and api.nvim_buf_get_extmark_by_id(buf, ns, entry.mark, {}) or {}
    local place = entry.key .. '\0' .. (pos[1] or entry.row)
    placed[place] = (placed[place] or 0) + 1
    by_key[entry.key] = (by_key[entry.key] or 0) + 1
  end
  local elsewhere = vim.tbl_filter(function(diagnostic)
    local key = key_of(diagnostic)
    return not (take(placed, key .. '\0' .. diagnostic.lnum) and take(by_key, key))
  end, diagnostics)
  return vim.tbl_filter(function(diagnostic)
    return not take(by_key, key_of(diagnostic))
  end, elsewhere)
end

return M
