--- Texts for tokens and cost.
local api = vim.api
local icons = require('sanderling.ui.icons')
local words = require('sanderling.ui.words')

local M = {}

---@param usage sanderling.Usage
---@return integer
local function prompt_tokens(usage)
  return (usage.input_tokens or 0)
    + (usage.cache_read_input_tokens or 0)
    + (usage.cache_creation_input_tokens or 0)
end

---@param usage sanderling.Usage
---@return integer
local function all_tokens(usage)
  return prompt_tokens(usage) + (usage.output_tokens or 0)
end

---@param usage sanderling.UsageUpdated
---@return integer? percentage of the context window in use
function M.context_percent(usage)
  local window = usage.context_window_tokens or 0
  return window > 0 and math.ceil(100 * all_tokens(usage.last_request) / window) or nil
end

local NO_PRICE = 'no price'

--- Return the cost of the session: `+?` behind it, or words instead, where a price is unknown.
---@param usage sanderling.UsageUpdated
---@return string
local function cost(usage)
  local usd = usage.cost_usd or 0
  if usage.is_priced then
    return words.dollars(usd)
  end
  return usd > 0 and words.dollars(usd) .. '+?' or NO_PRICE
end

---@param usage? sanderling.UsageUpdated
---@return string?
function M.turn_cost(usage)
  if not usage or usage.is_priced and (usage.turn_cost_usd or 0) == 0 then
    return nil
  end
  return usage.is_priced and words.dollars(usage.turn_cost_usd) or NO_PRICE
end

--- Return the tokens and the cost of the session.
---@param usage sanderling.UsageUpdated
---@return string
function M.in_all(usage)
  return ('%s tokens, %s'):format(words.short(all_tokens(usage.total)), cost(usage))
end

--- Return the session's usage for the statusline.
---@param usage? sanderling.UsageUpdated
---@return string
function M.describe(usage)
  if not usage then
    return '0 tokens'
  end
  local parts = { words.short(all_tokens(usage.total)) .. ' tokens' }
  local percent = M.context_percent(usage)
  if percent then
    parts[#parts + 1] = ('context %d%%'):format(percent)
  end
  parts[#parts + 1] = cost(usage)
  return table.concat(parts, ', ')
end

--- Return the usage for a winbar: the turn's tokens in and out, cached share, context, cost of session and turn. Zero
--- values are left out, and each step of `brevity` leaves out more, the least important first.
---@param usage sanderling.UsageUpdated
---@param brevity integer from 0 to 5
---@return string
local function usage_words(usage, brevity)
  local parts = {}
  local turn = usage.turn or {}
  local input, percent = prompt_tokens(turn), M.context_percent(usage)
  local cached = input > 0 and math.floor(100 * (turn.cache_read_input_tokens or 0) / input) or 0
  local function add(max_brevity, is_something, format, ...)
    if brevity <= max_brevity and is_something then
      parts[#parts + 1] = format:format(...)
    end
  end
  local sent, received = words.short(input), words.short(turn.output_tokens or 0)
  add(2, input > 0, '%s%s %s%s', icons.sent, sent, icons.received, received)
  add(1, cached > 0, '%s%d%%', icons.cached, cached)
  add(4, percent ~= nil, 'ctx %d%%', percent or 0)
  add(3, not usage.is_priced or (usage.cost_usd or 0) > 0, '%s', cost(usage))
  add(
    0,
    usage.is_priced and (usage.turn_cost_usd or 0) > 0,
    '(+%s)',
    words.dollars(usage.turn_cost_usd)
  )
  return table.concat(parts, ' ')
end

--- Return as much of the usage as fits into `width` cells.
---@param usage? sanderling.UsageUpdated
---@param width integer
---@return string
function M.fitting(usage, width)
  for brevity = 0, usage and 5 or -1 do
    local text = usage_words(usage, brevity)
    if api.nvim_strwidth(text) <= width then
      return text
    end
  end
  return ''
end

return M
