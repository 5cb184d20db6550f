# Unpacks $PACKAGES of the last one of $SUITES with their libraries into the working directory, and writes bin/NAME for each
# NAME=PATH of $PROGRAMS, which starts the program at that path by the loader of its release: nothing on the machine is
# replaced. A program finds its own files beside that path.
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
apt-get -q install --yes --download-only --no-install-recommends -t "$suite" $PACKAGES
for package in cache/archives/*.deb; do dpkg -x "$package" root; done
rm -r cache lists
loader=$(find "$PWD/root" -type f -name 'ld-linux-*.so.*')
architecture=$(uname -m)-linux-gnu
for program in $PROGRAMS; do
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
