--- The glyphs on the screen by name: `icons.fold`. The option `icons` chooses the set; other files contain no glyphs.
---@class sanderling.ui.icons: sanderling.ui.icons.Set
---@field chosen 'unicode'|'ascii'
local M = { chosen = 'unicode' }

---@class (exact) sanderling.ui.icons.Set
---@field header string before the name of the speaker
---@field fold string before a closed fold
---@field earlier string before history that is not loaded yet
---@field more string for omitted text
---@field separator string
---@field hidden string for invisible characters
---@field rule string of a horizontal line
---@field bar string before each line of a file
---@field quote string before each line of a quote
---@field continued string before a continued line
---@field becomes string
---@field failed string
---@field passed string
---@field minus string
---@field gone_above string sign of the first line, where those above it were deleted
---@field added string before a line, or as its sign
---@field changed string
---@field comment string sign of a line with a review comment
---@field steering string
---@field queued string
---@field held string
---@field pending string
---@field in_progress string
---@field completed string
---@field spinner string its frames
---@field open string in the fold column, at an open fold
---@field sent string tokens
---@field received string
---@field cached string
---@field open_quote string
---@field close_quote string

---@type table<string, sanderling.ui.icons.Set>
local sets = {
  unicode = {
    header = '▍',
    fold = '▸',
    earlier = '▲',
    more = '…',
    separator = ' · ',
    hidden = '·',
    rule = '─',
    bar = '│',
    quote = '▎',
    continued = '↪',
    becomes = '→',
    failed = '✗',
    passed = '✓',
    minus = '−',
    gone_above = '‾',
    added = '+',
    changed = '~',
    comment = '»',
    steering = '⇢',
    queued = '↳',
    held = '⏸',
    pending = '☐',
    in_progress = '◐',
    completed = '☑',
    spinner = '⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏',
    open = '▾',
    sent = '↑',
    received = '↓',
    cached = '↻',
    open_quote = '“',
    close_quote = '”',
  },
  ascii = {
    header = '| ',
    fold = '+',
    earlier = '^',
    more = '...',
    separator = ' - ',
    hidden = '?',
    rule = '-',
    bar = '|',
    quote = '|',
    continued = '\\',
    becomes = '->',
    failed = 'x',
    passed = 'ok',
    minus = '-',
    gone_above = '^',
    added = '+',
    changed = '~',
    comment = '>',
    steering = '>>',
    queued = '->',
    held = '||',
    pending = '[ ]',
    in_progress = '[~]',
    completed = '[x]',
    spinner = '-\\|/',
    open = '-',
    sent = 'in ',
    received = 'out ',
    cached = 'cached ',
    open_quote = '"',
    close_quote = '"',
  },
}

---@type table<string, string>
local ascii_of = {}
for name, glyph in pairs(sets.unicode) do
  ascii_of[vim.trim(glyph)] = vim.trim(sets.ascii[name])
end
ascii_of[sets.unicode.hidden] = vim.trim(sets.ascii.separator) -- the host uses it as a separator

--- Return the host's `text` with its glyphs in the chosen set.
---@param text string
---@return string
function M.translated(text)
  return M.chosen == 'ascii' and text:gsub('[\194-\244][\128-\191]+', ascii_of) or text
end

--- Return a glyph that must be one cell wide, which 'ambiwidth' may prevent.
---@param name 'bar'|'continued'|'rule'|'open'
---@return string
function M.narrow(name)
  return vim.api.nvim_strwidth(M[name]) == 1 and M[name] or sets.ascii[name]
end

---@param text string
---@return string
function M.quoted(text)
  return M.open_quote .. text .. M.close_quote
end

return setmetatable(M, {
  __index = function(_, name)
    return sets[M.chosen][name]
  end,
})
