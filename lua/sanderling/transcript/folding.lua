--- The part of a transcript that records its folds, and which of them each window has.
local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local folds = require('sanderling.transcript.folds')
local Writer = require('sanderling.transcript.writer')

---@class (exact) sanderling.transcript.folding.Folded the state of a window when it last had all folds
---@field moves integer value of Folding.moves
---@field count integer of the folds

---@class (exact) sanderling.transcript.folding.Folding: sanderling.transcript.Writer
---@field folds sanderling.transcript.folds.Fold[]
---@field protected folded table<integer, sanderling.transcript.folding.Folded> by window; closed windows are kept until another window leaves the transcript
---@field protected moves integer how often rows with folds were moved or removed
local Folding = setmetatable({}, { __index = Writer })
Folding.__index = Folding

---@param fold sanderling.transcript.folds.Fold
---@return sanderling.transcript.folds.Fold
function Folding:add_fold(fold)
  self.folds[#self.folds + 1] = fold
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    folds.make(win, self.folds, #self.folds)
  end
  return fold
end

--- Add a fold above others. The rows below have just been moved.
---@param fold sanderling.transcript.folds.Fold
function Folding:insert_fold(fold)
  local at = #self.folds + 1
  while at > 1 and self.folds[at - 1].first > fold.first do
    at = at - 1
  end
  table.insert(self.folds, at, fold)
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    folds.make(win, { fold }, 1)
  end
  self:note_move()
end

---@private
---@param win integer
function Folding:note_folded(win)
  self.folded[win] = { moves = self.moves, count = #self.folds }
end

--- Record that rows have moved. Neovim moves the folds of windows that show the transcript, but not those it has saved
--- for other windows.
function Folding:note_move()
  self.moves = self.moves + 1
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    self:note_folded(win)
  end
end

--- Return how many folds Neovim has given `win`, or nil if they may be in outdated rows.
---@private
---@param win integer
---@return integer?
function Folding:count_kept(win)
  local count
  for _, folded in pairs(self.folded[win] and { self.folded[win] } or self.folded) do
    if folded.moves ~= self.moves then
      return nil
    end
    count = math.min(count or folded.count, folded.count)
  end
  return count
end

--- Give `win`, which shows the transcript (again), the folds that it lacks.
---@protected
---@param win integer
function Folding:fold_in(win)
  local kept = self:count_kept(win)
  if not kept then
    folds.drop_all(win)
  end
  folds.make(win, self.folds, math.max(kept or 0, 1)) -- start with the last one, which may have grown
  self:note_folded(win)
end

--- Save the user's changes to the folds of a window that is about to leave the transcript.
---@param win integer
function Folding:leave(win)
  api.nvim_win_call(win, function()
    for _, fold in ipairs(self.folds) do
      fold.is_deleted = vim.fn.foldlevel(fold.first + 1) == 0
      fold.state = vim.fn.foldclosed(fold.first + 1) == -1 and 'open' or nil
    end
  end)
  for other in pairs(self.folded) do
    if not api.nvim_win_is_valid(other) then
      self.folded[other] = nil -- a new window copies the folds of `win`
    end
  end
  self:note_folded(win)
end

blocks.register({
  new = function()
    return { folds = {}, folded = {}, moves = 0 }
  end,
  rows = { folds = { is_list = true, of = { 'first', 'last' }, is_of_page = true } },
})

return Folding
