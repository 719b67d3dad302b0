#!/bin/bash
# password_file=: on every server that asks for a password, and everything that can be wrong with the file.
. "$(dirname "$0")/../../support/cli.sh"
. "$(dirname "$0")/../../support/as_user.sh"
. "$servers/common.sh"
use_redis

secret=hunter2
file=$work/password
set_password() { # PASSWORD, as an editor leaves it
    printf '%s\n' "$1" >"$file.new"
    chmod 600 "$file.new"
    mv "$file.new" "$file"
}
ask_redis() { REDISCLI_AUTH=${asking:-} redis-cli -p "${address#*:}" "$@" 2>&1; }
uri="redis://$address?quarantine=0&lease=3s&password_file=$file"
ask_redis CONFIG SET requirepass "$secret" >/dev/null
asking=$secret

describe "redis"
set_password "$secret"
run "$DLOCK" run -b "$uri" a -- true
equal "the file's password" "$status $err" "0 "
printf %s "$secret" >"$file"
run "$DLOCK" run -b "$uri" a -- true
equal "without a newline" "$status $err" "0 "
printf '%s\n\n' "$secret" >"$file"
gives "only one newline is cut" 69 "$DLOCK" run -b "$uri" a -- true
contains "and the server says no" "$err" "refused the user or the password"
printf '%s\r\n' "$secret" >"$file"
gives "the line end of Windows" 69 "$DLOCK" run -b "$uri" a -- true
contains "is named" "$err" "ends in a carriage return"
set_password "$secret"
chmod 777 "$work"
run "$DLOCK" doctor "$uri"
contains "a folder where anybody may write" "$out" "another user may replace it"
chmod 700 "$work"
run "$DLOCK" doctor "$uri"
lacks "and one where nobody else may" "$out" "another user may replace it"
if [ "$(id -u)" = 0 ]; then
    chown 4321 "$work"
    run "$DLOCK" doctor "$uri"
    contains "another user's folder" "$out" "another user may replace it"
    chown 0 "$work"
fi
set_password wrong-password
gives "a wrong one" 69 "$DLOCK" run -v -b "$uri" a -- true
contains "is refused" "$err" "Redis at $address refused the user or the password"
lacks "and not shown" "$out$err" wrong-password

describe "the password is changed while a lock is held"
set_password "$secret"
begin "$DLOCK" run -b "$uri" held -- sleep 1000
holder=$pid
held_by_file() { "$DLOCK" inspect -b "$uri" held >/dev/null 2>&1; }
within 20 "held" held_by_file
ask_redis CONFIG SET requirepass another-one >/dev/null
set_password another-one
asking=another-one
ask_redis CLIENT KILL TYPE normal >/dev/null
ask_redis CLIENT KILL TYPE pubsub >/dev/null
sleep 4 # beyond the lease
gives "it is still held, over a new connection" 0 "$DLOCK" inspect -b "$uri" held
stop "$holder"
equal "and released" "$status $(<"$work/bg.err")" "143 "

describe "the guardian reads it, too"
long="redis://$address?quarantine=0&lease=5m&password_file=$file"
begin "$DLOCK" run -b "$long" guarded -- sleep 1000
is_guarded() { "$DLOCK" inspect -b "$long" guarded >/dev/null 2>&1; }
within 20 "held" is_guarded
kill -KILL "$pid"
ended "$pid"
given_back() { ! is_guarded; }
within 60 "free long before its lease ends" given_back

describe "dlock calls of a command"
for uri in "redis://$address?quarantine=0&password_file=$file" "redis://:$asking@$address?quarantine=0"; do
    # shellcheck disable=SC2016
    run env SHELL=/bin/sh DLOCK_URI="$uri" "$DLOCK" run outer -c '"$DLOCK" inspect outer'
    whole="$status $err"
    # shellcheck disable=SC2016
    run env SHELL=/bin/sh DLOCK_URI="$uri" "$DLOCK" run --pass-uri outer -c '"$DLOCK" inspect outer'
    equal "--pass-uri" "$status $err" "0 "
    # shellcheck disable=SC2016
    run env -u DLOCK_URI SHELL=/bin/sh "$DLOCK" run -b "$uri" --pass-uri outer -c '"$DLOCK" inspect outer'
    equal "-b and --pass-uri" "$status $err" "0 "
    case $uri in
    *password_file*) equal "with the file they work" "$whole" "0 " ;;
    *) contains "with the password in the URI they say what is missing" "$whole" "give a password in the URI, or password_file=" ;;
    esac
done
uri="redis://$address?quarantine=0&lease=3s&password_file=$file"

describe "what can be wrong with the file"
refused() { # WHAT FILE REASON
    run "$DLOCK" run -b "redis://$address?password_file=$2" a -- true
    equal "$1" "$status $err" "69 dlock: password_file $2 $3"
}
refused "missing" "$work/none" "cannot be read: No such file or directory"
refused "a folder" "$work" "is not a regular file"
mkfifo "$work/pipe"
refused "a pipe that nobody writes to" "$work/pipe" "is not a regular file"
: >"$work/empty"
refused "empty" "$work/empty" "is empty"
echo >"$work/empty"
refused "nothing but a newline" "$work/empty" "is empty"
head -c 8192 /dev/zero | tr '\0' x >"$work/long"
refused "too long" "$work/long" "has more than 8191 bytes"
head -c 100000 /dev/zero | tr '\0' x >"$work/long"
refused "much too long" "$work/long" "has more than 8191 bytes"
printf 'a\0b' >"$work/nul"
refused "a NUL" "$work/nul" "has a NUL byte in it"
if [ "$(id -u)" != 0 ]; then
    install -m 0 /dev/null "$work/closed"
    refused "not for us" "$work/closed" "cannot be read: Permission denied"
fi
run "$DLOCK" run -b "redis://$address?password_file=$secret" a -- true
equal "a relative path" "$status $err" \
    "64 dlock: URI: \"password_file\" must be an absolute path, beginning with '/'"
for both in "redis://:$secret@$address?password_file=$file" "postgresql://h/db?password=$secret&password_file=$file"; do
    run "$DLOCK" run -b "$both" a -- true
    equal "a password, too" "$status $err" \
        "64 dlock: URI: there is a password, and a \"password_file\", too: leave one of them out"
done
run "$DLOCK" run -b "file:$work/locks?password_file=$file" a -- true
equal "file: has no password" "$status $err" \
    "64 dlock: URI: file has no server that asks for a password: leave \"password_file\" out"

describe "doctor looks at who may read it"
run "$DLOCK" doctor -b "$uri"
contains "nobody else" "$out" "fine  password_file $file has mode 0600"
chmod 644 "$file"
gives "everybody: status" 1 "$DLOCK" doctor -b "$uri"
contains "everybody" "$out" "weak  password_file $file has mode 0644"$'\n'"      anybody on this host may read the password: chmod o-rwx"
chmod 602 "$file"
run "$DLOCK" doctor -b "$uri"
contains "everybody may write" "$out" "weak  password_file $file has mode 0602"$'\n'"      anybody on this host may replace the password: chmod o-rwx"
chmod 640 "$file"
run "$DLOCK" doctor -b "$uri"
contains "its group" "$out" "fine  password_file $file has mode 0640"

installed=$("$DLOCK" backends)
if [[ $installed == *memcached* ]]; then
    describe "memcached"
    echo "alice:$secret" >"$work/users"
    chmod 644 "$work/users"
    chmod 711 "$work"
    as_user 65534
    port=$(free_port)
    "${as_user[@]}" memcached -l 127.0.0.1 -p "$port" -U 0 -M -Y "$work/users" >/dev/null 2>&1 &
    started+=("$!")
    uri="memcached://alice@127.0.0.1:$port?quarantine=0&password_file=$file"
    set_password "$secret"
    logged_in() { "$DLOCK" run -b "$uri" a -- true 2>/dev/null; }
    within 20 "the file's password" logged_in
    set_password wrong-password
    gives "a wrong one" 69 "$DLOCK" run -b "$uri" a -- true
    lacks "is not shown" "$out$err" wrong-password
    set_password "two words"
    run "$DLOCK" run -b "$uri" a -- true
    contains "one that it cannot have" "$err" "a memcached password has no spaces"
    run "$DLOCK" run -b "memcached://127.0.0.1:$port?password_file=$file" a -- true
    contains "without a user" "$status $err" "64 dlock: memcached asks for both a user and a password"
fi

if [[ $installed == *postgresql* ]]; then
    describe "postgresql"
    IFS=: read -r host port _ programs <<<"${DLOCK_TEST_POSTGRESQL:?"no server: run the tests with tests/run.sh"}"
    "$programs/psql" -q -h "$host" -p "$port" -U dlock postgres 2>/dev/null \
        -c "DROP ROLE IF EXISTS dlock_file" -c "CREATE ROLE dlock_file SUPERUSER LOGIN PASSWORD '$secret'"
    for keys in "" "&mode=session&schema=sessions"; do
        uri="postgresql://dlock_file@$host:$port/postgres?password_file=$file$keys"
        set_password "$secret"
        run "$DLOCK" run -b "$uri" "password-$$" -- true
        equal "the file's password$keys" "$status $err" "0 "
        set_password wrong-password
        gives "a wrong one$keys" 69 "$DLOCK" run -b "$uri" "password-$$" -- true
        lacks "is not shown" "$out$err" wrong-password
    done
fi

if [[ $installed == *zookeeper* ]]; then
    describe "zookeeper"
    base=${DLOCK_TEST_URI_zookeeper:?"no server: run the tests with tests/run.sh"}
    uri="${base/"://"/"://alice@"}&acl=creator&password_file=$file"
    uri=${uri/"/dlock/tests"/"/password-$$"} # all new nodes of a path get that ACL, and other tests use /dlock
    set_password "$secret"
    run "$DLOCK" run -b "$uri" a -- true
    equal "the file's password" "$status $err" "0 "
    set_password wrong-password
    gives "a wrong one" 69 "$DLOCK" run -b "$uri" a -- true
    lacks "is not shown" "$out$err" wrong-password
    run "$DLOCK" run -b "$base&password_file=$file" a -- true
    equal "without a user" "$status $err" \
        "64 dlock: ZooKeeper accepts a password only together with a user: zookeeper://user@host"
fi

finish
