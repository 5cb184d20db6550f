function __fish_leasehold_names
    commandline -cp | leasehold __names 2>/dev/null
end

function __fish_leasehold_command
    commandline -cp | leasehold __command 2>/dev/null
end

function __fish_leasehold_in_command
    __fish_leasehold_using_subcommand run
    or __fish_leasehold_using_subcommand once
    or __fish_leasehold_using_subcommand elect
    and __fish_leasehold_command >/dev/null
end

function __fish_leasehold_before_command
    __fish_leasehold_using_subcommand run
    or __fish_leasehold_using_subcommand once
    or __fish_leasehold_using_subcommand elect
    and not __fish_leasehold_command >/dev/null
end

complete -c leasehold -n "__fish_leasehold_using_subcommand show" -f -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_using_subcommand leader" -f -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_using_subcommand watch" -f -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -f -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_using_subcommand hold" -f -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_before_command" -a "(__fish_leasehold_names)"
complete -c leasehold -n "__fish_leasehold_in_command" -f -a "(complete -C (__fish_leasehold_command))"
