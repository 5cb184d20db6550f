# Installs those of the servers redis, postgres, etcd, zookeeper and s3 that are named and missing, and prints the versions of
# those that are there. $TARGET is the directory of everything that cargo builds.
set -eu
cd "$(dirname "$0")"

has() {
    command -v "$1" >/dev/null
}

# Installs packages, and stops their service, if they have one: the tests start servers of their own.
install() {
    packages=$1 service=${2-} sudo=
    test "$(id -u)" = 0 || sudo='sudo -n'
    if ! has apt-get || ! $sudo true; then
        echo "$packages is missing, and installing it takes apt-get, and root or sudo without a password; install Redis 7," \
            'PostgreSQL and etcd 3.4, and put redis-server, initdb, postgres, psql, etcd and etcdctl in PATH' >&2
        exit 1
    fi
    apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q"
    $apt update
    $apt install -y --no-install-recommends $packages
    test -n "$service" || return 0
    if test -d /run/systemd/system; then
        $sudo systemctl disable --now "$service"
    else
        $sudo service "$service" stop
    fi || echo 'WARNING: the service of the package may be running'
}

ensure_redis() {
    has redis-server || install redis-server redis-server
    redis-server --version
}

# Debian keeps its programs in a directory for each version, none of them in PATH.
newest_postgres() {
    ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null | tail -n 1
}

ensure_postgres() {
    test -n "$(newest_postgres)" || { has postgres && has initdb; } || install postgresql postgresql
    program=$(newest_postgres)
    "${program:-postgres}" --version
}

ensure_etcd() {
    { has etcd && has etcdctl; } || install 'etcd-server etcd-client' etcd
    etcd --version | head -n 1
}

# The archives of ZooKeeper, each with its SHA-256.
ensure_zookeeper() {
    has java || install default-jre-headless
    java --version | head -n 1
    directory=$TARGET/zookeeper
    if cmp -s zookeeper.txt "$directory/complete"; then return; fi
    mkdir -p "$directory"
    while read -r sum path; do
        curl --silent --show-error --fail --retry 5 --output "$directory/${path##*/}" "https://repo1.maven.org/maven2/$path"
        echo "$sum  ${path##*/}"
    done <zookeeper.txt >"$directory/sums"
    (cd "$directory" && sha256sum --check --quiet sums)
    cp zookeeper.txt "$directory/complete"
}

# Moto, what it is built on, and psycopg for a test of PostgreSQL. Takes python3 with venv, and PyPI.
ensure_s3() {
    packages='moto[s3]==5.2.1 werkzeug==3.1.8 flask==3.1.3 flask-cors==6.0.1 psycopg[binary]==3.3.6'
    directory=$TARGET/moto
    if test "$(cat "$directory/complete" 2>/dev/null)" = "$packages"; then return; fi
    python3 -m venv --clear "$directory"
    # No word of it is a pattern for files.
    set -f
    "$directory/bin/python" -m pip --quiet install --no-compile $packages
    set +f
    printf %s "$packages" >"$directory/complete"
}

for server in "$@"; do "ensure_$server"; done
