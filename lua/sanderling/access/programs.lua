--- Programs that run outside the sandbox: never those of a project, which its commands can write. `.venv/bin` is on PATH in a shell with an
--- active environment, and a name such as `node_modules/.bin` means another directory in each project.
local M = {}

--- Return the first program of this name on PATH that is outside `project`.
---@param name string
---@param project string
---@return string? path nil: there is none
function M.find(name, project)
  local root = vim.uv.fs_realpath(project) or project
  for _, directory in ipairs(vim.split(vim.env.PATH or '', ':', { plain = true })) do
    local real = vim.startswith(directory, '/') and vim.uv.fs_realpath(directory)
    if real and real ~= root and not vim.startswith(real, root:gsub('/*$', '/')) then
      local path = vim.fs.joinpath(directory, name)
      if vim.fn.executable(path) == 1 then
        return path
      end
    end
  end
end

return M
