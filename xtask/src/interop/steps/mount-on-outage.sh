# The server does not answer for some seconds in the middle of a copy; then the copy goes on.
cd "$there"
head -c 20000000 /dev/urandom > "$there/../bytes"
for n in 1 2 3; do cp "$there/../bytes" "$n"; done & copies=$!
until test -e 2; do sleep 0.02; done
outage
wait $copies
"$remora" umount "$there"
"$remora" mount "$url" "$there"
for n in 1 2 3; do cmp "$there/../bytes" "$there/$n"; done
"$remora" umount "$there"
trap - EXIT
