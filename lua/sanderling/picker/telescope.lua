--- A list in telescope.
---@param list sanderling.picker.List
return function(list)
  local actions = require('telescope.actions')
  local state = require('telescope.actions.state')
  local numbers = {}
  for i in ipairs(list.lines) do
    numbers[i] = i
  end
  local preview = list.preview
  require('telescope.pickers')
    .new({}, {
      prompt_title = list.title,
      results_title = list.hint ~= '' and list.hint or nil,
      finder = require('telescope.finders').new_table({
        results = numbers,
        entry_maker = function(i)
          return { value = i, ordinal = list.lines[i], display = list.lines[i] }
        end,
      }),
      sorter = require('telescope.config').values.generic_sorter({}),
      previewer = preview and require('telescope.previewers').new_buffer_previewer({
        title = 'Preview',
        define_preview = function(self, entry)
          preview(self.state.bufnr, entry.value)
          vim.wo[self.state.winid].wrap = true
        end,
      }) or nil,
      attach_mappings = function(buf, map)
        local function acting(action)
          return function()
            local entry = state.get_selected_entry()
            actions.close(buf)
            if entry then
              list.run(action, entry.value)
            end
          end
        end
        actions.select_default:replace(acting(1))
        for _, key in ipairs(list.keys) do
          map({ 'i', 'n' }, key.lhs, acting(key.action), { desc = key.name, nowait = true })
        end
        return true
      end,
    })
    :find()
end
