/*
 * Everything of atp.h by its type: this compiles only if the header says what is written here,
 * and links only if the library has it. Prints the layout as C sees it, for a test to compare
 * with what the library sees.
 */
#include <atp.h>
#include <stdio.h>

static const char *(*const strerror_)(int32_t) = atp_strerror;
static int32_t (*const keys_generate)(const char *, atp_key_t *) = atp_keys_generate;
static int32_t (*const keys_load)(const char *, atp_key_t *) = atp_keys_load;
static int32_t (*const init)(const atp_settings_t *) = atp_init;
static int32_t (*const shutdown_)(void) = atp_shutdown;
static int32_t (*const public_key)(atp_key_t *) = atp_public_key;
static int32_t (*const local_port)(void) = atp_local_port;
static atp_eid_t (*const endpoint)(const char *, uint16_t, const atp_key_t *) = atp_endpoint;
static atp_eid_t (*const accept_)(int32_t) = atp_accept;
static int32_t (*const peer_key)(atp_eid_t, atp_key_t *) = atp_peer_key;
static int32_t (*const close_)(atp_eid_t) = atp_close;
static int32_t (*const send_sync)(atp_eid_t, const atp_data_t *, const atp_options_t *, atp_req_t *) = atp_send_sync;
static atp_req_t (*const send_async)(atp_eid_t, const atp_data_t *, const atp_options_t *, atp_callback_t, void *) =
    atp_send_async;
static int32_t (*const recv_)(atp_eid_t, atp_data_t *, int32_t) = atp_recv;
static int32_t (*const callback)(atp_eid_t, atp_callback_t, void *, uint64_t, uint64_t) = atp_callback;
static int32_t (*const reqctl)(atp_req_t, atp_command_t *, const atp_options_t *) = atp_reqctl;

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

int main(void)
{
    const atp_settings_t settings = ATP_SETTINGS_INIT;
    const atp_options_t options = ATP_OPTIONS_INIT;

    SIZE(atp_key_t);
    SIZE(atp_settings_t);
    FIELD(atp_settings_t, struct_size);
    FIELD(atp_settings_t, listen);
    FIELD(atp_settings_t, key_file);
    FIELD(atp_settings_t, guests);
    FIELD(atp_settings_t, guest_count);
    FIELD(atp_settings_t, received_bytes_max);
    FIELD(atp_settings_t, received_max);
    FIELD(atp_settings_t, admit);
    SIZE(atp_data_t);
    FIELD(atp_data_t, bytes);
    FIELD(atp_data_t, size);
    FIELD(atp_data_t, capacity);
    FIELD(atp_data_t, priority);
    SIZE(atp_options_t);
    FIELD(atp_options_t, priority);
    FIELD(atp_options_t, deadline_ms);
    FIELD(atp_options_t, queue);
    FIELD(atp_options_t, on_shortage);
    SIZE(atp_command_t);
    FIELD(atp_command_t, op);
    FIELD(atp_command_t, state);
    FIELD(atp_command_t, size);
    FIELD(atp_command_t, written);
    FIELD(atp_command_t, acknowledged);
    SIZE(atp_upcall_t);
    FIELD(atp_upcall_t, kind);
    FIELD(atp_upcall_t, outcome);
    FIELD(atp_upcall_t, request);
    FIELD(atp_upcall_t, size);
    FIELD(atp_upcall_t, written);
    FIELD(atp_upcall_t, needed);
    FIELD(atp_upcall_t, available);
    FIELD(atp_upcall_t, side);
    FIELD(atp_upcall_t, probability);
    printf("ATP_FINAL %d\nATP_INSUFFICIENT %d\nATP_RESUMED %d\nATP_BANDWIDTH %d\n", ATP_FINAL, ATP_INSUFFICIENT,
           ATP_RESUMED, ATP_BANDWIDTH);
    printf("ATP_PRIORITISE %d\nATP_DEADLINE %d\nATP_FINISHING %d\nATP_ANYONE %d\n", ATP_PRIORITISE, ATP_DEADLINE,
           ATP_FINISHING, ATP_ANYONE);
    printf("ATP_LOW %d\nATP_MEDIUM %d\nATP_HIGH %d\nATP_PRIORITY_MAX %d\n", ATP_LOW, ATP_MEDIUM, ATP_HIGH,
           ATP_PRIORITY_MAX);

    return !(strerror_ && keys_generate && keys_load && init && shutdown_ && public_key && local_port && endpoint &&
             accept_ && peer_key && close_ && send_sync && send_async && recv_ && callback && reqctl &&
             settings.struct_size == sizeof settings && options.priority == ATP_MEDIUM);
}
