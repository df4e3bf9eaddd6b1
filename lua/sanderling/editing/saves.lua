--- Saves of the person's are told to the host, which would take them for the work of a command that just runs.
local api = vim.api
local host = require('sanderling.host')

api.nvim_create_autocmd('BufWritePost', {
  group = api.nvim_create_augroup('sanderling_saves', {}),
  desc = 'Agent: what you save is yours, whatever command runs',
  callback = function(args)
    local disk = package.loaded['sanderling.editing.disk'] -- who has not loaded it writes no buffer
    local path = vim.uv.fs_realpath(api.nvim_buf_get_name(args.buf))
    if path and not (disk and disk.are_hooks_running) then
      host.tell_open_sessions({ type = 'note_saved', path = path })
    end
  end,
})
