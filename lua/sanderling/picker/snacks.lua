--- A list in snacks.picker.
---@param list sanderling.picker.List
return function(list)
  local actions, maps = {}, {}
  local function acting(action)
    return function(picker, item)
      picker:close()
      if item then
        list.run(action, item.number)
      end
    end
  end
  actions.confirm = acting(1)
  for _, key in ipairs(list.keys) do
    local name = ('agent_%d'):format(key.action)
    actions[name] = acting(key.action)
    maps[key.lhs] = { name, mode = { 'n', 'i' }, desc = key.name, nowait = true }
  end
  local items = {}
  for i, line in ipairs(list.lines) do
    items[i] = { text = line, number = i }
  end
  require('snacks').picker.pick({
    source = 'sanderling',
    title = list.hint == '' and list.title or ('%s (%s)'):format(list.title, list.hint),
    items = items,
    format = 'text',
    layout = not list.preview and { preset = 'select' } or nil,
    preview = list.preview and function(ctx)
      ctx.preview:reset()
      list.preview(ctx.buf, ctx.item.number)
    end or 'none',
    actions = actions,
    win = {
      input = { keys = maps },
      list = { keys = maps },
      preview = { minimal = true, wo = { wrap = true, linebreak = true } },
    },
  })
end
