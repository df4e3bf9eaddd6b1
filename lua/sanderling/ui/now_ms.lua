--- Return a monotonic time in milliseconds, for measuring durations.
---@return number
return function()
  return vim.uv.hrtime() / 1e6
end
