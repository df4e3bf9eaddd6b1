--- Programs that run outside the sandbox. A project's own programs never do, because its commands can write them. `.venv/bin` is on PATH
--- in a shell with an active environment, and a name such as `node_modules/.bin` means another directory in each project.
local M = {}

local MAX_LINKS = 40 -- in a path, as in Linux

--- Return whether the absolute `path` leads into `root`, which is resolved, or through a link there to somewhere else.
---@param path string
---@param root string
---@return boolean
local function leads_through(path, root)
  local place, links = '', 0
  local parts = vim.split(path, '/', { plain = true })
  while #parts > 0 and links <= MAX_LINKS do
    local part = table.remove(parts, 1)
    if part == '..' then
      place = place:gsub('/[^/]*$', '')
    elseif part ~= '' and part ~= '.' then
      local here = place .. '/' .. part
      local target = vim.uv.fs_readlink(here)
      if here == root or vim.startswith(here, root:gsub('/*$', '/')) then
        return true
      elseif target then
        links = links + 1
        place = vim.startswith(target, '/') and '' or place
        parts = vim.list_extend(vim.split(target, '/', { plain = true }), parts)
      else
        place = here
      end
    end
  end
  return false
end

--- Return PATH without directories in `project` or behind a link in it, and without relative ones.
---@param project string
---@return string
function M.path(project)
  local root = vim.uv.fs_realpath(project) or project
  local outside = vim.tbl_filter(function(directory)
    local is_there = vim.startswith(directory, '/') and vim.uv.fs_realpath(directory)
    return is_there and not leads_through(directory, root)
  end, vim.split(vim.env.PATH or '', ':', { plain = true }))
  return table.concat(outside, ':')
end

--- Return the first program of this name on PATH that is outside `project`.
---@param name string
---@param project string
---@return string? path nil without one
function M.find(name, project)
  for directory in vim.gsplit(M.path(project), ':', { plain = true }) do
    local path = vim.fs.joinpath(directory, name)
    if directory ~= '' and vim.fn.executable(path) == 1 then
      return path
    end
  end
end

--- Call `fn`, whose programs, and the programs that they start, are found outside `project`.
---@param project string
---@param fn fun()
---@return boolean ok
---@return any error
function M.with_path(project, fn)
  local before = vim.env.PATH
  vim.env.PATH = M.path(project)
  local ok, err = pcall(fn)
  vim.env.PATH = before
  return ok, err
end

--- Call `fn`, whose programs are found outside the projects of the current buffer and of the current directory.
---@generic T
---@param fn fun(): T
---@return T
function M.outside(fn)
  local cwd, result = vim.fn.getcwd(), nil
  local ok, err = M.with_path(vim.fs.root(0, '.git') or cwd, function()
    local is_done, why = M.with_path(vim.fs.root(cwd, '.git') or cwd, function()
      result = fn()
    end)
    assert(is_done, why)
  end)
  assert(ok, err)
  return result
end

return M
