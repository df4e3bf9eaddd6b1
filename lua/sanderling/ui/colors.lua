--- Grounds for changed lines where the color scheme has none: of Neovim's own, DiffDelete is only red text. What a scheme or the
--- person has defined stays.
local M = {}

local api = vim.api
local highlights = require('sanderling.ui.highlights')

---@class (exact) sanderling.ui.colors.Ground for `background`
---@field dark [string, integer] a color, and one of 256
---@field light [string, integer]

local ADDED = { dark = { '#12402a', 22 }, light = { '#c3ecd0', 194 } }
local ADDED_WORD = { dark = { '#1f6b45', 29 }, light = { '#8fd6a8', 115 } }
local DELETED = { dark = { '#4a1f26', 52 }, light = { '#f7d0d3', 224 } }
local DELETED_WORD = { dark = { '#84303c', 88 }, light = { '#eba0a7', 217 } }

---@type table<string, sanderling.ui.colors.Ground>
local grounds = {
  AgentDiffAdd = ADDED,
  AgentDiffDelete = DELETED,
  AgentHunkAdd = ADDED,
  AgentHunkDelete = DELETED,
  AgentHunkWord = ADDED_WORD,
  AgentHunkDeleteWord = DELETED_WORD,
}

---@type table<string, vim.api.keyset.get_hl_info> as they were made here
local ours = {}

--- Does the color scheme give removed lines a ground?
---@return boolean
local function has_ground()
  local deleted = api.nvim_get_hl(0, { name = 'DiffDelete', link = false })
  return deleted.bg ~= nil or deleted.reverse ~= nil
end

--- Give the groups grounds, unless somebody else has defined them.
local function apply()
  local is_wanted = not has_ground()
  for _, row in ipairs(highlights) do
    local name, link = row[1], row[2]
    local ground, here = grounds[name], api.nvim_get_hl(0, { name = name })
    local is_free = here.link == link or vim.deep_equal(here, ours[name])
    if ground and is_free then
      local color = ground[vim.o.background]
      local definition = is_wanted and { bg = color[1], ctermbg = color[2] } or { link = link }
      api.nvim_set_hl(0, name, definition)
      ours[name] = api.nvim_get_hl(0, { name = name })
    end
  end
end

local augroup = api.nvim_create_augroup('sanderling_colors', {})
local desc = 'Agent: grounds for changed lines'
api.nvim_create_autocmd('ColorScheme', { group = augroup, desc = desc, callback = apply })
api.nvim_create_autocmd('OptionSet', {
  group = augroup,
  pattern = 'background',
  desc = desc,
  callback = apply,
})
apply()

return M
