--- The interface to the review of changes and to proposals, for buffers of files. Both are in higher layers: they are
--- loaded at the first change and register here. Until then nothing is proposed, and no changes are recorded.
local M = {}

local bus = require('sanderling.host.bus')

---@alias sanderling.editing.reviews.Open fun(path: string, device: integer, inode: integer, place: string, tool_use_id: string): sanderling.editing.Buffer|false
---@alias sanderling.editing.reviews.Accepted fun(buf: integer, replacements: sanderling.editing.Hunk[], tool_use_id: string): sanderling.editing.Part[]?

--- `open`: Return the buffer in which a change of a file is reviewed before it is made, loading it if needed. `place` is the path of a
--- missing file; then device and inode are its directory's.
---
--- `own_text`: Return the user's own text of a buffer with proposals, and whether it is modified.
---
--- `is_as_proposed`: Does the buffer contain a proposal that the user has not changed, nor the text around it?
---
--- `accepted`: Return the change if it is exactly the text that the user has accepted. Then it is in the buffer already, and no longer a
--- proposal.
---
--- `aside`: Run `fn` on the user's own text, without proposals in the buffer.
---
--- `writing`: Run `fn`, which writes the buffer's file, on the user's own text.
---
--- `reading`: Run `fn`, which reloads a buffer's file if it has changed, and check proposals against the new text.
---
--- `changing`, `restoring`: Run `fn`, and record what it changes in the buffer for a tool use, or reverts.
---@class (exact) sanderling.editing.reviews.Review
---@field open sanderling.editing.reviews.Open
---@field own_text fun(buf: integer): string[]?, boolean?
---@field is_as_proposed fun(buf: integer): boolean
---@field accepted sanderling.editing.reviews.Accepted
---@field aside fun(buf: integer, fn: fun(): any): any
---@field writing fun(buf: integer, fn: fun(): any): any
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
  writing = function(_, fn)
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

--- The review as registered so far; `none` fills the rest.
M.now = none

---@param part table<string, function> some fields of a review
function M.register(part)
  M.now = vim.tbl_extend('force', M.now, part)
end

--- Return the review with proposals, loading them if needed.
---@return sanderling.editing.reviews.Review
function M.loaded()
  if M.now.open == none.open then
    bus.tell('', { type = 'local_changing' })
  end
  return M.now
end

return M
