# Locks with `nolock`: they hold within one client.
touch lock
for i in $(seq 5); do
    flock lock sh -c 'n=$(cat count 2> /dev/null || echo 0); sleep 0.05; echo $((n + 1)) > count' &
done
wait
test "$(cat count)" = 5
flock lock sh -c '! flock --nonblock lock true'
