--- Reviews, as far as buffers of files are concerned. The review of changes ranks above this, and puts its functions in the place of
--- these, which know of none.
local M = {}

local bus = require('sanderling.host.bus')

--- The buffer in which a change of a file is to be reviewed before it is made, loaded for that if need be.
---@param path string absolute
---@param device integer
---@param inode integer
---@param place string where the file would be, if there is none; then device and inode are its directory's
---@param tool_use_id string
---@return sanderling.editing.Buffer|false
function M.open(path, device, inode, place, tool_use_id)
  local none = M.open
  bus.tell('', { type = 'local_changing' }) -- loads it
  return M.open ~= none and M.open(path, device, inode, place, tool_use_id)
end

--- The person's own text of a buffer in which something is proposed.
---@param _buf integer
---@return string[]? lines none of a buffer without text
---@return boolean? is_modified
function M.own_text(_buf) end

--- Is something proposed in the buffer, and the person has changed neither that nor the text around it?
---@param _buf integer
---@return boolean
function M.is_as_proposed(_buf)
  return false
end

--- Is what is to be changed the very text that the person has accepted? Then it stands there already, and is no proposal any more.
---@param _buf integer
---@param _replacements sanderling.editing.Hunk[]
---@param _tool_use_id string
---@return sanderling.editing.Part[]? parts
function M.accepted(_buf, _replacements, _tool_use_id) end

--- Run `fn` on the person's own text: what is proposed is not in the buffer meanwhile.
---@generic T
---@param _buf integer
---@param fn fun(): T
---@return T
function M.aside(_buf, fn)
  return fn()
end

--- Run `fn`, which reads the file of a buffer again if it has changed. What was proposed for another text is looked at again.
---@param buf integer
---@param fn fun(buf: integer)
function M.reading(buf, fn)
  fn(buf)
end

return M
