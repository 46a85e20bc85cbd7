# A directory of the export that something is mounted over: what is below it is what is served.
cd "${dir%/*}/covered"
test "$(cat below)" = below
test ! -e above
test "$(stat -c %d .)" = "$(stat -c %d ..)"
test "$(ls -i .. | sed -n 's/ *\([0-9]*\) covered/\1/p')" = "$(stat -c %i .)"
echo new > new
mv new ../moved
mv ../moved .
echo 3 > /proc/sys/vm/drop_caches
test "$(cat moved)" = new
rm moved
find .. -xdev > /dev/null
