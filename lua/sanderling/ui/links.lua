--- Pages that a browser shows.
local M = {}

local message = require('sanderling.ui.message')
local unseen = require('sanderling.ui.unseen')

local MAX_BYTES = 2048 -- of an address that is asked about: what is longer cannot be read
local ADDRESS = '()(https?://[^%s<>"`|\\^{}\127]+)()'
local AFTER = "[)%]%.,;:!?'*_~]$" -- Markdown, or a sentence, goes on with it

--- Open `url` in the person's browser; where there is none, they read it in :messages.
---@param url string
function M.open(url)
  if not url:find('^https?://%S+$') then
    message.tell('That is not the address of a page: it was not opened.', vim.log.levels.WARN)
    return
  end
  local ok, _, err = pcall(vim.ui.open, url)
  if not ok or err then
    message.tell('No browser could be opened: ' .. url, vim.log.levels.WARN)
  end
end

--- The address in `line` at or behind the byte `col`, else the last one before it.
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

--- Open the page that a line names, when the user has seen its whole address: what a link says can be another one.
---@param line string
---@param col integer of the cursor, from 0
function M.confirm(line, col)
  local first = math.max(1, col - MAX_BYTES)
  local url = M.at(line:sub(first, col + MAX_BYTES), col + 1 - first)
  if not url then
    return message.tell('No link is here.')
  elseif url:find('[\128-\255]') then
    return message.tell(
      'This address has letters that can pass for others: copy it if you trust it.'
    )
  elseif #url > MAX_BYTES / 2 then
    return message.tell('This address is too long to be read: it is not opened.')
  end
  local choices = { 'Open it', 'Leave it' }
  vim.ui.select(choices, {
    prompt = unseen.visible(url),
    kind = 'sanderling_confirm',
  }, function(choice)
    if choice == choices[1] then
      M.open(url)
    end
  end)
end

return M
