--- The review of changes, as far as buffers of files are concerned. It ranks above this: the first change has it loaded, and it says
--- here, once, what it does. Until then nothing is proposed, and nobody takes note of what changes.
local M = {}

local bus = require('sanderling.host.bus')

---@alias sanderling.editing.reviews.Open fun(path: string, device: integer, inode: integer, place: string, tool_use_id: string): sanderling.editing.Buffer|false
---@alias sanderling.editing.reviews.Accepted fun(buf: integer, replacements: sanderling.editing.Hunk[], tool_use_id: string): sanderling.editing.Part[]?

--- `open`: The buffer in which a change of a file is to be reviewed before it is made, loaded for that if need be. `place` is where the
--- file would be, if there is none; then device and inode are its directory's.
---
--- `own_text`: The lines of the person's own text of a buffer in which something is proposed, and whether they are modified.
---
--- `is_as_proposed`: Is something proposed in the buffer, and the person has changed neither that nor the text around it?
---
--- `accepted`: What is to be changed, if it is the very text that the person has accepted. Then it stands there already, and is no
--- proposal any more.
---
--- `aside`: Run `fn` on the person's own text: what is proposed is not in the buffer meanwhile.
---
--- `reading`: Run `fn`, which reads the file of a buffer again if it has changed. What was proposed for another text is looked at again.
---
--- `changing`, `restoring`: Run `fn`, and take note of what it changes in the buffer for a tool use, or changes back.
---@class (exact) sanderling.editing.reviews.Review
---@field open sanderling.editing.reviews.Open
---@field own_text fun(buf: integer): string[]?, boolean?
---@field is_as_proposed fun(buf: integer): boolean
---@field accepted sanderling.editing.reviews.Accepted
---@field aside fun(buf: integer, fn: fun(): any): any
---@field reading fun(buf: integer, fn: fun(buf: integer))
---@field changing fun(buf: integer, tool_use_id: string, fn: fun())
---@field restoring fun(buf: integer, fn: fun())

---@type sanderling.editing.reviews.Review
local none = {
  open = function()
    return false
  end,
  own_text = function() end,
  is_as_proposed = function()
    return false
  end,
  accepted = function() end,
  aside = function(_, fn)
    return fn()
  end,
  reading = function(buf, fn)
    fn(buf)
  end,
  changing = function(_, _, fn)
    fn()
  end,
  restoring = function(_, fn)
    fn()
  end,
}

--- The review as far as it is there; nothing is loaded for it.
M.now = none

---@param review sanderling.editing.reviews.Review
function M.register(review)
  M.now = review
end

--- The review, loaded if need be.
---@return sanderling.editing.reviews.Review
function M.loaded()
  if M.now == none then
    bus.tell('', { type = 'local_changing' })
  end
  return M.now
end

return M
