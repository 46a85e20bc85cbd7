/*
 * A server: sends every object back as it came. Serves the first peer that comes until it goes.
 *
 *     echo LISTEN         e.g. echo 127.0.0.1:7000; prints its port and its key
 *
 * cc -o echo echo.c $(pkg-config --cflags --libs libatp)
 */
#include <atp.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what, int64_t code)
{
    fprintf(stderr, "%s: %s\n", what, atp_strerror((int32_t)code));
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    atp_settings_t settings = ATP_SETTINGS_INIT;
    atp_options_t options = ATP_OPTIONS_INIT;
    atp_data_t object = {NULL, 0, 0, 0};
    atp_key_t key;
    atp_eid_t peer;
    int32_t code;

    if (argc != 2) {
        fprintf(stderr, "usage: %s LISTEN\n", argv[0]);
        return EXIT_FAILURE;
    }
    settings.listen = argv[1];
    settings.admit = ATP_ANYONE;
    if ((code = atp_init(&settings)) != ATP_OK)
        return failed("atp_init", code);
    if ((code = atp_public_key(&key)) != ATP_OK)
        return failed("atp_public_key", code);
    printf("%d %s\n", (int)atp_local_port(), key.text);
    fflush(stdout);

    if ((peer = atp_accept(20000)) < 0)
        return failed("atp_accept", peer);
    while ((code = atp_recv(peer, &object, 20000)) != ATP_EDOWN) {
        if (code == ATP_ETOOSMALL) { /* The object waits until the buffer is large enough. */
            free(object.bytes);
            object.bytes = malloc(object.size);
            if (object.bytes == NULL)
                return EXIT_FAILURE;
            object.capacity = object.size;
            continue;
        }
        if (code != ATP_OK)
            return failed("atp_recv", code);
        options.priority = object.priority;
        code = atp_send_sync(peer, &object, &options, NULL);
        if (code == ATP_ELOST || code == ATP_EDOWN) /* It went without waiting for this one. */
            break;
        if (code != ATP_OK)
            return failed("atp_send_sync", code);
    }
    free(object.bytes);
    code = atp_shutdown();
    return code == ATP_OK ? EXIT_SUCCESS : failed("atp_shutdown", code);
}
