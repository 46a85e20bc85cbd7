# find, du and rm -rf of many files.
mkdir many
cd many
seq $((names / 100)) | xargs -P 16 -I @ sh -ec 'mkdir @; cd @; seq 100 | sed "s/.*/file &/" | split -l 1 - f'
cd ..
test "$(find many -type f | wc -l)" = "$names"
test "$(find "$other/many" -type f -name 'f*' -size -2 | wc -l)" = "$names"
echo 3 > /proc/sys/vm/drop_caches
test "$(du --inodes -s many | cut -f 1)" = $((names + names / 100 + 1))
grep -rl 'file 77' many | wc -l | grep -qx $((names / 100))
rm -rf many
test ! -e many
test -z "$(ls -A)"
