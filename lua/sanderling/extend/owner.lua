--- Who extends Sanderling: the plugin, or the file of the user's configuration, that contains a function.

local NAMELESS = 'your configuration'

--- Return the name of the plugin that contains `fn`: of the directory above `lua` or `plugin`. Otherwise, the file's name.
---@param fn function
---@return string
return function(fn)
  local source = debug.getinfo(fn, 'S').source
  if source:sub(1, 1) ~= '@' then
    return NAMELESS -- a string of code, or a command
  end
  local path = vim.fs.normalize(source:sub(2))
  if vim.startswith(path, vim.fs.normalize(vim.fn.stdpath('config')) .. '/') then
    return NAMELESS
  end
  local root = path:match('^(.*)/lua/') or path:match('^(.*)/plugin/') or path:match('^(.*)/after/')
  return vim.fs.basename(root or path)
end
