# A C project built on the mount and run from there.
# The program maps a file and writes through the mapping; another reads it.
cat > store.h <<'END'
void fill(unsigned char *at, unsigned long bytes, unsigned seed);
END
cat > fill.c <<'END'
#include "store.h"
void fill(unsigned char *at, unsigned long bytes, unsigned seed) {
    for (unsigned long i = 0; i < bytes; i++) at[i] = (seed = seed * 1103515245u + 12345u) >> 16;
}
END
cat > main.c <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "store.h"
enum { BYTES = 3000001 };
static unsigned char want[BYTES];
int main(int argc, char **argv) {
    int write = argc > 2 && !strcmp(argv[2], "write");
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (fd < 0 || (write && ftruncate(fd, BYTES))) return perror("file"), 1;
    unsigned char *map = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return perror("mmap"), 1;
    fill(want, BYTES, 42);
    if (write) memcpy(map, want, BYTES);
    if (memcmp(map, want, BYTES)) return fprintf(stderr, "other bytes\n"), 1;
    if (munmap(map, BYTES) || close(fd)) return perror("end"), 1;
    return puts("right"), 0;
}
END
printf 'program: main.o fill.o\n\tcc -o $@ $^\n%%.o: %%.c store.h\n\tcc -c -O1 -o $@ $<\n' > Makefile
make -s
test "$(./program mapped write)" = right
echo 3 > /proc/sys/vm/drop_caches
test "$(./program mapped read)" = right
test "$("$other/program" "$other/mapped" read)" = right
make | grep -q 'up to date'
touch store.h
make | grep -q fill.c
