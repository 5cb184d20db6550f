# Completes the name of a held lock, or whatever the function above completes.
_leasehold_or_name() {
    local line="${COMP_LINE:0:COMP_POINT}" names name word head
    if ! names=$(printf '%s' "$line" | leasehold __names 2>/dev/null); then
        _leasehold "$@"
        return
    fi
    # The shell replaces only what follows the last of its break characters, such as a colon.
    word="${line##*[[:space:]]}"
    head="${word%"$2"}"
    COMPREPLY=()
    # The names need no quotes.
    while IFS= read -r name; do
        [[ -n $name ]] || continue
        COMPREPLY+=("${name#"$head"}")
    done <<<"$names"
    # No names of files instead.
    compopt +o default +o bashdefault 2>/dev/null
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _leasehold_or_name -o nosort -o bashdefault -o default leasehold
else
    complete -F _leasehold_or_name -o bashdefault -o default leasehold
fi
