--- Opening web pages in the browser.
local M = {}

local message = require('sanderling.ui.message')
local programs = require('sanderling.access.programs')
local unseen = require('sanderling.ui.unseen')

local MAX_BYTES = 2048 -- searched on each side of the cursor; an address may have half as many
local ADDRESS = '()(https?://[^%s<>"`|\\^{}\127]+)()'
local AFTER = "[)%]%.,;:!?'*_~]$" -- Markdown or punctuation that follows an address

--- Open `url` in the browser; without one, show it in :messages.
---@param url string
function M.open(url)
  if not url:find('^https?://%S+$') then
    message.tell('Not a web address, so it was not opened.', vim.log.levels.WARN)
    return
  end
  local err ---@type string?
  local ok = programs.with_path(vim.fs.root(0, '.git') or vim.fn.getcwd(), function()
    err = select(2, vim.ui.open(url))
  end)
  if not ok or err then
    message.tell('Cannot open a browser: ' .. url, vim.log.levels.WARN)
  end
end

--- Return the address in `line` at or after the byte `col`, else the last one before it.
---@param line string
---@param col integer from 0
---@return string?
function M.at(line, col)
  local last ---@type string?
  for _, url, behind in line:gmatch(ADDRESS) do
    while url:find(AFTER) do
      url = url:sub(1, -2)
    end
    last = url
    if behind - 1 > col then
      break
    end
  end
  return last
end

--- Open the page that a line names after showing its whole address: the link's text may show another one.
---@param line string
---@param col integer of the cursor, from 0
function M.confirm(line, col)
  local first = math.max(1, col - MAX_BYTES)
  local url = M.at(line:sub(first, col + MAX_BYTES), col + 1 - first)
  if not url then
    return message.tell('No link here.')
  elseif url:find('[\128-\255]') then
    return message.tell(
      'This address has letters that can look like others. Copy it if you trust it.'
    )
  elseif #url > MAX_BYTES / 2 then
    return message.tell('This address is too long to check, so it was not opened.')
  end
  message.confirm(unseen.visible(url), { 'Open it', 'Leave it' }, function()
    M.open(url)
  end)
end

return M
