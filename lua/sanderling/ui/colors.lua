--- Backgrounds for changed lines where the color scheme has none: Neovim's own DiffDelete is only red text. And the
--- shapes of headings, whose levels most schemes color alike. Groups that a scheme or the user has defined stay.
local M = {}

local api = vim.api
local highlights = require('sanderling.ui.highlights')

---@class (exact) sanderling.ui.colors.Background for `background`
---@field dark [string, integer] a GUI color, and one of 256
---@field light [string, integer]

local ADDED = { dark = { '#12402a', 22 }, light = { '#c3ecd0', 194 } }
local ADDED_WORD = { dark = { '#1f6b45', 29 }, light = { '#8fd6a8', 115 } }
local DELETED = { dark = { '#4a1f26', 52 }, light = { '#f7d0d3', 224 } }
local DELETED_WORD = { dark = { '#84303c', 88 }, light = { '#eba0a7', 217 } }

---@type table<string, sanderling.ui.colors.Background>
local backgrounds = {
  AgentDiffAdd = ADDED,
  AgentDiffDelete = DELETED,
  AgentHunkAdd = ADDED,
  AgentHunkDelete = DELETED,
  AgentHunkWord = ADDED_WORD,
  AgentHunkDeleteWord = DELETED_WORD,
}

---@type table<string, vim.api.keyset.highlight>
local shapes = {
  AgentHeading1 = { bold = true, underline = true },
  AgentHeading2 = { bold = true },
  AgentHeading3 = { italic = true },
}

---@type table<string, vim.api.keyset.get_hl_info> as set here
local ours = {}

---@return boolean
local function has_background()
  local deleted = api.nvim_get_hl(0, { name = 'DiffDelete', link = false })
  return deleted.bg ~= nil or deleted.reverse ~= nil
end

--- Set the backgrounds and shapes, except of groups that are defined elsewhere.
local function apply()
  for name, shape in pairs(shapes) do
    local here = api.nvim_get_hl(0, { name = name })
    here.default = nil
    if vim.tbl_isempty(here) then
      api.nvim_set_hl(0, name, shape)
    end
  end
  local is_wanted = not has_background()
  for _, row in ipairs(highlights) do
    local name, link = row[1], row[2]
    local background, here = backgrounds[name], api.nvim_get_hl(0, { name = name })
    local is_free = here.link == link or vim.deep_equal(here, ours[name])
    if background and is_free then
      local color = background[vim.o.background]
      local definition = is_wanted and { bg = color[1], ctermbg = color[2] } or { link = link }
      api.nvim_set_hl(0, name, definition)
      ours[name] = api.nvim_get_hl(0, { name = name })
    end
  end
end

local augroup = api.nvim_create_augroup('sanderling_colors', {})
local desc = 'Agent: backgrounds for changed lines'
api.nvim_create_autocmd('ColorScheme', { group = augroup, desc = desc, callback = apply })
api.nvim_create_autocmd('OptionSet', {
  group = augroup,
  pattern = 'background',
  desc = desc,
  callback = apply,
})
apply()

return M
