--- Images in prompts, from files or the clipboard.
local M = {}

local processes = require('sanderling.access.process')
local programs = require('sanderling.access.programs')
local words = require('sanderling.ui.words')

local MAX_BYTES = 5 * 1024 * 1024 * 3 / 4 -- APIs accept 5 MB of base64
local MAX_SIDE = 8000 -- in pixels, the limit of the APIs
local PIXELS_PER_TOKEN = 750

---@type [string, string][] first bytes and media type
local KINDS = {
  { '\137PNG\r\n\26\n', 'image/png' },
  { '\255\216\255', 'image/jpeg' },
  { 'GIF87a', 'image/gif' },
  { 'GIF89a', 'image/gif' },
}

---@param data string
---@return string? media_type
function M.kind(data)
  for _, kind in ipairs(KINDS) do
    if vim.startswith(data, kind[1]) then
      return kind[2]
    end
  end
  return data:find('^RIFF....WEBP') and 'image/webp' or nil
end

---@param data string of a PNG
---@param at integer
---@return integer
local function number_at(data, at)
  local a, b, c, d = data:byte(at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

--- Return the width and height of a PNG. The host measures other formats.
---@param data string
---@return integer? width
---@return integer? height
local function sides(data)
  if M.kind(data) == 'image/png' and #data >= 24 then
    return number_at(data, 17), number_at(data, 21)
  end
end

--- Return the image in the form of a resolved mention.
---@param path string
---@param data string
---@param origin string
---@return sanderling.prompt.sources.Found?
---@return string? problem
function M.found(path, data, origin)
  local media_type = M.kind(data)
  if not media_type then
    return nil, 'unsupported image type (use PNG, JPEG, GIF or WebP)'
  elseif #data > MAX_BYTES then
    local limit = MAX_BYTES / 1024 / 1024
    return nil, ('too large: %.1f MB, at most %.1f'):format(#data / 1024 / 1024, limit)
  end
  local width, height = sides(data)
  if width and height and math.max(width, height) > MAX_SIDE then
    return nil, ('too large: %dx%d pixels, at most %d each'):format(width, height, MAX_SIDE)
  end
  local lines = { vim.base64.encode(data) }
  return { path = path, lines = lines, first = 1, origin = origin, media_type = media_type }
end

--- Describe the size of an image: in tokens if its header contains the dimensions, else in bytes.
---@param selection sanderling.Selection
---@return string
function M.size(selection)
  local head = vim.base64.decode(selection.text:sub(1, 32))
  local width, height = sides(head)
  if width and height then
    local tokens = math.ceil(width * height / PIXELS_PER_TOKEN)
    return ('image %dx%d, ~%s'):format(width, height, words.counted(tokens, 'token'))
  end
  return ('image, %d KB'):format(math.ceil(#selection.text * 3 / 4 / 1024))
end

--- Return commands that write the clipboard's image to stdout, the most likely first.
---@return string[][]
local function commands()
  local found = {}
  if vim.env.WAYLAND_DISPLAY then
    found[#found + 1] = { 'wl-paste', '--type', 'image/png' }
  end
  if vim.env.DISPLAY then
    found[#found + 1] = { 'xclip', '-selection', 'clipboard', '-target', 'image/png', '-out' }
  end
  found[#found + 1] = { 'pngpaste', '-' }
  return found
end

--- Return the image on the clipboard. This runs a program and may take a moment.
---@param project string
---@return sanderling.prompt.sources.Found?
---@return string? problem
function M.of_clipboard(project)
  for _, argv in ipairs(commands()) do
    argv[1] = programs.find(argv[1], project)
    if argv[1] then
      local result = processes.result(function(on_exit)
        local ok, process = pcall(vim.system, argv, {}, on_exit)
        return ok and process or nil
      end)
      if not result or result.code ~= 0 or (result.stdout or '') == '' then
        return nil, 'no image on the clipboard'
      end
      return M.found('@clipboard', result.stdout, 'the image on the clipboard')
    end
  end
  return nil, 'needs wl-paste (Wayland), xclip (X11) or pngpaste (macOS: brew install pngpaste)'
end

return M
