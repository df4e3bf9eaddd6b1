--- Queued prompts, below the transcript's text.
local M = {}

local blocks = require('sanderling.transcript.blocks')
local config = require('sanderling.config')
local icons = require('sanderling.ui.icons')
local words = require('sanderling.ui.words')

local MAX_LINES = 3

---@class (exact) sanderling.transcript.blocks.waiting.Step
---@field prompt sanderling.Prompt
---@field sign string
---@field when string

---@param waiting sanderling.session.state.Waiting|sanderling.WaitingChanged
---@return sanderling.transcript.blocks.waiting.Step[] in the order of sending
function M.in_order(waiting)
  local steps = {} ---@type sanderling.transcript.blocks.waiting.Step[]
  local function add(prompts, sign, when)
    for _, prompt in ipairs(prompts or {}) do
      steps[#steps + 1] = { prompt = prompt, sign = sign, when = when }
    end
  end
  if waiting.is_held then
    add(waiting.steering, icons.held, 'held')
    add(waiting.queued, icons.held, 'held')
  else
    add(waiting.steering, icons.steering, 'with the next tool result')
    add(waiting.queued, icons.queued, 'after this turn')
  end
  return steps
end

--- Return a line for each of the first prompts, and the number of further ones.
---@param event sanderling.session.state.Waiting|sanderling.WaitingChanged
---@param footer sanderling.transcript.footer.Footer
---@return sanderling.transcript.footer.Lines?
local function lines_of(event, footer)
  local steps = M.in_order(event)
  local lines = {} ---@type sanderling.transcript.footer.Lines
  for i = 1, math.min(#steps, MAX_LINES) do
    local sign, text = steps[i].sign .. ' ', words.first_line(steps[i].prompt.text)
    text = words.fitting(text, footer:width() - vim.api.nvim_strwidth(sign))
    lines[i] = { { sign, 'AgentBusy' }, { text, 'AgentStatus' } }
  end
  if #steps > MAX_LINES then
    local more = ('%s %d more: :Agent queue'):format(icons.more, #steps - MAX_LINES)
    lines[#lines + 1] = { { more, 'AgentPlaceholder' } }
  end
  if event.is_held and #steps > 0 then
    local key = config.key_name(config.options.keys.send_normal, ':Agent queue')
    local text = ('held: %s on an empty prompt sends them'):format(key)
    vim.list_extend(lines, footer:wrapped(text, 'AgentWarning'))
  end
  return #lines > 0 and lines or nil
end

---@type table<string, sanderling.transcript.blocks.Draw>
M.draw = {}

function M.draw.waiting_changed(self, event)
  self.footer:set('waiting', lines_of(event, self.footer))
end

--- Show that an accepted prompt waits for git, a language server or the clipboard.
function M.draw.local_looking_up(self, event)
  local text = 'Resolving mentions ' .. icons.more
  self.footer:set('looking', event.is_on and self.footer:wrapped(text, 'AgentBusy') or nil)
end

blocks.register({ draw = M.draw })

return M
