--- A page that lists things, each in one or more lines. It can be drawn again, and its keys act on the thing at the cursor.
local api = vim.api
local ask = require('sanderling.host.ask')
local float = require('sanderling.ui.float')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.screens.listing.Opts
---@field title string
---@field place sanderling.ui.keys.Place also the name of the page, and of the command that shows it: `:AgentPlugins`
---@field none string the message if there is nothing to list
---@field keys [string, string][] named in the footer
---@field request fun(): table that the host answers with the things, under the name `place`
---@field key string the field by which a thing is known again
---@field write fun(thing: table, add: fun(line: string, hl: string)) adds its lines
---@field actions table<string, fun(thing: table)>

---@class (exact) sanderling.screens.Listing
---@field private opts sanderling.screens.listing.Opts
---@field private ns integer
---@field private buf? integer while it is shown
---@field private win? integer
---@field private things table<integer, table> by lnum
local Listing = {}
Listing.__index = Listing

---@param opts sanderling.screens.listing.Opts
---@return sanderling.screens.Listing
function Listing.new(opts)
  local ns = api.nvim_create_namespace('sanderling_' .. opts.place)
  return setmetatable({ opts = opts, ns = ns, things = {} }, Listing)
end

---@param sentence string
function Listing.complain(sentence)
  message.tell(sentence, vim.log.levels.ERROR)
end

---@private
---@param on_answer fun(things: table[], is_here: boolean)
function Listing:read(on_answer)
  ask(self.opts.request(), function(found, is_here)
    on_answer(found[self.opts.place], is_here)
  end, self.complain)
end

--- Write the things; each line belongs to one.
---@private
---@param things table[]
---@return string[] lines
---@return sanderling.access.page.Mark[]
---@return table<integer, table> things by lnum
function Listing:text_of(things)
  local lines, marks, of = {}, {}, {}
  for _, thing in ipairs(things) do
    self.opts.write(thing, function(line, hl)
      lines[#lines + 1] = words.plain(line)
      marks[#lines] = { row = #lines - 1, end_col = #lines[#lines], hl = hl }
      of[#lines] = thing
    end)
  end
  return lines, marks, of
end

--- Draw the things; the cursor stays on its thing.
---@private
---@param things table[]
function Listing:draw(things)
  local before, key = self.things[vim.fn.line('.', self.win)], self.opts.key
  local lines, marks, of = self:text_of(things)
  page.write(self.buf, self.ns, lines, marks)
  self.things = of
  for lnum, thing in vim.spairs(of) do
    if before and thing[key] == before[key] then
      return api.nvim_win_set_cursor(self.win, { lnum, 0 })
    end
  end
end

--- Read the things again, if they are shown.
function Listing:refresh()
  if not self.buf then
    return
  end
  self:read(function(things)
    if not self.buf then
      return
    elseif #things == 0 then
      self:close()
      message.tell(self.opts.none)
    else
      self:draw(things)
    end
  end)
end

---@return boolean
function Listing:is_shown()
  return self.win ~= nil
end

function Listing:close()
  api.nvim_buf_delete(self.buf, { force = true })
end

---@private
---@param things table[]
function Listing:open(things)
  local actions = {}
  for name, act in pairs(self.opts.actions) do
    actions[name] = function()
      local thing = self.things[vim.fn.line('.')]
      if thing then
        act(thing)
      end
    end
  end
  self.buf, self.win = page.view(self.opts.title, (self:text_of(things)), self.opts.place, {
    place = self.opts.place,
    footer = float.naming(self.opts.keys),
    on_close = function()
      self.buf, self.win, self.things = nil, nil, {}
    end,
    actions = actions,
  })
  self:draw(things)
end

--- Show the things; if they are shown already, go there.
function Listing:show()
  if self:is_shown() then
    return api.nvim_set_current_win(self.win)
  end
  self:read(function(things, is_here)
    if #things == 0 then
      message.tell(self.opts.none)
    elseif not is_here then
      message.tell(
        ('%s read. Run :Agent%s again to show them.'):format(self.opts.title, self.opts.title)
      )
    else
      self:open(things)
    end
  end)
end

return Listing
