--- Completions from a plugin's function. It is called in pauses of typing and may answer later, up to a deadline; no key
--- waits for it.
local M = {}

local lazy = require('sanderling.ui.lazy')

local once = lazy('sanderling.extend.once')
local registry = require('sanderling.extend.registry')
local words = require('sanderling.ui.words')

local PAUSE_MS = 100
local DEADLINE_MS = 5000
local FRESH_MS = 5000 -- before the same text is asked about again
local MAX_ITEMS = 50

---@alias sanderling.Completion string|{ name: string, desc?: string }
---@alias sanderling.Complete fun(lead: string, done: fun(items: sanderling.Completion[]), session: sanderling.Session): sanderling.Completion[]? returns the items, or calls `done` later

---@class (exact) sanderling.extend.offers.Item
---@field name string
---@field desc string

---@class (exact) sanderling.extend.offers.Offers
---@field private owner sanderling.extend.registry.Owner
---@field private subject string
---@field private complete sanderling.Complete
---@field private lead? string last asked about, or to be asked about next
---@field private asked_ms number when the last answer came
---@field private is_asking boolean
---@field private items sanderling.extend.offers.Item[]
---@field private session? sanderling.Session
---@field private on_more fun()
local Offers = {}
Offers.__index = Offers

---@param origin string
---@param subject string for messages
---@param complete sanderling.Complete|sanderling.Completion[]
---@return sanderling.extend.offers.Offers
function M.new(origin, subject, complete)
  return setmetatable({
    owner = { origin = origin, is_frequent = true },
    subject = subject,
    complete = type(complete) == 'function' and complete or function()
      return complete
    end,
    asked_ms = 0,
    is_asking = false,
    items = {},
    on_more = function() end,
  }, Offers)
end

--- Return the valid items of an answer. Others are reported.
---@private
---@param answer any nil: none
---@return sanderling.extend.offers.Item[]
function Offers:checked(answer)
  local items = {}
  if answer ~= nil and type(answer) ~= 'table' then
    registry.report(self.owner, self.subject, 'expected a list, got a ' .. type(answer))
    return items
  end
  for _, each in ipairs(answer or {}) do
    local item = type(each) == 'table' and each or { name = each }
    local is_valid = type(item.name) == 'string' and item.name ~= '' and not item.name:find('%c')
    if is_valid then
      local desc = type(item.desc) == 'string' and words.plain((item.desc:gsub('\n.*', ''))) or ''
      items[#items + 1] = { name = item.name, desc = desc }
    else
      local given = vim.inspect(each, { newline = ' ', indent = '' })
      local text = ('%s is not a completion; expected text in one line, or { name, desc }'):format(
        given
      )
      registry.report(self.owner, self.subject, text)
    end
  end
  return items
end

---@private
function Offers:ask()
  local lead = self.lead
  local take = vim.schedule_wrap(
    function(answer) -- it may be called where most functions are forbidden
      self.items, self.is_asking, self.asked_ms = self:checked(answer), false, vim.uv.now()
      if self.lead ~= lead then
        self:ask_soon()
      end
      self.on_more()
    end
  )
  local finish = once.answer(DEADLINE_MS, take, function()
    registry.report(self.owner, self.subject, ('no answer within %g s'):format(DEADLINE_MS / 1000))
    take({})
  end)
  local ok, answer =
    registry.call(self.owner, self.subject, self.complete, lead, finish, self.session)
  if not ok or answer ~= nil then
    finish(answer)
  end
end

---@private
function Offers:ask_soon()
  self.is_asking = true
  vim.defer_fn(function()
    self:ask()
  end, PAUSE_MS)
end

--- Return the known items that contain `lead`, and ask for others.
---@param lead string
---@param session sanderling.Session
---@param on_more fun() called when there are others, unless another search has begun
---@return sanderling.extend.offers.Item[]
function Offers:search(lead, session, on_more)
  self.on_more, self.session = on_more, session
  if self.lead ~= lead or vim.uv.now() - self.asked_ms > FRESH_MS then
    self.lead = lead
    if not self.is_asking then
      self:ask_soon()
    end
  end
  local found, wanted = {}, lead:lower()
  for _, item in ipairs(self.items) do
    local text = (item.name .. ' ' .. item.desc):lower()
    if #found < MAX_ITEMS and text:find(wanted, 1, true) then
      found[#found + 1] = item
    end
  end
  return found
end

return M
