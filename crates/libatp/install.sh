#!/bin/sh
# Installs libatp below PREFIX: the libraries that BUILT holds, the header and what pkg-config
# reads. `cargo xtask install-libatp --prefix PREFIX` builds them and calls this. DESTDIR, as
# everywhere, is put before it all but is no part of what pkg-config says.
set -eu
prefix=${1:?usage: install.sh PREFIX BUILT VERSION} built=${2:?} version=${3:?}
case $prefix in
/*) ;;
*) echo "install.sh: PREFIX must be an absolute path" >&2; exit 2 ;;
esac
here=$(dirname "$0")
major=${version%%.*}
to=${DESTDIR:-}$prefix

install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 "$here/include/atp.h" "$to/include/atp.h"
install -m 644 "$built/libatp.a" "$to/lib/libatp.a"
install -m 755 "$built/libatp.so" "$to/lib/libatp.so.$version"
ln -sf "libatp.so.$version" "$to/lib/libatp.so.$major"
ln -sf "libatp.so.$major" "$to/lib/libatp.so"
# A path may hold what sed takes for its own.
quoted=$(printf '%s' "$prefix" | sed 's/[&|\\]/\\&/g')
sed -e "s|@PREFIX@|$quoted|" -e "s|@VERSION@|$version|" "$here/atp.pc.in" >"$to/lib/pkgconfig/libatp.pc"
chmod 644 "$to/lib/pkgconfig/libatp.pc"
