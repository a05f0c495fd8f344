# Completion of onnxquant for fish:  onnxquant completion fish | source

function __onnxquant_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    for line in ($before[1] __complete fish (math (count $before) - 1) $before[2..-1] $current 2>/dev/null)
        if string match -q ':files*' -- $line
            __fish_complete_path $current
        else
            echo $line
        end
    end
end

complete -c onnxquant -f -a '(__onnxquant_complete)'
