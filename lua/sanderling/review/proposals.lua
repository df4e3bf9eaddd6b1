--- Proposals: what stands in buffers, and is a question yet. It is taken out of a buffer as if it had never been in it.
local M = {}

local draw = require('sanderling.review.draw')
local history = require('sanderling.review.history')
local lifting = require('sanderling.review.lifting')
local place = require('sanderling.review.place')
local writing = require('sanderling.review.writing')

---@class (exact) sanderling.review.proposals.Asked
---@field session_id string
---@field id string of the question, which is that of the tool use
---@field buf integer
---@field proposal sanderling.Proposal
---@field source sanderling.review.Source
---@field made table<integer, sanderling.review.outcome.Made> hunks as they were proposed, or rejected, by id
---@field clean? string[] the person's own text where the buffer is not modified
---@field stamp string of the file when it was proposed
---@field history? sanderling.review.history.Saved the undo tree before it was
---@field is_touched boolean a hunk was decided on
---@field is_answered boolean

---@type table<integer, sanderling.review.proposals.Asked> by buffer
M.by_buf = {}

---@param id string
---@return sanderling.review.proposals.Asked?
function M.find(id)
  for _, asked in pairs(M.by_buf) do
    if asked.id == id then
      return asked
    end
  end
end

--- Is the buffer modified, what is proposed aside?
---@param asked sanderling.review.proposals.Asked
---@return boolean
function M.is_modified(asked)
  if not vim.bo[asked.buf].modified then
    return false
  end
  local _, text = lifting.parts(asked.buf)
  return not vim.deep_equal(text, asked.clean)
end

--- Let 'modified' say whether the person has changed something.
---@param asked sanderling.review.proposals.Asked
function M.set_modified(asked)
  if vim.bo[asked.buf].modified and not M.is_modified(asked) then
    vim.bo[asked.buf].modified = false
  end
end

--- Is something proposed in the buffer, and the person has changed neither that nor the text around it?
---@param buf integer
---@return boolean
function M.is_as_proposed(buf)
  local asked = M.by_buf[buf]
  if not asked then
    return false
  end
  local parts, text = lifting.parts(buf)
  return asked.history ~= nil
    and vim.deep_equal(text, asked.history.lines)
    and vim.iter(parts):all(function(part)
      local made = asked.made[part.hunk.id]
      return made ~= nil and vim.deep_equal(made.new, part.new)
    end)
end

--- Forget a proposal: nothing is proposed in the buffer any more.
---@param asked sanderling.review.proposals.Asked
function M.forget(asked)
  M.by_buf[asked.buf] = nil
  writing.release(asked.buf)
  lifting.forget(asked.buf, asked.source)
end

--- Bring the undo tree back that knows no proposal.
---@param asked sanderling.review.proposals.Asked
---@param own string[] the person's text
function M.bring_history_back(asked, own)
  local saved = asked.history
  local is_modified = saved ~= nil and not vim.deep_equal(saved.lines, asked.clean)
  history.bring_back(asked.buf, saved, own, is_modified)
  asked.history = nil
end

--- Give the person their own text back, with what they have changed.
---@param asked sanderling.review.proposals.Asked
function M.take_out(asked)
  if M.by_buf[asked.buf] ~= asked then
    return
  end
  local modified = M.is_modified(asked)
  draw.keeping_views(asked.buf, function()
    M.bring_history_back(asked, lifting.lift(asked.buf).text)
  end)
  vim.bo[asked.buf].modified = modified
  M.forget(asked)
  place.leave(asked.buf, asked.proposal.is_new or false)
end

return M
