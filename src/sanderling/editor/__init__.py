"""The face inside Neovim: pynvim's loop, sessions, frames."""
