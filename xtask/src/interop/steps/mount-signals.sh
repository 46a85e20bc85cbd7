# Signals that a program catches or that stop it, while its calls wait: none of them fails a call.
if [ -n "${REMORA_MOUNT_LONG:-}" ]; then seconds=60; fi
cat > "$io/storm.c" <<'END'
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught;
static void on_signal(int signal) { (void)signal; caught++; }
static void check(int ok, const char *call) {
    if (!ok) { fprintf(stderr, "%s: %s\n", call, strerror(errno)); _exit(1); }
}

/* Calls of every kind until the time is over. */
static int work(int seconds) {
    char data[8192], back[8192];
    struct stat st;
    long rounds = 0;
    time_t end = time(NULL) + seconds;
    memset(data, 'x', sizeof data);
    while (time(NULL) < end) {
        int fd = open("storm", O_CREAT | O_EXCL | O_RDWR, 0644);
        check(fd >= 0, "open");
        check(write(fd, data, sizeof data) == sizeof data, "write");
        check(fsync(fd) == 0, "fsync");
        check(pread(fd, back, sizeof back, 0) == sizeof back && !memcmp(data, back, sizeof back), "read");
        check(ftruncate(fd, 100) == 0, "ftruncate");
        check(close(fd) == 0, "close");
        check(stat("storm", &st) == 0 && st.st_size == 100, "stat");
        check(stat("missing", &st) == -1 && errno == ENOENT, "stat of nothing");
        check(rename("storm", "moved") == 0, "rename");
        check(link("moved", "linked") == 0, "link");
        check(unlink("linked") == 0, "unlink");
        check(chmod("moved", 0600) == 0, "chmod");
        check(mkdir("sub", 0755) == 0, "mkdir");
        check(rmdir("sub") == 0, "rmdir");
        check(unlink("moved") == 0, "unlink");
        rounds++;
    }
    printf("%ld rounds, %d signals\n", rounds, (int)caught);
    return rounds > 0 && caught > 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    int seconds = atoi(argv[1]), status, stops = argc > 2;
    pid_t child = fork();
    if (child == 0) {
        struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        struct itimerval timer = {{0, 1000}, {0, 1000}};
        sigaction(SIGURG, &act, NULL);
        sigaction(SIGALRM, &act, NULL);
        sigaction(SIGCONT, &act, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
        _exit(work(seconds) | fflush(stdout));
    }
    for (;;) {
        struct timespec pause = {0, stops ? 20000000 : 200000};
        if (waitpid(child, &status, WNOHANG) == child) break;
        kill(child, stops ? SIGSTOP : SIGURG);
        nanosleep(&pause, NULL);
        if (stops) kill(child, SIGCONT);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
END
cc -O1 -o "$io/storm" "$io/storm.c"
"$io/storm" "$seconds"
"$io/storm" "$seconds" stop
