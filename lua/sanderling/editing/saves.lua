--- Reports the user's saves to the host, which would attribute them to a running command.
local api = vim.api
local host = require('sanderling.host')

api.nvim_create_autocmd('BufWritePost', {
  group = api.nvim_create_augroup('sanderling_saves', {}),
  desc = 'Agent: report your saves, so that no command gets them',
  callback = function(args)
    local disk = package.loaded['sanderling.editing.disk'] -- not loaded: nothing was written by us
    local path = vim.uv.fs_realpath(api.nvim_buf_get_name(args.buf))
    if path and not (disk and disk.are_hooks_running) then
      host.tell_open_sessions({ type = 'note_saved', path = path })
    end
  end,
})
