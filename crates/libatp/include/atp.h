/*
 * libatp: objects with priorities and deadlines over links that drop, stall and crawl.
 *
 * The interface is Figure 2 of "ATP 02", with what a program of today needs beside it: keys, a
 * context for callbacks, timeouts. An object is a block of bytes that arrives whole or not at
 * all, with a priority and, if wanted, a deadline. The library sends the most urgent bytes
 * first, says no when a deadline cannot be kept, holds everything while the link is away, and
 * goes on where it was when it is back. All traffic is encrypted, and both ends show keys.
 *
 * NUMBERS. Endpoints and requests are numbers above zero and are never used twice, not even
 * after atp_shutdown(). One that is wrong, closed or ended gives ATP_EBADID. Whatever can fail
 * gives one of the codes below zero; atp_strerror() has their words.
 *
 * THREADS. All functions may be called from any threads at once. All callbacks run one after
 * the other on one thread of the library. They may call everything that does not wait; what
 * waits (atp_send_sync, atp_accept and atp_recv with a timeout other than 0, atp_endpoint with
 * a name rather than an address, atp_init, atp_shutdown) gives ATP_EDEADLK there. Callbacks are
 * to be short: while one runs there are no others, and what has come in does not get to
 * atp_recv; sending goes on. A callback must not end by longjmp or an exception.
 *
 * MEMORY. The library keeps no pointer it is given but a callback's context, and gives none that
 * has to be freed. Objects are copied on their way in and out.
 *
 * FORK. The library does not live on in a child; a child may call nothing of it but exec.
 */
#ifndef ATP_H
#define ATP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t atp_eid_t; /* An endpoint: the peer one talks to. */
typedef int64_t atp_req_t; /* A request: an object on its way out. */

enum atp_code {
    ATP_OK = 0,
    ATP_EINVAL = -1,     /* A pointer is null, or a value out of its range. */
    ATP_ENOTINIT = -2,   /* atp_init() comes first. */
    ATP_EALREADY = -3,   /* atp_init() was called before. */
    ATP_EDEADLK = -4,    /* A call that waits, from a callback. Nothing was done. */
    ATP_EBADID = -5,     /* No such endpoint or request, or it was closed or has ended. */
    ATP_ENAME = -6,      /* The name has no address, or the address is none to send to. */
    ATP_EKEY = -7,       /* Not a key; or a key's file is not there, open to others, not writable. */
    ATP_ESYSTEM = -8,    /* The system refuses a socket, a thread or random numbers. */
    ATP_EREFUSED = -9,   /* The peer does not admit us, or its key is another. */
    ATP_EDOWN = -10,     /* The connection is over. */
    ATP_ECLOSED = -11,   /* atp_shutdown() was called while this waited. */
    ATP_ETIMEDOUT = -12, /* Nothing came in time. */
    ATP_ETOOSMALL = -13, /* The object does not fit into the buffer; it stays where it is. */
    ATP_EFULL = -14,     /* Too many endpoints, requests, bytes under way or queues. */
    ATP_ETOOBIG = -15,   /* The object is larger than 64 MiB, or than the peer takes. */
    ATP_ESHORTAGE = -16, /* Rejected at once: its deadline asks for more bandwidth than there is. */
    ATP_EEVICTED = -17,  /* Given up before its deadline, which could not be met any more. */
    ATP_EEXPIRED = -18,  /* The deadline passed before the peer had acknowledged all of it. */
    ATP_ECANCELLED = -19, /* ATP_CANCEL was asked for. */
    ATP_ELOST = -20,     /* The connection is over, or did not come about; or the endpoint was closed here. */
    ATP_EINTERNAL = -21, /* A fault of the library. */
    ATP_CODE_LAST = -22
};

/* Words for a code, in English. Never null; constant memory. */
const char *atp_strerror(int32_t code);

/* ---- Keys ---- */

/* A public key: 44 characters of base64 and a NUL. Secret keys never leave the library. */
typedef struct atp_key {
    char text[45];
} atp_key_t;

/* Makes a key and keeps it in the file `path` (mode 0600, its folder is made, too), unless there
 * is one already. Gives its public half; `key` may be null. Before atp_init(), too. */
int32_t atp_keys_generate(const char *path, atp_key_t *key);

/* The public half of the key in the file `path`, which must be its owner's alone. */
int32_t atp_keys_load(const char *path, atp_key_t *key);

/* ---- Start and end ---- */

enum atp_admit {
    ATP_NOBODY = 0, /* A client: nobody may come to us. */
    ATP_GUESTS = 1, /* Owners of the keys in `guests` may. */
    ATP_ANYONE = 2  /* Whoever has a key may; atp_peer_key() says which. */
};

typedef struct atp_settings {
    size_t struct_size;          /* sizeof(atp_settings_t). */
    const char *listen;          /* "ADDRESS:PORT", "[ADDRESS]:PORT"; null: any port of all addresses
                                    (IPv4's only, where the system has no IPv6). */
    const char *key_file;        /* A file with our key; null: a fresh key, kept nowhere. */
    const char *const *guests;   /* Keys as text, for ATP_GUESTS. */
    size_t guest_count;          /* How many, at most 65536. */
    uint64_t received_bytes_max; /* Bytes that wait for atp_recv(), and ... */
    uint32_t received_max;       /* ... objects. 0: the program does not receive, what comes is dropped. */
    int32_t admit;               /* enum atp_admit. */
} atp_settings_t;

#define ATP_SETTINGS_INIT \
    { sizeof(atp_settings_t), NULL, NULL, NULL, 0, (uint64_t)64 << 20, 1024, ATP_NOBODY }

/* Starts the library: one socket, for one program has one link. Null: ATP_SETTINGS_INIT.
 *
 * A program that receives must keep receiving. When `received_max` objects wait, or as many
 * bytes, the rest waits behind them, and that includes the ends of requests. Behind them are one
 * more object (or 64 without bytes) and, whole or on their way in, 96 MiB of a peer and 256 MiB of all. */
int32_t atp_init(const atp_settings_t *settings);

/* Ends it: peers are told (that takes a second at most), requests that have not ended get their
 * final upcall with ATP_ECLOSED, calls that wait return ATP_ECLOSED. When it returns, no
 * callback runs any more. */
int32_t atp_shutdown(void);

/* Our own public key. */
int32_t atp_public_key(atp_key_t *key);

/* The port we listen on, 1 to 65535. */
int32_t atp_local_port(void);

/* ---- Endpoints ---- */

/* An endpoint for the owner of `key` at `host` (a name or an address) and `port`: at the first address
 * that the socket can send to (IPv6 and IPv4, or what `listen` is), else ATP_ENAME. The connection
 * is made meanwhile; objects may be sent at once. Idle connections end by themselves after ten
 * minutes; the next object makes a new one, as after any end but ATP_EREFUSED. The endpoint stays until
 * atp_close(). */
atp_eid_t atp_endpoint(const char *host, uint16_t port, const atp_key_t *key);

/* Waits for a peer to begin communicating: the endpoint of one whose first object has come.
 * `timeout_ms` below 0: for ever; 0: not at all. ATP_ETIMEDOUT, ATP_ECLOSED. */
atp_eid_t atp_accept(int32_t timeout_ms);

/* Whose key is at the other end. ATP_EDOWN if it never was shown, or is over, for those accepted. */
int32_t atp_peer_key(atp_eid_t endpoint, atp_key_t *key);

/* Ends an endpoint: its requests get ATP_ELOST, what came from it and was not taken is dropped. */
int32_t atp_close(atp_eid_t endpoint);

/* ---- Objects ---- */

/* An object. To be sent: `bytes` (not changed; may be null if size is 0) and `size`. To be
 * received: `bytes` and `capacity` are the buffer; `size` and `priority` are filled in. */
typedef struct atp_data {
    void *bytes;
    size_t size;
    size_t capacity;
    int32_t priority;
} atp_data_t;

enum atp_priority { ATP_LOW = 4, ATP_MEDIUM = 8, ATP_HIGH = 12, ATP_PRIORITY_MAX = 15 };

/* Who decides when the bandwidth does not suffice for a deadline. */
enum atp_on_shortage {
    ATP_SHORTAGE_DROP = 0,   /* The library: ATP_ESHORTAGE at once, or ATP_EEVICTED later. */
    ATP_SHORTAGE_SUSPEND = 1 /* The callback, told by ATP_INSUFFICIENT. */
};

typedef struct atp_options {
    int32_t priority;     /* 0 to 15, higher is more urgent. */
    uint32_t deadline_ms; /* From now; 0: none. Kept by the sender. */
    uint32_t queue;       /* Bandwidth is shared among queues; any number. */
    int32_t on_shortage;  /* enum atp_on_shortage. */
} atp_options_t;

#define ATP_OPTIONS_INIT { ATP_MEDIUM, 0, 0, ATP_SHORTAGE_DROP }

enum atp_upcall_kind {
    ATP_FINAL = 1,        /* The request has ended, `outcome` says how. Exactly one for each request,
                             and the last word about it: `request` is no number any more. */
    ATP_INSUFFICIENT = 2, /* ATP_SHORTAGE_SUSPEND: the request is suspended, for it needs `needed` bytes
                             per second and `available` are there. Cancel it, change its deadline or
                             priority, or let it wait. */
    ATP_RESUMED = 3,      /* It fits again and goes on. */
    ATP_BANDWIDTH = 4,    /* The bandwidth, `available`, is on `side` of the bounds of atp_callback(),
                             which are registered no more. */
    ATP_UNCERTAIN = 5     /* The forecast is unknown, so the deadline may be missed: the link is away, or
                             was not measured yet. `probability` says how likely the request meets its
                             deadline. Told at once: when the link goes away, and when a request is made or
                             its deadline changed meanwhile. The request goes on by itself. */
};

enum atp_side { ATP_BELOW = -1, ATP_ABOVE = 1 };

typedef struct atp_upcall {
    int32_t kind;       /* enum atp_upcall_kind. */
    int32_t outcome;    /* ATP_FINAL: ATP_OK (the peer has all of it) or a code. */
    atp_req_t request;  /* 0 for ATP_BANDWIDTH. */
    uint64_t size;      /* ATP_FINAL: of the object, in bytes. */
    uint64_t written;   /* ATP_FINAL: bytes of it that were sent. */
    uint64_t needed;    /* Bytes per second. */
    uint64_t available; /* Bytes per second; 0 while nothing gets through. */
    int32_t side;       /* ATP_BANDWIDTH: enum atp_side. */
    double probability; /* ATP_UNCERTAIN: 0 to 1. */
} atp_upcall_t;

/* `upcall` is valid until the callback returns; `context` is what was given with it. */
typedef void (*atp_callback_t)(const atp_upcall_t *upcall, void *context);

/* Sends an object and waits for its end: ATP_OK when the peer has all of it. If `request` is not
 * null, the request's number is there before the wait begins, stored atomically (release), for
 * another thread to use with atp_reqctl(). `options` may be null: ATP_OPTIONS_INIT. With
 * ATP_SHORTAGE_SUSPEND there would be nobody to decide, so it counts as ATP_SHORTAGE_DROP. */
int32_t atp_send_sync(atp_eid_t to, const atp_data_t *object, const atp_options_t *options, atp_req_t *request);

/* Sends an object and returns its request at once. `callback` (may be null) hears of it, the
 * last time with ATP_FINAL; that may be before this function has returned. A code below zero: no
 * request was made, and there is no upcall. A rejected object is a request, with an upcall. */
atp_req_t atp_send_async(atp_eid_t to, const atp_data_t *object, const atp_options_t *options,
                         atp_callback_t callback, void *context);

/* Takes the next object from `from`. ATP_ETOOSMALL: `size` says how large the buffer must be, and
 * the object waits. Objects come in the order in which they were complete, not that of sending.
 * What had come before the end of a connection is given before ATP_EDOWN or ATP_EREFUSED.
 * `timeout_ms` as with atp_accept(). */
int32_t atp_recv(atp_eid_t from, atp_data_t *object, int32_t timeout_ms);

/* Calls `callback` once, when the bandwidth towards `to` is below `low` or above `high` bytes per
 * second; 0: no such bound. To hear more, call it again (from the callback, too). One registration
 * at a time: a new one takes the place of the old, which is not called once this has returned. If it is
 * being called just then (this runs in another thread), that call goes on to its end, and needs its
 * context until then. Against cascades a bound counts as crossed a sixteenth beyond it, and upcalls are
 * half a second apart. The program has one link, whose bandwidth all endpoints share: that is the
 * figure, and the registration is for all of them. ATP_EDOWN, ATP_EREFUSED: `to` is over, and what was
 * registered before stays. */
int32_t atp_callback(atp_eid_t to, atp_callback_t callback, void *context, uint64_t low, uint64_t high);

/* ---- Requests ---- */

enum atp_op {
    ATP_INSPECT = 0,    /* Only tell how far it is. */
    ATP_CANCEL = 1,     /* End it: ATP_FINAL with ATP_ECANCELLED. */
    ATP_SUSPEND = 2,    /* Send no more of it for now. Its deadline keeps running. */
    ATP_RESTART = 3,    /* Go on where it stopped, whoever suspended it. */
    ATP_PRIORITISE = 4, /* Change its priority to that in `options`. */
    ATP_DEADLINE = 5    /* Change its deadline to that in `options`, from now. */
};

enum atp_state {
    ATP_WAITING = 1,      /* Nothing of it is sent yet. */
    ATP_SENDING = 2,      /* Part of it is. */
    ATP_SUSPENDED = 3,    /* Asked for with ATP_SUSPEND. */
    ATP_SHORT = 4,        /* Suspended: the bandwidth does not suffice. */
    ATP_DISCONNECTED = 5, /* The peer is away; it goes on by itself. */
    ATP_FINISHING = 6     /* All of it is sent, not all acknowledged. */
};

typedef struct atp_command {
    int32_t op;            /* enum atp_op: what to do. The rest is the answer: */
    int32_t state;         /* enum atp_state. */
    uint64_t size;         /* Of the object, in bytes. */
    uint64_t written;      /* Bytes of it that were sent. */
    uint64_t acknowledged; /* Bytes of it that the peer has. */
} atp_command_t;

/* Asks something of a request, and tells how far it is. `options` is for ATP_PRIORITISE and
 * ATP_DEADLINE, and may be null for the others. ATP_EBADID if it has ended. */
int32_t atp_reqctl(atp_req_t request, atp_command_t *command, const atp_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
