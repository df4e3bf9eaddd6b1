--- The views of a session: transcripts in buffers of their own, each with windows or without. What happens is drawn in all of them,
--- and counts as drawn when it is in the last one; where there is none, at once.
local M = {}

local transcripts = require('sanderling.transcript')
local scratch = require('sanderling.ui.scratch')

---@class (exact) sanderling.transcript.views.Frame
---@field undrawn table<sanderling.transcript.views.View, true> views that have not drawn it yet
---@field on_drawn fun()

---@class sanderling.transcript.views.View
---@field apply fun(self: sanderling.transcript.views.View, events: table[], on_drawn: fun()) draws frame after frame

---@class (exact) sanderling.transcript.views.Views
---@field private all sanderling.transcript.views.View[]
---@field private frames sanderling.transcript.views.Frame[] those that are not drawn in all views, in their order
local Views = {}
Views.__index = Views

---@return sanderling.transcript.views.Views
function M.new()
  return setmetatable({ all = {}, frames = {} }, Views)
end

-- Fields that a copy has for itself.
local OF_ITS_OWN =
  { buf = true, queue = true, folded = true, when_held_are_drawn = true, on_defect = true }

--- A transcript that says the same in another buffer, and goes on by itself from there. May raise while text is locked.
---@param from sanderling.transcript.Transcript
---@param buf integer its text is replaced
---@return sanderling.transcript.Transcript
local function copy(from, buf)
  local self = transcripts.new(buf, from.on_defect)
  scratch.paste(scratch.copy(from.buf), buf)
  local remembered = {}
  for name, value in pairs(from) do
    remembered[name] = not OF_ITS_OWN[name] and value or nil
  end
  for name, value in pairs(vim.deepcopy(remembered)) do -- at once: what two of them share, the copies share, too
    self[name] = value
  end
  self.footer.buf = buf
  self.markdown:move(buf)
  if self.countdown then
    self.countdown:go_on()
  end
  self:apply(from.queue:undrawn())
  return self
end

--- Show in `buf`, whose text is replaced, what `transcript` shows, and go on there with what comes. Raises while text is locked.
---@param transcript sanderling.transcript.Transcript
---@param buf integer
---@return sanderling.transcript.Transcript view
function Views:open(transcript, buf)
  local view = copy(transcript, buf)
  vim.b[buf].sanderling_session = vim.b[transcript.buf].sanderling_session
  vim.api.nvim_buf_attach(buf, false, {
    on_detach = function()
      transcripts.forget(buf)
      vim.schedule(function()
        self:remove(view)
      end)
    end,
  })
  self:add(view)
  return view
end

---@param view sanderling.transcript.views.View
function Views:add(view)
  table.insert(self.all, view)
end

--- Draw no more in `view`; nobody waits for what it has not drawn.
---@param view sanderling.transcript.views.View
function Views:remove(view)
  self.all = vim.tbl_filter(function(each)
    return each ~= view
  end, self.all)
  for _, frame in ipairs(self.frames) do
    frame.undrawn[view] = nil
  end
  self:settle()
end

--- Draw `events` in all views; then call `on_drawn`.
---@param events table[]
---@param on_drawn fun()
function Views:apply(events, on_drawn)
  local views = self.all
  local frame = { undrawn = {}, on_drawn = on_drawn }
  for _, view in ipairs(views) do
    frame.undrawn[view] = true
  end
  table.insert(self.frames, frame)
  for _, view in ipairs(views) do
    view:apply(events, function()
      frame.undrawn[view] = nil
      self:settle()
    end)
  end
  self:settle()
end

--- Tell of the frames that are in all views.
---@private
function Views:settle()
  while self.frames[1] and not next(self.frames[1].undrawn) do
    table.remove(self.frames, 1).on_drawn()
  end
end

return M
