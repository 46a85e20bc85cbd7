# Two mounts that share no cache, as two machines: what one has closed, the other opens.
for round in $(seq 10); do
    seq $round $((round * 100)) > file
    test "$(cksum < "$other/file")" = "$(cksum < file)"
    echo $round >> "$other/file"
    test "$(tail -n 1 file)" = $round
    mv file file-$round
    test "$(tail -n 1 "$other/file-$round")" = $round
    rm "$other/file-$round"
    not cat file-$round
done
mkdir d
for i in $(seq 50); do echo $i > d/$i; done
cat $(seq -f "$other/d/%g" 50) | sort -n | uniq | wc -l | grep -qx 50
mv d e
test "$(cat "$other/e/7")" = 7
rm -rf "$other/e"
test -z "$(find . -mindepth 1)"
