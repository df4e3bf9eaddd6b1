--- The queue of events to draw into a transcript. While its buffer is not writable, it waits and tries again.
local M = {}

local RETRY_MS = 20

---@class (exact) sanderling.transcript.queue.Job
---@field events table[]
---@field next integer index of the first event that is not drawn yet
---@field on_drawn fun()

---@class (exact) sanderling.transcript.queue.Queue
---@field private draw fun(event: table) raises while the buffer cannot be written
---@field private jobs sanderling.transcript.queue.Job[]
---@field private is_waiting boolean
---@field private is_paused boolean
local Queue = {}
Queue.__index = Queue

---@param draw fun(event: table) raises while the buffer cannot be written
---@return sanderling.transcript.queue.Queue
function M.new(draw)
  local self = { draw = draw, jobs = {}, is_waiting = false, is_paused = false }
  return setmetatable(self, Queue)
end

--- Draw `events` as soon as possible, then call `on_drawn`.
---@param events table[]
---@param on_drawn fun()
function Queue:add(events, on_drawn)
  self.jobs[#self.jobs + 1] = { events = events, next = 1, on_drawn = on_drawn }
  self:drain()
end

function Queue:clear()
  self.jobs = {}
end

function Queue:pause()
  self.is_paused = true
end

function Queue:resume()
  self.is_paused = false
  self:drain()
end

---@private
function Queue:wait()
  self.is_waiting = true
  vim.defer_fn(function()
    self.is_waiting = false
    self:drain()
  end, RETRY_MS)
end

---@private
---@param job sanderling.transcript.queue.Job
---@return boolean is_drawn
function Queue:draw_job(job)
  while job.next <= #job.events do
    if not pcall(self.draw, job.events[job.next]) then
      return false
    end
    job.next = job.next + 1
  end
  return true
end

---@private
function Queue:drain()
  while self.jobs[1] and not self.is_paused and not self.is_waiting do
    local job = self.jobs[1]
    if not self:draw_job(job) then
      return self:wait()
    end
    table.remove(self.jobs, 1)
    job.on_drawn()
  end
end

return M
