--- Characters that a model reads and a user does not see: those without a visible shape, unusual blanks, and bidi
--- controls. src/sanderling/text.py has the same list (tests/nvim/test_unseen.py compares them).
---
--- LPeg takes 4 ms for 2 MB of text, and at most 50 ms; Lua patterns would have to be tried one after the other.
local M = {}

local lpeg = vim.lpeg

local NUMBERED = 8 -- of a run; of a longer one, the length is shown
local LONGEST_CELL = 64 -- bytes
local CHARACTER = '[%z\1-\127\194-\244][\128-\191]*'

-- First and last code point.
local BLANKS = {
  { 0xA0, 0xA0 },
  { 0x1680, 0x1680 },
  { 0x2000, 0x200A },
  { 0x202F, 0x202F },
  { 0x205F, 0x205F },
  { 0x3000, 0x3000 },
}
local CONTROLS = { { 0x00, 0x08 }, { 0x0B, 0x1F }, { 0x7F, 0x9F } }
local SHAPELESS = {
  { 0xAD, 0xAD },
  { 0x34F, 0x34F },
  { 0x600, 0x605 },
  { 0x61C, 0x61C },
  { 0x6DD, 0x6DD },
  { 0x70F, 0x70F },
  { 0x890, 0x891 },
  { 0x8E2, 0x8E2 },
  { 0x115F, 0x1160 },
  { 0x17B4, 0x17B5 },
  { 0x180B, 0x180F },
  { 0x200B, 0x200F },
  { 0x2028, 0x202E },
  { 0x2060, 0x206F },
  { 0x2800, 0x2800 },
  { 0x3164, 0x3164 },
  { 0xFE00, 0xFE0F },
  { 0xFEFF, 0xFEFF },
  { 0xFFA0, 0xFFA0 },
  { 0xFFF0, 0xFFFB },
  { 0x110BD, 0x110BD },
  { 0x110CD, 0x110CD },
  { 0x13430, 0x13442 },
  { 0x16FE4, 0x16FE4 },
  { 0x1BCA0, 0x1BCA3 },
  { 0x1D159, 0x1D159 },
  { 0x1D173, 0x1D17A },
  { 0xE0000, 0xE0FFF },
}
-- Characters that can be emoji: U+FE0F after them and U+200D between them are usual.
local EMOJI = {
  { 0xA9, 0xA9 },
  { 0xAE, 0xAE },
  { 0x203C, 0x203C },
  { 0x2049, 0x2049 },
  { 0x2122, 0x2122 },
  { 0x2139, 0x2139 },
  { 0x2194, 0x21AA },
  { 0x231A, 0x23FF },
  { 0x24C2, 0x24C2 },
  { 0x25AA, 0x25FE },
  { 0x2600, 0x27BF },
  { 0x2934, 0x2935 },
  { 0x2B05, 0x2B55 },
  { 0x3030, 0x3030 },
  { 0x303D, 0x303D },
  { 0x3297, 0x3299 },
  { 0x1F000, 0x1FAFF },
}

---@param code integer
---@return string
local function char(code)
  return vim.fn.nr2char(code, true)
end

--- Return a pattern for one character of `ranges`.
---@param ranges [integer, integer][]
local function one_of(ranges)
  local pattern = lpeg.P(false)
  for _, range in ipairs(ranges) do
    pattern = pattern + lpeg.utfR(range[1], range[2])
  end
  return pattern
end

local blank, control, shapeless = one_of(BLANKS), one_of(CONTROLS), one_of(SHAPELESS)
local emoji, unseen = one_of(EMOJI), blank + control + shapeless
local selector, joiner, keycap = lpeg.utfR(0xFE0E, 0xFE0F), lpeg.P(char(0x200D)), char(0x20E3)
local usual = emoji * selector ^ -1 * (joiner * #emoji) ^ -1
  + lpeg.B(lpeg.S('0123456789#*')) * selector * keycap
  + lpeg.P('\r') * (#lpeg.P('\n') + -1) -- the end of a line, which Neovim shows
local begins = {} ---@type table<string, true> the first bytes of all these characters
for _, ranges in ipairs({ BLANKS, CONTROLS, SHAPELESS, EMOJI }) do
  for _, range in ipairs(ranges) do
    for code = range[1], math.min(range[2], range[1] + 0x20) do
      begins[code == 0 and '\0' or char(code):sub(1, 1)] = true
    end
  end
end
-- A visible character: a quick test first, then an exact one.
local seen = (1 - lpeg.S(table.concat(vim.tbl_keys(begins)))) ^ 1 + usual + (1 - unseen)
local next_run = seen ^ 0 * lpeg.Cp() * (-usual * unseen) ^ 1 * lpeg.Cp()

---@param text string a character
---@return string
local function number(text)
  return ('<U+%04X>'):format(#text == 1 and text:byte() or vim.fn.char2nr(text, true))
end

local numbered = lpeg.Cs((seen + control + unseen / number) ^ 0)

--- Return `text` with each unseen character as its number, `<U+3164>`. Neovim shows control characters itself, as `^X`.
---@param text string
---@return string
function M.visible(text)
  return numbered:match(text)
end

---@type table<string, vim.lpeg.Pattern> by sign
local marking = {}

--- Return `text` with `sign` for unseen characters, and spaces for unusual blanks.
---@param text string
---@param sign string
---@return string
function M.marked(text, sign)
  marking[sign] = marking[sign]
    or lpeg.Cs((seen + blank / ' ' + unseen / (sign:gsub('%%', '%%%%'))) ^ 0)
  return marking[sign]:match(text)
end

---@class (exact) sanderling.ui.unseen.Run
---@field end_col integer where the next cell begins: a selector shares the cell of the character before it
---@field text string the numbers of its characters

--- Return the first `most` runs of unseen characters in `text`.
---@param text string
---@param most integer
---@return sanderling.ui.unseen.Run[]
function M.runs(text, most)
  local runs = {} ---@type sanderling.ui.unseen.Run[]
  local first, behind = next_run:match(text)
  while first and #runs < most do
    local numbers, count = {}, 0
    for character in text:sub(first, behind - 1):gmatch(CHARACTER) do
      count = count + 1
      numbers[count] = count <= NUMBERED and number(character) or nil
    end
    local last = text:sub(first, behind - 1):match(CHARACTER .. '$')
    local cells = (last .. text:sub(behind, behind + LONGEST_CELL)):gsub('%z', '\n')
    local more = count > NUMBERED and ('<%d in all>'):format(count) or ''
    runs[#runs + 1] = {
      end_col = behind - 1 - #last + vim.fn.byteidx(cells, 1),
      text = table.concat(numbers) .. more,
    }
    first, behind = next_run:match(text, behind)
  end
  return runs
end

--- Count the unseen characters of `text`.
---@param text string
---@return integer
---@return string[] numbers of the first kinds of them, each once
function M.count(text)
  local count, numbers, first, behind = 0, {}, next_run:match(text)
  while first do
    local run = text:sub(first, behind - 1)
    count = count + select(2, run:gsub(CHARACTER, ''))
    for character in run:gmatch(CHARACTER) do
      if #numbers == NUMBERED then
        break
      elseif not vim.list_contains(numbers, number(character)) then
        numbers[#numbers + 1] = number(character)
      end
    end
    first, behind = next_run:match(text, behind)
  end
  return count, numbers
end

return M
