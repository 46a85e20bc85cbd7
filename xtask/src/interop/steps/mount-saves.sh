# How editors and office programs save: nobody sees half a file, and the mode stays.
seq 2000 > text
chmod 640 text
# Vim with a backup: the old file gets another name, the new one is made, synced and given the mode.
mv text text~
dd if=text~ of=text bs=4k conv=excl,fsync status=none
chmod --reference=text~ text
rm text~
# An office program: a lock file made exclusively, a temporary file, synced and renamed over the document.
(set -C; echo "me,host" > .~lock.text#)
if (set -C; echo "other" > .~lock.text#) 2> /dev/null; then exit 1; fi
for round in 1 2 3 4 5; do
    { cat text; echo "round $round"; } > lu1.tmp
    dd if=lu1.tmp of=lu2.tmp conv=fsync status=none
    chmod --reference=text lu2.tmp
    mv -f lu2.tmp text
    rm lu1.tmp
    test "$(tail -n 1 "$other/text")" = "round $round"
done
rm .~lock.text#
test "$(stat -c '%a %h' text)" = "640 1"
test "$(wc -l < text)" = 2005
vim=$(command -v vim || command -v vim.tiny || true)
if [ -n "$vim" ]; then
    for backup in nobackup,nowritebackup backup,backupcopy=no backup,backupcopy=yes; do
        "$vim" -Nu NONE -n -es -c "set $(echo $backup | tr , ' ')" -c '$s/$/ vim/' -c wq text < /dev/null
    done
    test "$(tail -n 1 "$other/text")" = "round 5 vim vim vim"
    test "$(stat -c %a text)" = 640
    # With a swap file beside the text.
    "$vim" -Nu NONE -es -c '1d' -c wq text < /dev/null
    test "$(head -n 1 text)" = 2
    test -z "$(ls -A | grep swp || true)"
else
    echo "vim is not installed: only its system calls were made"
fi
