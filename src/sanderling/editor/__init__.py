"""The frontend in Neovim: pynvim's loop, sessions, frames."""
