/* Errors of the server and of libmariadb as dlock's codes. */
#include "maria.h"

#include <errmsg.h>

enum { WRONG_LOGIN = 1045 };

/* Error numbers of the server, written out here since headers differ between versions. */
static const struct {
    unsigned error;
    int code;
    const char *advice;
} kinds[] = {
    {1044, DLOCK_EAUTH, ""}, /* no right to the database */
    {1045, DLOCK_EAUTH, ""}, /* wrong user or password */
    {1129, DLOCK_EAUTH, ""}, /* the host is blocked */
    {1130, DLOCK_EAUTH, ""}, /* the host is not allowed */
    {1142, DLOCK_EAUTH, "; see the GRANTs at the end of what `dlock schema mysql` prints"},
    {1143, DLOCK_EAUTH, ""},
    {1227, DLOCK_EAUTH, ""},
    {1251, DLOCK_EAUTH, ""},
    {1370, DLOCK_EAUTH, ""},
    {1698, DLOCK_EAUTH, ""},
    {1095, DLOCK_EAUTH, "; another user's session holds the lock: ask for the right CONNECTION ADMIN"},
    {3118, DLOCK_EAUTH, ""}, /* the account is locked */
    {4151, DLOCK_EAUTH, ""}, /* the same in MariaDB */
    {1820, DLOCK_EAUTH, ""}, /* the password has to be changed */
    {1862, DLOCK_EAUTH, ""},
    {1046, DLOCK_EINVAL, ""},
    {1049, DLOCK_EINVAL, ""}, /* no such database */
    {1290, DLOCK_EUNAVAILABLE, "; look for the primary"},
    {1792, DLOCK_EUNAVAILABLE, "; look for the primary"},
    {1836, DLOCK_EUNAVAILABLE, "; look for the primary"},
    {1665, DLOCK_EUNAVAILABLE, "; set binlog_format to ROW or MIXED"},
    {1047, DLOCK_EUNAVAILABLE, "; a node of Galera that has lost its cluster"},
    {3100, DLOCK_EUNAVAILABLE, "; look for the primary"}, /* a hook of group replication refused the commit */
    {3101, DLOCK_EUNAVAILABLE, "; look for the primary"}, /* the group has rolled it back */
    {1205, DLOCK_EUNAVAILABLE, "; another session has locked the row"},
    {1032, DLOCK_EUNAVAILABLE, ""}, /* the sequence has no row, and another client is replacing it */
    {1213, DLOCK_EUNAVAILABLE, ""}, /* deadlock */
    {1317, DLOCK_EUNAVAILABLE, ""}, /* KILL QUERY */
    {1969, DLOCK_EUNAVAILABLE, ""}, /* max_statement_time */
    {3024, DLOCK_EUNAVAILABLE, ""}, /* the same in MySQL */
    {1040, DLOCK_EUNAVAILABLE, "; raise max_connections"},
    {1203, DLOCK_EUNAVAILABLE, ""}, /* more connections than the user may have */
    {1226, DLOCK_EUNAVAILABLE, ""},
    {1053, DLOCK_EUNAVAILABLE, ""}, /* shutting down */
    {1927, DLOCK_EUNAVAILABLE, ""}, /* KILL CONNECTION */
    {4031, DLOCK_EUNAVAILABLE, ""}, /* ended by wait_timeout */
    {1021, DLOCK_EUNAVAILABLE, ""}, /* its disk is full */
    {1037, DLOCK_EUNAVAILABLE, ""}, /* it is out of memory */
    {1041, DLOCK_EUNAVAILABLE, ""},
    {1114, DLOCK_EUNAVAILABLE, ""},
    {1135, DLOCK_EUNAVAILABLE, ""}, /* it can create no thread: sent in place of the greeting */
    {1026, DLOCK_EUNAVAILABLE, ""}, /* it cannot write a file */
    {1030, DLOCK_EUNAVAILABLE, ""}, /* the storage engine failed, as with ENOSPC */
    {1180, DLOCK_EUNAVAILABLE, ""}, /* the same in a COMMIT */
    {1206, DLOCK_EUNAVAILABLE, ""}, /* no memory for row locks */
    {1038, DLOCK_EUNAVAILABLE, ""}, /* no memory to sort */
    {3032, DLOCK_EUNAVAILABLE, ""}, /* offline mode of MySQL */
    {1159, DLOCK_EUNAVAILABLE, ""},
    {1158, DLOCK_EUNAVAILABLE, ""},
};

bool maria_passes(unsigned error) {
    return error == 1213 || error == 1205 || error == 1317 || error == 1969 || error == 3024;
}

/* True for error numbers of libmariadb itself: the connection is gone, or its state is unknown. */
static bool is_own(unsigned error) {
    return error == 0 || (error >= CR_MIN_ERROR && error <= 2999) || (error >= 5000 && error < 6000);
}

static int code_of(unsigned error, const char **advice) {
    *advice = "";
    if (error == CR_MALFORMED_PACKET || error == CR_VERSION_ERROR) return DLOCK_EPROTO;
    if (error == CR_AUTH_PLUGIN_CANNOT_LOAD) return DLOCK_EAUTH;
    if (is_own(error)) return DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].error != error) continue;
        *advice = kinds[i].advice;
        return kinds[i].code;
    }
    return DLOCK_EPROTO;
}

int maria_refused(struct maria *maria, struct dlock_error *err) {
    const char *advice;
    unsigned error = mysql_errno(maria->link);
    int code = code_of(error, &advice);
    if (code == DLOCK_EINVAL) code = DLOCK_EUNAVAILABLE; /* the database was dropped: reconnecting reports that */
    maria->error = is_own(error) ? 0 : error;
    return dlock_fail(err, code, "MySQL at %s: %.300s%s", maria->where, mysql_error(maria->link), advice);
}

/* libmariadb's own message may name another method than the server has. */
static int method_not_allowed(const struct maria *maria, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EAUTH,
                      maria->confidential
                          ? "cannot connect to MySQL at %s: the account's authentication method is none of "
                            "mysql_native_password, ed25519 and caching_sha2_password"
                          : "cannot connect to MySQL at %s: the account's authentication method "
                            "(caching_sha2_password?) could give the password away without TLS: write mysql+tls://, "
                            "or the server's Unix socket, or use mysql_native_password or ed25519",
                      maria->where);
}

/* The server refuses an account that requires TLS, or a certificate, in the same words as a wrong password. */
static const char *what_may_be_required(const struct maria *maria) {
    if (maria->certified) return "";
    return maria->tls ? "; an account with REQUIRE X509 also needs cert= and key="
                      : "; an account with REQUIRE SSL or X509 needs mysql+tls://";
}

int maria_rejected(struct maria *maria, struct dlock_error *err) {
    const char *advice;
    unsigned error = mysql_errno(maria->link);
    if (error == CR_PLUGIN_NOT_ALLOWED) return method_not_allowed(maria, err);
    int code = code_of(error, &advice);
    if (error == WRONG_LOGIN) advice = what_may_be_required(maria);
    int lack = is_own(error) ? dlock_used_up(mysql_error(maria->link)) : 0;
    if (lack) code = DLOCK_EUNAVAILABLE, advice = dlock_advice(lack);
    if (!lack && (error == CR_CONNECTION_ERROR || error == CR_CONN_HOST_ERROR)) advice = dlock_advice(ECONNREFUSED);
    dlock_fail(err, code, "cannot connect to MySQL at %s: %.300s%s", maria->where, mysql_error(maria->link), advice);
    if (lack) return code;
    if (code == DLOCK_EPROTO || error == CR_SERVER_LOST || error == CR_SERVER_HANDSHAKE_ERR) dlock_doubt(err, "MySQL");
    return code;
}

int maria_nonsense(struct maria *maria, const char *what, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EPROTO, "MySQL at %s sent an invalid answer: %s", maria->where, what);
}

int maria_writable(struct maria *maria, const char *read_only, struct dlock_error *err) {
    if (strcasecmp(read_only, "OFF") == 0 || strcmp(read_only, "0") == 0)
        return 0; /* newer versions know other words */
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "MySQL at %s is read-only (a replica?): look for the primary",
                      maria->where);
}

int maria_primary(struct maria *maria, const struct maria_value *read_only, struct dlock_error *err) {
    char text[32];
    if (!maria_bytes(read_only, 1, text, sizeof text)) return maria_nonsense(maria, "the value of read_only", err);
    return maria_writable(maria, text, err);
}

int maria_dead(struct maria *maria, const char *why, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "MySQL at %s: %s", maria->where, why);
}
