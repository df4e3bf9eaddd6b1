--- The countdown below the transcript to the retry of a failed request.
local M = {}

local api, uv = vim.api, vim.uv
local config = require('sanderling.config')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.transcript.countdown.Countdown
---@field private event sanderling.RetryScheduled
---@field private footer sanderling.transcript.footer.Footer
---@field private due_ns integer
---@field private is_ticking boolean
---@field private is_over boolean
local Countdown = {}
Countdown.__index = Countdown

--- Count down to the retry announced by `event`.
---@param event sanderling.RetryScheduled
---@param footer sanderling.transcript.footer.Footer
---@return sanderling.transcript.countdown.Countdown
function M.begin(event, footer)
  local self = setmetatable({
    event = event,
    footer = footer,
    due_ns = uv.hrtime() + event.delay_s * 1e9,
    is_ticking = false,
    is_over = false,
  }, Countdown)
  self:tick()
  return self
end

---@private
---@param seconds integer
function Countdown:draw(seconds)
  local when = seconds > 0 and 'in ' .. words.duration(seconds) or 'now'
  local text = ('Retry %d/%d %s. %s stops, :Agent retry retries now.'):format(
    self.event.attempt,
    self.event.attempts,
    when,
    config.key_name(config.options.keys.stop, ':AgentStop')
  )
  local lines = self.footer:wrapped(words.plain(self.event.reason), 'AgentWarning')
  self.footer:set('retry', vim.list_extend(lines, self.footer:wrapped(text, 'AgentRemedy')))
end

--- Show the remaining seconds and schedule the next update. There are no updates while no window shows the transcript.
---@private
function Countdown:tick()
  self.is_ticking = false
  if self.is_over or not api.nvim_buf_is_loaded(self.footer.buf) then
    return
  end
  local left_ms = math.max(0, (self.due_ns - uv.hrtime()) / 1e6)
  self:draw(math.ceil(left_ms / 1000))
  if left_ms > 0 and #vim.fn.win_findbuf(self.footer.buf) > 0 then
    self.is_ticking = true
    vim.defer_fn(function()
      self:tick()
    end, math.ceil((left_ms - 1) % 1000) + 1)
  end
end

--- Continue when a window shows the transcript again.
function Countdown:resume()
  if not self.is_ticking then
    self:tick()
  end
end

function Countdown:stop()
  self.is_over = true
  if api.nvim_buf_is_loaded(self.footer.buf) then
    self.footer:set('retry', nil)
  end
end

return M
