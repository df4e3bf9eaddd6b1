#!/usr/bin/env bash
# unpack_neovim.sh DIRECTORY: unpack Debian testing's Neovim into DIRECTORY and print the path of the program.
#
# The system's packages and libraries do not change: apt works on its own state below DIRECTORY, and the program uses the loader and
# the libraries of its release from there. A DIRECTORY with a working Neovim is left alone. Needs apt-get, dpkg and patchelf, but not
# root.
set -euo pipefail

mkdir -p "$(dirname "${1:?usage: unpack_neovim.sh DIRECTORY}")"
directory=$(cd "$(dirname "$1")" && pwd -P)/$(basename "$1")
nvim=$directory/nvim

if [[ -x $nvim ]] && "$nvim" --version >/dev/null 2>&1; then
  echo "$nvim"
  exit
fi
for program in apt-get dpkg patchelf; do
  command -v $program >/dev/null || { echo "unpack_neovim.sh: $program is missing" >&2; exit 1; }
done

part=$(mktemp -d "$directory.XXXXXX")
trap 'rm -rf "$part"' EXIT
mkdir -p "$part"/apt/{etc/apt/{preferences.d,apt.conf.d,trusted.gpg.d},var/lib/apt/lists/partial,var/cache/apt/archives/partial,var/lib/dpkg} "$part/root"
: >"$part/apt/var/lib/dpkg/status"

# The mirror that the system uses; only Debian's own has a release called testing.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 || true)
[[ $mirror ]] || { echo 'unpack_neovim.sh: no Debian mirror in the sources of apt' >&2; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror% } testing main" >"$part/apt/etc/apt/sources.list"

options=(-qq -o "Dir=$part/apt" -o "Dir::State::status=$part/apt/var/lib/dpkg/status" -o "APT::Architecture=$(dpkg --print-architecture)"
  -o APT::Sandbox::User= -o Acquire::Retries=3)
apt-get "${options[@]}" update >&2
apt-get "${options[@]}" install -y --no-install-recommends --download-only neovim >&2
for package in "$part"/apt/var/cache/apt/archives/*.deb; do
  dpkg -x "$package" "$part/root"
done
rm -rf "$part/apt"

loader=$(find "$part/root/usr" -name 'ld-linux*.so.*' | head -n 1)
loader=$directory/${loader#"$part/"}
patchelf --set-interpreter "$loader" --set-rpath "$(dirname "$loader")" "$part/root/usr/bin/nvim"
cat >"$part/nvim" <<END
#!/bin/sh
here=\$(dirname "\$(realpath "\$0")")/root/usr
export VIMRUNTIME="\$here/share/nvim/runtime"
exec "\$here/bin/nvim" --cmd "let &rtp ..= ',\$here/lib/nvim'" "\$@"
END
chmod +x "$part/nvim"
rm -rf "$directory"
mv "$part" "$directory"
trap - EXIT
"$nvim" --version >/dev/null
echo "$nvim"
