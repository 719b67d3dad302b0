#!/bin/sh
# serve.sh FOLDER PORT [OPTION…]: becomes a memcached that wants a login over SASL, on loopback; user "user", password
# "hunter2", realm this host's name, as memcached has it by default. FOLDER, an absolute path, gets its SASL settings.
set -eu
folder=$1/sasl port=$2
shift 2
if [ ! -d "$folder" ]; then
    mkdir "$folder"
    printf 'mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: %s/users\n' "$folder" \
        >"$folder/memcached.conf"
    for realm in "$(uname -n)" elsewhere; do
        printf hunter2 | PATH=$PATH:/usr/sbin saslpasswd2 -c -p -f "$folder/users" -u "$realm" user
    done
fi
if [ "$(id -u)" = 0 ]; then set -- -u root "$@"; fi # it reads them at every login; to others the path may be closed
SASL_CONF_PATH=$folder exec memcached -S -l 127.0.0.1 -p "$port" -U 0 "$@"
