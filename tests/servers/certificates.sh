# shellcheck shell=bash
# Sourced by scripts that need certificates for tests.
#
#     make_authority PATH                         makes PATH.pem and PATH.key
#     make_certificate PATH CA NAMES [DAYS]       makes PATH.pem and PATH.key, signed by CA.pem and CA.key; NAMES is the
#                                                 subjectAltName; DAYS 0: it ended yesterday

make_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1" 2>/dev/null; }

make_authority() {
    make_key "$1.key"
    openssl req -x509 -new -key "$1.key" -subj "/CN=Test authority" -days 2 -out "$1.pem" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
}

make_certificate() {
    local days=${4:-2} begin end
    begin=$(date -u -d '-3 days' +%Y%m%d%H%M%SZ)
    end=$(date -u -d "$((days > 0 ? days : -1)) days" +%Y%m%d%H%M%SZ)
    make_key "$1.key"
    openssl req -new -key "$1.key" -subj "/CN=test" -out "$1.csr" 2>/dev/null
    mkdir "$1.new"
    : >"$1.new/index"
    printf '[ca]\ndefault_ca=d\n[d]\ndatabase=%s/index\nnew_certs_dir=%s\nserial=%s/serial\ndefault_md=sha256\npolicy=p\nx509_extensions=x\n[p]\ncommonName=supplied\n[x]\nsubjectAltName=%s\n' \
        "$1.new" "$1.new" "$1.new" "$3" >"$1.new/config"
    openssl ca -batch -notext -config "$1.new/config" -rand_serial -cert "$2.pem" -keyfile "$2.key" -in "$1.csr" -out "$1.pem" \
        -startdate "$begin" -enddate "$end" 2>/dev/null
    rm -rf "$1.new" "$1.csr"
}
