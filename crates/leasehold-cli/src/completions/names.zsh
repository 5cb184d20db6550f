
_leasehold_names() {
    local -a names
    names=( ${(f)"$(print -rn -- "$LBUFFER" | leasehold __names 2>/dev/null)"} )
    compadd -a names
}
