--- A list in mini.pick, whose <Tab> shows the preview.
---@param list sanderling.picker.List
return function(list)
  local pick = require('mini.pick')
  local items, mappings = {}, {}
  for i, line in ipairs(list.lines) do
    items[i] = { text = line, number = i }
  end
  for _, key in ipairs(list.keys) do
    mappings[('agent_%d'):format(key.action)] = {
      char = key.lhs,
      func = function()
        local item = (pick.get_picker_matches() or {}).current
        if item then
          list.run(key.action, item.number)
        end
        return true -- stop
      end,
    }
  end
  local source = {
    items = items,
    name = list.hint == '' and list.title or ('%s (%s)'):format(list.title, list.hint),
    choose = function(item)
      list.run(1, item.number)
    end,
  }
  if list.preview then
    source.preview = function(buf, item)
      list.preview(buf, item.number)
    end
  end
  pick.start({ source = source, mappings = mappings })
end
