# What is open lives on without its name: removed, replaced, and renamed.
echo old > file
exec 3< file 4>> file
rm file
test "$(cat <&3)" = old
echo more >&4
exec 3<&- 4>&-
test -z "$(ls -A)"

echo old > file
echo new > other
exec 3< file
mv other file
test "$(cat file)" = new
test "$(cat <&3)" = old
exec 3<&-
test "$(ls -A)" = file

exec 3>> file
mkdir d
mv file d/moved
echo more >&3
exec 3>&-
test "$(cat d/moved)" = "$(printf 'new\nmore')"
not rmdir d
not mv d/moved d/moved/below
rm -rf d
test -z "$(ls -A)"
