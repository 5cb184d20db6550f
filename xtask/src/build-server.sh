# Builds the programs NAME=PACKAGE of $PROGRAMS from the Go modules MODULE@VERSION of $PACKAGES, as bin/NAME in the working
# directory. `go install` refuses modules that replace others, as that of etcd does; a module that requires them does not.
set -eu
test -f go.mod || go mod init servers
go get $PACKAGES
for program in $PROGRAMS; do
    go build -o "bin/${program%%=*}" "${program#*=}"
done
: > complete
