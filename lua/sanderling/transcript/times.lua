--- The times of prompts and turns, as virtual text behind their headers while the user wants to see them.
local M = {}

local api = vim.api
local stored = require('sanderling.session.stored')

local ns = api.nvim_create_namespace('sanderling_times')

--- Return a time as shown: relative on the same day, else with its date.
---@param at number in seconds since 1970
---@param now number
---@return string
function M.text(at, now)
  if os.date('%F', at) == os.date('%F', now) then
    return os.date('%H:%M', at) .. ', ' .. stored.age(now - at)
  end
  return os.date('%F %H:%M', at) --[[@as string]]
end

--- Return the shown times of each message: when the prompts were sent, and when the turns ended.
---@param self sanderling.transcript.Transcript
---@return fun(): integer?, string? row of a header, and its text
local function times_of(self)
  local now, shown = os.time(), {}
  for _, turn in ipairs(self.turns) do
    shown[turn.first] = turn.at and M.text(turn.at, now)
    shown[turn.answer] = turn.ended_at and 'ended ' .. M.text(turn.ended_at, now)
  end
  for _, prompt in ipairs(self.steered) do
    shown[prompt.first] = prompt.at and M.text(prompt.at, now)
  end
  return pairs(shown)
end

--- Show the times, or show them again after turns were added.
---@param self sanderling.transcript.Transcript
function M.draw(self)
  api.nvim_buf_clear_namespace(self.buf, ns, 0, -1)
  for row, text in times_of(self) do
    api.nvim_buf_set_extmark(self.buf, ns, row, 0, {
      virt_text = { { text, 'AgentStatus' } },
      virt_text_pos = 'eol',
    })
  end
end

---@param self sanderling.transcript.Transcript
function M.hide(self)
  api.nvim_buf_clear_namespace(self.buf, ns, 0, -1)
end

return M
