--- Diagnostics in the form that the tools receive.
local M = {}

local api = vim.api

local MAX_MESSAGE_BYTES = 4000

---@class (exact) sanderling.editing.Diagnostic
---@field path string
---@field line integer from 1
---@field severity 'error'|'warning'
---@field message string
---@field source string
---@field code string
---@field is_in_edit boolean in a file that was edited

---@param diagnostic vim.Diagnostic
---@param is_in_edit boolean
---@return sanderling.editing.Diagnostic
function M.as_told(diagnostic, is_in_edit)
  local is_error = diagnostic.severity == vim.diagnostic.severity.ERROR
  return {
    path = api.nvim_buf_get_name(assert(diagnostic.bufnr)),
    line = diagnostic.lnum + 1,
    severity = is_error and 'error' or 'warning',
    message = diagnostic.message:sub(1, MAX_MESSAGE_BYTES),
    source = diagnostic.source or '',
    code = tostring(diagnostic.code or ''),
    is_in_edit = is_in_edit,
  }
end

---@param diagnostics vim.Diagnostic[]
---@param order fun(diagnostic: vim.Diagnostic): number[]
function M.sort(diagnostics, order)
  table.sort(diagnostics, function(a, b)
    local order_b = order(b)
    for i, value in ipairs(order(a)) do
      if value ~= order_b[i] then
        return value < order_b[i]
      end
    end
    return false
  end)
end

return M
