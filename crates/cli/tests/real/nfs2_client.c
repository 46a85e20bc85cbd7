/*
 * A client of NFSv2 and MOUNT v1 over UDP, on libnfs's raw calls: calls every procedure that
 * libnfs has (it has no ROOT and no WRITECACHE, which are obsolete) and checks the results.
 *
 * client HOST PORT EXPORT
 *
 * Prints the procedures that did what they should; ends with 1 at the first that did not.
 * The directory must be empty, and is left with the files that the caller looks at.
 */
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <nfsc/libnfs-zdr.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

/* Exported by the library, but not in its headers. */
struct rpc_context *rpc_init_udp_context(void);
int rpc_bind_udp(struct rpc_context *rpc, char *addr, int port);
int rpc_set_udp_destination(struct rpc_context *rpc, char *addr, int port, int is_broadcast);

#define KEEP UINT32_MAX
#define DATA 8192

static struct rpc_context *rpc;

static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

#define check(what) do { if (!(what)) fail("line %d: not so: %s", __LINE__, #what); } while (0)

/* The results of the call under way, copied by its callback: the library frees its own. */
static struct {
    int done;
    fattr2 attr;
    fhandle2 fh;
    nfsstat3 status;
    unsigned len;
    char data[DATA];
    STATFS2resok room;
    struct { char name[256]; char cookie[4]; unsigned fileid; } entries[400];
    unsigned count;
    uint32_t eof;
} got;

static void none(struct rpc_context *r, int status, void *data, void *private)
{
    (void)r, (void)private;
    if (status != RPC_STATUS_SUCCESS)
        fail("no success: %d %s", status, status == RPC_STATUS_ERROR ? (char *)data : "");
    got.done = 1;
}

/* Callbacks of the procedures, by what they bring. */
#define TAKE_STATUS(NAME, TYPE) \
    static void NAME(struct rpc_context *r, int status, void *data, void *private) \
    { none(r, status, data, private); got.status = ((TYPE *)data)->status; }
#define TAKE_ATTR(NAME, TYPE, U) \
    static void NAME(struct rpc_context *r, int status, void *data, void *private) \
    { TYPE *res = data; none(r, status, data, private); got.status = res->status; \
      if (res->status == 0) got.attr = res->U.resok.attributes; }
#define TAKE_BOTH(NAME, TYPE, U) \
    static void NAME(struct rpc_context *r, int status, void *data, void *private) \
    { TYPE *res = data; none(r, status, data, private); got.status = res->status; \
      if (res->status == 0) { got.attr = res->U.resok.attributes; memcpy(got.fh, res->U.resok.file, 32); } }

TAKE_ATTR(getattr_cb, GETATTR2res, GETATTR2res_u)
TAKE_ATTR(setattr_cb, SETATTR2res, SETATTR2res_u)
TAKE_ATTR(write_cb, WRITE2res, WRITE2res_u)
TAKE_BOTH(lookup_cb, LOOKUP2res, LOOKUP2res_u)
TAKE_BOTH(create_cb, CREATE2res, CREATE2res_u)
TAKE_BOTH(mkdir_cb, MKDIR2res, MKDIR2res_u)
TAKE_STATUS(remove_cb, REMOVE2res)
TAKE_STATUS(rename_cb, RENAME2res)
TAKE_STATUS(link_cb, LINK2res)
TAKE_STATUS(symlink_cb, SYMLINK2res)
TAKE_STATUS(rmdir_cb, RMDIR2res)

static void read_cb(struct rpc_context *r, int status, void *data, void *private)
{
    READ2res *res = data;
    none(r, status, data, private);
    got.status = res->status;
    if (res->status)
        return;
    got.attr = res->READ2res_u.resok.attributes;
    got.len = res->READ2res_u.resok.data.nfsdata2_len;
    check(got.len <= DATA);
    memcpy(got.data, res->READ2res_u.resok.data.nfsdata2_val, got.len);
}

static void readlink_cb(struct rpc_context *r, int status, void *data, void *private)
{
    READLINK2res *res = data;
    none(r, status, data, private);
    got.status = res->status;
    if (res->status == 0)
        snprintf(got.data, sizeof got.data, "%s", res->READLINK2res_u.resok.data);
}

static void readdir_cb(struct rpc_context *r, int status, void *data, void *private)
{
    READDIR2res *res = data;
    none(r, status, data, private);
    got.status = res->status;
    got.count = 0;
    if (res->status)
        return;
    for (entry2 *e = res->READDIR2res_u.resok.entries; e; e = e->nextentry) {
        check(got.count < 400);
        snprintf(got.entries[got.count].name, 256, "%s", e->name);
        memcpy(got.entries[got.count].cookie, e->cookie, 4);
        got.entries[got.count++].fileid = e->fileid;
    }
    got.eof = res->READDIR2res_u.resok.eof;
}

static void statfs_cb(struct rpc_context *r, int status, void *data, void *private)
{
    STATFS2res *res = data;
    none(r, status, data, private);
    got.status = res->status;
    got.room = res->STATFS2res_u.resok;
}

static void mnt_cb(struct rpc_context *r, int status, void *data, void *private)
{
    mountres1 *res = data;
    none(r, status, data, private);
    got.status = (nfsstat3)res->fhs_status;
    if (got.status == 0)
        memcpy(got.fh, res->mountres1_u.mountinfo.fhandle, 32);
}

/* DUMP and EXPORT: how many lines, and the last one's path. */
static void dump_cb(struct rpc_context *r, int status, void *data, void *private)
{
    none(r, status, data, private);
    got.count = 0;
    for (mountlist m = *(mountlist *)data; m; m = m->ml_next, got.count++)
        snprintf(got.data, sizeof got.data, "%s", m->ml_directory);
}

static void export_cb(struct rpc_context *r, int status, void *data, void *private)
{
    none(r, status, data, private);
    got.count = 0;
    for (exports e = *(exports *)data; e; e = e->ex_next, got.count++)
        snprintf(got.data, sizeof got.data, "%s", e->ex_dir);
}

/* Waits for the reply to the call just made. */
static void reply(int made, const char *name)
{
    struct timeval start, now;
    check(made == 0);
    got.done = 0;
    gettimeofday(&start, NULL);
    while (!got.done) {
        struct pollfd fd = { .fd = rpc_get_fd(rpc), .events = rpc_which_events(rpc) };
        check(poll(&fd, 1, 100) >= 0);
        if (rpc_service(rpc, fd.revents) < 0)
            fail("%s: %s", name, rpc_get_error(rpc));
        gettimeofday(&now, NULL);
        if (now.tv_sec - start.tv_sec > 20)
            fail("%s: no reply in 20 s", name);
    }
}

#define CALL(NAME, ARGS) reply(rpc_nfs2_##NAME##_async(rpc, NAME##_cb, ARGS, NULL), #NAME)

static diropargs2 at(const char *dir, const char *name)
{
    diropargs2 a;
    memcpy(a.dir, dir, 32);
    a.name = (char *)name;
    return a;
}

static const sattr2 LEAVE = { KEEP, KEEP, KEEP, KEEP, { KEEP, KEEP }, { KEEP, KEEP } };

static void tell(const char *name)
{
    printf("%s\n", name);
}

static nfsstat3 lookup(const char *dir, const char *name)
{
    LOOKUP2args a = { at(dir, name) };
    CALL(lookup, &a);
    return got.status;
}

static nfsstat3 create(const char *dir, const char *name, unsigned mode, unsigned size)
{
    CREATE2args a = { at(dir, name), LEAVE };
    a.attributes.mode = mode;
    a.attributes.size = size;
    CALL(create, &a);
    return got.status;
}

static nfsstat3 write_at(const char *fh, unsigned offset, char *data, unsigned len)
{
    /* The library makes room for as much as totalcount says. */
    WRITE2args a = { .offset = offset, .totalcount = len, .data = { len, data } };
    memcpy(a.file, fh, 32);
    CALL(write, &a);
    return got.status;
}

static nfsstat3 read_at(const char *fh, unsigned offset, unsigned count)
{
    READ2args a = { .offset = offset, .count = count };
    memcpy(a.file, fh, 32);
    CALL(read, &a);
    return got.status;
}

static nfsstat3 setattr(const char *fh, sattr2 attributes)
{
    SETATTR2args a = { .attributes = attributes };
    memcpy(a.fhandle, fh, 32);
    CALL(setattr, &a);
    return got.status;
}

static nfsstat3 getattr(const char *fh)
{
    GETATTR2args a;
    memcpy(a.fhandle, fh, 32);
    CALL(getattr, &a);
    return got.status;
}

static void mounts(char *export, char *root)
{
    reply(rpc_mount1_null_async(rpc, none, NULL), "mount null");
    reply(rpc_mount1_mnt_async(rpc, mnt_cb, "/nothing/here", NULL), "mnt");
    check(got.status == 2);
    reply(rpc_mount1_mnt_async(rpc, mnt_cb, export, NULL), "mnt");
    check(got.status == 0);
    memcpy(root, got.fh, 32);
    reply(rpc_mount1_dump_async(rpc, dump_cb, NULL), "dump");
    check(got.count == 1 && !strcmp(got.data, export));
    reply(rpc_mount1_export_async(rpc, export_cb, NULL), "export");
    check(got.count == 1 && got.data[0] == '/');
    reply(rpc_mount1_umnt_async(rpc, none, export, NULL), "umnt");
    reply(rpc_mount1_dump_async(rpc, dump_cb, NULL), "dump");
    check(got.count == 0);
    reply(rpc_mount1_umntall_async(rpc, none, NULL), "umntall");
    tell("MOUNT1 NULL MNT DUMP UMNT UMNTALL EXPORT");
}

static void files(const char *root)
{
    char f[32], block[DATA];
    sattr2 s = LEAVE;
    struct timeval now;

    reply(rpc_nfs2_null_async(rpc, none, NULL), "null");
    check(getattr(root) == 0 && got.attr.type == 2 && (got.attr.mode & 0170000) == 0040000);
    check(create(root, "f", 0640, 0) == 0);
    memcpy(f, got.fh, 32);
    check(got.attr.type == 1 && got.attr.mode == 0100640 && got.attr.nlink == 1 && got.attr.size == 0);
    check(lookup(root, "f") == 0 && !memcmp(got.fh, f, 32) && lookup(root, "g") == 2);
    tell("NULL GETATTR LOOKUP CREATE");

    for (unsigned i = 0; i < DATA; i++)
        block[i] = (char)(i * 7 + i / 256);
    check(write_at(f, 0, block, DATA) == 0 && got.attr.size == DATA);
    check(write_at(f, DATA, block, 1000) == 0 && got.attr.size == DATA + 1000);
    check(write_at(f, UINT32_MAX - 5, block, 6) == 27);
    check(read_at(f, 0, DATA) == 0 && got.len == DATA && !memcmp(got.data, block, DATA));
    check(read_at(f, DATA, DATA) == 0 && got.len == 1000 && !memcmp(got.data, block, 1000));
    check(read_at(f, 3 * DATA, 10) == 0 && got.len == 0 && got.attr.size == DATA + 1000);
    tell("WRITE READ");

    s.size = 10;
    s.mode = 0600;
    check(setattr(f, s) == 0 && got.attr.size == 10 && got.attr.mode == 0100600);
    s = LEAVE;
    s.atime.seconds = 1000, s.atime.nseconds = 5;
    s.mtime.seconds = 2000, s.mtime.nseconds = 999999;
    check(setattr(f, s) == 0 && got.attr.size == 10 && got.attr.mode == 0100600);
    check(got.attr.atime.seconds == 1000 && got.attr.atime.nseconds == 5);
    check(got.attr.mtime.seconds == 2000 && got.attr.mtime.nseconds == 999999);
    s.mtime.nseconds = 1000000;
    check(setattr(f, s) == 0);
    gettimeofday(&now, NULL);
    check(now.tv_sec - (long)got.attr.mtime.seconds < 60 && now.tv_sec - (long)got.attr.atime.seconds < 60);
    check(read_at(f, 0, 100) == 0 && got.len == 10 && !memcmp(got.data, block, 10));
    check(create(root, "f", 0644, 0) == 0 && got.attr.size == 0 && !memcmp(got.fh, f, 32));
    check(write_at(f, 0, "left behind", 11) == 0);
    tell("SETATTR");

    check(create(root, "pipe", 0010600, KEEP) == 0 && got.attr.mode == 0010600 && got.attr.rdev == KEEP);
}

static void names(const char *root)
{
    char f[32], d[32];
    sattr2 dir_attr = LEAVE;

    check(lookup(root, "f") == 0);
    memcpy(f, got.fh, 32);
    LINK2args l = { .to = at(root, "g") };
    memcpy(l.from, f, 32);
    CALL(link, &l);
    check(got.status == 0 && lookup(root, "g") == 0 && got.attr.nlink == 2 && !memcmp(got.fh, f, 32));
    CALL(link, &l);
    check(got.status == 17);

    dir_attr.mode = 0755;
    MKDIR2args m = { at(root, "d"), dir_attr };
    CALL(mkdir, &m);
    check(got.status == 0 && got.attr.type == 2 && got.attr.mode == 0040755);
    memcpy(d, got.fh, 32);
    RENAME2args n = { at(root, "g"), at(d, "h") };
    CALL(rename, &n);
    check(got.status == 0 && lookup(root, "g") == 2 && lookup(d, "h") == 0);
    RMDIR2args rd = { at(root, "d") };
    CALL(rmdir, &rd);
    check(got.status == 66);
    REMOVE2args r = { at(d, "h") };
    CALL(remove, &r);
    check(got.status == 0 && getattr(f) == 0 && got.attr.nlink == 1);
    CALL(remove, &r);
    check(got.status == 2);
    CALL(rmdir, &rd);
    check(got.status == 0 && lookup(root, "d") == 2 && getattr(d) == 70);
    tell("LINK MKDIR RENAME REMOVE RMDIR");

    SYMLINK2args s = { at(root, "l"), "to/nowhere", LEAVE };
    CALL(symlink, &s);
    check(got.status == 0 && lookup(root, "l") == 0 && got.attr.type == 5);
    READLINK2args rl;
    memcpy(rl.file, got.fh, 32);
    CALL(readlink, &rl);
    check(got.status == 0 && !strcmp(got.data, "to/nowhere"));
    tell("SYMLINK READLINK");
}

/* More names than a page takes, listed each once, going on from each page's end; and once
 * more from the middle of a page. */
static void listing(const char *root)
{
    enum { MANY = 700 };
    static char seen[MANY];
    char many[32], cookie[4] = { 0 }, middle[4], after[256] = "";
    unsigned total = 0, pages = 0;
    STATFS2args room;

    MKDIR2args m = { at(root, "many"), LEAVE };
    m.attributes.mode = 0700;
    CALL(mkdir, &m);
    check(got.status == 0);
    memcpy(many, got.fh, 32);
    for (int i = 0; i < MANY; i++) {
        char name[40];
        snprintf(name, sizeof name, "name number %d", i);
        check(create(many, name, 0600, 0) == 0);
    }
    do {
        READDIR2args a = { .count = pages % 2 ? DATA : 1000 };
        memcpy(a.dir, many, 32);
        memcpy(a.cookie, cookie, 4);
        CALL(readdir, &a);
        check(got.status == 0 && (got.count > 0 || got.eof));
        for (unsigned i = 0; i < got.count; i++) {
            int number;
            check(got.entries[i].fileid != 0);
            if (sscanf(got.entries[i].name, "name number %d", &number) == 1) {
                check(number >= 0 && number < MANY && !seen[number]);
                seen[number] = 1;
            }
            total++;
        }
        memcpy(cookie, got.entries[got.count - 1].cookie, 4);
        if (pages++ == 1) {
            memcpy(middle, got.entries[50].cookie, 4);
            strcpy(after, got.entries[51].name);
        }
    } while (!got.eof);
    check(total == MANY + 2 && pages > 2);
    READDIR2args a = { .count = DATA };
    memcpy(a.dir, many, 32);
    memcpy(a.cookie, middle, 4);
    CALL(readdir, &a);
    check(got.status == 0 && !strcmp(got.entries[0].name, after));
    a.count = 8;
    CALL(readdir, &a);
    check(got.status != 0);
    memcpy(room.dir, root, 32);
    CALL(statfs, &room);
    check(got.status == 0 && got.room.tsize == DATA && got.room.bsize >= 512);
    check(got.room.blocks > 0 && got.room.bfree <= got.room.blocks && got.room.bavail <= got.room.bfree);
    tell("READDIR STATFS");
}

int main(int argc, char **argv)
{
    char root[32];
    check(argc == 4);
    rpc = rpc_init_udp_context();
    check(rpc && rpc_bind_udp(rpc, "127.0.0.1", 0) == 0);
    check(rpc_set_udp_destination(rpc, argv[1], atoi(argv[2]), 0) == 0);
    mounts(argv[3], root);
    files(root);
    names(root);
    listing(root);
    rpc_destroy_context(rpc);
    return 0;
}
