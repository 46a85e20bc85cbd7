# Many names in a directory: made, listed with attributes, listed while they are removed, removed.
mkdir d
cd d
seq -f 'a-name-of-some-length-%05g' "$names" | xargs touch
echo 3 > /proc/sys/vm/drop_caches
test "$(ls -l | grep -c a-name)" = "$names"
test "$(ls -U | sort | uniq -d | wc -l)" = 0
test "$(ls -U "$other/d" | wc -l)" = "$names"
find . -name '*[13579]' -delete
test "$(find . -type f | wc -l)" = $((names / 2))
cd ..
rm -rf d
test -z "$(ls -A)"
