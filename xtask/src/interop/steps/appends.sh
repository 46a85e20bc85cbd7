# Four that append to one file and eight that want to be the one who makes it.
for writer in 1 2 3 4; do
    (for line in $(seq 50); do echo "$writer $line" >> log; done) &
done
wait
test "$(sort -u log | wc -l)" = 200
test "$(wc -c < log)" = "$(for w in 1 2 3 4; do for l in $(seq 50); do echo "$w $l"; done; done | wc -c)"
for round in $(seq 5); do
    for racer in $(seq 8); do
        here=$dir
        test $((racer % 2)) = 0 || here=$other
        (set -C; echo $racer > "$here/made-$round") 2> /dev/null && echo $racer >> "$io/made-$round" &
    done
    wait
    test "$(wc -l < "$io/made-$round")" = 1
    echo 3 > /proc/sys/vm/drop_caches
    test "$(cat made-$round)" = "$(cat "$io/made-$round")"
    mkdir d-$round
    not mkdir "$other/d-$round"
done
