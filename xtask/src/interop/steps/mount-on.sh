# Mounts $url with `remora mount`, and works in a directory of it.
test "$(id -u)" = 0 || { echo "needs root"; exit 77; }
export XDG_STATE_HOME="$PWD/state" XDG_CACHE_HOME="$PWD/cache"
mkdir -m 700 state cache
mkdir there
there=$PWD/there
trap '"$remora" umount --force "$there" || :' EXIT
"$remora" mount "$url" "$there"
dir=$there/work
mkdir "$dir"
cd "$dir"
