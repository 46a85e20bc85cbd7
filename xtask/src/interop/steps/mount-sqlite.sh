# A database with a rollback journal and one with a write-ahead log: locks, mappings and syncs in order.
command -v sqlite3 > /dev/null || { echo "sqlite3 is not installed"; exit 77; }
for mode in delete wal; do
    printf '%s\n' "PRAGMA journal_mode = $mode;" "CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT);" | sqlite3 $mode.db
    for round in 1 2 3 4 5; do
        {
            echo "BEGIN;"
            seq -f "INSERT INTO rows (text) VALUES ('round $round, row %g');" 200
            echo "COMMIT;"
            echo "DELETE FROM rows WHERE id % 10 = $round;"
        } | sqlite3 $mode.db
    done
    # A transaction that does not reach its end.
    printf '%s\n' "BEGIN;" "DELETE FROM rows;" | sqlite3 $mode.db
    # Two processes in turn.
    for n in $(seq 20); do sqlite3 -cmd ".timeout 20000" $mode.db "INSERT INTO rows (text) VALUES ('one $n');"; done &
    for n in $(seq 20); do sqlite3 -cmd ".timeout 20000" $mode.db "INSERT INTO rows (text) VALUES ('two $n');"; done
    wait $!
    sqlite3 $mode.db "VACUUM;"
    echo 3 > /proc/sys/vm/drop_caches
    test "$(sqlite3 $mode.db 'PRAGMA integrity_check;')" = ok
    test "$(sqlite3 $mode.db "SELECT count(*) FROM rows WHERE text LIKE 'one %' OR text LIKE 'two %';")" = 40
    test "$(sqlite3 $mode.db "PRAGMA journal_mode;")" = $mode
done
