--- The time in milliseconds, for what lasts: it never goes back, and is no time of day.
---@return number
return function()
  return vim.uv.hrtime() / 1e6
end
