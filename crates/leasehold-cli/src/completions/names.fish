function __fish_leasehold_names
    commandline -cp | leasehold __names 2>/dev/null
end

complete -c leasehold -n "__fish_leasehold_using_subcommand show" -f -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -f -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_using_subcommand run" -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_using_subcommand once" -a "(__fish_leasehold_names)"
