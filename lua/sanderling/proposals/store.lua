--- Proposals: changes shown in a buffer while their question is open. Removing one leaves no trace in the buffer.
local M = {}

local draw = require('sanderling.review.draw')
local history = require('sanderling.proposals.history')
local lift = require('sanderling.proposals.lift')
local place = require('sanderling.proposals.place')
local queue = require('sanderling.approval.queue')
local write = require('sanderling.proposals.write')

---@class (exact) sanderling.proposals.store.Asked a proposal with its question
---@field session_id string
---@field id string of the question
---@field buf integer
---@field proposal sanderling.Proposal
---@field source sanderling.review.Source
---@field made table<integer, sanderling.proposals.outcome.Made> by id: hunks as they were proposed or rejected
---@field clean? string[] the user's own text when it was last equal to the file
---@field stamp string of the file at the time of the proposal
---@field history? sanderling.proposals.history.Saved the undo tree from before the proposal
---@field is_touched boolean a hunk was decided
---@field is_answered boolean

---@type table<integer, sanderling.proposals.store.Asked> by buffer
M.by_buf = {}

---@param id string of the question or of the tool use
---@return sanderling.proposals.store.Asked?
function M.find(id)
  for _, asked in pairs(M.by_buf) do
    if queue.tool_use_of(asked.id) == queue.tool_use_of(id) then
      return asked
    end
  end
end

--- Return whether the user's own text is modified, apart from the proposal.
---@param asked sanderling.proposals.store.Asked
---@return boolean
function M.is_modified(asked)
  if not vim.bo[asked.buf].modified then
    return false
  end
  local _, text = lift.parts(asked.buf)
  return not vim.deep_equal(text, asked.clean)
end

--- Clear 'modified' unless the user's own text is modified.
---@param asked sanderling.proposals.store.Asked
function M.set_modified(asked)
  if vim.bo[asked.buf].modified and not M.is_modified(asked) then
    vim.bo[asked.buf].modified = false
  end
end

--- Return whether the buffer shows a proposal, and the user has changed neither it nor the text around it.
---@param buf integer
---@return boolean
function M.is_as_proposed(buf)
  local asked = M.by_buf[buf]
  if not asked then
    return false
  end
  local parts, text = lift.parts(buf)
  return asked.history ~= nil
    and vim.deep_equal(text, asked.history.lines)
    and vim.iter(parts):all(function(part)
      local made = asked.made[part.hunk.id]
      return made ~= nil and vim.deep_equal(made.new, part.new)
    end)
end

--- Forget a proposal whose lines have gone from the buffer, or are accepted.
---@param asked sanderling.proposals.store.Asked
function M.forget(asked)
  M.by_buf[asked.buf] = nil
  write.release(asked.buf)
  lift.forget(asked.buf, asked.source)
end

--- Restore the undo tree from before the proposal.
---@param asked sanderling.proposals.store.Asked
---@param own string[] the user's text
function M.bring_history_back(asked, own)
  local saved = asked.history
  local is_modified = saved ~= nil and not vim.deep_equal(saved.lines, asked.clean)
  history.bring_back(asked.buf, saved, own, is_modified)
  asked.history = nil
end

--- Restore the user's own text, with the user's changes since.
---@param asked sanderling.proposals.store.Asked
function M.take_out(asked)
  if M.by_buf[asked.buf] ~= asked then
    return
  end
  local modified = M.is_modified(asked)
  draw.keeping_views(asked.buf, function()
    M.bring_history_back(asked, lift.lift(asked.buf).text)
  end)
  vim.bo[asked.buf].modified = modified
  M.forget(asked)
  place.leave(asked.buf, asked.proposal.is_new or false)
end

return M
