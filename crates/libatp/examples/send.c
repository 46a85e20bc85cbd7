/*
 * A client: sends an urgent line and a bulky object that may take its time, waits for the answer
 * to the line, and says how the other ended.
 *
 *     send HOST PORT KEY LINE BYTES
 *
 * cc -o send send.c $(pkg-config --cflags --libs libatp) -lpthread
 */
#include <atp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the callback and the main thread share. */
struct end {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_there;
    int32_t outcome, nested;
};

/* Runs on the library's thread. */
static void on_upcall(const atp_upcall_t *upcall, void *context)
{
    struct end *end = context;

    if (upcall->kind != ATP_FINAL)
        return;
    pthread_mutex_lock(&end->lock);
    end->outcome = upcall->outcome;
    end->nested = atp_accept(-1); /* Waiting is refused here. */
    end->is_there = 1;
    pthread_cond_signal(&end->changed);
    pthread_mutex_unlock(&end->lock);
}

static int failed(const char *what, int64_t code)
{
    fprintf(stderr, "%s: %s\n", what, atp_strerror((int32_t)code));
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct end end = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
    atp_options_t urgent = {ATP_HIGH, 15000, 0, ATP_SHORTAGE_DROP}, bulk = {ATP_LOW, 0, 1, ATP_SHORTAGE_DROP};
    atp_data_t line = {NULL, 0, 0, 0}, object = {NULL, 0, 0, 0}, answer = {NULL, 0, 0, 0};
    atp_command_t ask = {ATP_SUSPEND, 0, 0, 0, 0};
    atp_key_t key;
    atp_eid_t peer;
    atp_req_t request;
    char text[256];
    int32_t code;

    if (argc != 6 || strlen(argv[3]) >= sizeof key.text) {
        fprintf(stderr, "usage: %s HOST PORT KEY LINE BYTES\n", argv[0]);
        return EXIT_FAILURE;
    }
    strcpy(key.text, argv[3]);
    if ((code = atp_init(NULL)) != ATP_OK)
        return failed("atp_init", code);
    if ((peer = atp_endpoint(argv[1], (uint16_t)atoi(argv[2]), &key)) < 0)
        return failed("atp_endpoint", peer);

    object.size = (size_t)strtoul(argv[5], NULL, 10);
    if ((object.bytes = calloc(object.size, 1)) == NULL) {
        fprintf(stderr, "no memory for %s bytes\n", argv[5]);
        return EXIT_FAILURE;
    }
    if ((request = atp_send_async(peer, &object, &bulk, on_upcall, &end)) < 0)
        return failed("atp_send_async", request);
    free(object.bytes); /* It was copied. */

    /* Nothing of it while the line is on its way. It may have ended already. */
    if ((code = atp_reqctl(request, &ask, NULL)) != ATP_OK && code != ATP_EBADID)
        return failed("atp_reqctl", code);
    line.bytes = argv[4];
    line.size = strlen(argv[4]);
    if ((code = atp_send_sync(peer, &line, &urgent, NULL)) != ATP_OK)
        return failed("atp_send_sync", code);
    answer.bytes = text;
    answer.capacity = sizeof text;
    if ((code = atp_recv(peer, &answer, 15000)) != ATP_OK)
        return failed("atp_recv", code);
    printf("answer: %.*s\n", (int)answer.size, text);

    ask.op = ATP_RESTART;
    if ((code = atp_reqctl(request, &ask, NULL)) != ATP_OK && code != ATP_EBADID)
        return failed("atp_reqctl", code);
    pthread_mutex_lock(&end.lock);
    while (!end.is_there)
        pthread_cond_wait(&end.changed, &end.lock);
    pthread_mutex_unlock(&end.lock);
    printf("bulk: %s\n", atp_strerror(end.outcome));
    printf("within a callback: %s\n", atp_strerror(end.nested));

    /* The number is spent. */
    printf("ended: %s\n", atp_strerror(atp_reqctl(request, &ask, NULL)));
    printf("closed: %s\n", atp_strerror(atp_close(peer)));
    printf("closed twice: %s\n", atp_strerror(atp_close(peer)));
    code = atp_shutdown();
    return code == ATP_OK ? EXIT_SUCCESS : failed("atp_shutdown", code);
}
