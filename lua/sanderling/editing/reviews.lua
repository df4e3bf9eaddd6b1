--- Reviews, as far as buffers of files are concerned. The review of changes ranks above this, and puts its functions in the place of
--- these, which know of none.
local M = {}

--- The buffer in which a change of a file is to be reviewed before it is made, loaded for that if need be.
---@param _path string absolute
---@param _device integer
---@param _inode integer
---@param _place string where the file would be, if there is none; then device and inode are its directory's
---@param _tool_use_id string
---@return sanderling.editing.Buffer|false
function M.open(_path, _device, _inode, _place, _tool_use_id)
  return false
end

return M
