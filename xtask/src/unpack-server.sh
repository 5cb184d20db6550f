# Unpacks $PROGRAM of the last one of $SUITES with its libraries into the working directory, and writes bin/redis-server,
# which starts it by the loader of its release: nothing on the machine is replaced.
set -eu
mkdir -p bin root lists/partial cache/archives/partial
: > status
for suite in $SUITES; do
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
# The package of the server itself has only links to a program of this one.
apt-get -q install --yes --download-only --no-install-recommends -t "$suite" "$PROGRAM-tools"
for package in cache/archives/*.deb; do dpkg -x "$package" root; done
rm -r cache lists
loader=$(find "$PWD/root" -type f -name 'ld-linux-*.so.*')
architecture=$(uname -m)-linux-gnu
cat > started <<END
#!/bin/sh
exec "$loader" --argv0 redis-server --library-path "$PWD/root/lib/$architecture:$PWD/root/usr/lib/$architecture" "$PWD/root/usr/bin/$PROGRAM-check-rdb" "\$@"
END
chmod +x started
mv started bin/redis-server
