function __fish_leasehold_names
    commandline -cp | leasehold __names 2>/dev/null
end

function __fish_leasehold_command
    commandline -cp | leasehold __command 2>/dev/null
end

# No options of this program behind the first word of the command of a run.
functions --query __fish_leasehold_in_subcommand
or functions --copy __fish_leasehold_using_subcommand __fish_leasehold_in_subcommand
function __fish_leasehold_using_subcommand
    __fish_leasehold_in_subcommand $argv
    or return
    not contains -- $argv[1] run once elect
    or not __fish_leasehold_command >/dev/null
end

for subcommand in run once elect hold show leader watch release
    complete -c leasehold -n "__fish_leasehold_using_subcommand $subcommand" -f -a "(__fish_leasehold_names)"
end
for subcommand in run once elect
    complete -c leasehold -n "__fish_leasehold_in_subcommand $subcommand; and __fish_leasehold_command >/dev/null" \
        -f -a "(complete -C (__fish_leasehold_command))"
end
complete -c leasehold -n "__fish_leasehold_using_subcommand completions" -f -a "bash elvish fish powershell zsh"
