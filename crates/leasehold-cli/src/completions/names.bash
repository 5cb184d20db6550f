# Completes the command of a run, the name of a held lock, or whatever the function above completes.
_leasehold_or_name() {
    local line="${COMP_LINE:0:COMP_POINT}" command names name word head
    if command=$(printf '%s' "$line" | leasehold __command 2>/dev/null); then
        _leasehold_command "$2"
        return
    fi
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

# Completes the first word of $command, which ends $line, as a program, and further words as that program does. Without
# a reply, the shell completes names of files.
_leasehold_command() {
    local IFS=$' \t\n' paths directory file rest index=0
    COMPREPLY=()
    if [[ $command != *[[:space:]]* ]]; then
        # No shell runs the command: it knows neither builtins nor functions. A path is a file.
        [[ $command == */* ]] && return
        IFS=: read -r -a paths <<<"$PATH"
        for directory in "${paths[@]}"; do
            for file in "$directory/$1"*; do
                [[ -f $file && -x $file ]] && COMPREPLY+=("${file##*/}")
            done
        done
        return
    fi
    # The package bash-completion completes commands within commands, by the index of their first word.
    declare -F _command_offset >/dev/null || return
    rest="$COMP_LINE"
    while ((index < COMP_CWORD)); do
        rest="${rest#"${rest%%[![:space:]]*}"}"
        ((${#COMP_LINE} - ${#rest} >= ${#line} - ${#command})) && break
        rest="${rest#"${COMP_WORDS[index]}"}"
        index=$((index + 1))
    done
    _command_offset "$index"
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _leasehold_or_name -o nosort -o bashdefault -o default leasehold
else
    complete -F _leasehold_or_name -o bashdefault -o default leasehold
fi
