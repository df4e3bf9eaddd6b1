--- The views of a session: transcripts in separate buffers, visible or not. Events are drawn in all views. They count
--- as drawn after the last view has drawn them, and immediately if there is no view.
local M = {}

local transcripts = require('sanderling.transcript')
local scratch = require('sanderling.ui.scratch')

---@class (exact) sanderling.transcript.views.Frame
---@field undrawn table<sanderling.transcript.views.View, true> views that have not drawn it yet
---@field on_drawn fun()

---@class sanderling.transcript.views.View
---@field apply fun(self: sanderling.transcript.views.View, events: table[], on_drawn: fun()) draws frames in order

---@class (exact) sanderling.transcript.views.Views
---@field private all sanderling.transcript.views.View[]
---@field private frames sanderling.transcript.views.Frame[] frames that are not drawn in all views yet, in order
local Views = {}
Views.__index = Views

---@return sanderling.transcript.views.Views
function M.new()
  return setmetatable({ all = {}, frames = {} }, Views)
end

-- Fields that are not copied.
local OF_ITS_OWN =
  { buf = true, queue = true, folded = true, when_held_are_drawn = true, on_defect = true }

--- Copy a transcript into another buffer, where it continues independently. May raise an error while the buffer is
--- locked.
---@param from sanderling.transcript.Transcript
---@param buf integer its text will be replaced
---@return sanderling.transcript.Transcript
local function copy(from, buf)
  local self = transcripts.new(buf, from.on_defect)
  scratch.paste(scratch.copy(from.buf), buf)
  local remembered = {}
  for name, value in pairs(from) do
    remembered[name] = not OF_ITS_OWN[name] and value or nil
  end
  for name, value in pairs(vim.deepcopy(remembered)) do -- in one call, so that tables shared by several fields are still shared
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

--- Open a view of `transcript` in `buf`, replacing its text. May raise an error while the buffer is locked.
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

--- Remove `view`, and do not wait for what it has not drawn.
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

--- Call `on_drawn` for the frames that all views have drawn.
---@private
function Views:settle()
  while self.frames[1] and not next(self.frames[1].undrawn) do
    table.remove(self.frames, 1).on_drawn()
  end
end

return M
