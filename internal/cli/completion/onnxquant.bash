# Completion of onnxquant for bash:  source <(onnxquant completion bash)

_onnxquant() {
    local line files= cur=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
        if [[ $line == :files ]]; then
            files=1
        else
            COMPREPLY+=("$line")
        fi
    done < <("$1" __complete bash $((COMP_CWORD - 1)) "${COMP_WORDS[@]:1}" 2>/dev/null)
    if [[ $files ]]; then
        [[ $cur == [=:] ]] && cur=
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done < <(compgen -f -- "$cur")
    fi
}

complete -o filenames -F _onnxquant onnxquant
