--- The questions that wait for an answer, and the one that is shown.
local M = {}

---@class (exact) sanderling.review.Question
---@field session_id string
---@field event sanderling.ApprovalRequested

---@type sanderling.review.Question[]
M.list = {}
M.index = 1 -- of the one that is shown

---@return sanderling.review.Question?
function M.question()
  return M.list[M.index]
end

return M
