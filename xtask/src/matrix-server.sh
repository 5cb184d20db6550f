# Makes a server of the matrix in the working directory: bin/NAME for each of its programs, and a file complete at the end.
#
# Programs of Debian are unpacked with their libraries from the last one of some suites, and started by the loader of their
# release: nothing on the machine is replaced. A program finds its own files beside its path.
set -eu

# `go install` refuses modules that replace others, as these do; a module that requires them does not.
go_program() {
    test -f go.mod || go mod init servers
    go get "$2@$3"
    CGO_ENABLED=0 go build -o "bin/$1" "$2"
    : > complete
    exit
}

case $1 in
    # The package of the server itself has only links to a program of the tools.
    redis-7.0) suites=bookworm packages=redis-tools programs=redis-server=usr/bin/redis-check-rdb ;;
    redis-8.0) suites=trixie packages=redis-tools programs=redis-server=usr/bin/redis-check-rdb ;;
    valkey-8.0)
        suites='bookworm bookworm-backports' packages=valkey-tools programs=redis-server=usr/bin/valkey-check-rdb ;;
    valkey-8.1) suites=trixie packages=valkey-tools programs=redis-server=usr/bin/valkey-check-rdb ;;
    pgbouncer) suites=trixie packages=pgbouncer programs=pgbouncer=usr/sbin/pgbouncer ;;
    postgresql-*)
        suites=trixie packages=$1 programs=
        # Debian 13 has no later version than 17.
        test "$1" = postgresql-17 || suites=forky
        for name in initdb postgres psql pg_basebackup; do
            programs="$programs $name=usr/lib/postgresql/${1#postgresql-}/bin/$name"
        done ;;
    # The server alone: the tests read the output of the etcdctl of the machine.
    etcd-*) go_program etcd go.etcd.io/etcd/server/v3 "v${1#etcd-}" ;;
    seaweedfs-4.53)
        go_program weed github.com/seaweedfs/seaweedfs/weed v0.0.0-20261109003541-7506e5f91cd6 ;;
    # With a Node.js of its own: it needs a later one than many machines have.
    azurite-*)
        node=node-linux-$(node -p process.arch)
        npm install --prefix "$PWD" --ignore-scripts --no-audit --no-fund "azurite@${1#azurite-}" "$node@22.23.3"
        mkdir -p bin
        cat > bin/azurite-blob <<END
#!/bin/sh
exec "$PWD/node_modules/$node/bin/node" "$PWD/node_modules/azurite/dist/src/blob/main.js" "\$@"
END
        chmod +x bin/azurite-blob
        : > complete
        exit ;;
esac

mkdir -p bin root lists/partial cache/archives/partial
: > status
for suite in $suites; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
done > sources.list
cat > apt.conf <<END
Dir::Etc::sourcelist "$PWD/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$PWD/lists";
Dir::State::status "$PWD/status";
Dir::Cache "$PWD/cache";
END
export APT_CONFIG="$PWD/apt.conf"
apt-get -q update
apt-get -q install --yes --download-only --no-install-recommends -t "$suite" $packages
for package in cache/archives/*.deb; do dpkg -x "$package" root; done
rm -r cache lists
loader=$(find "$PWD/root" -type f -name 'ld-linux-*.so.*')
architecture=$(uname -m)-linux-gnu
for program in $programs; do
    name=${program%%=*}
    path="$PWD/root/${program#*=}"
    mv "$path" "$path.program"
    # PostgreSQL starts the programs beside this one by their paths.
    cat > "$path" <<END
#!/bin/sh
exec "$loader" --argv0 "$(dirname "$path")/$name" --library-path "$PWD/root/lib/$architecture:$PWD/root/usr/lib/$architecture" "$path.program" "\$@"
END
    chmod +x "$path"
    ln -s "$path" "bin/$name"
done
: > complete
