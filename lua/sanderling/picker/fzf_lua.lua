--- A list in fzf-lua. fzf gets the number of each item before its line, and does not show it.

--- Return a key as fzf names it: `ctrl-r` for <C-r>, nil for one that it does not have.
---@param lhs string
---@return string?
local function fzf_key(lhs)
  local modifier, key = lhs:match('^<([CcMmAa])%-(%w)>$')
  return modifier and ('%s-%s'):format(modifier:lower() == 'c' and 'ctrl' or 'alt', key:lower())
end

---@param line string
---@return integer
local function number_of(line)
  return assert(tonumber(line:match('^%d+')))
end

---@param preview fun(buf: integer, item: integer)
---@return table class
local function previewer(preview)
  local class = require('fzf-lua.previewer.builtin').base:extend()
  function class:populate_preview_buf(line)
    local buf = self:get_tmp_buffer()
    self:set_preview_buf(buf, true)
    preview(buf, number_of(line))
  end
  return class
end

---@param list sanderling.picker.List
return function(list)
  local function acting(action)
    return function(lines)
      if lines[1] then
        list.run(action, number_of(lines[1]))
      end
    end
  end
  local actions = { enter = acting(1) }
  for _, key in ipairs(list.keys) do
    local name = fzf_key(key.lhs)
    if name then
      actions[name] = acting(key.action)
    end
  end
  local lines = {}
  for i, line in ipairs(list.lines) do
    lines[i] = ('%d\t%s'):format(i, line)
  end
  require('fzf-lua').fzf_exec(lines, {
    winopts = { title = (' %s '):format(list.title) },
    actions = actions,
    previewer = list.preview and {
      _ctor = function()
        return previewer(list.preview)
      end,
    } or nil,
    fzf_opts = {
      ['--delimiter'] = '\t',
      ['--with-nth'] = '2..',
      ['--no-multi'] = true,
      ['--header'] = list.hint ~= '' and list.hint or nil,
    },
  })
end
